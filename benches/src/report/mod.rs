//! The results, as tables for people and as records for comparing later.

mod csv;
mod machine;
mod record;
mod table;

pub use csv::csv;
pub use machine::{Machine, load, today};
pub use record::{record, record_dir};
pub use table::{case_table, summary, thread_table};

use crate::case::{Case, ThreadCase};
use crate::measure::{Measured, Races};
use crate::subject::Kind;

/// A case on one thread, measured. This allocator comes first.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case.
    pub case: Case,
    /// The number of operations in a pass.
    pub ops: usize,
    /// The subjects and their times.
    pub subjects: Vec<(Kind, Measured)>,
}

impl CaseResult {
    /// Returns the times of one of the subjects, if this build has it.
    pub fn of(&self, kind: Kind) -> Option<&Measured> {
        self.subjects.iter().find(|(other, _)| *other == kind).map(|(_, measured)| measured)
    }
}

/// A case on several threads, measured.
#[derive(Clone, Debug)]
pub struct ThreadResult {
    /// The case.
    pub case: ThreadCase,
    /// The subjects and their races, for the first of [`THREADS`](crate::case::THREADS): as many as were raced.
    pub subjects: Vec<(Kind, Vec<Races>)>,
}

/// Everything that one run measured, and the conditions.
#[derive(Clone, Debug)]
pub struct Run {
    /// The machine.
    pub machine: Machine,
    /// The date, as 2026-01-31.
    pub date: String,
    /// Rounds per case.
    pub rounds: usize,
    /// What reading the clock twice costs in nanoseconds: taken off single operations.
    pub clock_ns: f64,
    /// The system's load before and after, where the system reports it.
    pub load: [Option<String>; 2],
    /// The cases on one thread.
    pub cases: Vec<CaseResult>,
    /// The cases on several threads.
    pub threads: Vec<ThreadResult>,
}
