//! The suite itself: it finds failures, and it checks the declared differences.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use millpond_backend::{Closing, Reuse, StreamId};
use millpond_conformance::suite::{groups, run, run_groups};
use millpond_conformance::{DeviceUnderTest, Difference, Need, Outcome, ScenarioResult, SimDevice, Unavailable};
use millpond_sim::{Completion, Sim};

const GOOD: SimDevice = SimDevice::new(Closing::Submit, Reuse::InOrder, Completion::Immediate);

fn outcome<'a>(results: &'a [ScenarioResult], name: &str) -> &'a Outcome {
    match results.iter().find(|result| result.name == name) {
        Some(result) => &result.outcome,
        None => panic!("{name} was not run"),
    }
}

/// A simulated device whose author forgot to implement the submit.
struct NeverSubmits;

impl DeviceUnderTest for NeverSubmits {
    type Backend = Sim;

    fn name(&self) -> String {
        "never submits".to_owned()
    }

    fn open(&self, _: &Need) -> Result<Sim, Unavailable> {
        Ok(Sim::builder().closing(Closing::Submit).build())
    }

    fn submit(&self, _: &Sim, _: StreamId) {}
}

/// A device that is not available.
struct Absent;

impl DeviceUnderTest for Absent {
    type Backend = Sim;

    fn name(&self) -> String {
        "absent".to_owned()
    }

    fn open(&self, _: &Need) -> Result<Sim, Unavailable> {
        Err(Unavailable("no driver is installed".to_owned()))
    }
}

/// A simulated device with none of its optional powers, whose author implemented only what is required.
struct Minimal;

impl DeviceUnderTest for Minimal {
    type Backend = Sim;

    fn name(&self) -> String {
        "with no strings to pull".to_owned()
    }

    fn open(&self, _: &Need) -> Result<Sim, Unavailable> {
        Ok(Sim::builder().pages(None).transfer(false).stream_wait(false).build())
    }
}

/// A simulated device that notes the thread of each scenario.
#[derive(Default)]
struct Threads(Mutex<Vec<ThreadId>>);

impl DeviceUnderTest for Threads {
    type Backend = Sim;

    fn name(&self) -> String {
        "notes threads".to_owned()
    }

    fn open(&self, _: &Need) -> Result<Sim, Unavailable> {
        Ok(Sim::new())
    }

    fn turn(&self) -> Option<MutexGuard<'static, ()>> {
        self.0.lock().expect("no scenario panics here").push(thread::current().id());
        None
    }
}

/// With several jobs scenarios run on threads of their own, but for those that look at what the device has left.
#[test]
fn scenarios_run_side_by_side_unless_they_look_at_the_whole_device() {
    let here = thread::current().id();
    for (group, jobs, is_here) in [("alignment", 1, true), ("alignment", 3, false), ("budget", 3, true)] {
        let device = Threads::default();
        let jobs = NonZeroUsize::new(jobs).expect("a number of jobs");
        run_groups(&device, &[group], &[], jobs, &mut |_| {});
        let threads = device.0.into_inner().expect("no scenario panics here");
        // The first one reads the facts about the device.
        let [facts, scenarios @ ..] = &threads[..] else { panic!("{group}: nothing has run") };
        assert!(*facts == here && scenarios.len() > 1, "{group}: {threads:?}");
        assert!(scenarios.iter().all(|&thread| (thread == here) == is_here), "{group} by {jobs}: {threads:?}");
    }
}

#[test]
fn every_group_runs_and_a_declared_difference_that_does_not_occur_fails() {
    let differences = [
        Difference { scenario: "limits/a-limit-holds/classic", reason: "for the test" },
        Difference { scenario: "limits/no-room-at-all", reason: "for the test" },
        Difference { scenario: "limits/no-such-scenario", reason: "for the test" },
    ];
    let mut told = Vec::new();
    let results = run(&GOOD, &differences, &mut |result| told.push(result.name.clone()));
    assert_eq!(told, results.iter().map(|result| result.name.clone()).collect::<Vec<_>>());
    for group in groups() {
        let passed = |result: &&ScenarioResult| result.name.starts_with(group) && result.outcome == Outcome::Passed;
        assert!(results.iter().find(passed).is_some(), "nothing of {group} passed");
    }
    let failed: Vec<&str> = results
        .iter()
        .filter(|result| matches!(result.outcome, Outcome::Failed(_)))
        .map(|result| result.name.as_str())
        .collect();
    let expected = [
        "limits/a-limit-holds/classic",
        "limits/no-room-at-all/classic",
        "limits/no-room-at-all/expandable",
        "limits/no-room-at-all/direct",
        "limits/no-room-at-all/paged",
        "limits/no-room-at-all/tight",
        "limits/no-such-scenario",
    ];
    assert_eq!(failed, expected);
}

#[test]
fn a_forgotten_submit_is_found_and_may_be_declared() {
    let differences = [Difference { scenario: "trim/everything-cached-goes", reason: "submits are not written yet" }];
    let results = run(&NeverSubmits, &differences, &mut |_| {});
    let declared = outcome(&results, "trim/everything-cached-goes/classic");
    assert_eq!(*declared, Outcome::Differs("submits are not written yet".to_owned()));
    let Outcome::Failed(text) = outcome(&results, "data/neighbours-keep-their-bytes/classic") else {
        panic!("nobody noticed that nothing is submitted")
    };
    assert!(text.contains("is not reached"), "{text}");
}

#[test]
fn a_device_that_is_absent_skips_everything() {
    let results = run(&Absent, &[], &mut |_| {});
    let skipped = Outcome::Skipped("no driver is installed".to_owned());
    assert!(results.len() > 100, "only {} scenarios were run", results.len());
    assert!(results.iter().all(|result| result.outcome == skipped));
}

#[test]
fn a_device_with_few_powers_passes_what_it_can_serve() {
    let results = run(&Minimal, &[], &mut |_| {});
    let failed: Vec<_> = results.iter().filter(|result| matches!(result.outcome, Outcome::Failed(_))).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(*outcome(&results, "reuse/a-freed-block-comes-back/classic"), Outcome::Passed);
    for (name, reason) in [
        ("reuse/a-freed-block-comes-back/expandable", "the device has no virtual memory"),
        ("data/neighbours-keep-their-bytes/classic", "the device has no fills and copies"),
        ("reuse/the-home-stream-need-not-wait/classic", "the device has no work that runs until it is told to end"),
        ("faults/each-call-fails/classic", "the device cannot make a driver call fail"),
    ] {
        assert_eq!(*outcome(&results, name), Outcome::Skipped(reason.to_owned()), "{name}");
    }
}
