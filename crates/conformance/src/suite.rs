//! The suite: every scenario, in text or as a program, on one device.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::device::{DeviceUnderTest, open_or_skip};
use crate::programs;
use crate::scenario::{self, CORPUS, Policy, Scenario};
use crate::session::Stop;
use crate::sim::SimDevice;

/// A scenario that a device is known not to pass, and why. To be declared by the backend's author.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difference<'a> {
    /// The scenario: `group/name` for all its policies, `group/name/policy` for one.
    pub scenario: &'a str,
    /// Why, as a sentence for those who read the results.
    pub reason: &'a str,
}

/// What came of a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All is as it must be.
    Passed,
    /// Something is wrong; or a declared difference did not occur.
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

/// One scenario under one policy, and what came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScenarioResult {
    /// `group/name/policy`.
    pub name: String,
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took on the host.
    pub took: Duration,
}

/// One scenario under one policy, to be run.
struct Case<D: DeviceUnderTest> {
    name: String,
    group: &'static str,
    work: Work<D>,
    policy: Policy,
}

enum Work<D: DeviceUnderTest> {
    Text(Rc<Scenario>),
    Program(fn(&D, &Policy) -> Result<(), Stop>),
}

/// Every group of scenarios, in the order in which they run.
pub fn groups() -> Vec<&'static str> {
    CORPUS.iter().map(|(group, _)| *group).chain(programs::GROUPS).collect()
}

/// The simulated devices that the suite certifies itself on: every kind there is.
pub fn sim_devices() -> Vec<SimDevice> {
    SimDevice::all()
}

/// Runs every scenario on a device and tells each result as it comes.
///
/// # Panics
///
/// If the corpus cannot be read: a mistake in this crate.
pub fn run<D: DeviceUnderTest>(
    device: &D,
    differences: &[Difference<'_>],
    progress: &mut dyn FnMut(&ScenarioResult),
) -> Vec<ScenarioResult> {
    let cases = cases::<D>();
    let mut results = Vec::new();
    for case in &cases {
        let result = run_case(device, case, differences);
        progress(&result);
        results.push(result);
    }
    for result in unknown(&cases, differences) {
        progress(&result);
        results.push(result);
    }
    results
}

/// Runs one group on a device and answers every result, none where the device is not there; for tests.
///
/// # Panics
///
/// If there is no such group, with all failures if any scenario failed, and if a device that the environment demands is
/// not there.
pub fn expect_group<D: DeviceUnderTest>(
    device: &D,
    group: &str,
    differences: &[Difference<'_>],
) -> Vec<ScenarioResult> {
    let cases = cases::<D>();
    assert!(groups().contains(&group), "there is no group `{group}`: {:?}", groups());
    if open_or_skip(device).is_none() {
        return Vec::new();
    }
    let own = cases.iter().filter(|case| case.group == group);
    let results: Vec<ScenarioResult> = own.map(|case| run_case(device, case, differences)).collect();
    let failed = results.iter().filter(|result| matches!(result.outcome, Outcome::Failed(_)));
    let failed: Vec<String> = failed.map(|result| format!("{}: {}", result.name, result.outcome)).collect();
    assert!(failed.is_empty(), "on {}\n{}", device.name(), failed.join("\n"));
    results
}

/// Verifies that every declared difference names a scenario; for tests.
///
/// # Panics
///
/// With those that do not.
pub fn expect_known_differences<D: DeviceUnderTest>(differences: &[Difference<'_>]) {
    let unknown = unknown(&cases::<D>(), differences);
    assert!(unknown.is_empty(), "{unknown:?}");
}

fn cases<D: DeviceUnderTest>() -> Vec<Case<D>> {
    let mut cases = Vec::new();
    for (group, text) in CORPUS {
        let scenarios = scenario::load(text).unwrap_or_else(|error| panic!("corpus/{group}.txt, {error}"));
        for scenario in scenarios.into_iter().map(Rc::new) {
            for &policy in &scenario.policies {
                let name = format!("{group}/{}/{}", scenario.name, policy.name);
                cases.push(Case { name, group, work: Work::Text(Rc::clone(&scenario)), policy });
            }
        }
    }
    for program in programs::all::<D>() {
        for &policy in program.policies {
            let name = format!("{}/{}/{}", program.group, program.name, policy.name);
            cases.push(Case { name, group: program.group, work: Work::Program(program.run), policy });
        }
    }
    cases
}

impl<D: DeviceUnderTest> Case<D> {
    fn run(&self, device: &D) -> Result<(), Stop> {
        match &self.work {
            Work::Text(scenario) => scenario::play(device, scenario, &self.policy).map_err(|stop| match stop {
                Stop::Fail(text) => Stop::Fail(format!("corpus/{}.txt, {text}", self.group)),
                skip => skip,
            }),
            Work::Program(run) => run(device, &self.policy),
        }
    }
}

fn run_case<D: DeviceUnderTest>(device: &D, case: &Case<D>, differences: &[Difference<'_>]) -> ScenarioResult {
    let _turn = device.turn();
    let began = Instant::now();
    // What a scenario leaves behind when it panics is its own device, which goes with it.
    let ended = catch_unwind(AssertUnwindSafe(|| case.run(device)));
    let declared = differences.iter().find(|difference| names(difference.scenario, &case.name));
    let outcome = match (ended.unwrap_or_else(|panic| Err(Stop::Fail(text_of(panic)))), declared) {
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

/// Whether a declared name means the case: its whole name, or all but the policy.
fn names(declared: &str, case: &str) -> bool {
    case == declared || case.rsplit_once('/').is_some_and(|(scenario, _)| scenario == declared)
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
