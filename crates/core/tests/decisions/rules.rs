//! One test for each rule of time: the last use of a block, and the streams that may have it at a time.

mod room;

use millpond_backend::{Point, Reuse, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, Segments, Settings};
use millpond_core::{Freed, LastUse, Outcome, PageCall, PoolId, Requester, Shard, Step};

use crate::driver::{Device, Facts, Held, MIB, is_release, maps, point};

/// Returns an allocator with a stream for each of these pools. A wait comes back with what the streams have reached.
fn of(settings: Settings, reuse: Reuse, pools: &[u64]) -> Device {
    let shards = (0..).zip(pools).map(|(stream, &pool)| (stream, PoolId(pool))).collect();
    let mut device = Device::of(&Facts { reuse, shards, ..Facts::new(settings, 0) });
    device.gpu.waits_in_vain = true;
    device
}

fn classic(reuse: Reuse) -> Device {
    of(Settings::default(), reuse, &[0, 0])
}

fn paged(growth: Growth) -> Device {
    of(Settings { policy: Policy::paged(growth), ..Settings::default() }, Reuse::InOrder, &[0, 0, 0])
}

/// Returns the points that the host has waited for.
fn waited_for(device: &Device) -> Vec<Point> {
    let points = |step: &Step| if let Step::Wait(points) = step { points.clone() } else { Vec::new() };
    device.steps.iter().flat_map(points).collect()
}

/// Three neighbours are freed, in each order and with each of them used last. Each grant of their memory covers the
/// latest use.
#[test]
fn a_joined_block_has_the_latest_of_its_parts_last_uses() {
    for latest in 0..3 {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut device = classic(Reuse::InOrder);
            let parts: Vec<Held> =
                (0..3).map(|_| device.hit(0, 4 * MIB).unwrap_or_else(|| device.allocate(0, 4 * MIB))).collect();
            for at in order {
                // A free in between is put off, and is done when the next one comes.
                device.take_back(parts[at], if at == latest { 9 } else { 5 });
            }
            device.shards[0].tidied();
            let whole = device.hit(0, 12 * MIB).expect("the three are joined");
            assert_eq!((whole.offset, whole.last_use.tick()), (parts[0].offset, Tick(9)), "{order:?}, last {latest}");
            let rest = device.hit(0, 2 * MIB).expect("the remainder");
            assert!(rest.last_use.tick() <= Tick(9));
        }
    }
}

#[test]
fn what_is_cut_off_keeps_the_last_use_of_the_whole() {
    let mut device = classic(Reuse::InOrder);
    device.use_until(0, 20 * MIB, 7);
    for _ in 0..4 {
        assert_eq!(device.hit(0, 4 * MIB).map(|grant| grant.last_use.tick()), Some(Tick(7)));
    }
}

/// The same block is freed and handed out, over and over. It and the memory behind it have the newest tick.
#[test]
fn a_swapped_block_and_its_remainder_have_the_newest_last_use() {
    let mut device = classic(Reuse::InOrder);
    let first = device.allocate(0, 4 * MIB);
    for tick in 3..8 {
        device.take_back(first, tick);
        let again = device.hit(0, 4 * MIB).expect("a block");
        assert_eq!((again.block, again.last_use.tick()), (first.block, Tick(tick)));
    }
    let rest = device.hit(0, 8 * MIB).expect("the remainder");
    assert_eq!(rest.last_use.tick(), Tick(7));
    device.take_back(first, 9);
    device.shards[0].tidied().check();
    assert_eq!(device.hit(0, 4 * MIB).map(|grant| grant.last_use.tick()), Some(Tick(9)));
}

/// Two blocks are swapped by turns, and one is looked at in between. Each keeps its own tick.
#[test]
fn a_swap_ends_with_anything_else() {
    let mut device = classic(Reuse::InOrder);
    let (first, second) = (device.allocate(0, 4 * MIB), device.hit(0, 6 * MIB).expect("the remainder"));
    for tick in [3, 4] {
        device.take_back(first, tick);
        assert_eq!(device.hit(0, 4 * MIB).map(|grant| grant.block), Some(first.block));
    }
    device.take_back(second, 5);
    device.shards[0].tidied().check();
    device.take_back(first, 6);
    device.shards[0].tidied().check();
    let all = device.hit(0, 20 * MIB).expect("the whole segment");
    assert_eq!((all.offset, all.last_use.tick()), (0, Tick(6)));
    device.shards[0].tidied().check();
}

/// A block that was swapped before is used on another stream now, and waits for it.
#[test]
fn a_swapped_block_waits_for_other_streams() {
    let mut device = classic(Reuse::InOrder);
    let first = device.allocate(0, 4 * MIB);
    for tick in [3, 4] {
        device.take_back(first, tick);
        assert!(device.hit(0, 4 * MIB).is_some());
    }
    device.record(first, 1);
    assert!(matches!(device.take_back(first, 5), Freed::Pending(_)));
    assert_ne!(device.hit(0, 4 * MIB).map(|grant| grant.offset), Some(0));
}

#[test]
fn a_block_waits_for_all_of_its_points() {
    let mut device = classic(Reuse::InOrder);
    let held = device.allocate(0, 12 * MIB);
    device.record(held, 1);
    for tick in [8, 6, 7] {
        device.shards[0].used_until(held.block, point(1, tick));
    }
    let Freed::Pending(uses) = device.take_back(held, 4) else { panic!("it was used elsewhere") };
    assert_eq!((&uses.streams[..], &uses.points.into_vec()[..]), (&[StreamId(1)][..], &[point(1, 8)][..]));
    device.pend(held, &[point(1, 5), point(1, 8)]);
    for (reached, is_free) in [(4, false), (5, false), (7, false), (8, true)] {
        device.coordinator.note_reached(StreamId(1), Tick(reached));
        // A tick that is known to be reached stays reached.
        device.note_reached(1, 1);
        device.check();
        assert_eq!(device.coordinator.waiters() == 0, is_free, "at {reached}");
        assert_eq!(device.hit(0, 12 * MIB).is_some(), is_free, "at {reached}");
    }
}

/// Two threads report points out of order. The earlier points are not kept waiting behind the later ones.
#[test]
fn waiters_of_a_stream_stand_in_order() {
    let mut device = classic(Reuse::InOrder);
    let held: Vec<Held> = (0..3).map(|_| device.allocate(0, 12 * MIB)).collect();
    for (grant, tick) in held.iter().zip([9, 3, 6]) {
        device.free_behind(*grant, 1, &[point(1, tick)]);
    }
    device.check();
    assert_eq!(device.coordinator.outstanding(&mut device.shards), [point(1, 9)]);
    device.note_reached(1, 6);
    assert_eq!(device.coordinator.waiters(), 1);
}

#[test]
fn a_settling_block_waits_for_its_own_tick() {
    for reuse in [Reuse::AfterSubmit, Reuse::AfterDone] {
        let mut device = classic(reuse);
        let held: Vec<Held> = (0..3).map(|_| device.allocate(0, 12 * MIB)).collect();
        for (grant, tick) in held.iter().zip([7, 5, 9]) {
            assert_eq!(device.take_back(*grant, tick), Freed::Settling { unsettled: false });
        }
        device.shards[0].check();
        let mut ready = |usable| device.hit_at(0, 12 * MIB, usable).map(|grant| grant.last_use.tick().0);
        assert_eq!(
            [ready(4), ready(5), ready(6), ready(7), ready(8), ready(9)],
            [None, Some(5), None, Some(7), None, Some(9)]
        );
    }
}

/// Where memory is not reused in order, a block that waited for another stream waits for its home stream as well.
#[test]
fn a_block_waits_for_other_streams_and_then_for_its_home() {
    let mut device = classic(Reuse::AfterDone);
    let held = device.allocate(0, 12 * MIB);
    device.free_behind(held, 6, &[point(1, 3)]);
    assert_eq!(device.coordinator.outstanding(&mut device.shards), [point(1, 3), point(0, 6)]);
    device.note_reached(1, 3);
    assert!(device.hit_at(0, 12 * MIB, 5).is_none(), "its home stream is at 5 of 6");
    assert!(device.hit_at(0, 12 * MIB, 6).is_some());
}

/// With several blocks that settle, all are waited for. The coordinator frees those that are reached and no others.
#[test]
fn a_flush_waits_for_the_last_tick_of_each_home() {
    let mut device = classic(Reuse::AfterDone);
    let held = [0, 0, 1].map(|shard| device.allocate(shard, 12 * MIB));
    for (held, tick) in held.into_iter().zip([4, 8, 6]) {
        device.take_back(held, tick);
    }
    assert_eq!(device.coordinator.outstanding(&mut device.shards), [point(0, 8), point(1, 6)]);
    device.coordinator.note_reached(StreamId(0), Tick(5));
    device.note_reached(1, 5);
    assert_eq!(device.coordinator.outstanding(&mut device.shards), [point(0, 8), point(1, 6)]);
    assert_eq!(device.hit_at(0, 12 * MIB, 0).map(|grant| grant.last_use.tick()), Some(Tick(4)));
    assert!(device.hit_at(1, 12 * MIB, 0).is_none());
}

/// A segment goes back exactly when its last use is over, and stays cached until then.
#[test]
fn a_sweep_releases_what_is_over_and_nothing_else() {
    for (reached, is_released) in [(4, false), (5, true), (6, true)] {
        let mut device = classic(Reuse::InOrder);
        device.use_until(0, 12 * MIB, 5);
        device.gpu.reached = vec![Tick(reached); 2];
        device.empty();
        assert_eq!(waited_for(&device), [point(0, 5)]);
        assert_eq!(device.reserved() == 0, is_released, "5 was the last use, {reached} is reached");
        device.check();
        assert!(!device.coordinator.is_held());
        assert_eq!(device.hit(0, 12 * MIB).is_some(), !is_released);
    }
}

/// Memory was used through a window by another stream, which came after the work at home. It is released only when that
/// is over.
#[test]
fn memory_in_a_window_goes_when_the_work_there_is_over() {
    for (window, is_released) in [(50, false), (51, true)] {
        let mut device = paged(Growth::Tight);
        device.set_limit(44 * MIB);
        device.gpu.reached.fill(Tick(0));
        let [low, _fixed, high] = [20, 4, 20].map(|mib| device.allocate(0, mib * MIB));
        device.take_back(low, 4);
        device.take_back(high, 5);
        let gathered = device.allocate(1, 40 * MIB);
        assert!(
            device.steps.iter().any(|step| matches!(step, Step::StreamWait { points, .. } if points == &[point(0, 5)]))
        );
        assert_eq!(gathered.last_use.tick(), Tick(50), "the tick that covers the wait");
        device.free(gathered, 51);
        device.gpu.reached = vec![Tick(5), Tick(window), Tick(0)];
        device.empty();
        assert_eq!(waited_for(&device), [point(1, 51)]);
        let left = if is_released { 4 } else { 44 };
        assert_eq!(device.reserved(), left * MIB, "at {window}");
        device.check();
    }
}

/// Free memory beside a block that waits is stranded. It is ready when the block does not wait any more.
#[test]
fn a_waiting_block_pins_its_segment() {
    let mut device = classic(Reuse::InOrder);
    let held = device.allocate(0, 4 * MIB);
    device.free_behind(held, 1, &[point(1, 3)]);
    let ledger = device.ledger();
    assert_eq!((ledger.waiting_bytes, ledger.stranded_bytes, ledger.ready_bytes), (4 * MIB, 16 * MIB, 0));
    device.note_reached(1, 3);
    assert_eq!(device.ledger().ready_bytes, 20 * MIB);
}

#[test]
fn reset_peaks_are_what_is_there() {
    let mut device = classic(Reuse::InOrder);
    let (first, second) = (device.allocate(0, 12 * MIB), device.allocate(1, 12 * MIB));
    device.take_back(first, 1);
    device.reset_peaks();
    device.check();
    assert_eq!(device.stats().allocated_bytes.all.peak, second.size);
}

/// The slack is a share of the most that was live since the peaks were reset.
#[test]
fn reset_peaks_make_the_slack_small() {
    for resets in [false, true] {
        let settings = Settings { policy: Policy::Classic(Segments::Snug(0.125)), ..Settings::default() };
        let mut device = of(settings, Reuse::InOrder, &[0]);
        device.use_until(0, 400 * MIB, 1);
        if resets {
            device.reset_peaks();
        }
        device.allocate(0, 40 * MIB);
        let released = device.steps.iter().any(is_release);
        assert_eq!(released, resets, "{:?}", device.steps);
    }
}

/// Memory of a private pool neither serves another pool nor is gathered for it.
#[test]
fn private_pools_keep_their_memory() {
    for growth in [Growth::Balanced, Growth::Tight] {
        let settings = Settings { policy: Policy::paged(growth), ..Settings::default() };
        let mut device = of(settings, Reuse::InOrder, &[0, 7, 0]);
        device.use_until(1, 40 * MIB, 5);
        let mut plan = device.plan(0, 30 * MIB);
        let held = device.finish(&mut plan, 0).expect("there is room");
        assert_eq!((held.shard, held.last_use), (0, LastUse::NEVER), "{growth:?}: new memory of its own");
        assert_eq!(device.reserved(), 70 * MIB);
    }
}

/// At some look of a plan that gets an idle block of another stream, another thread uses the block once more. The plan
/// gets it behind that use then, or not at all.
#[test]
fn a_block_serves_behind_a_use_between_two_looks() {
    let (mut in_vain, mut behind, mut idle) = (0, 0, 0);
    for looks in 0..100 {
        let mut device = paged(if looks % 2 == 0 { Growth::Balanced } else { Growth::Tight });
        device.gpu.reached.fill(Tick(0));
        device.allocate(2, 100 * MIB);
        device.use_until(1, 40 * MIB, 5);
        device.gpu.reached = vec![Tick(0), Tick(5), Tick(0)];
        let mut plan = device.plan(0, 40 * MIB);
        let want = device.want(40 * MIB);
        let (mut struck, mut left) = (false, looks / 2);
        let mut meddle = |shards: &mut Vec<Shard>| {
            if let Some(again) = shards[0].allocate(&want, 0, Requester::in_order(StreamId(1))) {
                shards[0].free(again.block, Tick(6), 0);
                struck = true;
            }
        };
        device.steps.clear();
        let step = device.end_meddled(&mut plan, &mut left, &mut meddle);
        let behind_it = |step: &Step| matches!(step, Step::StreamWait { points, .. } if points == &[point(1, 6)]);
        let waits = device.steps.iter().any(behind_it);
        device.check();
        match step {
            Step::Grant(grant) if struck && !grant.last_use.is_never() => {
                assert!(waits, "after {looks} looks: {grant:?} is in use up to 6, and 5 is reached");
                behind += 1;
            }
            Step::Grant(grant) if !grant.last_use.is_never() => idle += 1,
            _ => in_vain += u32::from(struck),
        }
    }
    assert!(
        in_vain > 0 && behind > 0 && idle > 0,
        "{in_vain} times new memory, {behind} times behind, {idle} times idle"
    );
}

/// New memory was never used, even at addresses that were in use before. Memory of another stream was used.
#[test]
fn only_new_memory_is_fresh() {
    let mut device = paged(Growth::Tight);
    let held = device.allocate(0, 20 * MIB);
    assert_eq!(held.last_use, LastUse::NEVER);
    device.take_back(held, 5);
    device.empty();
    assert_eq!(device.reserved(), 0);
    let again = device.allocate(0, 20 * MIB);
    assert_eq!((again.offset, again.last_use), (held.offset, LastUse::NEVER), "the same addresses, with new pages");
    device.take_back(again, 6);
    device.gpu.reached = vec![Tick(6), Tick(0), Tick(0)];
    device.set_limit(20 * MIB);
    let other = device.allocate(1, 20 * MIB);
    assert_ne!(other.last_use, LastUse::NEVER, "stream 0 had it before");
}

/// A plan fails after its page was created. The page is spare, is counted, and is used before others are created.
#[test]
fn a_page_that_was_created_in_vain_is_spare() {
    let mut device = paged(Growth::Tight);
    let mut plan = device.plan(0, 20 * MIB);
    let (_, calls) = device.until_calls(&mut plan);
    let PageCall::Create { page, bytes } = calls[0] else { panic!("{calls:?}") };
    device.learn(&mut plan, Outcome::Stopped { done: 1, refused: false });
    assert_eq!(device.run(&mut plan), Step::Done);
    device.check();
    assert_eq!(device.reserved(), bytes);
    assert_eq!(device.ledger().ready_bytes, bytes);
    assert_eq!(device.page_stats().pages, 1);
    device.allocate(0, 20 * MIB);
    assert!(device.steps.iter().any(|step| maps(step, page)), "{:?}", device.steps);
    assert_eq!(device.reserved(), 20 * MIB);
}

/// A budget is what the device reports as left, in addition to what is reserved already.
#[test]
fn a_budget_is_what_is_left_beside_what_is_reserved() {
    for (left, is_released) in [(4, true), (12, false)] {
        let mut device = classic(Reuse::InOrder);
        let _held = device.allocate(0, 20 * MIB);
        device.use_until(1, 12 * MIB, 5);
        device.gpu.left = Some(left * MIB);
        let mut plan = device.plan(0, 12 * MIB).within_budget();
        assert!(!matches!(device.run(&mut plan), Step::Refuse(_) | Step::Done));
        let released = device.steps.iter().any(is_release);
        assert_eq!(released, is_released, "{left} MiB are left: {:?}", device.steps);
    }
}

/// Two plans ask the driver at the same time. The bytes that the first asks for are counted already.
#[test]
fn bytes_under_way_count_against_the_limit() {
    for is_paged in [false, true] {
        let mut device = if is_paged { paged(Growth::Tight) } else { classic(Reuse::InOrder) };
        device.set_limit(60 * MIB);
        let (mut first, mut second) = (device.plan(0, 40 * MIB), device.plan(1, 40 * MIB));
        device.until(&mut first, |step| matches!(step, Step::Reserve { .. } | Step::Pages(_)));
        for _ in 0..100 {
            let step = device.next(&mut second);
            let asks = match &step {
                Step::Reserve { .. } => true,
                Step::Pages(calls) => calls.iter().any(|call| matches!(call, PageCall::Create { .. })),
                _ => false,
            };
            assert!(!asks, "paged {is_paged}: {step:?} while 40 of 60 MiB are under way");
            if matches!(step, Step::Refuse(_) | Step::Pause { .. }) {
                break;
            }
            device.done(&mut second, &step);
        }
    }
}
