//! Blocks that another stream lends in place.

use millpond_backend::{PageCaps, StreamId, Tick};
use millpond_core::settings::Growth;
use millpond_core::{Freed, LastUse, Step};

use crate::driver::{Device, Facts, MIB, gaps_on, is_pages, is_stream_wait, point};

/// A block whose work is not over is lent behind a device-side wait, and one whose work is over without any.
#[test]
fn a_block_is_lent_behind_a_wait() {
    for (freed_at, waits) in [(100, false), (101, true)] {
        let mut device = Device::new(Growth::Tight, 40 * MIB);
        device.gpu.reached[0] = Tick(10);
        let old = device.use_until(1, 40 * MIB, freed_at);
        device.steps.clear();
        let held = device.allocate(0, 30 * MIB);
        assert_eq!((held.shard, held.offset, device.in_windows()), (1, old.offset, 0));
        assert!(!device.steps.iter().any(is_pages));
        let queued: Vec<_> = device.steps.iter().filter(|step| is_stream_wait(step)).cloned().collect();
        let stream = StreamId(0);
        let expected = Step::StreamWait { stream, points: vec![point(1, 101)] };
        assert_eq!(queued, if waits { vec![expected] } else { vec![] });
        let covered = if waits { Tick(50) } else { Tick(10) };
        assert_eq!(held.last_use, LastUse::at(covered), "a tick of the borrower");
        // What is left of the block is free for the lender.
        assert!(device.hit(1, 10 * MIB).is_some() && device.hit(1, 2 * MIB).is_none());
    }
}

/// A stream that has waited for a point on the device does not wait for it again. Another stream has a wait of its
/// own.
#[test]
fn a_stream_waits_once_for_a_point() {
    let mut device = Device::new(Growth::Tight, 60 * MIB);
    device.gpu.reached.fill(Tick::ZERO);
    device.use_until(1, 60 * MIB, 7);
    for (borrower, waits) in [(0, true), (0, false), (2, true)] {
        device.steps.clear();
        let held = device.allocate(borrower, 20 * MIB);
        assert_eq!((held.shard, held.last_use), (1, LastUse::at(Tick(50))), "the tick that covers the wait");
        let queued: Vec<_> = device.steps.iter().filter(|step| is_stream_wait(step)).cloned().collect();
        let stream = StreamId(borrower as u32);
        let expected = Step::StreamWait { stream, points: vec![point(1, 7)] };
        assert_eq!(queued, if waits { vec![expected] } else { vec![] }, "stream {borrower}");
    }
}

/// The lender gets its block back when the borrower's work is over, and not earlier.
#[test]
fn a_lent_block_waits_for_the_borrower() {
    let mut device = Device::new(Growth::Tight, 40 * MIB);
    device.use_until(1, 40 * MIB, 1);
    let held = device.allocate(0, 40 * MIB);
    assert_eq!(held.shard, 1);
    let Freed::Pending(uses) = device.take_back(held, 9) else { panic!("it was lent") };
    assert_eq!((&uses.streams[..], uses.points.is_empty()), (&[StreamId(0)][..], true));
    device.pend(held, &[point(0, 150)]);
    device.poll();
    device.check();
    assert!(device.hit(1, 40 * MIB).is_none());
    device.gpu.reached[0] = Tick(150);
    device.poll();
    device.check();
    // The lender's own last use was before the loan.
    assert_eq!(device.hit(1, 40 * MIB).map(|held| held.last_use), Some(LastUse::at(Tick(1))));
}

/// A lender that used its block as well, while it was lent, comes later than that use.
#[test]
fn a_lender_may_use_what_it_has_lent() {
    for (stream, last) in [(1, 9), (2, 1)] {
        let mut device = Device::new(Growth::Tight, 40 * MIB);
        device.use_until(1, 40 * MIB, 1);
        let held = device.allocate(0, 40 * MIB);
        device.record(held, stream);
        device.gpu.reached.fill(Tick(200));
        device.free(held, 9);
        let grant = device.hit(1, 40 * MIB).expect("all of its users are done").grant;
        assert_eq!(grant.last_use, LastUse::at(Tick(last)), "used on stream {stream}");
    }
}

/// Memory that no stream had used before it was lent is not as the driver gave it.
#[test]
fn what_was_lent_is_used() {
    let mut device =
        Device::of(&Facts { pages: Some(PageCaps::new(32 * MIB)), ..Facts::paged(Growth::Tight, 64 * MIB) });
    let front = device.allocate(1, 34 * MIB);
    assert!(front.last_use.is_never());
    let held = device.allocate(0, 30 * MIB);
    assert_eq!((held.shard, held.offset), (1, 34 * MIB), "the rest of the second page");
    device.gpu.reached.fill(Tick(200));
    device.free(held, 9);
    let again = device.hit(1, 30 * MIB).expect("the borrower is done").grant;
    assert!(!again.last_use.is_never(), "{:?}", again.last_use);
}

/// The shortest block of all other streams that is long enough is lent.
#[test]
fn the_best_fit_of_all_other_streams_is_lent() {
    let mut device = Device::new(Growth::Tight, 80 * MIB);
    let (long, short) = (device.allocate(1, 44 * MIB), device.allocate(2, 36 * MIB));
    device.free(long, 1);
    device.free(short, 1);
    let first = device.allocate(0, 30 * MIB);
    let second = device.allocate(0, 30 * MIB);
    assert_eq!((first.shard, second.shard), (2, 1));
}

/// A block is lent, without any driver call, before the stream's own memory is gathered. Memory of several streams is
/// gathered last.
#[test]
fn a_block_is_lent_before_own_memory_is_gathered() {
    let mut device = Device::new(Growth::Tight, 62 * MIB);
    let other = device.allocate(1, 40 * MIB);
    let (mut device, _) = gaps_on(device, 0, &[8, 4, 10]);
    device.free(other, 1);
    let lent = device.allocate_at_no_cost(0, 18 * MIB);
    assert_eq!((lent.shard, device.in_windows()), (1, 0));
    let again = device.allocate_at_no_cost(0, 18 * MIB);
    assert_eq!((again.shard, device.in_windows()), (1, 0));
    let held = device.allocate(0, 18 * MIB);
    assert_eq!((held.shard, device.in_windows()), (0, 9));
    let is_own = |places: &[millpond_core::Place]| places.iter().all(|place| place.shard == places[0].shard);
    assert!(device.coordinator.mappings().iter().all(|(_, places)| is_own(places)), "a window over its own memory");
}

/// With `balanced`, while another stream's work goes on, pages are created rather than waited for. With `tight` the
/// block is lent behind a wait.
#[test]
fn balanced_creates_pages_while_the_device_is_behind() {
    for (growth, shard) in [(Growth::Balanced, 0), (Growth::Tight, 1)] {
        let mut device = Device::new(growth, 200 * MIB);
        device.use_until(1, 40 * MIB, 101);
        assert_eq!(device.allocate(0, 30 * MIB).shard, shard, "{growth:?}");
        device.gpu.reached[1] = Tick(101);
        device.use_until(2, 6 * MIB, 1);
        assert_eq!(device.allocate(2, 20 * MIB).shard == 1, growth == Growth::Balanced, "it is idle now");
    }
}
