//! Rounds, in each of which every subject has its turn: what disturbs the machine disturbs all of them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use millpond::text::format_bytes;
use millpond_trace::Trace;

use super::case::{GpuCase, SLOW_OPERATIONS};
use super::contest::{Contestant, Effort, Trouble, Turn};
use super::task::{Scratch, Task};
use crate::case::{SEED, Unit};
use crate::measure::Race;
use crate::workload::{Pattern, Workload, recorded};

/// The share of the device's memory that one subject is assumed to be able to use, as blocks do not fit without gaps.
const USABLE: f64 = 0.75;

/// The results of one subject in one case, or why it has none.
#[derive(Clone, Debug)]
pub struct Row<T> {
    /// The subject.
    pub name: String,
    /// Its turns by round; fewer where it skipped rounds.
    pub turns: Vec<T>,
    /// The number of operations in its list, if it got a shorter one.
    pub shortened: Option<usize>,
    /// The reason why it has no turns, or no further ones.
    pub note: Option<String>,
}

/// A case on one thread.
#[derive(Clone, Debug)]
pub struct Single {
    /// The case.
    pub case: GpuCase,
    /// The number of operations in a pass.
    pub ops: usize,
    /// The most bytes that its blocks have at one time, as they are requested.
    pub live: u64,
    /// The subjects, this allocator's default first.
    pub rows: Vec<Row<Turn>>,
}

/// A case on several threads.
#[derive(Clone, Debug)]
pub struct Threaded {
    /// The case.
    pub case: GpuCase,
    /// The numbers of threads that raced, one after the other.
    pub threads: Vec<usize>,
    /// The subjects; each turn has a race for every number of threads.
    pub rows: Vec<Row<Vec<Race>>>,
}

/// The result of one case.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A result on one thread.
    Single(Single),
    /// A result on several threads.
    Threaded(Threaded),
    /// No result, and the reason.
    Skipped(GpuCase, String),
}

/// The subjects, and the parameters of their comparison.
pub struct Comparison {
    /// The subjects, this allocator's default first.
    pub contestants: Vec<Box<dyn Contestant>>,
    /// The effort of each case.
    pub effort: Effort,
    /// The numbers of threads that race, one after the other.
    pub threads: Vec<usize>,
    /// The folder of the traces.
    pub traces: PathBuf,
    /// The device's memory in bytes: what does not fit is skipped.
    pub device_bytes: u64,
    /// The folder for the lists.
    pub scratch: Scratch,
}

impl GpuCase {
    /// Returns the number of units in a pass of this number of operations.
    pub fn units(&self, ops: usize) -> usize {
        match self.unit {
            Unit::Pair => ops / 2,
            Unit::Operation => ops,
        }
    }
}

impl Comparison {
    /// Measures one case. Takes at most about the budget and one turn for each subject.
    ///
    /// # Errors
    ///
    /// Returns an error for a trace that cannot be read or a folder that cannot be written. The failure of a subject is
    /// noted in its row.
    pub fn case(&mut self, case: &GpuCase) -> Result<Outcome, Trouble> {
        let lists = self.lists(case)?;
        let live: u64 = lists.iter().map(Workload::live_peak).sum();
        if live as f64 > self.device_bytes as f64 * USABLE {
            let (live, device) = (format_bytes(live), format_bytes(self.device_bytes));
            return Ok(Outcome::Skipped(*case, format!("its blocks take {live}, and the device has {device}")));
        }
        let short = match case.pattern {
            Pattern::Trace(_) => None,
            _ => {
                let lists = lists.iter().map(|list| list.shortened(SLOW_OPERATIONS)).collect();
                Some(Task::new(self.scratch.path(), "short", lists)?)
            }
        };
        let full = Task::new(self.scratch.path(), "full", lists)?;
        let effort = self.effort;
        if case.threaded {
            let threads = self.threads.clone();
            let rows =
                self.rounds(&full, short.as_ref(), |subject, task, _| subject.race(task, &threads, effort.timing));
            Ok(Outcome::Threaded(Threaded { case: *case, threads, rows }))
        } else {
            let rows = self.rounds(&full, short.as_ref(), |subject, task, first| subject.turn(task, &effort, first));
            Ok(Outcome::Single(Single { case: *case, ops: full.ops(), live, rows }))
        }
    }

    fn lists(&self, case: &GpuCase) -> Result<Vec<Workload>, Trouble> {
        if let Pattern::Trace(name) = case.pattern {
            let path = self.traces.join(format!("{name}.trace.gz"));
            let trace = Trace::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            return Ok(vec![recorded(&trace)]);
        }
        let most = if case.threaded { self.threads.iter().copied().max().unwrap_or(1) } else { 1 };
        Ok((0..most as u64).map(|thread| case.pattern.workload(SEED + thread)).collect::<Result<_, _>>()?)
    }

    /// Gives every subject its turns, in an order that rotates.
    fn rounds<T>(
        &mut self,
        full: &Task,
        short: Option<&Task>,
        mut turn: impl FnMut(&mut dyn Contestant, &Task, bool) -> Result<T, Trouble>,
    ) -> Vec<Row<T>> {
        let effort = self.effort;
        let mut rows: Vec<Row<T>> = self.contestants.iter().map(|subject| row(subject.as_ref(), short)).collect();
        let mut spent = vec![Duration::ZERO; rows.len()];
        for round in 0..effort.rounds {
            for at in 0..rows.len() {
                let at = (round + at) % rows.len();
                let (subject, row) = (self.contestants[at].as_mut(), &mut rows[at]);
                if row.note.is_some() || (round > 0 && spent[at] >= effort.budget) {
                    continue;
                }
                let task = short.filter(|_| subject.is_slow()).unwrap_or(full);
                let start = Instant::now();
                match turn(subject, task, round == 0) {
                    Ok(result) => row.turns.push(result),
                    Err(error) => row.note = Some(format!("failed: {error}")),
                }
                spent[at] += start.elapsed();
            }
        }
        rows
    }
}

fn row<T>(subject: &dyn Contestant, short: Option<&Task>) -> Row<T> {
    let slow = subject.is_slow();
    let note =
        (slow && short.is_none()).then(|| "left out: a driver call for every operation takes too long".to_owned());
    let shortened = short.filter(|_| slow).map(Task::ops);
    Row { name: subject.name().to_owned(), turns: Vec::new(), shortened, note }
}
