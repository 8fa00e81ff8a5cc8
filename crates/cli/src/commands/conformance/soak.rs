//! `millpond conformance --soak`: a given number of seeded adversarial runs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Instant;
use std::{panic, thread};

use millpond_conformance::DeviceUnderTest as _;
use millpond_conformance::scenario::POLICIES;
use millpond_conformance::soak::{self, Done, Run};
use millpond_conformance::swarm::{Swarm, Tally};
use serde::Serialize;

use super::ConformanceArgs;
use super::record::{Plan, Record};
use crate::failure::Failure;
use crate::files;
use crate::interrupt;
use crate::output::progress::Progress;
use crate::output::{Align, Output, Table};
use crate::quantity::format_time;

/// The most failing runs that are made shorter, as each of them takes hundreds of runs.
const SHRUNK_MAX: usize = 3;

/// The number of failures after which no further run begins.
const FAILURES_MAX: u64 = 20;

/// Makes the given number of runs, on all cores.
///
/// # Errors
///
/// Returns [`Failure::Input`] if the seeds leave the range of seeds or the record cannot be written, [`Failure::Check`]
/// if a run failed.
pub(super) fn run(runs: u64, args: &ConformanceArgs, output: &mut Output) -> Result<(), Failure> {
    let seed = args.seed;
    let Some(end) = seed.checked_add(runs) else {
        return Err(Failure::Input(format!("{runs} runs from seed {seed} leave the seeds, which end at {}", u64::MAX)));
    };
    let began = Instant::now();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let plan = Plan { runs, seed, operations: args.operations, threads };
    let mut totals = Totals::default();
    if args.record.as_deref().is_some_and(files::is_output) {
        output.make_room();
    }
    let mut record = args.record.as_deref().map(|path| Record::begin(path, &plan, &totals)).transpose()?;
    interrupt::catch();
    let progress = Progress::new(usize::try_from(runs).unwrap_or(usize::MAX));
    let mut kept = Ok(());
    // The message of a panic is part of a run's result, so it is not printed here as well.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    soak::run(seed..end, args.operations, threads, &mut |done| {
        let Run { device, swarm } = done.run;
        progress.doing(format!("{} on {}; {} failed", swarm.policy.name, device.name(), totals.failed));
        progress.step();
        let told = totals.add(&done);
        if output.is_json() {
            progress.aside(|| output.json(&Row::new(&done)));
        } else if let Some(text) = told {
            progress.aside(|| output.text(text));
        }
        kept = record.as_mut().map_or(Ok(()), |record| record.keep(&totals));
        if kept.is_err() || totals.failed >= FAILURES_MAX || interrupt::is_pressed() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    panic::set_hook(hook);
    drop(progress);
    kept?;
    if let Some(record) = record {
        record.write(&totals)?;
    }
    if !output.is_json() {
        output.text(&format!("{}in {}\n", output.table(&totals.table()), format_time(began.elapsed())));
    }
    interrupt::check()?;
    match totals.failed {
        0 => Ok(()),
        failed => Err(Failure::Check(format!("{failed} of {} runs failed", totals.runs()))),
    }
}

/// Describes the failure of a run: what went wrong, how to repeat it, and with `short` the few operations that the
/// failure needs. Returns `None` for a run that passed.
fn failure(done: &Done, short: bool) -> Option<String> {
    let failed = done.result.as_ref().err()?;
    let Swarm { seed, operations, policy, .. } = done.run.swarm;
    let again = format!("millpond conformance --soak 1 --seed {seed} --operations {operations}");
    let mut text =
        format!("FAILED on {} under {}\n  {failed}\n  again: {again}\n", done.run.device.name(), policy.name);
    if let Some(shrunk) = short.then(|| done.run.shrink()).flatten() {
        text += &format!("  `Run::new({seed}, {operations})` on its device: {shrunk}");
    }
    Some(text)
}

/// One run, as JSON.
#[derive(Serialize)]
struct Row {
    seed: u64,
    device: String,
    policy: &'static str,
    faults: bool,
    outcome: &'static str,
    detail: Option<String>,
    grants: u64,
    refusals: u64,
    driver_failures: u64,
    evidence: usize,
    pages_moved: u64,
    pages_moved_behind_wait: u64,
}

impl Row {
    fn new(done: &Done) -> Self {
        let (outcome, detail, tally) = match &done.result {
            Ok(tally) => ("passed", None, *tally),
            Err(failed) => ("failed", Some(failed.to_string()), Tally::default()),
        };
        Self {
            seed: done.run.swarm.seed,
            device: done.run.device.name(),
            policy: done.run.swarm.policy.name,
            faults: done.run.swarm.faults,
            outcome,
            detail,
            grants: tally.grants,
            refusals: tally.refusals,
            driver_failures: tally.failures,
            evidence: tally.evidence,
            pages_moved: tally.moved,
            pages_moved_behind_wait: tally.moved_behind_wait,
        }
    }
}

/// All runs of a policy.
#[derive(Default)]
struct Sum {
    runs: u64,
    failed: u64,
    tally: Tally,
}

/// All runs.
#[derive(Default)]
pub(super) struct Totals {
    failed: u64,
    by_policy: BTreeMap<&'static str, Sum>,
    /// The failures, each described in full.
    findings: Vec<String>,
}

impl Totals {
    /// Counts a run, and returns the description of its failure if it failed.
    fn add(&mut self, done: &Done) -> Option<&str> {
        let sum = self.by_policy.entry(done.run.swarm.policy.name).or_default();
        sum.runs += 1;
        match &done.result {
            Ok(tally) => sum.tally += *tally,
            Err(_) => {
                sum.failed += 1;
                self.failed += 1;
            }
        }
        let finding = failure(done, self.findings.len() < SHRUNK_MAX)?;
        self.findings.push(finding);
        self.findings.last().map(String::as_str)
    }

    pub(super) fn runs(&self) -> u64 {
        self.by_policy.values().map(|sum| sum.runs).sum()
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    pub(super) fn findings(&self) -> &[String] {
        &self.findings
    }

    pub(super) fn table(&self) -> Table {
        use Align::{Left, Right};
        let mut table = Table::new(&[
            ("policy", Left),
            ("runs", Right),
            ("failed", Right),
            ("grants", Right),
            ("refusals", Right),
            ("driver failures", Right),
            ("evidence", Right),
            ("restored", Right),
            ("pages moved", Right),
            ("behind waits", Right),
        ]);
        for policy in POLICIES.iter() {
            let Some(Sum { runs, failed, tally }) = self.by_policy.get(policy.name) else { continue };
            let Tally { grants, refusals, failures, evidence, restored, moved, moved_behind_wait } = tally;
            let evidence = *evidence as u64;
            let numbers = [runs, failed, grants, refusals, failures, &evidence, restored, moved, moved_behind_wait];
            let cells = numbers.into_iter().map(u64::to_string);
            table.row(std::iter::once(policy.name.to_owned()).chain(cells).collect());
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use millpond_conformance::swarm::Failed;

    use super::*;

    #[test]
    fn a_failure_says_how_to_see_it_again_and_is_counted() {
        let run = Run::new(77, 40);
        let failed = Failed { at: 3, operation: None, what: "3 is not 4".into() };
        let failed = Done { run, result: Err(failed) };
        // The run is sound, so there is nothing to make short.
        let text = failure(&failed, true).expect("it failed");
        assert!(text.contains("3 is not 4") && text.ends_with("--soak 1 --seed 77 --operations 40\n"), "{text}");
        let passed = Done { run, result: Ok(Tally { grants: 5, moved: 2, ..Tally::default() }) };
        assert_eq!(failure(&passed, true), None);
        let mut totals = Totals::default();
        assert_eq!(totals.add(&failed), Some(text.as_str()));
        assert_eq!([&passed, &passed].map(|done| totals.add(done).is_some()), [false, false]);
        assert_eq!((totals.runs(), totals.failed(), totals.findings()), (3, 1, &[text][..]));
        let table = totals.table().render();
        let last: Vec<&str> = table.lines().last().expect("a row").split_whitespace().collect();
        assert_eq!(last, [run.swarm.policy.name, "3", "1", "10", "0", "0", "0", "0", "4", "0"]);
        let row = serde_json::to_value(Row::new(&failed)).expect("a value");
        assert_eq!(
            (&row["outcome"], &row["detail"], &row["seed"]),
            (&"failed".into(), &"after the last of 3 operations: 3 is not 4".into(), &77.into())
        );
    }
}
