//! Settings that change while memory is reserved: from the next decision on they are as if they had always been so, and
//! what is counted stays true.

use core::time::Duration;

use millpond_core::settings::{Divisions, IdleRelease, Policy, RecordStream, Settings, Ties};
use millpond_core::{PoolId, Step};
use millpond_trace::Random;

use crate::driver::{Device, Facts, Held, MIB};

impl Device {
    fn change(&mut self, to: &Settings) {
        self.coordinator.change_settings(to, &mut self.shards).expect("they are in their range");
        self.sizes = self.coordinator.sizes().clone();
    }

    /// Returns the oversize blocks in use and the oversize segments.
    fn oversize(&mut self) -> (u64, u64) {
        let stats = self.stats();
        (stats.oversize_allocations.current, stats.oversize_segments.current)
    }
}

fn split_at(mib: u64) -> Settings {
    Settings { max_split_bytes: Some(mib * MIB), ..Settings::default() }
}

#[test]
fn blocks_in_use_and_segments_are_oversize_by_the_new_limit() {
    let mut device = Device::of(&Facts::new(split_at(200), 2));
    let held = [(0, 100), (1, 60), (0, 30), (1, 1)].map(|(lane, mib)| device.allocate(lane, mib * MIB));
    let mut peak = 0;
    for (mib, expected) in [(200, (0, 0)), (60, (2, 2)), (61, (1, 1)), (30, (3, 3)), (201, (0, 0)), (25, (3, 3))] {
        device.change(&split_at(mib));
        device.check();
        assert_eq!(device.oversize(), expected, "{mib} MiB");
        peak = peak.max(expected.0);
        let stats = device.stats();
        assert_eq!((stats.oversize_allocations.peak, stats.oversize_segments.peak), (peak, peak), "{mib} MiB");
        assert_eq!(stats.max_split_size, Some(mib * MIB));
    }
    held.into_iter().for_each(|held| device.free(held, 1));
    assert_eq!(device.oversize(), (0, 3), "the segments are cached");
    device.change(&Settings::default());
    assert_eq!((device.oversize(), device.empty()), ((0, 0), 0));
}

/// A block whose free is put off is not in use, though its counters say so until the shard is tidied.
#[test]
fn a_free_that_is_put_off_is_done_by_the_old_limit() {
    let mut device = Device::of(&Facts::new(split_at(30), 1));
    let held = device.allocate(0, 40 * MIB);
    device.take_back(held, 1);
    device.change(&split_at(50));
    device.check();
    assert_eq!(device.oversize(), (0, 0));
}

#[test]
fn what_may_not_change_stays_and_what_is_out_of_its_range_changes_nothing() {
    let facts = Facts::new(Settings { policy: Policy::Direct, ..Settings::default() }, 1);
    let mut device = Device::of(&facts);
    let to = Settings { policy: Policy::default(), ties: Ties::Address, throw_on_oom: true, ..split_at(64) };
    device.change(&to);
    let expected = Settings { throw_on_oom: true, max_split_bytes: Some(64 * MIB), ..facts.settings };
    assert_eq!(device.coordinator.settings(), &expected);
    let wrong = Settings { gc_threshold: 0.5, memory_fraction: 2.0, ..Settings::default() };
    let error = device.coordinator.change_settings(&wrong, &mut device.shards).unwrap_err();
    assert_eq!((error.field, device.coordinator.settings()), ("memory_fraction", &expected));
}

/// Returns settings of which those that may change are drawn.
fn drawn(random: &mut Random, policy: Policy) -> Settings {
    let large_segment_bytes = random.pick(&[12, 20, 32]) * MIB;
    let limit = |random: &mut Random| {
        let limit = large_segment_bytes + random.below(60) * MIB;
        (!random.one_in(3)).then_some(limit)
    };
    Settings {
        policy,
        large_segment_bytes,
        max_split_bytes: limit(random),
        max_non_split_rounding_bytes: limit(random),
        gc_threshold: random.pick(&[0.0, 0.1, 0.5]),
        divisions: Divisions([random.pick(&[0, 0, 4]); 16]),
        memory_fraction: random.pick(&[1.0, 0.25]),
        throw_on_oom: random.one_in(3),
        record_stream: random.pick(&RecordStream::ALL),
        idle: IdleRelease { after: random.one_in(2).then_some(Duration::from_nanos(5)), ..IdleRelease::default() },
        ..Settings::default()
    }
}

/// One step of a program: a request or a free. Returns whether a request was refused.
fn step(device: &mut Device, random: &mut Random, held: &mut Vec<Held>, tick: u64) -> bool {
    if held.len() > 12 || (!held.is_empty() && random.one_in(2)) {
        let at = random.index(held.len());
        if random.one_in(3) {
            device.record(held[at], 1);
        }
        device.free(held.swap_remove(at), tick);
        return false;
    }
    let bytes = if random.one_in(3) { random.bytes(1, 2 * MIB) } else { random.bytes(MIB, 120 * MIB) };
    let served = device.try_serve(random.index(2), bytes);
    let is_refused = served.is_err();
    held.extend(served);
    is_refused
}

/// Settings change at any moment, also between two steps of a plan, under every policy.
#[test]
fn a_change_at_any_moment_keeps_every_invariant() {
    for (seed, policy) in (0..40).flat_map(|seed| Policy::VARIANTS.map(|policy| (seed, policy))) {
        let mut random = Random::new(seed);
        let facts = Facts { limit: Some(400 * MIB), ..Facts::under(policy, 2) };
        let (mut device, mut held) = (Device::of(&facts), Vec::new());
        for tick in 1..60 {
            if random.one_in(4) {
                device.change(&drawn(&mut random, policy));
                device.check();
            }
            if random.one_in(3) {
                let (lane, bytes) = (random.index(2), random.bytes(1, 80 * MIB));
                let mut plan = device.plan(lane, bytes);
                let end = loop {
                    let step = device.next(&mut plan);
                    if step.is_end() {
                        break step;
                    }
                    device.change(&drawn(&mut random, policy));
                    device.done(&mut plan, &step);
                };
                device.check();
                held.extend(device.granted(&end, lane));
            } else {
                step(&mut device, &mut random, &mut held, tick);
            }
            if random.one_in(8) && !matches!(policy, Policy::Direct) {
                if let Some(mut plan) = device.coordinator.idle_release(tick * 4, [0; 2], &mut device.shards) {
                    device.change(&drawn(&mut random, policy));
                    assert_eq!(device.end(&mut plan), Step::Done);
                    device.coordinator.idle_released(tick * 4, plan.released_bytes(), &mut device.shards);
                }
                device.check();
            }
        }
        held.into_iter().for_each(|held| device.free(held, 99));
        assert_eq!(device.empty(), 0, "seed {seed}, {policy:?}");
        assert_eq!(device.oversize(), (0, 0), "seed {seed}, {policy:?}");
    }
}

/// A program on an allocator whose settings have changed gets what it gets where they were so from the beginning.
#[test]
fn after_a_change_decisions_are_those_of_the_new_settings() {
    let mut refused = 0;
    for (seed, policy) in (0..40).flat_map(|seed| Policy::VARIANTS.map(|policy| (seed, policy))) {
        let mut random = Random::new(seed);
        let (before, after) = (drawn(&mut random, policy), drawn(&mut random, policy));
        let open = |settings: &Settings| {
            let shards = vec![(0, PoolId::DEFAULT), (1, PoolId::DEFAULT)];
            Device::of(&Facts { shards, limit: Some(300 * MIB), ..Facts::new(settings.clone(), 0) })
        };
        let (mut changed, mut fresh) = (open(&before), open(&after));
        changed.change(&after);
        let (mut held, mut expected) = (Vec::new(), Vec::new());
        let (mut one, mut other) = (Random::new(seed), Random::new(seed));
        for tick in 1..50 {
            let is_refused = step(&mut changed, &mut one, &mut held, tick);
            assert_eq!(step(&mut fresh, &mut other, &mut expected, tick), is_refused, "seed {seed}, {policy:?}");
            assert_eq!((&held, changed.stats()), (&expected, fresh.stats()), "seed {seed}, {policy:?}");
            refused += u32::from(is_refused);
        }
    }
    assert!(refused > 30, "{refused} requests were refused");
}
