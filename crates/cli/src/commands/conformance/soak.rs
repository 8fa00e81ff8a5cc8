//! `millpond conformance --soak`: a given number of seeded adversarial runs.

use std::ops::ControlFlow;
use std::time::Instant;
use std::{panic, thread};

use millpond_conformance::DeviceUnderTest as _;
use millpond_conformance::soak::{self, Done, Run};
use millpond_conformance::swarm::Tally;
use serde::Serialize;

use super::ConformanceArgs;
use super::record::{Plan, Record};
use super::totals::Totals;
use crate::failure::Failure;
use crate::files;
use crate::interrupt;
use crate::output::Output;
use crate::output::progress::Progress;
use crate::quantity::format_time;

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
        let Run { device, swarm, .. } = done.run;
        progress.doing(format!("{} on {}; {} failed", swarm.policy.variant_name(), device.name(), totals.failed()));
        progress.step();
        let told = totals.add(&done);
        if output.is_json() {
            progress.aside(|| output.json(&Row::new(&done)));
        } else if let Some(text) = told {
            progress.aside(|| output.text(text));
        }
        kept = record.as_mut().map_or(Ok(()), |record| record.keep(&totals));
        if kept.is_err() || totals.failed() >= FAILURES_MAX || interrupt::is_pressed() {
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
    match totals.failed() {
        0 => Ok(()),
        failed => Err(Failure::Check(format!("{failed} of {} runs failed", totals.runs()))),
    }
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
            policy: done.run.swarm.policy.variant_name(),
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

#[cfg(test)]
mod tests {
    use millpond_conformance::swarm::Failed;

    use super::*;

    #[test]
    fn a_failed_run_is_a_row_with_its_reason() {
        let failed = Failed { at: 3, operation: None, what: "3 is not 4".into() };
        let failed = Done { run: Run::new(77, 40), result: Err(failed) };
        let row = serde_json::to_value(Row::new(&failed)).expect("a value");
        assert_eq!(
            (&row["outcome"], &row["detail"], &row["seed"]),
            (&"failed".into(), &"after the last of 3 operations: 3 is not 4".into(), &77.into())
        );
    }
}
