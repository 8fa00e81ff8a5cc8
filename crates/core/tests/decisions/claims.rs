//! What a plan has claimed or asked for comes back: when it is given up, refused or served.

use millpond_backend::{Reuse, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, Segments};
use millpond_core::{Freed, LastUse, Outcome, PageCall, PageId, Plan, PoolId, Slot, Step};

use crate::driver::{
    Device, Facts, MIB, empty_cache, is_pages, is_pause, is_poll, is_reserve, is_stream_wait, is_wait, maps, point,
};

const PLAIN: Policy = Policy::Classic(Segments::Plain);
const EXPANDABLE: Policy = Policy::Classic(Segments::Expandable);
const TIGHT: Policy = Policy::paged(Growth::Tight);

/// Returns an allocator of two streams.
fn under(policy: Policy, reuse: Reuse, limit: u64) -> Device {
    Device::of(&Facts { reuse, limit: Some(limit), ..Facts::under(policy, 2) })
}

/// Returns the places that are asked for until the request is refused, when the driver refuses each.
fn refused(device: &mut Device, bytes: u64) -> Vec<Slot> {
    let (mut plan, mut slots) = (device.plan(0, bytes), Vec::new());
    loop {
        match device.until(&mut plan, is_reserve) {
            Step::Reserve { slot, .. } | Step::ReserveRange { slot, .. } => slots.push(slot),
            Step::Refuse(_) => return slots,
            step => panic!("{step:?}"),
        }
        device.learn(&mut plan, Outcome::Refused);
    }
}

/// What the driver refused counts against the limit no longer, and its place is used again.
#[test]
fn a_refused_request_leaves_nothing_behind() {
    for policy in [PLAIN, EXPANDABLE, TIGHT] {
        let mut device = under(policy, Reuse::InOrder, 40 * MIB);
        let slots = refused(&mut device, 40 * MIB);
        assert!(!slots.is_empty() && slots.iter().all(|slot| *slot == slots[0]), "{policy:?}: {slots:?}");
        let held = device.allocate(0, 40 * MIB);
        assert_eq!((held.slot, device.reserved()), (slots[0], 40 * MIB), "{policy:?}");
    }
}

#[test]
fn the_place_of_a_segment_that_is_gone_is_used_again() {
    for policy in [PLAIN, EXPANDABLE] {
        let mut device = under(policy, Reuse::InOrder, 40 * MIB);
        let first = device.use_until(0, 40 * MIB, 5);
        assert_eq!(device.empty(), 0);
        assert_eq!(device.allocate(0, 40 * MIB).slot, first.slot, "{policy:?}");
    }
}

/// The driver refuses pages after some of them were mapped.
#[test]
fn refused_pages_of_an_expandable_segment_count_no_more() {
    for made in 0..4 {
        let mut device = under(EXPANDABLE, Reuse::InOrder, 60 * MIB);
        let mut plan = device.plan(0, 60 * MIB);
        while is_pages(&device.until(&mut plan, is_pages)) {
            device.learn(&mut plan, Outcome::Stopped { done: made, refused: true });
            // What was made is undone, a step that cannot fail.
            if made > 0 {
                let undo = device.next(&mut plan);
                assert!(is_pages(&undo), "{undo:?}");
                device.done(&mut plan, &undo);
            }
            device.check();
            assert_eq!((device.reserved(), device.coordinator.mappings()), (0, vec![]));
        }
        assert_eq!(device.allocate(0, 60 * MIB).size, 60 * MIB, "after {made} calls");
    }
}

/// A free block was to become longer, and the driver fails.
#[test]
fn a_block_that_was_to_become_longer_is_free_once_that_fails() {
    let mut device = under(EXPANDABLE, Reuse::InOrder, 200 * MIB);
    device.use_until(0, 20 * MIB, 5);
    let mut plan = device.plan(0, 40 * MIB);
    device.reach(&mut plan, is_pages);
    assert_eq!(device.hit(0, 20 * MIB), None, "the plan has claimed it");
    device.learn(&mut plan, Outcome::Stopped { done: 0, refused: false });
    assert_eq!(device.next(&mut plan), Step::Done);
    assert!(device.hit(0, 20 * MIB).is_some());
}

/// Of two plans that make the same segment longer, one takes what the other would need next. That one begins anew.
#[test]
fn an_extension_that_begins_anew_gives_its_claim_back() {
    let mut device = under(EXPANDABLE, Reuse::InOrder, 400 * MIB);
    let [low, hole, high] = [20, 20, 20].map(|mib| device.allocate(0, mib * MIB));
    device.free(hole, 5);
    assert_eq!(device.empty(), 40 * MIB);
    device.free(low, 5);
    device.free(high, 5);
    let (mut first, mut second) = (device.plan(0, 80 * MIB), device.plan(0, 40 * MIB));
    let step = device.until(&mut first, is_pages);
    let other = device.until(&mut second, is_pages);
    assert!(is_pages(&step) && is_pages(&other), "{step:?}, {other:?}");
    device.done(&mut first, &step);
    let granted = device.end(&mut first);
    assert!(matches!(&granted, Step::Grant(grant) if grant.offset > high.offset), "{granted:?}");
    device.done(&mut second, &other);
    assert!(matches!(device.end(&mut second), Step::Grant(_)));
    let begun = device.hit(0, 40 * MIB).map(|grant| grant.offset);
    assert_eq!(begun, Some(low.offset), "what the first plan had begun with is free");
}

/// Pages in the middle of a segment are given back. The new ones at the same addresses were never used.
#[test]
fn addresses_whose_pages_were_given_back_have_no_last_use() {
    let mut device = under(EXPANDABLE, Reuse::InOrder, 400 * MIB);
    let [held, _behind] = [20, 20].map(|mib| device.allocate(0, mib * MIB));
    device.free(held, 5);
    assert_eq!(device.empty(), 20 * MIB);
    let again = device.allocate(0, 20 * MIB);
    assert_eq!((again.slot, again.offset, again.last_use), (held.slot, held.offset, LastUse::NEVER));
}

/// A plan ends between the driver's answer and the grant.
#[test]
fn what_a_plan_was_to_hand_out_is_free_once_it_is_given_up() {
    for policy in [PLAIN, EXPANDABLE, TIGHT] {
        let mut device = under(policy, Reuse::InOrder, 40 * MIB);
        let mut plan = device.plan(0, 40 * MIB);
        let last = |step: &Step| matches!(step, Step::Reserve { .. } | Step::Pages(_));
        device.past(&mut plan, last);
        device.give_up(&mut plan);
        assert!(device.hit(0, 40 * MIB).is_some(), "{policy:?}");
    }
}

/// A plan ends while what it has mapped is being undone. Without that it would go on with its ladder.
#[test]
fn a_plan_that_is_given_up_is_over_once_its_pages_are_undone() {
    let mut device = under(EXPANDABLE, Reuse::InOrder, 60 * MIB);
    let mut plan = device.plan(0, 60 * MIB);
    device.reach(&mut plan, is_pages);
    device.learn(&mut plan, Outcome::Stopped { done: 3, refused: true });
    device.give_up(&mut plan);
    assert_eq!(device.reserved(), 0);
    assert_eq!(device.allocate(0, 60 * MIB).size, 60 * MIB);
}

/// A plan ends when its waits are queued, before it has a block of another stream.
#[test]
fn a_block_that_was_claimed_is_free_once_its_plan_is_given_up() {
    let mut device = under(TIGHT, Reuse::InOrder, 40 * MIB);
    device.gpu.reached.fill(Tick::ZERO);
    device.use_until(1, 40 * MIB, 5);
    let mut plan = device.plan(0, 40 * MIB);
    device.past(&mut plan, is_stream_wait);
    device.give_up(&mut plan);
    assert!(device.hit(1, 40 * MIB).is_some());
}

/// A plan ends when its waits are queued, or when it has mapped the window. The memory is free at home, and what is
/// mapped serves the next request.
#[test]
fn gathered_memory_is_free_once_its_plan_is_given_up() {
    for maps in [false, true] {
        let mut device = under(TIGHT, Reuse::InOrder, 44 * MIB);
        device.gpu.reached.fill(Tick::ZERO);
        device.gaps(1, &[20, 4, 20], 5);
        let mut plan = device.plan(0, 40 * MIB);
        let last = |step: &Step| if maps { is_pages(step) } else { is_stream_wait(step) };
        device.past(&mut plan, last);
        device.give_up(&mut plan);
        assert_eq!(device.page_stats().shadows, if maps { 20 } else { 0 });
        let again = [device.hit(1, 20 * MIB), device.hit(1, 20 * MIB)].map(|grant| grant.expect("it is free"));
        again.iter().for_each(|held| assert_eq!(device.take_back(*held, 5), Freed::Done { unsettled: false }));
        device.allocate(0, 40 * MIB);
        assert_eq!(device.page_stats().returned, u64::from(maps));
        device.check();
    }
}

/// A plan has claimed all memory, and its waits are being queued. Another plan that finds nothing is not refused: it
/// has the memory once the first one has failed.
#[test]
fn no_request_is_refused_while_a_plan_may_give_its_claims_back() {
    let mut device = under(TIGHT, Reuse::InOrder, 40 * MIB);
    device.gpu.reached.fill(Tick::ZERO);
    device.use_until(1, 40 * MIB, 5);
    let (mut first, mut second) = (device.plan(0, 40 * MIB), device.plan(1, 40 * MIB));
    device.reach(&mut first, is_stream_wait);
    let pause = device.reach(&mut second, is_pause);
    device.learn(&mut first, Outcome::Failed);
    assert_eq!(device.next(&mut first), Step::Done);
    device.done(&mut second, &pause);
    assert!(matches!(device.end(&mut second), Step::Grant(_)));
}

/// A sweep ends while it waits, because the driver fails or the plan is given up.
#[test]
fn what_was_to_be_released_is_free_once_the_plan_ends() {
    for fails in [false, true] {
        let mut device = under(PLAIN, Reuse::InOrder, 40 * MIB);
        device.use_until(0, 40 * MIB, 5);
        let mut plan = empty_cache();
        let step = device.reach(&mut plan, is_wait);
        assert_eq!(device.hit(0, 40 * MIB), None, "the sweep has claimed it");
        if fails {
            device.learn(&mut plan, Outcome::Failed);
        } else {
            device.done(&mut plan, &step);
            device.coordinator.abandon(&mut plan, &mut device.shards);
        }
        assert_eq!(device.next(&mut plan), Step::Done);
        assert!(device.hit(0, 40 * MIB).is_some(), "fails: {fails}");
    }
}

/// Has a plan fail when its first page is created and not mapped. Returns the page, which is spare then.
fn spare(device: &mut Device) -> PageId {
    let mut plan = device.plan(0, 20 * MIB);
    let step = device.until(&mut plan, is_pages);
    let Step::Pages(calls) = &step else { panic!("{step:?}") };
    let PageCall::Create { page, .. } = calls[0] else { panic!("{calls:?}") };
    device.learn(&mut plan, Outcome::Stopped { done: 1, refused: false });
    assert_eq!(device.next(&mut plan), Step::Done);
    device.check();
    page
}

#[test]
fn spare_pages_go_back_with_everything_cached() {
    let mut device = under(TIGHT, Reuse::InOrder, 40 * MIB);
    spare(&mut device);
    assert_eq!(device.reserved(), 2 * MIB);
    assert_eq!((device.empty(), device.page_stats().pages), (0, 0));
}

#[test]
fn a_spare_page_stays_spare_where_its_plan_fails() {
    let mut device = under(TIGHT, Reuse::InOrder, 40 * MIB);
    let page = spare(&mut device);
    let mut plan = device.plan(0, 20 * MIB);
    let step = device.until(&mut plan, is_pages);
    assert!(maps(&step, page), "{step:?}");
    device.learn(&mut plan, Outcome::Stopped { done: 0, refused: false });
    assert_eq!(device.next(&mut plan), Step::Done);
    device.check();
    let mut again = device.plan(0, 20 * MIB);
    let step = device.until(&mut again, is_pages);
    assert!(maps(&step, page), "{step:?}");
}

#[test]
fn a_spare_page_is_for_one_plan() {
    let mut device = under(TIGHT, Reuse::InOrder, 80 * MIB);
    let page = spare(&mut device);
    let (mut first, mut second) = (device.plan(0, 20 * MIB), device.plan(1, 20 * MIB));
    let (step, other) = (device.until(&mut first, is_pages), device.until(&mut second, is_pages));
    assert!(maps(&step, page) && is_pages(&other) && !maps(&other, page), "{step:?}, {other:?}");
}

/// Memory of the large side serves small requests of its stream, and its bytes count on the small side then. They are
/// on the large side again once nothing small is left there.
#[test]
fn the_bytes_of_a_slab_are_on_the_small_side_while_it_is_in_use() {
    let mut device = under(TIGHT, Reuse::InOrder, 4 * MIB);
    device.use_until(0, 4 * MIB, 5);
    let small = device.allocate(0, MIB / 2);
    let by_side = |device: &mut Device| {
        device.check();
        let reserved = device.stats().reserved_bytes;
        (reserved.small_pool.current, reserved.large_pool.current)
    };
    assert_eq!(by_side(&mut device), (2 * MIB, 2 * MIB));
    device.free(small, 6);
    assert_eq!(by_side(&mut device), (0, 4 * MIB));
}

#[test]
fn a_trim_stops_at_its_goal_within_a_block() {
    let mut device = under(TIGHT, Reuse::InOrder, 40 * MIB);
    device.use_until(0, 40 * MIB, 5);
    assert_eq!(device.end(&mut Plan::trim(10 * MIB, [0; 2])), Step::Done);
    assert_eq!(device.reserved(), 10 * MIB);
    device.check();
}

/// Two plans fail, each with a page that was created and not mapped. A trim releases one of the two.
#[test]
fn a_trim_stops_at_its_goal_among_spare_pages() {
    let mut device = under(TIGHT, Reuse::InOrder, 80 * MIB);
    let mut plans = [0, 1].map(|shard| device.plan(shard, 20 * MIB));
    for plan in &mut plans {
        device.reach(plan, is_pages);
    }
    for plan in &mut plans {
        device.learn(plan, Outcome::Stopped { done: 1, refused: false });
        assert_eq!(device.next(plan), Step::Done);
    }
    assert_eq!(device.reserved(), 4 * MIB);
    assert_eq!(device.end(&mut Plan::trim(2 * MIB, [0; 2])), Step::Done);
    assert_eq!((device.reserved(), device.page_stats().pages), (2 * MIB, 1));
    device.check();
}

/// A freed block waits for another stream. What gives everything back waits for that, and releases the block as well.
#[test]
fn everything_cached_goes_back_with_what_the_wait_has_reached() {
    for policy in [PLAIN, TIGHT] {
        let mut device = under(policy, Reuse::InOrder, 40 * MIB);
        let held = device.allocate(0, 40 * MIB);
        device.free_behind(held, 5, &[point(1, 7)]);
        assert_eq!(device.empty(), 0, "{policy:?}");
    }
}

/// While everything outstanding is waited for, another block is freed that a second stream still uses. It is released
/// with the rest, after one more wait.
#[test]
fn everything_cached_goes_back_with_what_was_freed_during_the_wait() {
    let mut device = under(TIGHT, Reuse::InOrder, 40 * MIB);
    device.gpu.reached.fill(Tick::ZERO);
    let held = [20, 20].map(|mib| device.allocate(0, mib * MIB));
    device.free_behind(held[0], 7, &[point(1, 7)]);
    let mut plan = empty_cache();
    let first = device.until(&mut plan, is_wait);
    assert_eq!(first, Step::Wait(vec![point(1, 7), point(0, 7)]));
    device.free_behind(held[1], 9, &[point(1, 9)]);
    device.done(&mut plan, &first);
    let second = device.until(&mut plan, is_wait);
    assert_eq!(second, Step::Wait(vec![point(1, 9), point(0, 9)]));
    device.done(&mut plan, &second);
    assert_eq!(device.end(&mut plan), Step::Done);
    assert_eq!(device.reserved(), 0);
}

/// Where a device keeps no order, a stream gets back what it has freed once that use is over. A plan that finds nothing
/// else waits for that.
#[test]
fn what_a_stream_has_freed_itself_is_a_reason_to_wait_where_there_is_no_order() {
    let mut device = under(TIGHT, Reuse::AfterDone, 40 * MIB);
    device.gpu.reached.fill(Tick::ZERO);
    let held = device.allocate(0, 40 * MIB);
    device.free(held, 5);
    let mut plan = device.plan(0, 40 * MIB);
    let step = device.until(&mut plan, is_wait);
    assert_eq!(step, Step::Wait(vec![point(0, 5)]));
    device.done(&mut plan, &step);
    assert!(matches!(device.end(&mut plan), Step::Grant(_)));
}

/// Where memory is used again only once the work on it was submitted, that of the open tick was not.
#[test]
fn what_the_open_tick_covers_is_not_used_again() {
    for (open, waits) in [(5, true), (6, false)] {
        let mut device = under(TIGHT, Reuse::AfterSubmit, 40 * MIB);
        device.gpu.reached.fill(Tick::ZERO);
        let held = device.allocate(0, 40 * MIB);
        device.free(held, 5);
        let mut plan = device.plan(0, 40 * MIB).with_open_tick(Tick(open));
        let step = device.until(&mut plan, |step| is_wait(step) || matches!(step, Step::Grant(_)));
        assert_eq!(is_wait(&step), waits, "{step:?}");
        if waits {
            device.done(&mut plan, &step);
            assert!(matches!(device.end(&mut plan), Step::Grant(_)));
        }
    }
}

/// Free memory that several streams have used may be ready once each of them is asked.
#[test]
fn every_stream_that_guards_free_memory_is_asked() {
    let mut device = under(TIGHT, Reuse::InOrder, 40 * MIB);
    device.gpu.reached.fill(Tick::ZERO);
    let held = device.allocate(0, 40 * MIB);
    device.free_behind(held, 5, &[point(1, 7)]);
    let mut asked = || device.coordinator.streams_waited_for(&mut device.shards);
    assert_eq!(asked(), [StreamId(0), StreamId(1)]);
    [(0, 5), (1, 7)].into_iter().for_each(|(stream, tick)| device.note_reached(stream, tick));
    assert_eq!(device.coordinator.streams_waited_for(&mut device.shards), [], "they are done");
}

/// The home of the default pool gets its addresses at once. A private pool that needs little has few addresses, and one
/// that needs much has few ranges.
#[test]
fn ranges_of_a_private_pool_are_as_long_as_all_before_them() {
    for (pool, expected) in [(PoolId::DEFAULT, vec![18]), (PoolId(1), vec![1, 1, 2, 6])] {
        let shards = vec![(0, pool)];
        let mut device = Device::of(&Facts { total_bytes: 16 << 30, shards, ..Facts::under(TIGHT, 1) });
        for mib in [600, 600, 700, 6 << 10] {
            device.allocate(0, mib * MIB);
        }
        let reserved = device.steps.iter().filter_map(|step| match step {
            Step::ReserveRange { bytes, .. } => Some(bytes >> 30),
            _ => None,
        });
        assert_eq!(reserved.collect::<Vec<_>>(), expected, "{pool}");
    }
}

/// A freed block was used by its own stream and by another one. A plan that finds nothing else waits for both.
#[test]
fn what_a_freed_block_waits_for_is_a_reason_to_wait() {
    let mut device = under(TIGHT, Reuse::AfterDone, 40 * MIB);
    device.gpu.reached.fill(Tick::ZERO);
    let held = device.allocate(0, 40 * MIB);
    device.free_behind(held, 5, &[point(1, 7)]);
    let mut plan = device.plan(0, 40 * MIB);
    let step = device.until(&mut plan, is_wait);
    assert_eq!(step, Step::Wait(vec![point(1, 7), point(0, 5)]));
    device.done(&mut plan, &step);
    let end = device.end(&mut plan);
    assert!(matches!(end, Step::Grant(_)), "{end:?}");
}

/// A plan pauses in its turn. What the device has done meanwhile is asked for before the next attempt.
#[test]
fn a_plan_in_its_turn_asks_again_how_far_streams_are() {
    let mut device = under(TIGHT, Reuse::InOrder, 40 * MIB);
    device.gpu.reached.fill(Tick::ZERO);
    let _held = device.allocate(0, 20 * MIB);
    let (mut asks, mut waits) = (device.plan(0, 20 * MIB), device.plan(1, 20 * MIB));
    let calls = device.reach(&mut asks, is_pages);
    // The other plan repeats its attempt a bounded number of times, and then waits for its turn.
    for _ in 0..100 {
        device.past(&mut waits, is_pause);
    }
    device.reach(&mut waits, is_pause);
    device.done(&mut asks, &calls);
    assert!(matches!(device.end(&mut asks), Step::Grant(_)));
    device.learn(&mut waits, Outcome::Done);
    let step = device.next(&mut waits);
    assert!(is_poll(&step), "{step:?}");
}
