//! `millpond conformance`: the suite that every backend must pass, on one of them; or a soak.

mod args;
mod record;
mod soak;
mod totals;

pub(crate) use args::{ConformanceArgs, HELP};

use std::collections::BTreeMap;
use std::time::Duration;

use millpond_conformance::{Outcome, ScenarioResult, suite};
use serde::Serialize;

use crate::devices::{Target, Wanted};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::progress::Progress;
use crate::output::{Align, Output, Table, tell};
use crate::quantity::format_time;

/// Runs the suite, or the soak if the arguments ask for it.
///
/// # Errors
///
/// Returns [`Failure::Check`] if a scenario failed.
pub(crate) fn run(args: &ConformanceArgs, output: &mut Output) -> Result<(), Failure> {
    if let Some(runs) = args.soak {
        return soak::run(runs, args, output);
    }
    let target = Target::choose(args.device.as_deref())?;
    interrupt::catch();
    let progress = Progress::unbounded();
    let mut tally = Tally::default();
    let wanted = Wanted { only: args.only.as_deref(), groups: &args.group, jobs: args.jobs };
    let certified = target.certify(wanted, &mut |device, result| {
        progress.doing(format!("{} on {device}", result.name));
        progress.step();
        if output.is_json() {
            progress.aside(|| output.json(&Row::new(device, result)));
        }
        tally.add(device, result);
        if interrupt::is_pressed() {
            // The suite has no way to end early.
            let so_far = if output.is_json() { String::new() } else { tally.render(output) };
            progress.aside(|| output.text(&so_far));
            tell(&format!("error: {}", Failure::Interrupted));
            std::process::exit(i32::from(crate::failure::INTERRUPTED));
        }
    });
    drop(progress);
    certified?;
    if !output.is_json() {
        output.text(&tally.render(output));
    }
    match tally.all.failed {
        0 => Ok(()),
        failed => Err(Failure::Check(format!("{failed} of {} scenarios failed", tally.all.count()))),
    }
}

/// One scenario, as JSON.
#[derive(Serialize)]
struct Row<'a> {
    device: &'a str,
    scenario: &'a str,
    outcome: &'static str,
    detail: Option<&'a str>,
    time_us: f64,
}

impl<'a> Row<'a> {
    fn new(device: &'a str, result: &'a ScenarioResult) -> Self {
        let (outcome, detail) = match &result.outcome {
            Outcome::Passed => ("passed", None),
            Outcome::Failed(text) => ("failed", Some(text.as_str())),
            Outcome::Skipped(reason) => ("skipped", Some(reason.as_str())),
            Outcome::Differs(reason) => ("differs", Some(reason.as_str())),
        };
        Self { device, scenario: &result.name, outcome, detail, time_us: result.took.as_nanos() as f64 / 1e3 }
    }
}

/// The number of scenarios by outcome, and the time that they took.
#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    differing: usize,
    took: Duration,
}

impl Counts {
    fn add(&mut self, result: &ScenarioResult) {
        let count = match result.outcome {
            Outcome::Passed => &mut self.passed,
            Outcome::Failed(_) => &mut self.failed,
            Outcome::Skipped(_) => &mut self.skipped,
            Outcome::Differs(_) => &mut self.differing,
        };
        *count += 1;
        self.took += result.took;
    }

    fn count(&self) -> usize {
        self.passed + self.failed + self.skipped + self.differing
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let [passed, failed, skipped, differing] =
            [self.passed, self.failed, self.skipped, self.differing].map(|count| count.to_string());
        vec![name.into(), passed, failed, skipped, differing, format_time(self.took)]
    }
}

/// All results, by device and by group, with the reasons and failures of the scenarios that did not pass.
#[derive(Default)]
struct Tally {
    all: Counts,
    devices: Vec<(String, Counts)>,
    groups: BTreeMap<String, Counts>,
    /// The number of scenarios that were skipped or declared to differ, by reason.
    reasons: BTreeMap<String, usize>,
    failures: String,
}

impl Tally {
    fn add(&mut self, device: &str, result: &ScenarioResult) {
        self.all.add(result);
        if self.devices.last().is_none_or(|(last, _)| last != device) {
            self.devices.push((device.into(), Counts::default()));
        }
        if let Some((_, counts)) = self.devices.last_mut() {
            counts.add(result);
        }
        let group = result.name.split('/').next().unwrap_or(&result.name);
        self.groups.entry(group.into()).or_default().add(result);
        match &result.outcome {
            Outcome::Passed => {}
            Outcome::Failed(_) => self.failures += &format!("\n{} on {device}\n  {}\n", result.name, result.outcome),
            outcome => *self.reasons.entry(outcome.to_string()).or_default() += 1,
        }
    }

    fn render(&self, output: &Output) -> String {
        let devices =
            table(output, "device", self.devices.iter().map(|(name, counts)| (name.as_str(), counts)), &self.all);
        let order = suite::groups();
        let place = |group: &str| order.iter().position(|known| *known == group);
        let mut groups: Vec<_> = self.groups.iter().map(|(name, counts)| (name.as_str(), counts)).collect();
        groups.sort_by_key(|(name, _)| place(name).unwrap_or(order.len()));
        let groups = table(output, "group", groups.into_iter(), &self.all);
        let mut reasons = Table::new(&[("scenarios", Align::Right), ("did not pass because", Align::Left)]);
        for (reason, count) in &self.reasons {
            reasons.row(vec![count.to_string(), reason.clone()]);
        }
        let reasons = if reasons.is_empty() { String::new() } else { format!("\n{}", output.table(&reasons)) };
        format!("{devices}\n{groups}{reasons}{}", self.failures)
    }
}

fn table<'a>(
    output: &Output,
    what: &'static str,
    rows: impl Iterator<Item = (&'a str, &'a Counts)>,
    all: &Counts,
) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        (what, Left),
        ("passed", Right),
        ("failed", Right),
        ("skipped", Right),
        ("differ", Right),
        ("time", Right),
    ]);
    for (name, counts) in rows {
        table.row(counts.cells(name));
    }
    table.row(all.cells("all"));
    output.table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    fn result(name: &str, outcome: Outcome) -> ScenarioResult {
        ScenarioResult { name: name.into(), outcome, took: Duration::from_micros(10) }
    }

    #[test]
    fn results_are_counted_and_failures_shown_in_full() {
        let mut tally = Tally::default();
        tally.add("one", &result("trim/a/classic", Outcome::Passed));
        tally.add("one", &result("sizes/b/classic", Outcome::Failed("3 is not 4".into())));
        tally.add("two", &result("sizes/b/classic", Outcome::Skipped("no fills".into())));
        tally.add("two", &result("sizes/b/direct", Outcome::Skipped("no fills".into())));
        tally.add("two", &result("sizes/c/direct", Outcome::Differs("declared".into())));
        let text = tally.render(&Output::new(Format::Text, true));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["one", "1", "1", "0", "0", "20.0", "us"]);
        assert_eq!(rows[2], ["two", "0", "0", "2", "1", "30.0", "us"]);
        assert_eq!(rows[3][..5], ["all", "1", "1", "2", "1"]);
        let at = |first| rows.iter().position(|row| row.first() == Some(&first)).expect(first);
        assert!(at("sizes") < at("trim"), "in the suite's order: {text}");
        assert!(text.contains("2  skipped: no fills\n") && text.contains("1  differs: declared\n"), "{text}");
        assert!(text.ends_with("sizes/b/classic on one\n  FAILED: 3 is not 4\n"), "{text}");
    }

    #[test]
    fn every_outcome_has_a_word_in_json() {
        let failed = result("trim/a/classic", Outcome::Failed("3 is not 4".into()));
        let row = serde_json::to_value(Row::new("one", &failed)).expect("a value");
        assert_eq!((&row["outcome"], &row["detail"]), (&"failed".into(), &"3 is not 4".into()));
        let passed = result("trim/a/classic", Outcome::Passed);
        let row = serde_json::to_value(Row::new("one", &passed)).expect("a value");
        assert_eq!((&row["outcome"], &row["detail"], &row["time_us"]), (&"passed".into(), &().into(), &10.0.into()));
    }
}
