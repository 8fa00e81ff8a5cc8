//! `millpond conformance --soak`: seeded adversarial runs, as many as are asked for.

use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

use millpond_conformance::DeviceUnderTest as _;
use millpond_conformance::scenario::POLICIES;
use millpond_conformance::soak::{self, Done};
use millpond_conformance::swarm::Tally;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::progress::Progress;
use crate::output::{Align, Output, Table};
use crate::quantity::format_time;

/// Makes so many runs, on all cores.
///
/// # Errors
///
/// [`Failure::Input`] if the seeds leave the range of seeds, [`Failure::Check`] if a run failed.
pub(super) fn run(runs: u64, seed: u64, output: &mut Output) -> Result<(), Failure> {
    let Some(end) = seed.checked_add(runs) else {
        return Err(Failure::Input(format!("{runs} runs from seed {seed} leave the seeds, which end at {}", u64::MAX)));
    };
    let began = Instant::now();
    let progress = Progress::new(usize::try_from(runs).unwrap_or(usize::MAX));
    let mut totals = Totals::default();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    soak::run(seed..end, threads, &mut |done| {
        progress.doing(format!(
            "{} on {}; {} failed",
            done.run.swarm.policy.name,
            done.run.device.name(),
            totals.failed
        ));
        progress.step();
        if output.is_json() {
            progress.aside(|| output.json(&Row::new(&done)));
        } else if let Some(text) = failure(&done) {
            progress.aside(|| output.text(&text));
        }
        totals.add(&done);
    });
    drop(progress);
    if !output.is_json() {
        output.text(&format!("{}in {}\n", totals.render(), format_time(began.elapsed())));
    }
    match totals.failed {
        0 => Ok(()),
        failed => Err(Failure::Check(format!("{failed} of {runs} runs failed"))),
    }
}

/// What went wrong in a run, and how to see it again.
fn failure(done: &Done) -> Option<String> {
    let text = done.result.as_ref().err()?;
    let (device, seed) = (done.run.device.name(), done.run.swarm.seed);
    Some(format!("FAILED on {device}\n  {text}\n  again: millpond conformance --soak 1 --seed {seed}\n"))
}

/// One run, as JSON.
#[derive(Serialize)]
struct Row<'a> {
    seed: u64,
    device: String,
    policy: &'static str,
    faults: bool,
    outcome: &'static str,
    detail: Option<&'a str>,
    grants: u64,
    refusals: u64,
    driver_failures: u64,
    evidence: usize,
    pages_moved: u64,
    pages_moved_behind_wait: u64,
}

impl<'a> Row<'a> {
    fn new(done: &'a Done) -> Self {
        let (outcome, detail, tally) = match &done.result {
            Ok(tally) => ("passed", None, *tally),
            Err(text) => ("failed", Some(text.as_str()), Tally::default()),
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
struct Totals {
    failed: u64,
    by_policy: BTreeMap<&'static str, Sum>,
}

impl Totals {
    fn add(&mut self, done: &Done) {
        let sum = self.by_policy.entry(done.run.swarm.policy.name).or_default();
        sum.runs += 1;
        match &done.result {
            Ok(tally) => sum.tally += *tally,
            Err(_) => {
                sum.failed += 1;
                self.failed += 1;
            }
        }
    }

    fn render(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new(&[
            ("policy", Left),
            ("runs", Right),
            ("failed", Right),
            ("grants", Right),
            ("refusals", Right),
            ("driver failures", Right),
            ("evidence", Right),
            ("pages moved", Right),
            ("behind waits", Right),
        ]);
        for policy in POLICIES {
            let Some(Sum { runs, failed, tally }) = self.by_policy.get(policy.name) else { continue };
            let Tally { grants, refusals, failures, evidence, moved, moved_behind_wait } = tally;
            let numbers = [runs, failed, grants, refusals, failures, &(*evidence as u64), moved, moved_behind_wait];
            let cells = numbers.into_iter().map(u64::to_string);
            table.row(std::iter::once(policy.name.to_owned()).chain(cells).collect());
        }
        table.render()
    }
}

#[cfg(test)]
mod tests {
    use millpond_conformance::soak::Run;

    use super::*;

    #[test]
    fn a_failure_says_how_to_see_it_again_and_is_counted() {
        let run = Run::new(77);
        let failed = Done { run, result: Err("3 is not 4".into()) };
        let text = failure(&failed).expect("it failed");
        assert!(text.contains("3 is not 4") && text.contains("--soak 1 --seed 77\n"), "{text}");
        let passed = Done { run, result: Ok(Tally { grants: 5, moved: 2, ..Tally::default() }) };
        assert_eq!(failure(&passed), None);
        let mut totals = Totals::default();
        [&failed, &passed, &passed].into_iter().for_each(|done| totals.add(done));
        let table = totals.render();
        let last: Vec<&str> = table.lines().last().expect("a row").split_whitespace().collect();
        assert_eq!(last, [run.swarm.policy.name, "3", "1", "10", "0", "0", "0", "4", "0"]);
        let row = serde_json::to_value(Row::new(&failed)).expect("a value");
        assert_eq!(
            (&row["outcome"], &row["detail"], &row["seed"]),
            (&"failed".into(), &"3 is not 4".into(), &77.into())
        );
    }
}
