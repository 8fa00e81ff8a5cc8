//! The slack: what it reserves, and how often the driver is called for it.

use millpond::Allocator;
use millpond::settings::{Growth, Policy, Settings};
use millpond_sim::Completion;

use super::device::{GIB, MIB, builder, changes, device, streams, written};
use super::recorded::replay;

/// Replays a program under a slack. Returns the most bytes that were reserved, and the driver calls.
fn life(name: &str, slack: Option<f64>, passes: usize) -> (u64, u64) {
    let replay = replay(name);
    let sim = device(140 * GIB, Completion::Immediate).build();
    let text = slack.map_or(String::new(), |slack| format!("slack:{slack}"));
    let allocator = Allocator::builder(sim.clone()).conf(&text).build().unwrap_or_else(|error| panic!("{error}"));
    let streams = streams(&allocator, replay.streams() as usize);
    for pass in 0..passes {
        let pass = replay.pass(&allocator, &streams).unwrap_or_else(|error| panic!("{name}, pass {pass}: {error}"));
        assert_eq!(pass.ooms, 0, "{name}");
    }
    let stats = allocator.slack_stats();
    let (peak, bound) = (allocator.max_memory_reserved(), stats.bound_bytes.expect("paged has a bound"));
    assert_eq!(stats.beyond_bytes, allocator.memory_reserved().saturating_sub(bound), "{name}, {slack:?}");
    assert_eq!((stats.pinned_bytes, stats.pinned_by), (0, vec![]), "{name}: the device is done");
    println!("{name}, slack {slack:?}: {peak} bytes reserved, {} beyond {bound}", stats.beyond_bytes);
    allocator.check();
    (peak, changes(&sim.calls()))
}

/// What is reserved is at most a hundredth more under less slack: then it is what pages have too much that counts. A
/// program that needs no more than the usual slack makes no difference between that and more.
#[test]
fn less_is_reserved_and_the_driver_is_called_more_often_as_the_slack_falls() {
    for name in ["llm_generate", "prefetch"] {
        let lives = [0.0, 0.05, 0.5].map(|slack| life(name, Some(slack), 2));
        let falls = lives.is_sorted_by(|less, more| less.0 < more.0 + more.0 / 100 && less.1 >= more.1);
        assert!(falls && lives[0].0 < lives[2].0 && lives[0].1 > lives[2].1, "{name}: {lives:?}");
        assert_eq!(life(name, None, 2), lives[1], "{name}: 5 % is the default");
    }
}

/// Streams free what others still use, and are not made to wait: what is reserved beyond the slack is told with the
/// streams whose work is under way.
#[test]
fn what_work_under_way_pins_is_told_by_stream() {
    let sim = device(140 * GIB, Completion::Manual).build();
    let allocator = builder(&sim, Growth::Balanced).build().unwrap_or_else(|error| panic!("{error}"));
    let streams = streams(&allocator, 3);
    let buffer = written(&sim, &streams[0], 64 * MIB);
    sim.busy(streams[0].id());
    for other in &streams[1..] {
        sim.busy(other.id());
        buffer.record_stream(other).unwrap_or_else(|error| panic!("{error}"));
    }
    drop(buffer);
    drop(written(&sim, &streams[1], 32 * MIB));
    let told = || {
        let stats = allocator.slack_stats();
        let by = stats.pinned_by.iter().map(|by| (by.stream, by.bytes / MIB, by.own_bytes / MIB));
        (stats.beyond_bytes, stats.pinned_bytes / MIB, by.collect::<Vec<_>>())
    };
    let [home, first, second] = [0, 1, 2].map(|at: usize| streams[at].id());
    // 96 MiB are reserved for 64 that were live.
    let beyond = 96 * MIB - 64 * MIB * 21 / 20;
    assert_eq!(told(), (beyond, 64, vec![(home, 64, 0), (first, 64, 32), (second, 64, 0)]));
    let table = allocator.memory_summary(true);
    let has = |row: &str| table.lines().any(|line| line.contains(row));
    assert!(has("| Reserved beyond it    |  29491 KiB |") && has("|       of stream 2     |  65536 KiB |"), "{table}");
    sim.complete(second);
    assert_eq!(told(), (beyond, 64, vec![(home, 64, 0), (first, 64, 32)]));
    sim.complete(first);
    assert_eq!(told(), (beyond, 0, vec![(home, 0, 64)]), "its own work on it is under way");
    sim.complete(home);
    assert_eq!(told(), (beyond, 0, vec![]));
}

/// The setting is the same in a configuration and in code, and it belongs to `paged` here.
#[test]
fn a_configuration_sets_it() {
    let sim = device(GIB, Completion::Immediate).build();
    let built =
        |conf: &str| Allocator::builder(sim.clone()).conf(conf).build().map(|allocator| allocator.settings().policy);
    let policy = |slack| Policy::Paged { growth: Growth::Tight, slack };
    assert_eq!(built("growth:tight,slack:0.25").ok(), Some(policy(0.25)));
    assert_eq!(built("growth:tight").ok(), Some(policy(Policy::DEFAULT_SLACK)));
    for (conf, said) in [("slack:1001", "must be from 0 to 1000"), ("slack:-1", "must be a decimal number")] {
        let error = built(conf).expect_err(conf).to_string();
        assert!(error.contains(said), "{error}");
    }
    let settings = Settings { policy: policy(-0.5), ..Settings::default() };
    let error = Allocator::builder(sim.clone()).settings(settings).build().map(drop).expect_err("below 0").to_string();
    assert!(error.contains("`slack` is -0.5, must be from 0 to 1000"), "{error}");
}
