//! The record of a soak: a file in Markdown that names the runs and their results.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::totals::Totals;
use crate::failure::Failure;
use crate::files;
use crate::quantity::format_time;

/// The time between two writes of the file while runs go on.
const EVERY: Duration = Duration::from_secs(30);

/// The parameters of a soak, for its record.
pub(super) struct Plan {
    pub(super) runs: u64,
    pub(super) seed: u64,
    pub(super) operations: u32,
    pub(super) threads: usize,
}

/// A record that is kept up to date.
pub(super) struct Record<'a> {
    path: &'a Path,
    plan: &'a Plan,
    began: Instant,
    written: Instant,
}

impl<'a> Record<'a> {
    /// Begins a record by writing it once, so that a file that cannot be written is reported before the first run.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] if the file cannot be written.
    pub(super) fn begin(path: &'a Path, plan: &'a Plan, totals: &Totals) -> Result<Self, Failure> {
        let now = Instant::now();
        let record = Self { path, plan, began: now, written: now };
        files::check(&[], &[path.to_owned()])?;
        record.so_far(totals)?;
        Ok(record)
    }

    /// Writes the file again if the last write is at least `EVERY` ago.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub(super) fn keep(&mut self, totals: &Totals) -> Result<(), Failure> {
        if self.written.elapsed() < EVERY {
            return Ok(());
        }
        self.written = Instant::now();
        self.so_far(totals)
    }

    /// Writes the file while runs go on. Standard output gets the last record alone.
    fn so_far(&self, totals: &Totals) -> Result<(), Failure> {
        if files::is_output(self.path) { Ok(()) } else { self.write(totals) }
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub(super) fn write(&self, totals: &Totals) -> Result<(), Failure> {
        files::write(self.path, render(self.plan, self.began.elapsed(), totals).as_bytes())
    }
}

fn render(plan: &Plan, took: Duration, totals: &Totals) -> String {
    let Plan { runs, seed, operations, threads } = plan;
    let ended = totals.runs();
    let mut text = format!(
        "# A soak of {runs} runs\n\n`millpond conformance --soak {runs} --seed {seed} --operations {operations}`\n\n"
    );
    let _ = writeln!(
        text,
        "Seeds from {seed}, {operations} operations each; {ended} of {runs} runs ended, {} failed; {} on {threads} \
         threads, {:.0} runs per second.\n",
        totals.failed(),
        format_time(took),
        ended as f64 / took.as_secs_f64().max(1e-9),
    );
    text.push_str(&totals.table().markdown());
    for finding in totals.findings() {
        let _ = write!(text, "\n```text\n{}\n```\n", finding.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_what_was_run_and_what_it_came_to() {
        let plan = Plan { runs: 10, seed: 5, operations: 60, threads: 2 };
        let text = render(&plan, Duration::from_secs(2), &Totals::default());
        let wanted = "Seeds from 5, 60 operations each; 0 of 10 runs ended, 0 failed; 2.0 s on 2 threads";
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains("--soak 10 --seed 5 --operations 60`"), "{text}");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told_at_once() {
        let plan = Plan { runs: 1, seed: 0, operations: 1, threads: 1 };
        let error = Record::begin(Path::new("/nowhere/at/all.md"), &plan, &Totals::default()).err();
        assert!(matches!(error, Some(Failure::Input(text)) if text.contains("/nowhere/at/all.md")));
    }
}
