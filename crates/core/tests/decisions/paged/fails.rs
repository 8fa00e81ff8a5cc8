//! Plans that fail on their way: what they have claimed, asked for or mapped comes back, or stays of use.

use millpond_backend::{StreamId, Tick};
use millpond_core::settings::Growth;
use millpond_core::{Outcome, Step};

use crate::driver::{
    Device, Facts, MIB, empty_cache, gaps_on, is_pages, is_pause, is_stream_wait, is_wait, mapped, point, with_gaps,
};

/// Sets up stream 1 with 76 MiB, of which 24 and 44 are free, and a limit of 80. Stream 0 needs 50.
fn gaps_of_another_stream() -> (Device, u64) {
    let (mut device, _) = with_gaps(Growth::Tight, 1, &[24, 4, 44, 4]);
    device.set_limit(80 * MIB);
    (device, 50 * MIB)
}

#[test]
fn a_plan_fails_beside_another() {
    for made in 0..25 {
        let (mut device, bytes) = gaps_of_another_stream();
        let (mut first, mut second) = (device.plan(0, bytes), device.plan(2, 20 * MIB));
        let (_, calls) = device.until_calls(&mut first);
        let (other, others) = device.until_calls(&mut second);
        assert_eq!(calls.len(), 25, "one for each page of 2 MiB: {calls:?}");
        assert!(mapped(&calls).iter().all(|page| !mapped(&others).contains(page)), "{calls:?} and {others:?}");
        device.learn(&mut first, Outcome::Stopped { done: made, refused: false });
        assert_eq!(device.end(&mut first), Step::Done);
        device.done(&mut second, &other);
        let held = device.finish(&mut second, 2).expect("its memory was its own");
        // All that the first plan had is available to others.
        device.free(held, 3);
        device.use_until(2, 70 * MIB, 4);
    }
}

/// The pages of a window are mapped up to some page, and the next one is not. What is mapped is a window for requests
/// of that length, and all memory is free at its home.
#[test]
fn a_plan_that_fails_half_way_leaves_a_shorter_window() {
    for (owner, made) in [0, 1].into_iter().flat_map(|owner| (1..6).map(move |made| (owner, made))) {
        let (mut device, _) = with_gaps(Growth::Tight, owner, &[4, 4, 4, 4, 4]);
        device.fail_at(&mut device.plan(0, 12 * MIB), is_pages, Outcome::Stopped { done: made, refused: false });
        assert_eq!((device.in_windows(), device.reserved()), (made as u64, 20 * MIB));
        let at_home = [4, 4, 4].map(|mib| device.hit(owner, mib * MIB).expect("nothing is lost"));
        assert!(at_home.iter().all(|held| held.last_use.tick() == Tick(1)), "{at_home:?}");
        at_home.into_iter().for_each(|held| device.free(held, 1));
        // What is not longer than a block at home is served there.
        if made > 2 {
            let held = device.allocate_at_no_cost(0, made as u64 * 2 * MIB);
            assert_eq!((held.shard, device.page_stats().returned), (0, 1), "{made} pages");
            device.free(held, 2);
        }
        assert_eq!(device.allocate(0, 12 * MIB).shard, 0);
    }
}

/// The driver fails while it creates the pages of a home. What is there is free memory, and a page that was created and
/// not mapped is no reason to refuse a request for all that there may be.
#[test]
fn a_home_keeps_the_pages_that_have_arrived() {
    for made in 0..20 {
        let mut device = Device::new(Growth::Tight, 20 * MIB);
        device.fail_at(&mut device.plan(0, 20 * MIB), is_pages, Outcome::Stopped { done: made, refused: false });
        let (created, at_home) = (made.div_ceil(2) as u64, made as u64 / 2);
        assert_eq!((device.page_stats().pages, device.reserved()), (created, created * 2 * MIB));
        if at_home > 0 {
            let held = device.hit(0, at_home * 2 * MIB).expect("its pages are at home");
            assert!(held.last_use.is_never());
            device.free(held, 1);
        }
        let whole = device.allocate(0, 20 * MIB);
        assert_eq!((whole.offset, device.reserved()), (0, 20 * MIB), "{made} calls");
    }
}

/// The driver refuses to map pages in windows, each time. The plan makes do without a window, and does not try again
/// and again.
#[test]
fn a_plan_does_without_windows_where_the_driver_maps_none() {
    // There is room for the home to grow, or all that is idle is released first.
    for limit in [126, 76] {
        let (mut device, _) = with_gaps(Growth::Tight, 1, &[24, 4, 44, 4]);
        device.set_limit(limit * MIB);
        let (mut plan, mut refusals) = (device.plan(0, 50 * MIB), 0);
        let granted = loop {
            let step = device.until(&mut plan, is_pages);
            match &step {
                Step::Grant(grant) => break *grant,
                Step::Pages(calls) if mapped(calls).len() == calls.len() => {
                    refusals += 1;
                    assert!(refusals < 10, "the same calls again and again: {calls:?}");
                    device.learn(&mut plan, Outcome::Stopped { done: 0, refused: true });
                }
                Step::Pages(_) => device.done(&mut plan, &step),
                step => panic!("{limit} MiB: {step:?}"),
            }
        };
        device.check();
        assert_eq!((granted.last_use.is_never(), device.in_windows(), refusals), (true, 0, 1));
        assert_eq!(device.reserved(), limit * MIB - if limit == 76 { 18 * MIB } else { 0 });
    }
}

/// The waits cannot be queued: nothing is in use elsewhere, and nothing is claimed any more.
#[test]
fn a_plan_fails_at_its_waits() {
    let mut busy = Device::new(Growth::Tight, 72 * MIB);
    busy.gpu.reached.fill(Tick::ZERO);
    let (mut device, _) = gaps_on(busy, 1, &[24, 4, 44]);
    device.fail_at(&mut device.plan(0, 50 * MIB), is_stream_wait, Outcome::Failed);
    assert_eq!((device.page_stats().moved_behind_wait, device.in_windows()), (0, 0));
    assert!(device.hit(1, 44 * MIB).is_some());
}

/// A home was to grow behind a free block that another stream may still use, and the driver fails: at the wait for that
/// stream, or after some of the calls. Afterwards too only a stream that waits gets the block.
#[test]
fn the_free_block_in_front_of_new_pages_stays_guarded() {
    for made in [None, Some(0), Some(2), Some(3)] {
        let mut device = Device::new(Growth::Tight, 200 * MIB);
        device.gpu.reached.fill(Tick::ZERO);
        let held = device.allocate(0, 20 * MIB);
        device.record(held, 1);
        device.free(held, 9);
        let mut plan = device.plan(0, 24 * MIB);
        let wait = device.until(&mut plan, is_stream_wait);
        assert_eq!(wait, Step::StreamWait { stream: StreamId(0), points: vec![point(1, 9)] });
        if let Some(done) = made {
            device.done(&mut plan, &wait);
            device.fail_at(&mut plan, is_pages, Outcome::Stopped { done, refused: false });
        } else {
            device.learn(&mut plan, Outcome::Failed);
            assert_eq!(device.next(&mut plan), Step::Done);
        }
        device.check();
        assert!(device.hit(0, 20 * MIB).is_none(), "stream 1 may use it, after {made:?} calls");
        device.gpu.reached[1] = Tick(9);
        device.poll();
        assert!(device.hit(0, 20 * MIB).is_some(), "stream 1 is done, after {made:?} calls");
    }
}

/// The device has no waits, or cannot queue this one on the stream. Nothing is taken or gathered behind a wait then,
/// and the host waits instead.
#[test]
fn the_host_waits_where_a_wait_cannot_be_queued() {
    for (blocks, bytes) in [(&[40][..], 40 * MIB), (&[20, 4, 20], 40 * MIB)] {
        for stream_wait in [true, false] {
            let limit = blocks.iter().sum::<u64>() * MIB;
            let mut device = Device::of(&Facts { stream_wait, ..Facts::paged(Growth::Tight, limit) });
            device.gpu.reached.fill(Tick::ZERO);
            let (mut device, _) = gaps_on(device, 1, blocks);
            let mut plan = device.plan(0, bytes);
            let mut asked = 0;
            let points = loop {
                match device.until(&mut plan, |step| is_stream_wait(step) || matches!(step, Step::Wait(_))) {
                    Step::StreamWait { .. } => {
                        asked += 1;
                        assert_eq!((asked, stream_wait), (1, true), "a wait that cannot be queued is asked for");
                        device.learn(&mut plan, Outcome::Refused);
                        device.check();
                    }
                    Step::Wait(points) => break points,
                    step => panic!("{step:?}"),
                }
            };
            assert_eq!(points, [point(1, 1)]);
            device.learn(&mut plan, Outcome::Reached(points));
            assert!(device.finish(&mut plan, 0).is_some());
        }
    }
}

/// Blocks that waited for the points that a plan waits for are free when the points are reached, before any further
/// step.
#[test]
fn a_wait_frees_at_once_what_waited_for_its_points() {
    let mut device = Device::of(&Facts { stream_wait: false, ..Facts::paged(Growth::Tight, 40 * MIB) });
    device.gpu.reached.fill(Tick::ZERO);
    let held = device.allocate(0, 40 * MIB);
    device.free_behind(held, 1, &[point(1, 3)]);
    let mut plan = device.plan(0, 40 * MIB);
    let step = device.until(&mut plan, is_wait);
    assert_eq!(step, Step::Wait(vec![point(1, 3)]));
    device.learn(&mut plan, Outcome::Reached(vec![point(1, 3)]));
    let step = device.next(&mut plan);
    assert!(matches!(step, Step::Grant(_)), "{step:?}");
}

/// The blocks of a stream were used up to different ticks. The plan waits for the first tick, which suffices.
#[test]
fn the_oldest_point_of_a_stream_is_waited_for_first() {
    for ticks in [[3, 9], [9, 3]] {
        let mut device = Device::of(&Facts { stream_wait: false, ..Facts::paged(Growth::Tight, 40 * MIB) });
        device.gpu.reached.fill(Tick::ZERO);
        let [low, _between, high] = [16, 8, 16].map(|mib| device.allocate(1, mib * MIB));
        device.free(low, ticks[0]);
        device.free(high, ticks[1]);
        let mut plan = device.plan(0, 16 * MIB);
        let step = device.until(&mut plan, is_wait);
        assert_eq!(step, Step::Wait(vec![point(1, 3)]));
        device.done(&mut plan, &step);
        assert!(device.finish(&mut plan, 0).is_some());
    }
}

/// A plan was to create a part of what it needs, and fails before it does. Other plans may then create that part.
#[test]
fn what_an_abandoned_plan_did_not_create_counts_no_more() {
    let mut device = Device::new(Growth::Tight, 60 * MIB);
    device.gpu.reached.fill(Tick::ZERO);
    device.use_until(1, 40 * MIB, 1);
    device.fail_at(&mut device.plan(0, 50 * MIB), is_stream_wait, Outcome::Failed);
    device.gpu.reached.fill(Tick(100));
    assert_eq!(device.allocate(2, 60 * MIB).size, 60 * MIB);
    assert_eq!(device.reserved(), 60 * MIB);
}

/// The driver refuses a page while another plan is giving memory back. It is asked again once that is over.
#[test]
fn a_refusal_is_out_of_date_once_another_plan_has_released() {
    let mut device = Device::new(Growth::Balanced, 200 * MIB);
    device.use_until(1, 60 * MIB, 1);
    let mut release = empty_cache();
    let (releasing, _) = device.until_calls(&mut release);
    let mut plan = device.plan(0, 30 * MIB);
    device.until_calls(&mut plan);
    device.learn(&mut plan, Outcome::Stopped { done: 0, refused: true });
    let pause = device.reach(&mut plan, is_pause);
    device.done(&mut release, &releasing);
    device.finish(&mut release, 1);
    device.done(&mut plan, &pause);
    assert!(device.finish(&mut plan, 0).is_some(), "refused after everything was released");
    assert_eq!(device.reserved(), 30 * MIB);
}

/// A plan that has claimed a kept window fails at its waits. The window serves the next request.
#[test]
fn a_kept_window_is_given_back_unused() {
    let mut device = Device::new(Growth::Tight, 72 * MIB);
    device.gpu.reached[0] = Tick(10);
    let (mut device, bytes) = (gaps_on(device, 1, &[24, 4, 44]).0, 50 * MIB);
    let held = device.use_until(0, bytes, 2);
    let again = device.hit(1, 44 * MIB).expect("it is at home");
    device.free(again, 200);
    device.fail_at(&mut device.plan(0, bytes), is_stream_wait, Outcome::Failed);
    let before = device.page_stats().returned;
    let again = device.allocate_at_no_cost(0, bytes);
    assert_eq!(device.page_stats().returned, before + 1);
    assert_eq!((again.slot, again.offset), (held.slot, held.offset));
    assert_eq!(again.last_use.tick(), Tick(50), "the tick that covers the wait");
}
