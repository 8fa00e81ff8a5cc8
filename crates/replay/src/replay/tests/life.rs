//! Lives of several passes: what is measured over all of them, kept blocks and sizes that vary.

use std::time::Duration;

use millpond::Buffer;
use millpond::settings::Settings;
use millpond_backend::Closing;
use millpond_sim::{CostModel, Sim};
use millpond_trace::Pattern;

use super::super::*;
use super::checked::{allocator, beginning, busy_device, open, variants};
use crate::{Life, Observer, Vary};

const MIB: u64 = 1 << 20;

/// A policy that grows in a later pass shows it in the figures of the whole life, and in those of that pass alone.
#[test]
fn growth_in_the_third_pass_is_told() {
    let replay = Replay::new(&Trace::parse(b"a 0 4194304 0\nf 0\n").expect("a trace"));
    let classic = allocator(&Sim::builder().cost(CostModel::h200()).build(), variants()[1].clone());
    let streams = open(&classic, &replay);
    let mut submits = replay.submits(&classic, &streams, true);
    let (mut passes, mut more) = (0, Vec::new());
    let replayed = replay.passes(
        &classic,
        Until::Passes(4),
        |_| (),
        |deadline| {
            passes += 1;
            if passes == 3 {
                more.push(streams[0].allocate(60 * MIB)?);
            }
            replay.watched_pass(&classic, &streams, &mut submits, &mut Unwatched, deadline)
        },
    );
    let replayed = replayed.expect("no driver fails");
    let calls: Vec<u64> = replayed.passes().map(|pass| pass.driver.calls).collect();
    assert_eq!(calls, [1, 0, 1, 0, 0]);
    assert_eq!((replayed.driver.calls, replayed.warm_driver.calls, replayed.last().driver.calls), (1, 1, 0));
    assert_eq!(replayed.driver.time + replayed.warm_driver.time, classic.driver_activity().time);
    let times: Vec<Duration> = replayed.passes().map(|pass| pass.driver.time).collect();
    assert!(times[2] > times[1] && times[2] > times[4], "{times:?}");
    // Segments of classic are 20 MiB, or the request's own size where that is larger.
    assert_eq!((replayed.stats.reserved_bytes.all.peak, replayed.life_reserved_peak), (20 * MIB, 80 * MIB));
    assert_eq!((replayed.live_peak, replayed.life_live_peak), (4 * MIB, 4 * MIB), "that of the trace");
    assert_eq!((replayed.reserved_over_live(), replayed.life_reserved_over_live()), (5.0, 20.0));
    let mut later = replayed;
    later.warm[3].live_peak = 40 * MIB;
    assert_eq!(later.life_reserved_over_live(), 20.0, "it was so two passes before that");
    later.warm[1].live_peak = 40 * MIB;
    assert_eq!(later.life_reserved_over_live(), 5.0, "as in the first pass");
}

/// Sizes that differ in each pass make `classic` reserve more than its first pass did.
#[test]
fn sizes_that_vary_show_in_the_whole_life() {
    let replay = Replay::new(&Pattern::Phases.trace(1));
    let lived = |vary| {
        let classic = allocator(&Sim::new(), variants()[1].clone());
        let life = Life { vary, ..Life::default() };
        let replayed = replay.run_life(&classic, &open(&classic, &replay), 5, life, |_| ()).expect("no driver fails");
        assert_eq!((classic.memory_allocated(), replayed.warm.len()), (0, 5));
        replayed
    };
    let (same, varied) = (lived(None), lived(Some(Vary::new(5, 1))));
    assert_eq!(same.life_reserved_over_live(), same.reserved_over_live());
    assert_eq!(varied.stats, same.stats, "the first pass is as recorded");
    assert!(varied.life_reserved_over_live() > varied.reserved_over_live(), "{varied:?}");
    assert!(varied.warm.iter().any(|pass| pass.driver.calls > 0) && varied.warm_driver.calls > same.warm_driver.calls);
    let ratio = varied.life_live_peak as f64 / varied.live_peak as f64;
    assert!(ratio > 1.0 && ratio < 1.05, "a later pass had most: {ratio}");
    assert_eq!(lived(Some(Vary::new(5, 1))).life_reserved_peak, varied.life_reserved_peak, "equal seeds");
}

/// Block 0 stays: it is allocated once and freed behind the last pass.
#[test]
fn kept_blocks_stay_to_the_end() {
    let replay = Replay::new(&Trace::parse(b"a 0 41943040 0\na 1 20971520 0\nf 1\nf 0\n").expect("a trace"));
    let lived = |kept| {
        let direct = allocator(&Sim::new(), variants()[3].clone());
        let mut live = Vec::new();
        let life = Life { kept, ..Life::default() };
        let told = |_| live.push(direct.memory_allocated());
        let replayed = replay.run_life(&direct, &open(&direct, &replay), 2, life, told).expect("no driver fails");
        assert_eq!(direct.memory_reserved(), 0, "freed in the end");
        (replayed, live)
    };
    let (all, live) = lived(Vec::new());
    assert_eq!((all.cold.driver.calls, all.last().driver.calls, live), (4, 4, vec![0; 3]));
    let (kept, live) = lived(vec![true, false]);
    assert_eq!((kept.cold.driver.calls, kept.last().driver.calls, live), (3, 2, vec![40 * MIB; 3]));
    assert_eq!((kept.events, kept.warm_events, kept.events_replayed()), (3, 2, 7));
    assert_eq!((kept.live_peak, kept.life_live_peak, kept.life_reserved_peak), (60 * MIB, 60 * MIB, 60 * MIB));
    assert_eq!(kept.whole_warm_passes().count(), 2);
}

/// With all of it at once every byte is right, and each block is checked once for each time it was allocated.
#[test]
fn lives_are_checked_like_single_passes() {
    let mut trace = Pattern::ManyStreams.trace(1);
    trace.events.truncate(2000);
    let (replay, kept) = (Replay::new(&trace), trace.long_lived());
    let stays = kept.iter().filter(|kept| **kept).count();
    assert!(stays > 0 && stays < replay.allocations, "{stays}");
    for settings in variants() {
        let sim = busy_device(3, Closing::Backend, true);
        let allocator = allocator(&sim, settings);
        let vary = Some(Vary::new(10, 3));
        let life = Life { checked: true, kept: kept.clone(), vary, ..Life::default() };
        let replayed = replay.run_life(&allocator, &open(&allocator, &replay), 2, life, |_| ()).expect("sound bytes");
        assert_eq!(replayed.checked_blocks as usize, 3 * replay.allocations - 2 * stays);
        assert_eq!((sim.violations(), allocator.memory_allocated()), (Vec::new(), 0));
    }
}

#[test]
fn a_life_that_changes_nothing_is_the_plain_replay() {
    let replay = beginning(Pattern::ManyStreams, 1000);
    let [plain, lived] = [(); 2].map(|()| allocator(&Sim::new(), Settings::default()));
    let expected = replay.run(&plain, 2).expect("no driver fails");
    let found = replay.run_life(&lived, &open(&lived, &replay), 2, Life::default(), |_| ()).expect("no driver fails");
    assert_eq!((found.stats, found.pages), (expected.stats, expected.pages));
    assert_eq!(found.warm_driver.calls, expected.warm_driver.calls);
}

/// What an observer was told: in each pass the live bytes behind each event, and then that it is over.
#[derive(Default)]
struct Told {
    live: u64,
    refused: Vec<u32>,
    events: Vec<(usize, u64)>,
    passes: Vec<Vec<(usize, u64)>>,
}

impl Observer<Sim> for Told {
    fn granted(&mut self, _: u32, buffer: &Buffer<Sim>) {
        self.live += buffer.len();
    }

    fn refused(&mut self, id: u32, _: &Error<<Sim as Backend>::Error>) {
        self.refused.push(id);
    }

    fn freeing(&mut self, _: u32, buffer: &Buffer<Sim>) {
        self.live -= buffer.len();
    }

    fn done(&mut self, event: usize) {
        self.events.push((event, self.live));
    }

    fn over(&mut self) {
        self.passes.push(std::mem::take(&mut self.events));
    }
}

/// A kept block stays live between passes, a refused one is told, and the release behind the last pass is no pass.
#[test]
fn an_observer_is_told_every_event_of_every_pass() {
    let text = "a 0 1000 0\na 1 2000 0\nf 1\na 2 2000000000000 0\na 3 30 0\nf 2\n";
    let replay = Replay::new(&Trace::parse(text.as_bytes()).expect("a trace"));
    let classic = allocator(&Sim::new(), variants()[1].clone());
    let mut told = Told::default();
    let life = Life { kept: vec![true, false, false, false], observer: Some(&mut told), ..Life::default() };
    let replayed = replay.run_life(&classic, &open(&classic, &replay), 1, life, |_| ()).expect("no driver fails");
    let first = vec![(0, 1000), (1, 3000), (2, 1000), (3, 1000), (4, 1030), (5, 1030)];
    let second = vec![(0, 3000), (1, 1000), (2, 1000), (3, 1030), (4, 1030)];
    assert_eq!((told.passes, told.live, told.refused), (vec![first, second], 0, vec![2, 2]));
    assert_eq!(replayed.passes().map(|pass| pass.ooms).sum::<u64>(), 2);
}

/// Both requests are beyond the device. Their messages differ, as each names its size.
#[test]
fn the_first_of_several_refusals_is_kept() {
    let first_of = |text: &str| {
        let replay = Replay::new(&Trace::parse(text.as_bytes()).expect("a trace"));
        let pass = replay.run(&allocator(&Sim::new(), variants()[1].clone()), 0).expect("no driver fails").cold;
        (pass.ooms, pass.first_oom.expect("a refusal"))
    };
    let (one, other) = ("a 0 2000000000000 0\n", "a 1 3000000000000 0\n");
    let (ooms, both) = first_of(&format!("{one}{other}"));
    assert_eq!((ooms, &both), (2, &first_of(one).1));
    assert_ne!(both, first_of(other).1);
}
