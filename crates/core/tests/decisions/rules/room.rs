//! Room for peaks: which shard has it, and who waits for it.

use millpond_backend::{Reuse, StreamId};
use millpond_core::settings::{Growth, Policy, Settings};
use millpond_core::{Shard, ShardId, Shards, Step};

use crate::driver::{Device, Held, MIB, point};

use super::{classic, of};

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

/// Returns a device with five streams, each of which holds two blocks.
fn five() -> (Device, Vec<[Held; 2]>) {
    let settings = Settings { policy: Policy::paged(Growth::Tight), ..Settings::default() };
    let mut device = of(settings, Reuse::InOrder, &[0; 5]);
    let held = (0..5).map(|shard| [(); 2].map(|()| device.allocate(shard, 12 * MIB))).collect();
    (device, held)
}

/// Each shard asks the one before it for room first, unless a block was just freed at another one.
#[test]
fn shards_do_not_all_ask_the_same_one_for_room() {
    for (used_elsewhere, first) in [(None, 1), (Some(4), 4)] {
        let (mut device, held) = five();
        device.take_back(held[2][0], 1);
        device.reset_peaks();
        for shard in [0, 1, 3] {
            device.take_back(held[shard][0], 2);
        }
        if let Some(shard) = used_elsewhere {
            device.free_behind(held[shard][0], 2, &[point(0, 200)]);
        }
        let grant = device.hit(2, 12 * MIB).expect("a block");
        assert!(grant.unsettled, "it has room");
        let mut asked = Asked(&mut device.shards, Vec::new());
        device.coordinator.settle(ShardId(2), &mut asked);
        assert_eq!(asked.1, [first]);
        device.check();
    }
}

/// The shard that settled last has taken most of what others had, so it is asked first: streams that are used in turn
/// find all the room there is in one look, however many they are.
#[test]
fn the_shard_that_settled_last_is_asked_for_room_first() {
    let (mut device, held) = five();
    held.iter().for_each(|held| drop(device.take_back(held[0], 1)));
    device.reset_peaks();
    let mut looks = Vec::new();
    for turn in 0..20 {
        let shard = turn * 3 % 5;
        let grant = device.hit(shard, 12 * MIB).expect("a block");
        let mut asked = Asked(&mut device.shards, Vec::new());
        if grant.unsettled {
            device.coordinator.settle(ShardId(shard as u32), &mut asked);
        }
        looks.push(asked.1.len());
        device.take_back(grant, 2);
        device.check();
    }
    // The peak rises once; from then on one block comes and goes.
    assert_eq!((looks[0], &looks[1..]), (4, &[1; 19][..]));
}

/// Where another shard grants what a stream requests, the stream's own one is asked first: it has freed a block before.
#[test]
fn a_borrower_s_own_shard_is_asked_for_room_first() {
    let (mut device, held) = five();
    device.take_back(held[1][0], 1);
    device.reset_peaks();
    let mut plan = device.plan(4, 11 * MIB);
    let outcomes = device.gpu.perform(&Step::Poll((0..5).map(StreamId).collect()));
    let mut shards = Asked(&mut device.shards, Vec::new());
    assert!(matches!(device.coordinator.next(&mut plan, &mut shards), Step::Poll(_)));
    device.coordinator.learn(&mut plan, outcomes, &mut shards);
    let step = device.coordinator.next(&mut plan, &mut shards);
    assert!(matches!(step, Step::Lend { lender: ShardId(1), .. }), "{step:?}");
    assert_eq!(shards.1.first(), Some(&4));
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
