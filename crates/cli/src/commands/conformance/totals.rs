//! The sums of a soak, and its failures.

use std::collections::BTreeMap;

use millpond_conformance::DeviceUnderTest as _;
use millpond_conformance::scenario::POLICIES;
use millpond_conformance::soak::Done;
use millpond_conformance::swarm::{Swarm, Tally};

use crate::output::{Align, Table};

/// The most failing runs that are made shorter, as each of them takes hundreds of runs.
const SHRUNK_MAX: usize = 3;

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
    pub(super) fn add(&mut self, done: &Done) -> Option<&str> {
        let sum = self.by_policy.entry(done.run.swarm.policy.variant_name()).or_default();
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
            ("grown", Right),
            ("aligned", Right),
            ("pages moved", Right),
            ("behind waits", Right),
        ]);
        for policy in POLICIES.iter() {
            let Some(Sum { runs, failed, tally }) = self.by_policy.get(policy.variant_name()) else { continue };
            let Tally { grants, refusals, failures, evidence, restored, grown, aligned, moved, moved_behind_wait } =
                tally;
            let evidence = *evidence as u64;
            let moves = [moved, moved_behind_wait];
            let numbers = [runs, failed, grants, refusals, failures, &evidence, restored, grown, aligned]
                .into_iter()
                .chain(moves);
            let cells = numbers.map(u64::to_string);
            table.row(std::iter::once(policy.variant_name().to_owned()).chain(cells).collect());
        }
        table
    }
}

/// Describes the failure of a run: what went wrong, how to repeat it, and with `short` the few operations that the
/// failure needs. Returns `None` for a run that passed.
fn failure(done: &Done, short: bool) -> Option<String> {
    let failed = done.result.as_ref().err()?;
    let Swarm { seed, operations, policy, .. } = done.run.swarm;
    let again = format!("millpond conformance --soak 1 --seed {seed} --operations {operations}");
    let mut text =
        format!("FAILED on {} under {}\n  {failed}\n  again: {again}\n", done.run.device.name(), policy.variant_name());
    if let Some(shrunk) = short.then(|| done.run.shrink()).flatten() {
        text += &format!("  `Run::new({seed}, {operations})` on its device: {shrunk}");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use millpond_conformance::swarm::Failed;

    use millpond_conformance::soak::Run;

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
        assert_eq!(last, [run.swarm.policy.variant_name(), "3", "1", "10", "0", "0", "0", "0", "0", "0", "4", "0"]);
    }
}
