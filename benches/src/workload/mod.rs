//! The operations of the cases, generated before any clock starts: the same list for every subject.

mod churn;
mod hit;
mod recorded;
mod rmm;

#[cfg(test)]
mod tests;

pub use recorded::{read_trace, recorded, trace_path};

use millpond_trace::TraceError;

/// One operation. A block is named by the slot that it is kept in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Fills an empty slot with a new block of `bytes` bytes, allocated on a stream.
    Allocate {
        /// The stream, by its number in the workload.
        stream: u16,
        /// The slot that the block is kept in.
        slot: u32,
        /// The size in bytes.
        bytes: u64,
    },
    /// Empties a full slot.
    Free {
        /// The slot that the block is kept in.
        slot: u32,
    },
}

/// Lists of operations that can be run any number of times.
#[derive(Clone, Default, Debug)]
pub struct Workload {
    /// The operations that run once, before anything is timed.
    pub prepare: Vec<Op>,
    /// The operations that are timed. Together with `finish` they leave as many blocks alive as they found.
    pub timed: Vec<Op>,
    /// The operations after each timed pass, which are not timed.
    pub finish: Vec<Op>,
    /// The number of slots.
    pub slots: usize,
    /// The number of streams.
    pub streams: u16,
}

impl Workload {
    /// Returns the most bytes alive at one time, as they are requested.
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

    /// Returns the workload with only the first operations of the timed list, for subjects that take too long for all
    /// of them.
    ///
    /// # Panics
    ///
    /// If the operations do not leave every slot full or empty as they found it, as those of a recorded program do not.
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

/// The ways to generate operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// An allocation and its free, again and again, in an otherwise empty allocator.
    Hit {
        /// The size of all blocks, in bytes.
        bytes: u64,
    },
    /// A fixed number of live blocks; each step frees one at random and allocates another.
    Churn {
        /// The number of live blocks.
        live: u32,
        /// Sizes are uniform from 1 byte to this.
        max_bytes: u64,
    },
    /// The random pattern of RMM's benchmark: of the steps, 73 % allocate; what is left over is freed at the end.
    Rmm {
        /// The number of allocations.
        allocations: u32,
        /// Sizes are uniform from 1 byte to this.
        max_bytes: u64,
    },
    /// A recorded program, by the name of its trace in the corpus.
    Trace(&'static str),
}

impl Pattern {
    /// Returns the operations. `seed` makes threads differ: the same seed draws the same operations; recorded ones
    /// ignore it.
    ///
    /// # Errors
    ///
    /// Returns the error of reading a trace; other patterns cannot fail.
    pub fn workload(self, seed: u64) -> Result<Workload, TraceError> {
        Ok(match self {
            Pattern::Hit { bytes } => hit::workload(bytes),
            Pattern::Churn { live, max_bytes } => churn::workload(live, max_bytes, seed),
            Pattern::Rmm { allocations, max_bytes } => rmm::workload(allocations, max_bytes, seed),
            Pattern::Trace(name) => recorded(&read_trace(name)?),
        })
    }
}
