//! Replays for a time: they end inside a pass, and leave nothing behind.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::*;
use super::checked::{allocator, beginning, busy_device, open, variants};
use millpond::settings::Settings;
use millpond_backend::Closing;
use millpond_trace::Pattern;

/// The number of events before the first look at the clock.
const FIRST: usize = 16;

#[test]
fn a_time_that_is_over_at_once_cuts_the_first_pass_short() {
    let replay = beginning(Pattern::ManyStreams, 1000);
    let begun = replay.events[..FIRST].iter().filter(|event| matches!(event, Event::Allocate { .. })).count();
    for settings in variants() {
        let sim = busy_device(3, Closing::Backend, true);
        let allocator = allocator(&sim, settings);
        let over = Until::Elapsed(Duration::ZERO);
        let replayed = replay.run_checked(&allocator, &open(&allocator, &replay), over, |_| ()).expect("sound bytes");
        assert_eq!((replayed.cold.events, replayed.warm.len()), (FIRST, 0));
        assert_eq!((replayed.checked_blocks, replayed.events_replayed()), (begun as u64, FIRST as u64));
        assert_eq!(replayed.live_peak, replayed.stats.requested_bytes.all.peak, "of what was replayed");
        assert_eq!((allocator.memory_allocated(), replayed.warm_ns_per_event()), (0, None));
        assert_eq!(sim.violations(), []);
    }
}

#[test]
fn passes_repeat_until_the_time_is_over() {
    let replay = beginning(Pattern::Phases, 200);
    let time = Duration::from_millis(60);
    for threads in [1, 3] {
        let sim = busy_device(3, Closing::Backend, true);
        let allocator = allocator(&sim, Settings::default());
        let streams: Vec<_> = (0..threads).map(|_| open(&allocator, &replay)).collect();
        let (began, mut told) = (Instant::now(), 0);
        let replayed = replay.run_threads(&allocator, &streams, Until::Elapsed(time), false, |passes| told = passes);
        let replayed = replayed.expect("no driver fails");
        assert!(began.elapsed() >= time, "{:?}", began.elapsed());
        assert!(replayed.warm.len() > 1 && told == replayed.warm.len() + 1, "{told}");
        let (cut, whole) = replayed.warm.split_last().expect("some passes");
        assert!(cut.events <= replay.events() && whole.iter().all(|pass| pass.events == replay.events()));
        assert!(replayed.warm_ns_per_event().is_some_and(|ns| ns > 0.0));
        assert_eq!(allocator.memory_allocated(), 0);
    }
}

#[test]
fn a_flag_ends_a_replay_inside_a_pass() {
    static SET: AtomicBool = AtomicBool::new(false);
    let replay = beginning(Pattern::ManyStreams, 1000).stopped_by(&SET);
    let run = || {
        let allocator = allocator(&busy_device(3, Closing::Backend, true), Settings::default());
        let streams = open(&allocator, &replay);
        let replayed = replay.run_on(&allocator, &streams, 3, |passes| {
            SET.fetch_or(passes == 2, Ordering::Relaxed);
        });
        (replayed.expect("no driver fails"), allocator.memory_allocated())
    };
    let (replayed, left) = run();
    assert_eq!((replayed.cold.events, replayed.warm.len(), left), (1000, 1, 0));
    // It is set from the beginning.
    let (replayed, left) = run();
    assert_eq!((replayed.cold.events, replayed.warm.len(), left), (FIRST, 0, 0));
    assert_eq!(replayed.live_peak, replayed.stats.requested_bytes.all.peak, "of what was replayed");
}
