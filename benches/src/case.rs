//! The cases: a table of what is measured, with which subjects, and with which goals.

use std::rc::Rc;

use millpond_replay::Replay;
use millpond_trace::TraceError;

use crate::measure::{Player, Replayer, Runner, Team, team};
#[cfg(feature = "erased")]
use crate::subject::Erased;
use crate::subject::{self, Kind, Malloc, Millpond, MutexPair};
#[cfg(feature = "peers")]
use crate::subject::{Cubecl, Offset, SharedOffset};
use crate::workload::{Pattern, Workload, read_trace};

/// The unit that a time is divided by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// An allocation with its free.
    Pair,
    /// An allocation or a free.
    Operation,
}

/// A goal of a measurement. It is not tested: it is only printed beside the result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// This allocator takes at most this multiple of the peer's time.
    Within(f64, Kind),
    /// The peer takes at least this multiple of this allocator's time.
    Faster(f64, Kind),
    /// This allocator takes at most this number of nanoseconds per unit.
    Below(f64),
}

/// One case on one thread.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name: words between slashes, from the general to the particular.
    pub name: &'static str,
    /// The operations of the case.
    pub pattern: Pattern,
    /// The unit of the times.
    pub unit: Unit,
    /// The subjects that are measured, this allocator's default first.
    pub subjects: &'static [Kind],
    /// The goal.
    pub goal: Goal,
}

/// One case on several threads.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCase {
    /// Its name.
    pub name: &'static str,
    /// The operations of each thread, from a seed of its own.
    pub pattern: Pattern,
    /// The subjects that are measured, this allocator's default first.
    pub subjects: &'static [Kind],
}

/// The numbers of threads that race, one after the other.
pub const THREADS: &[usize] = &[1, 2, 4, 8, 16];

/// Returns those of [`THREADS`] that can race on a machine with this number of cores; always the first. Threads that
/// take turns on a core have their windows at different times, so their throughputs must not be added.
pub fn threads(cores: usize) -> &'static [usize] {
    &THREADS[..THREADS.partition_point(|threads| *threads <= cores).max(1)]
}

const PAGED: Kind = Kind::Millpond(subject::PAGED);
const CLASSIC: Kind = Kind::Millpond(subject::CLASSIC);
const EXPANDABLE: Kind = Kind::Millpond(subject::EXPANDABLE);

const ALL: &[Kind] = &[PAGED, CLASSIC, EXPANDABLE, Kind::Offset, Kind::Cubecl, Kind::MutexPair, Kind::Malloc];

const TRACED: &[Kind] = &[PAGED, CLASSIC, EXPANDABLE, Kind::Offset];

/// Each thread has its own pair of mutexes, so the throughput that they lose is what the machine cannot provide.
const THREADED: &[Kind] = &[PAGED, CLASSIC, Kind::SharedOffset, Kind::MutexPair];

/// The typed allocator first, then the same on a device that is chosen at run time.
#[cfg(feature = "erased")]
const ERASING: &[Kind] = &[PAGED, Kind::Erased(subject::PAGED)];

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const fn hit(name: &'static str, bytes: u64) -> Case {
    let goal = Goal::Within(1.0, Kind::Offset);
    Case { name, pattern: Pattern::Hit { bytes }, unit: Unit::Pair, subjects: ALL, goal }
}

#[cfg(feature = "erased")]
const fn erased(name: &'static str, bytes: u64) -> Case {
    let goal = Goal::Within(1.0, Kind::Erased(subject::PAGED));
    Case { name, pattern: Pattern::Hit { bytes }, unit: Unit::Pair, subjects: ERASING, goal }
}

const fn churn(name: &'static str, live: u32, max_bytes: u64) -> Case {
    let (pattern, goal) = (Pattern::Churn { live, max_bytes }, Goal::Within(1.5, Kind::Offset));
    Case { name, pattern, unit: Unit::Operation, subjects: ALL, goal }
}

const fn trace(name: &'static str, trace: &'static str) -> Case {
    let (pattern, goal) = (Pattern::Trace(trace), Goal::Below(40.0));
    Case { name, pattern, unit: Unit::Operation, subjects: TRACED, goal }
}

/// The cases on one thread.
pub const CASES: &[Case] = &[
    hit("hit/4KiB", 4 * KIB),
    hit("hit/1MiB", MIB),
    hit("hit/32MiB", 32 * MIB),
    churn("churn/64/4MiB", 64, 4 * MIB),
    churn("churn/1000/1MiB", 1000, MIB),
    churn("churn/1000/4MiB", 1000, 4 * MIB),
    churn("churn/1000/64MiB", 1000, 64 * MIB),
    churn("churn/10000/1MiB", 10_000, MIB),
    churn("churn/10000/4MiB", 10_000, 4 * MIB),
    churn("churn/10000/64MiB", 10_000, 64 * MIB),
    Case {
        name: "rmm/100000/1MiB",
        pattern: Pattern::Rmm { allocations: 100_000, max_bytes: MIB },
        unit: Unit::Operation,
        subjects: ALL,
        goal: Goal::Faster(500.0, Kind::Cubecl),
    },
    trace("trace/bert_multistream", "bert_multistream"),
    trace("trace/gnn", "gnn"),
    trace("trace/gpt2_train", "gpt2_train"),
    trace("trace/llm_generate", "llm_generate"),
    trace("trace/prefetch", "prefetch"),
    trace("trace/resnet50_amp", "resnet50_amp"),
    trace("trace/serving_kv", "serving_kv"),
    #[cfg(feature = "erased")]
    erased("erased/hit/4KiB", 4 * KIB),
    #[cfg(feature = "erased")]
    erased("erased/hit/1MiB", MIB),
    #[cfg(feature = "erased")]
    erased("erased/hit/32MiB", 32 * MIB),
];

/// The cases on several threads, each with a stream of its own.
pub const THREAD_CASES: &[ThreadCase] = &[
    ThreadCase { name: "threads/hit/1MiB", pattern: Pattern::Hit { bytes: MIB }, subjects: THREADED },
    ThreadCase {
        name: "threads/churn/1000/1MiB",
        pattern: Pattern::Churn { live: 1000, max_bytes: MIB },
        subjects: THREADED,
    },
];

/// The seed of all random workloads.
pub const SEED: u64 = 2026;

/// A subject at work, with its name.
pub type Named<T> = (Kind, Box<T>);

impl Case {
    /// Returns the subjects that this build has, each at the workload.
    ///
    /// # Errors
    ///
    /// Returns the error of reading a trace.
    pub fn runners(&self, workload: &Rc<Workload>) -> Result<Vec<Named<dyn Runner>>, TraceError> {
        let replay = match self.pattern {
            Pattern::Trace(name) => Some(Rc::new(Replay::new(&read_trace(name)?))),
            _ => None,
        };
        let make = |kind: &Kind| Some((*kind, runner(*kind, workload, replay.as_ref())?));
        Ok(self.subjects.iter().filter_map(make).collect())
    }

    /// Returns the number of units in a pass.
    pub fn units(&self, workload: &Workload) -> usize {
        match self.unit {
            Unit::Pair => workload.timed.len() / 2,
            Unit::Operation => workload.timed.len(),
        }
    }
}

fn runner(kind: Kind, workload: &Rc<Workload>, replay: Option<&Rc<Replay>>) -> Option<Box<dyn Runner>> {
    let own = |variant| -> Box<dyn Runner> {
        let subject = Millpond::new(variant, workload.streams);
        match replay {
            Some(replay) => Box::new(Replayer::new(subject, Rc::clone(replay), Rc::clone(workload))),
            None => Box::new(Player::new(subject, Rc::clone(workload))),
        }
    };
    Some(match kind {
        Kind::Millpond(variant) => own(variant),
        #[cfg(feature = "peers")]
        Kind::Offset => Box::new(Player::new(Offset::new(), Rc::clone(workload))),
        #[cfg(feature = "peers")]
        Kind::SharedOffset => Box::new(Player::new(SharedOffset::new(), Rc::clone(workload))),
        #[cfg(feature = "peers")]
        Kind::Cubecl => Box::new(Player::new(Cubecl::new(), Rc::clone(workload))),
        #[cfg(feature = "erased")]
        Kind::Erased(variant) => Box::new(Player::new(Erased::new(variant, workload.streams), Rc::clone(workload))),
        #[cfg(not(feature = "erased"))]
        Kind::Erased(_) => return None,
        Kind::MutexPair => Box::new(Player::new(MutexPair::default(), Rc::clone(workload))),
        Kind::Malloc => Box::new(Player::new(Malloc, Rc::clone(workload))),
        #[cfg(not(feature = "peers"))]
        Kind::Offset | Kind::SharedOffset | Kind::Cubecl => return None,
    })
}

impl ThreadCase {
    /// Returns the workload of each thread.
    ///
    /// # Errors
    ///
    /// As [`Pattern::workload`].
    pub fn workloads(&self) -> Result<Vec<Workload>, TraceError> {
        let most = THREADS.iter().copied().max().unwrap_or(1) as u64;
        (0..most).map(|thread| self.pattern.workload(SEED + thread)).collect()
    }

    /// Returns the subjects that this build has, each with a member for every thread.
    ///
    /// # Panics
    ///
    /// If the table names a subject that threads cannot share.
    pub fn teams(&self, workloads: &[Workload]) -> Vec<Named<dyn Team>> {
        let make = |kind: &Kind| Some((*kind, members(*kind, workloads)?));
        self.subjects.iter().filter_map(make).collect()
    }
}

fn members(kind: Kind, workloads: &[Workload]) -> Option<Box<dyn Team>> {
    Some(match kind {
        Kind::Millpond(variant) => {
            let first = Millpond::new(variant, 0);
            team(workloads.iter().map(|_| first.sibling()).collect(), workloads)
        }
        #[cfg(feature = "peers")]
        Kind::SharedOffset => {
            let shared = SharedOffset::new();
            team(workloads.iter().map(|_| shared.clone()).collect(), workloads)
        }
        Kind::MutexPair => team(workloads.iter().map(|_| MutexPair::default()).collect(), workloads),
        #[cfg(not(feature = "peers"))]
        Kind::SharedOffset => return None,
        other => panic!("{} cannot be shared by threads", other.name()),
    })
}

#[cfg(test)]
mod tests {
    use super::threads;

    #[test]
    fn no_more_threads_than_cores() {
        assert_eq!([threads(0), threads(1)], [[1], [1]]);
        assert_eq!(threads(7), [1, 2, 4]);
        assert_eq!([threads(16), threads(64)], [[1, 2, 4, 8, 16]; 2]);
    }
}
