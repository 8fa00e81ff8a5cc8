//! Room for peaks: which shard has it, and who waits for it.

use std::collections::VecDeque;

use millpond_backend::Reuse;
use millpond_core::settings::{Growth, Policy, Segments, Settings};
use millpond_core::stats::{MemoryStats, Stat};
use millpond_core::{Freed, Shard, ShardId, Shards};
use millpond_trace::Random;

use crate::driver::{Device, Facts, Held, MIB, point};

use super::classic;

/// Shards that are asked for room, in that order.
struct Asked<'a>(&'a mut Vec<Shard>, Vec<u32>);

impl Shards for Asked<'_> {
    fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) {
        self.0.visit(shard, f);
    }

    fn try_visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) -> bool {
        self.1.push(shard.0);
        self.0.visit(shard, f);
        true
    }
}

/// What a program has done.
#[derive(Default)]
struct Done {
    operations: usize,
    /// Visits of other shards for room.
    visits: usize,
    live: Vec<Held>,
}

impl Done {
    /// Settles a shard, as a thread does when an operation says so.
    fn settle(&mut self, device: &mut Device, shard: usize) {
        let mut asked = Asked(&mut device.shards, Vec::new());
        device.coordinator.settle(ShardId(shard as u32), &mut asked);
        self.visits += asked.1.len();
    }

    fn allocate(&mut self, device: &mut Device, shard: usize, bytes: u64) {
        self.operations += 1;
        let held = match device.hit(shard, bytes) {
            Some(held) => held,
            None => {
                let mut plan = device.plan(shard, bytes);
                let end = device.end(&mut plan);
                device.granted(&end, shard).expect("there is room")
            }
        };
        if held.grant.unsettled {
            self.settle(device, held.shard);
        }
        self.live.push(held);
    }

    /// Frees the block at a place in the list, which another stream may use until its tick 7.
    fn free(&mut self, device: &mut Device, at: usize, user: Option<u32>) {
        self.operations += 1;
        let held = self.live.swap_remove(at);
        user.into_iter().for_each(|user| device.record(held, user));
        match device.take_back(held, 5) {
            Freed::Pending(_) => device.pend(held, &user.map(|user| point(user, 7)).into_iter().collect::<Vec<_>>()),
            Freed::Done { unsettled } | Freed::Settling { unsettled } => {
                if unsettled {
                    self.settle(device, held.shard);
                }
            }
        }
    }
}

/// Runs a program that a seed draws, with `look` called after each operation, and with whether peaks were reset then.
fn run(facts: &Facts, seed: u64, uses: bool, look: &mut dyn FnMut(&mut Device, bool)) -> (Device, Done) {
    let (mut device, mut random, mut done) = (Device::of(facts), Random::new(seed), Done::default());
    let streams = device.lanes.len();
    for at in 0..3000 {
        // Streams have work in turns, and what they have at a time comes and goes.
        let shard = if random.one_in(4) { random.index(streams) } else { at / 40 % streams };
        let most = 4 + 60 * (at / 500 % 2);
        if done.live.len() < most && !random.one_in(3) {
            let bytes = random.pick(&[MIB / 4, MIB / 4 - 512, MIB / 2, MIB, 3 * MIB, 30 * MIB]);
            done.allocate(&mut device, shard, bytes);
        } else if !done.live.is_empty() {
            let (at, user) = (random.index(done.live.len()), random.index(streams) as u32);
            let is_used = uses && random.one_in(3) && user as usize != done.live[at].shard;
            done.free(&mut device, at, is_used.then_some(user));
        }
        if uses && random.one_in(50) {
            device.note_reached(random.index(streams) as u32, 7);
        }
        if at == 700 {
            device.reset_peaks();
        }
        look(&mut device, at == 700);
    }
    (device, done)
}

/// Returns what the statistics count block by block.
fn counted(device: &mut Device) -> Vec<Stat> {
    let MemoryStats { allocation, allocated_bytes, active, active_bytes, requested_bytes, .. } = device.stats();
    let MemoryStats { inactive_split, inactive_split_bytes, oversize_allocations, .. } = device.stats();
    let families = [allocation, allocated_bytes, active, active_bytes, requested_bytes];
    let families = families.into_iter().chain([inactive_split, inactive_split_bytes]);
    families.flat_map(|of| [of.all, of.small_pool, of.large_pool]).chain([oversize_allocations]).collect()
}

/// Every peak equals the largest value that the counter had after any operation. To look settles all shards, so a
/// second run, without looks, has the peaks. Where frees wait, an operation may retire several blocks; the counters
/// that rise and fall within it are not compared.
#[test]
fn peaks_are_exact_and_few_shards_are_asked_whatever_the_number_of_streams() {
    let under = |policy| Settings { policy, ..Settings::default() };
    let plain = Settings { max_split_bytes: Some(24 * MIB), ..Settings::default() };
    let settings = [plain, under(Policy::Classic(Segments::Expandable)), under(Policy::paged(Growth::Tight))];
    for (settings, streams) in settings.iter().flat_map(|settings| [2, 5, 64].map(|streams| (settings, streams))) {
        for (reuse, uses) in [(Reuse::InOrder, false), (Reuse::InOrder, true), (Reuse::AfterDone, true)] {
            let facts = Facts { reuse, total_bytes: 1 << 40, ..Facts::new(settings.clone(), streams) };
            for seed in 0..2 {
                let mut most = Vec::new();
                run(&facts, seed, uses, &mut |device, is_reset| {
                    let now = counted(device).into_iter().map(|stat| stat.current);
                    let before = if is_reset { Vec::new() } else { most.clone() };
                    most = now
                        .enumerate()
                        .map(|(at, now)| before.get(at).map_or(now, |&before| now.max(before)))
                        .collect();
                });
                let (mut device, done) = run(&facts, seed, uses, &mut |_, _| {});
                let what = format!("{settings:?}, {reuse:?}, {streams} streams, used elsewhere: {uses}, seed {seed}");
                let allowed = 2 * done.operations + streams as usize;
                assert!(done.visits <= allowed, "{what}: {} visits, {} operations", done.visits, done.operations);
                let peaks: Vec<_> = counted(&mut device).into_iter().map(|stat| stat.peak).collect();
                let compared = if uses { 6 } else { peaks.len() };
                assert_eq!(peaks[..compared], most[..compared], "{what}");
                device.check();
            }
        }
    }
}

/// Streams that are used in turn, each of them with a block at a time: at the peak each asks one other shard, however
/// many they are. Where there is room for all of them, they have it soon, and ask no more.
#[test]
fn streams_in_turn_ask_one_shard_or_none() {
    const STREAMS: usize = 64;
    for (had, visits) in [(1, STREAMS), (STREAMS / 2, STREAMS), (2 * STREAMS, 0), (9 * STREAMS, 0)] {
        let (mut device, mut done) =
            (Device::of(&Facts::under(Policy::Classic(Segments::Expandable), STREAMS as u32)), Done::default());
        (0..STREAMS).for_each(|shard| done.allocate(&mut device, shard, 2 * MIB));
        (0..STREAMS).for_each(|_| done.free(&mut device, 0, None));
        device.reset_peaks();
        (0..had).for_each(|_| done.allocate(&mut device, 0, 2 * MIB));
        (0..had).for_each(|_| done.free(&mut device, 0, None));
        let mut rounds = Vec::new();
        for _ in 0..60 {
            let before = done.visits;
            for shard in 0..STREAMS {
                done.allocate(&mut device, shard, 2 * MIB);
                done.free(&mut device, 0, None);
            }
            rounds.push(done.visits - before);
        }
        assert_eq!(rounds[59], visits, "{had} blocks were there: {rounds:?}");
        assert_eq!(device.stats().allocation.all.peak, had as u64);
        device.check();
    }
}

/// A thread that is not to settle has its shard hold what room it has. The coordinator learns of it when it looks for
/// room.
#[test]
fn room_that_a_thread_did_not_settle_is_found() {
    struct Told<'a>(&'a mut Vec<Shard>, Option<ShardId>);
    impl Shards for Told<'_> {
        fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) {
            self.0.visit(shard, f);
        }
        fn add_holders(&mut self, holders: &mut VecDeque<ShardId>) {
            holders.extend(self.1.take());
        }
    }
    let (mut device, mut done) = (classic(Reuse::InOrder), Done::default());
    (0..2).for_each(|shard| (0..3).for_each(|_| done.allocate(&mut device, shard, 12 * MIB)));
    (0..6).for_each(|_| done.free(&mut device, 0, None));
    device.reset_peaks();
    (0..2).for_each(|_| done.allocate(&mut device, 0, 12 * MIB));
    done.free(&mut device, 1, None);
    // The second stream takes all the room that the first one has.
    done.allocate(&mut device, 1, 12 * MIB);
    assert_eq!(device.take_back(done.live.swap_remove(0), 5), Freed::Done { unsettled: true });
    assert!(device.shards[0].hold_room() && !device.shards[0].hold_room());
    let held = device.hit(1, 12 * MIB).expect("a block");
    assert!(held.grant.unsettled, "it has room");
    device.coordinator.settle(ShardId(1), &mut Told(&mut device.shards, Some(ShardId(0))));
    assert_eq!(device.stats().allocation.all.peak, 2);
    device.check();
}

/// A shard that is overdrawn finds its shortage after eight blocks of the mean size, and the peak has all that is there
/// then.
#[test]
fn an_overdrawn_shard_is_short_of_room_after_some_blocks() {
    // With twenty grants of 2 MiB beside as many of 12 MiB the mean is 7 MiB.
    for (overdrawn, lesser, short) in [(false, 0, 1), (true, 0, 9), (true, 20, 5)] {
        let mut device = classic(Reuse::InOrder);
        let held: Vec<_> = (0..20).map(|_| device.allocate(0, 12 * MIB)).collect();
        held.iter().for_each(|grant| drop(device.take_back(*grant, 1)));
        for _ in 0..lesser {
            let grant = device.hit(0, 2 * MIB).expect("a block");
            device.take_back(grant, 1);
        }
        device.reset_peaks();
        if overdrawn {
            device.shards[0].overdraw();
        }
        let granted = (1..=20).find(|_| device.hit(0, 12 * MIB).expect("a block").unsettled);
        assert_eq!(granted, Some(short), "overdrawn: {overdrawn}, {lesser} small ones before");
        let peak = device.stats().allocated_bytes.all.peak;
        assert_eq!(peak, 12 * MIB * short);
        device.check();
    }
}

/// A shard that cannot be looked at now may have room, so the peak does not rise.
#[test]
fn a_peak_does_not_rise_while_a_busy_shard_may_have_room() {
    struct Busy<'a>(&'a mut Vec<Shard>);
    impl Shards for Busy<'_> {
        fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) {
            self.0.visit(shard, f);
        }
        fn try_visit(&mut self, _: ShardId, _: &mut dyn FnMut(&mut Shard)) -> bool {
            false
        }
    }
    let mut device = classic(Reuse::InOrder);
    let held = [device.allocate(0, 12 * MIB), device.allocate(0, 12 * MIB)];
    held.iter().for_each(|grant| drop(device.take_back(*grant, 1)));
    let other = device.allocate(1, 12 * MIB);
    device.take_back(other, 1);
    let peak = device.stats().allocated_bytes.all.peak;
    assert_eq!(peak, 24 * MIB);
    // The counter rises to its former value, for which the other shard has the room.
    let mut short = 0;
    for _ in held {
        let grant = device.hit(0, 12 * MIB).expect("a block");
        if grant.unsettled {
            short += 1;
            device.coordinator.settle(ShardId(0), &mut Busy(&mut device.shards));
        }
    }
    assert!(short > 0, "it never lacks room");
    assert_eq!(device.stats().allocated_bytes.all.peak, peak);
    device.check();
}
