//! A replay gives the same results whether the backend or the application closes ticks.

use std::path::Path;

use millpond::events::Event as Told;
use millpond::settings::{Policy, Settings};
use millpond::stats::{MemoryStats, PageStats};
use millpond_backend::{Closing, Reuse, StreamId};
use millpond_sim::{Completion, Sim};

use super::super::*;
use crate::record::DecisionLog;
use crate::{Life, Observer};
use millpond_trace::Pattern;

/// The results of a replay, and its decisions.
type Outcome = (MemoryStats, PageStats, [u64; 3], Vec<Told>);

/// Runs one replay: of one pass with its decisions, or of two passes. Without a log of decisions, blocks in the cache
/// are handed out without asking the device.
fn outcome(replay: &Replay, device: (Closing, Reuse), settings: &Settings, limit: Option<u64>, log: bool) -> Outcome {
    let sim = Sim::builder().closing(device.0).reuse(device.1).stream_wait(false).build();
    let mut builder = Allocator::builder(sim).settings(settings.clone());
    if let Some(limit) = limit {
        builder = builder.limit(limit);
    }
    let allocator = builder.build().expect("valid settings");
    if log {
        DecisionLog::start(&allocator);
    }
    let Replayed { cold, warm, stats, pages, driver, warm_driver, .. } =
        replay.run(&allocator, usize::from(!log)).expect("no driver fails");
    let refused = cold.ooms + warm.iter().map(|pass| pass.ooms).sum::<u64>();
    // Where the application submits, a free under `direct` looks for memory to release and finds none yet, which is one
    // more plan that ends without a step.
    let is_ado = |decision: &Told| !matches!(decision, Told::Step { name: "done", .. });
    let decisions = DecisionLog::finish(&allocator).into_iter().filter(is_ado).collect();
    (stats, pages, [driver.calls, warm_driver.calls, refused], decisions)
}

fn settings() -> [Settings; 4] {
    let policies = ["paged", "classic", "expandable", "direct"].map(|name| Policy::variant(name).expect(name));
    policies.map(|policy| Settings { policy, ..Settings::default() })
}

fn expect_equal(name: &str, trace: &Trace, reuse: Reuse, logs: &[bool]) {
    let replay = Replay::new(trace);
    for settings in settings() {
        for (limit, &log) in [None, Some(replay.live_peak() / 10 * 11)].into_iter().zip(logs.iter().cycle()) {
            let [by_backend, by_submit] = [Closing::Backend, Closing::Submit]
                .map(|closing| outcome(&replay, (closing, reuse), &settings, limit, log));
            let how = format!("{name} under {settings:?}, limited to {limit:?}, {reuse:?}");
            assert_eq!(by_submit.2, by_backend.2, "driver calls, cold and warm, and refusals: {how}");
            assert!(by_submit == by_backend, "the statistics or decisions differ: {how}");
        }
    }
}

#[test]
fn every_pattern_is_served_alike_whoever_closes_ticks() {
    for pattern in Pattern::ALL {
        let mut trace = pattern.trace(1);
        trace.events.truncate(10_000);
        expect_equal(pattern.name(), &trace, Reuse::InOrder, &[false, true]);
        trace.events.truncate(2000);
        expect_equal(pattern.name(), &trace, Reuse::InOrder, &[true, false]);
        expect_equal(pattern.name(), &trace, Reuse::AfterDone, &[true, false]);
    }
}

#[test]
fn every_recorded_program_is_served_alike_whoever_closes_ticks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/traces");
    let mut traces = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "gz") {
            let mut trace = Trace::read(&path).expect("a trace");
            trace.events.truncate(60_000);
            expect_equal(&path.display().to_string(), &trace, Reuse::InOrder, &[true, false]);
            traces += 1;
        }
    }
    assert!(traces >= 7, "{traces} traces in {}", folder.display());
}

/// The cache serves every request without asking the device, which would be a reason to submit.
#[test]
fn a_bounded_number_of_frees_comes_between_two_submits() {
    let text: String = (0..300).map(|id| format!("a {id} 512 0\nf {id}\n")).collect();
    let replay = Replay::new(&Trace::parse(text.as_bytes()).expect("a trace"));
    let sim = Sim::builder().closing(Closing::Submit).build();
    let allocator = Allocator::builder(sim.clone()).settings(settings()[1].clone()).build().expect("valid settings");
    let streams = [allocator.create_stream().expect("a stream")];
    let mut submits = replay.submits(&allocator, &streams, false);
    let passed = replay.watched_pass(&allocator, &streams, &mut submits, &mut Unwatched, Deadline::NEVER);
    assert_eq!(passed.expect("no driver fails").events, 600);
    // Each submit closes a tick, of which the first has the number 1. The question for the point may close one more.
    let submits = streams[0].point().tick.0 - 1;
    assert!((4..=5).contains(&submits), "one after each 64 frees, and there were {submits}");
}

/// Queues a piece of work on the second stream when the first block is used there.
struct Works(Sim);

impl Observer<Sim> for Works {
    fn done(&mut self, event: usize) {
        if event == 1 {
            self.0.busy(StreamId(1));
        }
    }
}

/// The device completes work only where the host waits for it. So the second request finds the first block free.
#[test]
fn what_is_submitted_is_waited_for() {
    let text = "a 0 41943040 0\nu 0 1\nf 0\na 1 41943040 0\nf 1\n";
    let replay = Replay::new(&Trace::parse(text.as_bytes()).expect("a trace"));
    let sim = Sim::builder().closing(Closing::Submit).completion(Completion::Manual).stream_wait(false).build();
    let allocator = Allocator::builder(sim.clone()).settings(settings()[1].clone()).build().expect("valid settings");
    let streams: Vec<_> = (0..2).map(|_| allocator.create_stream().expect("a stream")).collect();
    assert_eq!(streams[1].id(), StreamId(1));
    let mut works = Works(sim);
    let life = Life { observer: Some(&mut works), ..Life::default() };
    let replayed = replay.run_life(&allocator, &streams, 0, life, |_| ()).expect("no driver fails");
    assert_eq!(replayed.stats.reserved_bytes.all.peak, 40 << 20);
}
