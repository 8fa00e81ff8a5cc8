//! The suite: every check of a verb and every scenario, as text or as a program, on one device.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_backend::Caps;

use crate::contract::{self, Check};
use crate::device::{DeviceUnderTest, caps_of, caps_or_skip};
use crate::minimum;
use crate::programs;
use crate::scenario::{self, CORPUS, Scenario};
use crate::session::Stop;
use crate::side_by_side::in_order;
use crate::sim::SimDevice;
use millpond::settings::Policy;

/// A scenario or a check that a device is known not to pass, with the reason. The backend's author declares it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difference<'a> {
    /// The scenario: `group/name` for all its policies, `group/name/policy` for one. A check is `group/name`.
    pub scenario: &'a str,
    /// The reason, as a sentence for those who read the results.
    pub reason: &'a str,
}

/// The outcome of a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Everything is as it must be.
    Passed,
    /// A check failed, or a declared difference did not occur.
    Failed(String),
    /// The device lacks something that the scenario needs.
    Skipped(String),
    /// It fails, as was declared, for this reason.
    Differs(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed => f.write_str("passed"),
            Outcome::Failed(text) => write!(f, "FAILED: {text}"),
            Outcome::Skipped(reason) => write!(f, "skipped: {reason}"),
            Outcome::Differs(reason) => write!(f, "differs: {reason}"),
        }
    }
}

impl Outcome {
    /// Returns the reason why it was skipped, if it was.
    pub(crate) fn reason_to_skip(&self) -> Option<&str> {
        match self {
            Outcome::Skipped(reason) => Some(reason),
            _ => None,
        }
    }
}

/// The result of one check, or of one scenario under one policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScenarioResult {
    /// `group/name/policy`, and `group/name` for a check of the contract.
    pub name: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The time that it took on the host.
    pub took: Duration,
}

/// What to do first where several groups fail.
const ORDER: &str = "Later groups use what earlier ones test. Mend them in this order: facts, time, transfers, space, \
                     mapping, host, budget, then those that run an allocator.";

/// Groups whose scenarios look at what the device has left as a whole, so that none may run beside another.
const ALONE: [&str; 1] = ["budget"];

/// One check, or one scenario under one policy, to be run.
struct Case<D: DeviceUnderTest> {
    name: String,
    group: &'static str,
    work: Work<D>,
}

enum Work<D: DeviceUnderTest> {
    Check(Check<D>),
    Text(Arc<Scenario>, Policy),
    Program(fn(&D, Policy) -> Result<(), Stop>, Policy),
}

/// Returns every group of checks and scenarios, in the order in which they run.
pub fn groups() -> Vec<&'static str> {
    contract::GROUPS.into_iter().chain(CORPUS.iter().map(|(group, _)| *group)).chain(programs::GROUPS).collect()
}

/// Returns the simulated devices on which the suite is tested: every kind.
pub fn sim_devices() -> Vec<SimDevice> {
    SimDevice::all()
}

/// Runs every check and scenario on a device and passes each result to `progress` when it is known. Where all of a
/// group was skipped although the device announces the power, a result `group/minimum` reports this as a failure.
///
/// # Panics
///
/// If the corpus cannot be read: a mistake in this crate.
pub fn run<D: DeviceUnderTest>(
    device: &D,
    differences: &[Difference<'_>],
    progress: &mut dyn FnMut(&ScenarioResult),
) -> Vec<ScenarioResult> {
    let mut results = run_groups(device, &groups(), differences, NonZeroUsize::MIN, progress);
    for result in unknown(&cases::<D>(), differences) {
        progress(&result);
        results.push(result);
    }
    results
}

/// Runs some [groups] on a device, as [`run`] does, but for the check that the differences name scenarios that there
/// are. Up to `jobs` scenarios of a group run side by side, each on a device that it opens for itself, which is faster
/// where a device takes long to open. Results come in the same order as with one job. Those of `budget` run one after
/// the other, as they look at what the device has left.
///
/// # Panics
///
/// If there is no such group.
pub fn run_groups<D: DeviceUnderTest>(
    device: &D,
    names: &[&str],
    differences: &[Difference<'_>],
    jobs: NonZeroUsize,
    progress: &mut dyn FnMut(&ScenarioResult),
) -> Vec<ScenarioResult> {
    let (cases, caps, known) = (cases::<D>(), caps_of(device).ok(), groups());
    let mut results = Vec::new();
    for group in names {
        assert!(known.contains(group), "there is no group `{group}`: {known:?}");
        let jobs = if ALONE.contains(group) { NonZeroUsize::MIN } else { jobs };
        results.extend(run_cases(device, caps.as_ref(), (&cases, group, jobs), differences, progress));
    }
    results
}

/// Runs one group on a device and returns every result, with that of the [minimum](run) where it is missed.
///
/// # Panics
///
/// If there is no such group.
pub fn run_group<D: DeviceUnderTest>(device: &D, group: &str, differences: &[Difference<'_>]) -> Vec<ScenarioResult> {
    run_groups(device, &[group], differences, NonZeroUsize::MIN, &mut |_| {})
}

fn run_cases<D: DeviceUnderTest>(
    device: &D,
    caps: Option<&Caps>,
    (cases, group, jobs): (&[Case<D>], &str, NonZeroUsize),
    differences: &[Difference<'_>],
    progress: &mut dyn FnMut(&ScenarioResult),
) -> Vec<ScenarioResult> {
    let mut results = Vec::new();
    let own: Vec<&Case<D>> = cases.iter().filter(|case| case.group == group).collect();
    let run = |at: usize| run_case(device, own[at], differences);
    in_order(own.len(), jobs, run, |result| {
        progress(&result);
        results.push(result);
    });
    let judged = own.iter().zip(&results).map(|(case, result)| (case.needs_pages(), &result.outcome));
    let missed = caps.and_then(|caps| minimum::missed(group, caps, &judged.collect::<Vec<_>>()));
    if let Some(text) = missed {
        let missed =
            ScenarioResult { name: format!("{group}/minimum"), outcome: Outcome::Failed(text), took: Duration::ZERO };
        progress(&missed);
        results.push(missed);
    }
    results
}

/// Runs one group on a device for a test, and prints what passed, what was skipped and why. Returns every result, or
/// none where the device is not available.
///
/// # Panics
///
/// If there is no such group; if anything failed or the [minimum](run) was missed, with all failures; or if a device
/// that the environment requires is not available.
pub fn expect_group<D: DeviceUnderTest>(
    device: &D,
    group: &str,
    differences: &[Difference<'_>],
) -> Vec<ScenarioResult> {
    if caps_or_skip(device).is_none() {
        return Vec::new();
    }
    let results = run_group(device, group, differences);
    println!("{group} on {}: {}", device.name(), summary(&results));
    let failed = results.iter().filter(|result| matches!(result.outcome, Outcome::Failed(_)));
    let failed: Vec<String> = failed.map(|result| format!("{}: {}", result.name, result.outcome)).collect();
    assert!(failed.is_empty(), "on {}\n{}\n{ORDER}", device.name(), failed.join("\n"));
    results
}

/// Returns some lines of text with the number of results that passed, failed, were skipped and differ, and the number
/// of times that each reason was given.
pub fn summary(results: &[ScenarioResult]) -> String {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for result in results {
        let line = match &result.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed(_) => "FAILED".to_owned(),
            other => other.to_string(),
        };
        *reasons.entry(line).or_default() += 1;
    }
    reasons.into_iter().map(|(line, count)| format!("{count} {line}")).collect::<Vec<_>>().join("\n  ")
}

/// Checks that every declared difference names a scenario; for tests.
///
/// # Panics
///
/// If some do not, with a list of them.
pub fn expect_known_differences<D: DeviceUnderTest>(differences: &[Difference<'_>]) {
    let unknown = unknown(&cases::<D>(), differences);
    assert!(unknown.is_empty(), "{unknown:?}");
}

fn cases<D: DeviceUnderTest>() -> Vec<Case<D>> {
    let check = |check: Check<D>| {
        let name = format!("{}/{}", check.group, check.name);
        Case { name, group: check.group, work: Work::Check(check) }
    };
    let mut cases: Vec<Case<D>> = contract::all().into_iter().map(check).collect();
    for (group, text) in CORPUS {
        let scenarios = scenario::load(text).unwrap_or_else(|error| panic!("corpus/{group}.txt, {error}"));
        for scenario in scenarios.into_iter().map(Arc::new) {
            for &policy in &scenario.policies {
                let name = format!("{group}/{}/{}", scenario.name, policy.variant_name());
                cases.push(Case { name, group, work: Work::Text(Arc::clone(&scenario), policy) });
            }
        }
    }
    for program in programs::all::<D>() {
        for &policy in program.policies {
            let name = format!("{}/{}/{}", program.group, program.name, policy.variant_name());
            cases.push(Case { name, group: program.group, work: Work::Program(program.run, policy) });
        }
    }
    cases
}

impl<D: DeviceUnderTest> Case<D> {
    fn run(&self, device: &D) -> Result<(), Stop> {
        match &self.work {
            Work::Check(check) => check.run(device),
            Work::Text(scenario, policy) => scenario::play(device, scenario, *policy).map_err(|stop| match stop {
                Stop::Fail(text) => Stop::Fail(format!("corpus/{}.txt, {text}", self.group)),
                skip => skip,
            }),
            Work::Program(run, policy) => run(device, *policy),
        }
    }

    /// Returns whether it is run with virtual memory.
    fn needs_pages(&self) -> bool {
        match &self.work {
            Work::Check(check) => check.power == contract::Power::Pages,
            Work::Text(_, policy) | Work::Program(_, policy) => policy.needs_pages(),
        }
    }
}

fn run_case<D: DeviceUnderTest>(device: &D, case: &Case<D>, differences: &[Difference<'_>]) -> ScenarioResult {
    let _turn = device.turn();
    let began = Instant::now();
    // A scenario that panics leaves only its own device in an unknown state, and the device is dropped with it.
    let ended = catch_unwind(AssertUnwindSafe(|| case.run(device)));
    let declared = differences.iter().find(|difference| names(difference.scenario, &case.name));
    let ended = ended.unwrap_or_else(|panic| {
        let advice = "no method of a backend should panic: RUST_BACKTRACE=1 shows which one did";
        Err(Stop::Fail(format!("{}. What to do: {advice}", text_of(panic))))
    });
    let outcome = match (ended, declared) {
        (Ok(()), None) => Outcome::Passed,
        (Ok(()), Some(difference)) => {
            Outcome::Failed(format!("passed, though declared to differ ({}): take it off the list", difference.reason))
        }
        (Err(Stop::Skip(reason)), _) => Outcome::Skipped(reason),
        (Err(Stop::Fail(text)), None) => Outcome::Failed(text),
        (Err(Stop::Fail(_)), Some(difference)) => Outcome::Differs(difference.reason.to_owned()),
    };
    ScenarioResult { name: case.name.clone(), outcome, took: began.elapsed() }
}

/// Returns whether a declared name is the name of the case, with or without the policy.
fn names(declared: &str, case: &str) -> bool {
    let without_policy = case.rsplit_once('/').filter(|(scenario, _)| scenario.contains('/'));
    case == declared || without_policy.is_some_and(|(scenario, _)| scenario == declared)
}

fn unknown<D: DeviceUnderTest>(cases: &[Case<D>], differences: &[Difference<'_>]) -> Vec<ScenarioResult> {
    let strange = differences.iter().filter(|declared| !cases.iter().any(|case| names(declared.scenario, &case.name)));
    let failed = |declared: &Difference<'_>| ScenarioResult {
        name: declared.scenario.to_owned(),
        outcome: Outcome::Failed("a difference is declared and there is no such scenario".to_owned()),
        took: Duration::ZERO,
    };
    strange.map(failed).collect()
}

pub(crate) fn text_of(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a text"))
}
