//! Checkpoints of blocks that several streams have used or that lie in windows: what is waited for before they come
//! back, and what they are then.

use std::collections::BTreeSet;

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, Segments, Settings};
use millpond_core::{Checkpoint, Obstacle, PoolId, Restored, ShardId};

use crate::driver::{Device, Facts, Held, MIB, gaps_on, point, unmapped, with_gaps};

const POOL: PoolId = PoolId::DEFAULT;
const GROWTHS: [Growth; 2] = [Growth::Balanced, Growth::Tight];

// Streams are at tick 100 whenever they are asked: what is freed behind it is not reached.

impl Device {
    /// Expects that one block of a checkpoint comes back once the points are reached, and not before.
    fn comes_back(&mut self, to: &Checkpoint, behind: &[Point]) -> Restored {
        match self.restore(POOL, to) {
            Err(Obstacle::InUse(points)) => {
                assert_eq!(points.into_iter().collect::<BTreeSet<_>>(), behind.iter().copied().collect());
            }
            other => panic!("{other:?} does not wait for {behind:?}"),
        }
        // What is reached need not be made free before.
        behind.iter().for_each(|point| self.coordinator.note_reached(point.stream, point.tick));
        let restored = self.restore(POOL, to).unwrap_or_else(|obstacle| panic!("{obstacle}"));
        assert_eq!(&self.checkpoint(POOL), to, "the same block, used on the same streams, over the same memory");
        restored[0]
    }
}

/// A block comes back for the stream that had it, after what another stream has done there since.
#[test]
fn a_block_comes_back_behind_the_work_of_another_stream() {
    for growth in GROWTHS {
        let (mut device, _) = with_gaps(growth, 0, &[6]);
        let first = device.allocate(1, 4 * MIB);
        assert_eq!(first.offset, 0, "{growth:?}");
        let checkpoint = device.checkpoint(POOL);
        device.free(first, 2);
        let own = device.hit(0, 6 * MIB).expect("all of it is free");
        assert_eq!(device.may_restore(POOL, &checkpoint, &[own]), Ok(()));
        device.free(own, 209);
        let restored = device.comes_back(&checkpoint, &[point(0, 209)]);
        assert_eq!((restored.shard, restored.stream), (ShardId(0), StreamId(1)), "{growth:?}");
        assert_eq!((restored.grant.slot, restored.grant.offset), (first.slot, first.offset));
        assert_eq!(restored.grant.last_use.tick(), Tick::ZERO, "what the other stream did there is over");
        // It is that stream's again, which comes after its own work.
        device.free(Held { shard: 0, grant: restored.grant }, 212);
        let again = device.restore(POOL, &checkpoint).map(|blocks| blocks[0].grant.last_use.tick());
        assert_eq!(again, Ok(Tick(212)), "{growth:?}");
    }
}

/// A block that other streams use too comes back for its own stream, which comes after its own work.
#[test]
fn a_block_that_others_use_comes_back_for_its_own_stream() {
    for growth in GROWTHS {
        let (mut device, _) = with_gaps(growth, 0, &[6]);
        let used = device.hit(0, 6 * MIB).expect("it is free");
        device.record(used, 2);
        let checkpoint = device.checkpoint(POOL);
        device.free(used, 208);
        let restored = device.comes_back(&checkpoint, &[point(2, 208)]);
        assert_eq!((restored.shard, restored.stream), (ShardId(0), StreamId(0)), "{growth:?}");
        assert_eq!(restored.grant.last_use.tick(), Tick(208));
        device.free(Held { shard: 0, grant: restored.grant }, 209);
        assert_eq!(device.restore(POOL, &checkpoint), Err(Obstacle::InUse(vec![point(2, 209)])), "{growth:?}");
    }
}

/// A block in a window comes back once nothing at home has its memory, and what was done there is over.
#[test]
fn a_block_in_a_window_comes_back_behind_the_work_at_its_homes() {
    for growth in GROWTHS {
        // The second gap begins with the end of a page, and the first one ends with the beginning of one.
        let (mut device, between) = with_gaps(growth, 0, &[5, 2, 5]);
        let window = device.allocate(0, 10 * MIB);
        assert_ne!(window.slot, between[0].slot, "{growth:?}");
        device.free(between[0], 2);
        let checkpoint = device.checkpoint(POOL);
        assert_eq!(checkpoint.len(), 1);
        assert_eq!(device.may_restore(POOL, &checkpoint, &[window]), Ok(()), "the memory behind it leaves with it");
        device.free(window, 3);
        let own = device.hit(0, 12 * MIB).expect("all of it is free");
        assert_eq!(device.restore(POOL, &checkpoint), Err(Obstacle::Taken { bytes: 10 * MIB }));
        device.free(own, 209);
        let restored = device.comes_back(&checkpoint, &[point(0, 209)]);
        assert_eq!((restored.grant.slot, restored.grant.offset), (window.slot, window.offset));
        assert_eq!(restored.grant.last_use.tick(), Tick(209), "it was used by its own stream");
        assert_eq!(device.restore(POOL, &checkpoint), Err(Obstacle::Taken { bytes: 10 * MIB }), "it is live");
        device.free(Held { shard: 0, grant: restored.grant }, 210);
        assert!(device.hit(0, 12 * MIB).is_some(), "all of its memory is home again");
    }
}

/// The memory of a window was used at different times: what comes back was used at the latest of them.
#[test]
fn a_block_in_a_window_has_the_latest_use_of_its_memory() {
    let (mut device, between) = with_gaps(Growth::Tight, 0, &[5, 2, 5]);
    let window = device.allocate(0, 10 * MIB);
    device.free(between[0], 2);
    let checkpoint = device.checkpoint(POOL);
    device.free(window, 3);
    let [first, _between, last] = [5, 2, 5].map(|mib| device.hit(0, mib * MIB).expect("it is free"));
    device.free(first, 40);
    device.free(last, 50);
    let restored = device.restore(POOL, &checkpoint).map(|restored| restored[0].grant.last_use.tick());
    assert_eq!(restored, Ok(Tick(50)), "that of the memory at its beginning");
}

/// A window over memory that another stream has used since says no tick of that stream.
#[test]
fn a_window_over_the_memory_of_others_comes_back_behind_their_work() {
    for growth in GROWTHS {
        let (mut device, between) = with_gaps(growth, 0, &[6, 2, 6]);
        let window = device.allocate(1, 12 * MIB);
        assert_ne!(window.slot, between[0].slot, "{growth:?}");
        device.free(between[0], 2);
        let checkpoint = device.checkpoint(POOL);
        device.free(window, 3);
        let own = device.hit(0, 14 * MIB).expect("all of it is free");
        device.free(own, 209);
        let restored = device.comes_back(&checkpoint, &[point(0, 209)]);
        assert_eq!((restored.shard, restored.stream), (ShardId(0), StreamId(1)), "{growth:?}");
        assert_eq!(restored.grant.last_use.tick(), Tick::ZERO, "what the other stream did there is over");
    }
}

/// Where order does not hold at other addresses, a stream gets nothing back, at home or in a window, before what it did
/// through the window is over.
#[test]
fn a_window_that_waits_is_waited_for() {
    for growth in GROWTHS {
        let mut pages = PageCaps::new(2 * MIB);
        pages.alias_reuse = Reuse::AfterDone;
        let device = Device::of(&Facts { pages: Some(pages), ..Facts::paged(growth, 14 * MIB) });
        let (mut device, between) = gaps_on(device, 0, &[6, 2, 6]);
        let window = device.allocate(0, 12 * MIB);
        assert_ne!(window.slot, between[0].slot, "{growth:?}");
        device.free(between[0], 2);
        let checkpoint = device.checkpoint(POOL);
        device.free(window, 209);
        assert_eq!(device.hit_at(0, 12 * MIB, 208).map(|held| held.grant), None, "its memory is in use");
        match device.restore(POOL, &checkpoint) {
            Err(Obstacle::InUse(points)) => assert!(points.iter().all(|&known| known == point(0, 209)), "{points:?}"),
            other => panic!("{growth:?}: {other:?}"),
        }
        device.gpu.reached.fill(Tick(209));
        device.poll();
        assert_eq!(device.restore(POOL, &checkpoint).map(|restored| restored.len()), Ok(1), "{growth:?}");
    }
}

/// What a window has of a place is in use there, and so is any part of a place.
#[test]
fn every_block_at_a_place_is_in_the_way() {
    let (mut device, between) = with_gaps(Growth::Tight, 0, &[6, 2, 6]);
    let home = [6, 6].map(|mib| device.hit(0, mib * MIB).expect("it is free"));
    let checkpoint = device.checkpoint(POOL);
    home.into_iter().for_each(|held| device.free(held, 2));
    let window = device.allocate(0, 12 * MIB);
    assert_eq!(device.may_restore(POOL, &checkpoint, &[between[0]]), Err(Obstacle::Taken { bytes: 6 * MIB }));
    device.free(between[0], 2);
    assert_eq!(device.may_restore(POOL, &checkpoint, &[window]), Ok(()));

    let (mut device, _) = with_gaps(Growth::Tight, 0, &[6]);
    let whole = device.hit(0, 6 * MIB).expect("it is free");
    let checkpoint = device.checkpoint(POOL);
    device.free(whole, 2);
    let [front, rear] = [2, 2].map(|mib| device.hit(0, mib * MIB).expect("it is free"));
    device.free(front, 2);
    assert_eq!(device.restore(POOL, &checkpoint), Err(Obstacle::Taken { bytes: 6 * MIB }), "the second block is live");
    device.free(rear, 2);
    assert_eq!(device.restore(POOL, &checkpoint).map(|restored| restored.len()), Ok(1));
}

/// What is free beside the place of a block stays free. What comes back counts in the peaks, and in what was live.
#[test]
fn a_block_comes_back_alone_and_is_counted() {
    let (mut device, _) = with_gaps(Growth::Tight, 0, &[6]);
    let [front, held] = [2, 2].map(|mib| device.hit(0, mib * MIB).expect("it is free"));
    device.free(front, 2);
    let checkpoint = device.checkpoint(POOL);
    device.free(held, 2);
    device.reset_peaks();
    let restored = device.restore(POOL, &checkpoint).map(|restored| restored[0].grant);
    let grant = restored.unwrap_or_else(|obstacle| panic!("{obstacle}"));
    assert_eq!(grant.offset, 2 * MIB);
    device.free(Held { shard: 0, grant }, 3);
    let bytes = device.stats().allocated_bytes.all;
    assert_eq!((bytes.current, bytes.peak), (0, 2 * MIB), "it was live for a moment");
    assert!(device.restore(POOL, &checkpoint).is_ok());
    let beside = [2, 2].map(|mib| device.hit(0, mib * MIB).map(|held| held.offset));
    assert_eq!(beside, [Some(0), Some(4 * MIB)]);
}

/// A page that a window is losing is none of its pages any more, although the driver has not unmapped it yet.
#[test]
fn a_window_that_ends_is_gone() {
    let pages = PageCaps::new(2 * MIB).with_mappings(9);
    let policy = Policy::Paged { growth: Growth::Tight, slack: 0.0 };
    let (mut device, between) =
        gaps_on(Device::of(&Facts { pages: Some(pages), ..Facts::under(policy, 3) }), 0, &[8, 4, 10]);
    let window = device.allocate(0, 18 * MIB);
    let checkpoint = device.checkpoint(POOL);
    device.free(window, 2);
    assert_eq!(device.may_restore(POOL, &checkpoint, &[between[0]]), Ok(()));
    let at_home = device.hit(0, 10 * MIB).expect("it is at home");
    let mut plan = device.plan(1, 14 * MIB);
    let (step, calls) = device.until_calls(&mut plan);
    assert_eq!(unmapped(&calls).len(), 9, "{calls:?}");
    let gone = Err(Obstacle::Gone { bytes: 18 * MIB });
    assert_eq!(device.may_restore(POOL, &checkpoint, &[between[0], at_home]), gone);
    device.done(&mut plan, &step);
    assert_eq!(device.may_restore(POOL, &checkpoint, &[between[0], at_home]), gone);
}

/// Another segment where one was is not that one. A large block that comes back counts as oversize from the bound on.
#[test]
fn segments_of_a_checkpoint_are_told_from_others() {
    let settings =
        Settings { policy: Policy::Classic(Segments::Plain), max_split_bytes: Some(30 * MIB), ..Settings::default() };
    let mut device = Device::of(&Facts::new(settings, 3));
    let large = device.allocate(0, 30 * MIB);
    let checkpoint = device.checkpoint(POOL);
    device.free(large, 2);
    assert_eq!(device.restore(POOL, &checkpoint).map(|restored| restored.len()), Ok(1));
    let oversize = device.stats().oversize_allocations;
    assert_eq!((oversize.current, oversize.allocated), (1, 2));
    device.free(large, 3);
    assert_eq!(device.empty(), 0);
    let other = device.allocate(0, 30 * MIB);
    assert_eq!((other.slot, other.offset), (large.slot, 0));
    device.free(other, 3);
    assert_eq!(device.restore(POOL, &checkpoint), Err(Obstacle::Gone { bytes: 30 * MIB }));
}
