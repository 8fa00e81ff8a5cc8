//! What is asked of an allocator, generated before any clock starts: the same list of operations for every subject.

mod churn;
mod hit;
mod random;
mod recorded;
mod rmm;

#[cfg(test)]
mod tests;

pub use recorded::{read_trace, recorded, trace_path};

use millpond::trace::TraceError;

/// One request. Blocks are known by the slot that they are kept in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Fills an empty slot with a new block of `bytes` bytes, allocated on a stream.
    Allocate {
        /// Which stream: its number among the workload's.
        stream: u16,
        /// Where the block is kept.
        slot: u32,
        /// How large it is.
        bytes: u64,
    },
    /// Empties a full slot.
    Free {
        /// Where the block is kept.
        slot: u32,
    },
}

/// Lists of operations that can be gone over any number of times.
#[derive(Clone, Default, Debug)]
pub struct Workload {
    /// Once, before anything is timed.
    pub prepare: Vec<Op>,
    /// What is timed. Leaves as many blocks alive as it found, together with `finish`.
    pub timed: Vec<Op>,
    /// After each timed pass, unclocked.
    pub finish: Vec<Op>,
    /// How many slots there are.
    pub slots: usize,
    /// How many streams there are.
    pub streams: u16,
}

impl Workload {
    /// The most bytes alive at one time, as they were asked for.
    pub fn live_peak(&self) -> u64 {
        let (mut live, mut peak, mut held) = (0, 0, vec![0; self.slots]);
        for op in self.prepare.iter().chain(&self.timed) {
            match *op {
                Op::Allocate { slot, bytes, .. } => {
                    held[slot as usize] = bytes;
                    live += bytes;
                    peak = peak.max(live);
                }
                Op::Free { slot } => live -= held[slot as usize],
            }
        }
        peak
    }

    /// The same with only the first operations of the timed list, for whoever takes too long for all of them.
    ///
    /// # Panics
    ///
    /// If the operations do not leave full what they found full and empty what they found empty, as those of a
    /// recorded program do not.
    pub fn shortened(&self, ops: usize) -> Workload {
        let full_after = |ops: &[Op]| {
            let mut full = vec![false; self.slots];
            for op in self.prepare.iter().chain(ops) {
                match *op {
                    Op::Allocate { slot, .. } => full[slot as usize] = true,
                    Op::Free { slot } => full[slot as usize] = false,
                }
            }
            full
        };
        let timed = self.timed[..ops.min(self.timed.len())].to_vec();
        assert!(full_after(&timed) == full_after(&[]), "{ops} operations of {} are no list", self.timed.len());
        Workload { timed, finish: Vec::new(), ..self.clone() }
    }
}

/// How operations are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// An allocation and its free, again and again, in an otherwise empty allocator.
    Hit {
        /// The one size.
        bytes: u64,
    },
    /// A fixed number of live blocks; each step frees one at random and allocates another.
    Churn {
        /// How many blocks are alive.
        live: u32,
        /// Sizes are uniform from 1 byte to this.
        max_bytes: u64,
    },
    /// The random pattern of RMM's benchmark: of the steps, 73 % allocate; what is left over is freed at the end.
    Rmm {
        /// How many allocations there are.
        allocations: u32,
        /// Sizes are uniform from 1 byte to this.
        max_bytes: u64,
    },
    /// A recorded program, by the name of its trace in the corpus.
    Trace(&'static str),
}

impl Pattern {
    /// The operations. `seed` tells threads apart: the same seed draws the same operations; recorded ones ignore it.
    ///
    /// # Errors
    ///
    /// What reading a trace reports; other patterns cannot fail.
    pub fn workload(self, seed: u64) -> Result<Workload, TraceError> {
        Ok(match self {
            Pattern::Hit { bytes } => hit::workload(bytes),
            Pattern::Churn { live, max_bytes } => churn::workload(live, max_bytes, seed),
            Pattern::Rmm { allocations, max_bytes } => rmm::workload(allocations, max_bytes, seed),
            Pattern::Trace(name) => recorded(&read_trace(name)?),
        })
    }
}
