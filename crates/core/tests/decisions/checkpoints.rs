//! Checkpoints of private pools in the core alone: what stands in the way, what is waited for, and which sides are
//! restored.

use millpond_backend::{PageCaps, Reuse, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, Segments};
use millpond_core::{BlockState, Checkpoint, Extent, Freed, Obstacle, PoolId, Shard, Step};

use crate::driver::{Device, Facts, MIB, empty_cache, is_pages, point};

const POOL: PoolId = PoolId(1);
const POLICIES: [Policy; 4] = [
    Policy::Classic(Segments::Plain),
    Policy::Classic(Segments::Expandable),
    Policy::paged(Growth::Balanced),
    Policy::paged(Growth::Tight),
];

/// Returns an allocator of two streams in one held pool, of whose work nothing is over yet.
fn held_pool(policy: Policy, reuse: Reuse) -> Device {
    held_pool_on(policy, reuse, PageCaps::new(2 * MIB).with_alias_reuse(reuse))
}

fn held_pool_on(policy: Policy, reuse: Reuse, pages: PageCaps) -> Device {
    let pages = Some(pages);
    let shards = vec![(0, POOL), (1, POOL)];
    let mut device = Device::of(&Facts { reuse, pages, shards, ..Facts::under(policy, 2) });
    device.coordinator.hold_pool(POOL);
    device.gpu.reached.fill(Tick::ZERO);
    device.gpu.asked = 0;
    device
}

fn tight() -> Device {
    held_pool(Policy::paged(Growth::Tight), Reuse::InOrder)
}

/// Notes that both streams have reached a tick, and makes free what waited for it.
fn reach(device: &mut Device, tick: u64) {
    [0, 1].into_iter().for_each(|stream| device.note_reached(stream, tick));
}

fn restore(device: &mut Device, to: &Checkpoint) -> Result<Vec<(u32, u64, u64)>, Obstacle> {
    let mut places: Vec<_> = device
        .restore(POOL, to)?
        .iter()
        .map(|block| (block.grant.slot.0, block.grant.offset, block.grant.size))
        .collect();
    places.sort_unstable();
    Ok(places)
}

fn live_blocks(device: &mut Device) -> Vec<(u32, u64, u64)> {
    let views = device.coordinator.layout(&mut device.shards);
    let mut live: Vec<_> = views
        .iter()
        .flat_map(|view| view.blocks.iter().map(move |block| (view.slot.0, block)))
        .filter(|(_, block)| block.state == BlockState::ActiveAllocated)
        .map(|(slot, block)| (slot, block.offset, block.size))
        .collect();
    live.sort_unstable();
    live
}

#[test]
fn blocks_of_both_sides_come_back_where_they_were() {
    for policy in POLICIES {
        let mut device = held_pool(policy, Reuse::InOrder);
        let mut held: Vec<_> = [100_000, 512, 3 * MIB, 900_000, 30 * MIB, 700, 5 * MIB, 40_000]
            .iter()
            .map(|&bytes| device.serve(0, bytes))
            .collect();
        device.free(held.remove(3), 1);
        device.free(held.remove(1), 1);
        let (checkpoint, live) = (device.checkpoint(POOL), live_blocks(&mut device));
        assert_eq!((checkpoint.len(), checkpoint.pool(), checkpoint.is_empty()), (6, POOL, false), "{policy:?}");
        for (others, bytes) in [(12, 4 * MIB), (90, 90_000)] {
            held.drain(..).for_each(|grant| device.free(grant, 2));
            let more: Vec<_> = (0..others).map(|_| device.serve(0, bytes)).collect();
            more.into_iter().for_each(|grant| device.free(grant, 3));
            assert_eq!(restore(&mut device, &checkpoint), Ok(live.clone()), "{policy:?}");
            assert_eq!(live_blocks(&mut device), live);
            let blocks = device.restore(POOL, &checkpoint);
            assert!(matches!(blocks, Err(Obstacle::Taken { .. })), "{policy:?}: {blocks:?}");
            // The blocks are found again by their places, as the grants of this test are gone.
            let again = device.checkpoint(POOL);
            assert_eq!(again, checkpoint, "{policy:?}: the same blocks, in the same places");
            let ids: Vec<_> = live_ids(&mut device);
            ids.into_iter().for_each(|id| {
                device.shards[0].free(id, Tick(4), 0);
            });
            assert!(live_blocks(&mut device).is_empty());
        }
    }
}

/// Returns the numbers of the live blocks of shard 0, by trying: those that may leave.
fn live_ids(device: &mut Device) -> Vec<millpond_core::BlockId> {
    let live = live_blocks(device);
    let at = |shard: &Shard, id| {
        let Extent { slot, offset, bytes } = shard.extent(id);
        (slot.0, offset, bytes)
    };
    let mut ids = Vec::new();
    for number in 0..2000 {
        let id = millpond_core::BlockId(number);
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| at(&device.shards[0], id)));
        let Ok(place) = found else { break };
        if live.contains(&place) && !ids.iter().any(|&known| at(&device.shards[0], known) == place) {
            ids.push(id);
        }
    }
    ids
}

/// What comes back is live beside what was allocated since: the slack of the pool goes by both.
#[test]
fn what_comes_back_was_live() {
    // What is free is not gathered for the other request.
    let pages = PageCaps::new(2 * MIB).with_aliasing(false);
    let mut device = held_pool_on(Policy::paged(Growth::Tight), Reuse::InOrder, pages);
    let first = device.serve(0, 6 * MIB);
    let checkpoint = device.checkpoint(POOL);
    let between = device.serve(0, 2 * MIB);
    device.free(first, 1);
    device.serve(1, 7 * MIB);
    device.free(between, 1);
    let bound = |device: &mut Device| device.slack().bound_bytes;
    let before = bound(&mut device);
    assert!(before.is_some_and(|bound| bound < 13 * MIB), "{before:?}");
    assert_eq!(restore(&mut device, &checkpoint).map(|blocks| blocks.len()), Ok(1));
    let after = bound(&mut device);
    assert!(after.is_some_and(|bound| bound >= 13 * MIB), "{after:?}");
}

#[test]
fn what_other_streams_use_is_named_and_not_taken() {
    for policy in POLICIES {
        let mut device = held_pool(policy, Reuse::InOrder);
        let grant = device.serve(0, 6 * MIB);
        let checkpoint = device.checkpoint(POOL);
        device.record(grant, 1);
        device.free(grant, 7);
        let until = point(1, 7);
        assert_eq!(restore(&mut device, &checkpoint), Err(Obstacle::InUse(vec![until])), "{policy:?}");
        assert!(live_blocks(&mut device).is_empty());
        device.note_reached(1, 6);
        assert!(restore(&mut device, &checkpoint).is_err(), "{policy:?}: one tick is missing");
        device.note_reached(1, 7);
        assert_eq!(restore(&mut device, &checkpoint).map(|blocks| blocks.len()), Ok(1), "{policy:?}");
    }
}

/// A thread has freed a block in its shard, and the coordinator does not know yet what it waits for: nothing is named
/// to wait for, and nothing is taken.
#[test]
fn a_free_that_is_not_noted_yet_is_not_taken() {
    for policy in POLICIES {
        let mut device = held_pool(policy, Reuse::InOrder);
        let grant = device.serve(0, 6 * MIB);
        let checkpoint = device.checkpoint(POOL);
        device.record(grant, 1);
        let freed = device.take_back(grant, 7);
        assert!(matches!(freed, Freed::Pending(_)), "{policy:?}: it waits");
        assert_eq!(restore(&mut device, &checkpoint), Err(Obstacle::InUse(Vec::new())), "{policy:?}");
        assert!(device.may_restore(POOL, &checkpoint, &[]).is_ok());
        device.note_freed(grant, freed, 7);
        let until = point(1, 7);
        assert_eq!(restore(&mut device, &checkpoint), Err(Obstacle::InUse(vec![until])), "{policy:?}");
        reach(&mut device, 7);
        assert_eq!(restore(&mut device, &checkpoint).map(|blocks| blocks.len()), Ok(1), "{policy:?}");
    }
}

/// The point of a freed block is reached, and the block is not free yet, as while a plan is about to be refused.
#[test]
fn a_block_whose_point_is_reached_is_not_taken_before_it_is_free() {
    for (policy, reuse) in
        POLICIES.into_iter().flat_map(|policy| [Reuse::InOrder, Reuse::AfterDone].map(|r| (policy, r)))
    {
        let mut device = held_pool(policy, reuse);
        let grant = device.serve(0, 6 * MIB);
        let checkpoint = device.checkpoint(POOL);
        device.record(grant, 1);
        device.free(grant, 7);
        [0, 1].into_iter().for_each(|stream| device.coordinator.note_reached(StreamId(stream), Tick(7)));
        let is_guarded = matches!(policy, Policy::Paged { .. });
        let expected = if is_guarded { Ok(1) } else { Err(Obstacle::InUse(Vec::new())) };
        assert_eq!(restore(&mut device, &checkpoint).map(|blocks| blocks.len()), expected, "{policy:?}, {reuse:?}");
        if !is_guarded {
            reach(&mut device, 7);
            assert_eq!(restore(&mut device, &checkpoint).map(|blocks| blocks.len()), Ok(1), "{policy:?}, {reuse:?}");
        }
    }
}

/// Memory of the checkpoint was used through a window, by its own stream or by another one. It is home only once the
/// coordinator has learned that the window is freed.
#[test]
fn memory_that_is_not_home_yet_is_not_taken() {
    for (reuse, user) in [(Reuse::InOrder, 0), (Reuse::InOrder, 1), (Reuse::AfterDone, 0), (Reuse::AfterDone, 1)] {
        let what = format!("{reuse:?}, used by shard {user}");
        let mut device = held_pool(Policy::paged(Growth::Tight), reuse);
        device.set_limit(14 * MIB);
        let [first, between, last] = [6, 2, 6].map(|mib| device.serve(0, mib * MIB));
        device.free(between, 1);
        let (checkpoint, live) = (device.checkpoint(POOL), live_blocks(&mut device));
        reach(&mut device, 1);
        device.serve(0, 2 * MIB);
        [first, last].into_iter().for_each(|grant| device.free(grant, 2));
        reach(&mut device, 2);
        let window = device.serve(user, 12 * MIB);
        assert!(window.slot != first.slot || user == 1, "{what}: it is in a window: {window:?}");
        device.record(window, 1 - user as u32);
        let freed = device.take_back(window, 3);
        let waits = restore(&mut device, &checkpoint);
        assert!(matches!(&waits, Err(Obstacle::InUse(_))), "{what}: {waits:?}");
        device.note_freed(window, freed, 3);
        let waits = restore(&mut device, &checkpoint);
        assert!(matches!(&waits, Err(Obstacle::InUse(points)) if !points.is_empty()), "{what}: {waits:?}");
        assert_eq!(device.may_restore(POOL, &checkpoint, &[]), Ok(()), "{what}");
        reach(&mut device, 3);
        assert_eq!(restore(&mut device, &checkpoint), Ok(live), "{what}");
    }
}

#[test]
fn a_block_in_the_way_a_capture_and_another_pool_are_told() {
    for policy in POLICIES {
        let mut device = held_pool(policy, Reuse::InOrder);
        let grant = device.serve(0, 6 * MIB);
        let checkpoint = device.checkpoint(POOL);
        let leaving = [grant];
        assert_eq!(restore(&mut device, &checkpoint), Err(Obstacle::Taken { bytes: 6 * MIB }), "{policy:?}");
        assert!(device.may_restore(POOL, &checkpoint, &leaving).is_ok());
        device.free(grant, 1);
        assert!(device.coordinator.begin_capture(StreamId(1), POOL, Tick(3)));
        assert_eq!(restore(&mut device, &checkpoint), Err(Obstacle::Capturing), "{policy:?}");
        device.coordinator.end_capture(StreamId(1), POOL);
        let other = device.coordinator.create_pool();
        let found = device.restore(other, &checkpoint);
        assert_eq!(found, Err(Obstacle::OtherPool(POOL)));
        assert!(restore(&mut device, &checkpoint).is_ok());
    }
}

/// A plan of another thread has claimed the memory: it is in no index, and nothing is in use.
#[test]
fn a_plan_in_progress_is_told() {
    let mut device = tight();
    let grants = [device.serve(0, 6 * MIB), device.serve(0, 2 * MIB), device.serve(0, 6 * MIB)];
    let checkpoint = device.checkpoint(POOL);
    device.free(grants[0], 1);
    device.free(grants[2], 1);
    let mut plan = device.plan(0, 12 * MIB);
    device.reach(&mut plan, is_pages);
    let leaving = [grants[1]];
    let found = device.may_restore(POOL, &checkpoint, &leaving);
    assert_eq!(found, Err(Obstacle::Busy));
}

/// The range stays with a live block, and its pages go and come again: they are others than those of the checkpoint.
#[test]
fn pages_that_went_and_came_again_are_others() {
    let mut device = tight();
    let (stays, goes) = (device.serve(0, 6 * MIB), device.serve(0, 10 * MIB));
    let checkpoint = device.checkpoint(POOL);
    device.free(goes, 1);
    device.coordinator.release_pool(POOL, &mut device.shards);
    device.coordinator.note_reached(StreamId(0), Tick(9));
    assert_eq!(device.end(&mut empty_cache()), Step::Done);
    device.coordinator.hold_pool(POOL);
    let leaving = [stays];
    let gone = Err(Obstacle::Gone { bytes: 10 * MIB });
    assert_eq!(device.may_restore(POOL, &checkpoint, &leaving), gone);
    let again = device.serve(0, 10 * MIB);
    assert_eq!((again.slot, again.offset), (goes.slot, goes.offset), "at the same addresses");
    let leaving = [leaving[0], again];
    assert_eq!(device.may_restore(POOL, &checkpoint, &leaving), gone);
}

/// A small block that stays keeps its slab on the small side, and a large one of the checkpoint ends in that slab.
#[test]
fn a_large_block_gets_memory_of_a_slab() {
    let mut device = tight();
    let large = device.serve(0, 3 * MIB);
    let checkpoint = device.checkpoint(POOL);
    device.free(large, 1);
    let mut small: Vec<_> = (0..8).map(|_| device.serve(0, MIB / 2)).collect();
    let last = small.pop().expect("eight blocks");
    assert_eq!((last.slot, last.offset), (large.slot, 3 * MIB + MIB / 2), "the end of the second slab");
    small.into_iter().for_each(|grant| device.free(grant, 2));
    assert_eq!(restore(&mut device, &checkpoint), Ok(vec![(large.slot.0, large.offset, large.size)]));
    assert_eq!(live_blocks(&mut device).len(), 2);
}

/// Where a device keeps no order, a stream comes after its own work only once that is over.
#[test]
fn what_the_stream_itself_did_is_waited_for_where_there_is_no_order() {
    for (reuse, waits) in [(Reuse::InOrder, false), (Reuse::AfterDone, true)] {
        let mut device = held_pool(Policy::paged(Growth::Tight), reuse);
        let held = device.serve(0, 4 * MIB);
        let checkpoint = device.checkpoint(POOL);
        let live = live_blocks(&mut device);
        device.free(held, 5);
        if waits {
            assert_eq!(restore(&mut device, &checkpoint), Err(Obstacle::InUse(vec![point(0, 5)])));
            reach(&mut device, 5);
        }
        assert_eq!(restore(&mut device, &checkpoint), Ok(live), "{reuse:?}");
    }
}
