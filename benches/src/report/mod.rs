//! What was measured, as tables for people and as records for comparing later.

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
    /// Operations in a pass.
    pub ops: usize,
    /// Who took what.
    pub subjects: Vec<(Kind, Measured)>,
}

impl CaseResult {
    /// What one of the subjects took, if this build has it.
    pub fn of(&self, kind: Kind) -> Option<&Measured> {
        self.subjects.iter().find(|(other, _)| *other == kind).map(|(_, measured)| measured)
    }
}

/// A case on several threads, measured.
#[derive(Clone, Debug)]
pub struct ThreadResult {
    /// The case.
    pub case: ThreadCase,
    /// Who took what, for the first of [`THREADS`](crate::case::THREADS): as many as were raced.
    pub subjects: Vec<(Kind, Vec<Races>)>,
}

/// Everything that one run measured, and under which conditions.
#[derive(Clone, Debug)]
pub struct Run {
    /// Where.
    pub machine: Machine,
    /// When, as 2026-01-31.
    pub date: String,
    /// Rounds per case.
    pub rounds: usize,
    /// What reading the clock twice costs in nanoseconds: taken off single operations.
    pub clock_ns: f64,
    /// The system's load before and after, where it tells.
    pub load: [Option<String>; 2],
    /// The cases on one thread.
    pub cases: Vec<CaseResult>,
    /// The cases on several threads.
    pub threads: Vec<ThreadResult>,
}
