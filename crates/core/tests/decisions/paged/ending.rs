//! Windows that end because a page that they have is released.

use millpond_backend::{PageCaps, Tick};
use millpond_core::settings::{Growth, Policy};
use millpond_core::{PageId, Place, PoolId, ShardId, Step};

use crate::driver::{
    Device, Facts, Held, MIB, empty_cache, gaps_on, is_pages, is_pause, is_wait, point, released, unmapped, with_gaps,
};

/// Sets up stream 0 with a window over 18 MiB of a stream, which is kept: first 10 MiB that lie behind 12 others, and
/// then 8 at the front. 4 MiB are in use.
fn kept_window(owner: usize) -> (Device, Held) {
    let (mut device, _) = with_gaps(Growth::Tight, owner, &[8, 4, 10]);
    let held = device.use_until(0, 18 * MIB, 2);
    device.steps.clear();
    (device, held)
}

/// Pages in the middle of a window are released. What is in front of them and behind them are two windows then, and the
/// first of them is lengthened at the same addresses.
#[test]
fn a_released_page_leaves_the_windows_that_it_is_in() {
    for owner in [0, 1] {
        let (mut device, held) = kept_window(owner);
        // The 10 MiB at the beginning of the window are in use at home, and so are the last 4 of the others.
        let front = device.hit(owner, 10 * MIB).expect("it is at home");
        let low = device.hit(owner, 4 * MIB).expect("it is at home");
        let high = device.hit(owner, 4 * MIB).expect("it is at home");
        device.free(low, 3);
        let mut plan = empty_cache();
        let (step, calls) = device.until_calls(&mut plan);
        assert_eq!((released(&calls).len(), unmapped(&calls).len()), (2, 4), "2 in the window: {calls:?}");
        device.done(&mut plan, &step);
        device.finish(&mut plan, owner);
        assert_eq!((device.in_windows(), device.reserved()), (7, 18 * MIB));
        device.set_limit(18 * MIB);
        device.free(high, 3);
        device.free(front, 3);
        let longer = device.allocate(0, 14 * MIB);
        assert_eq!((longer.offset, device.in_windows()), (held.offset, 7 + 2));
        assert!(!device.steps.iter().any(|step| matches!(step, Step::ReserveRange { .. })));
    }
}

/// The first pages of a window are released. The pages behind them are a window, which is lengthened.
#[test]
fn what_is_behind_released_pages_is_a_window_still() {
    for owner in [0, 1] {
        let (mut device, held) = kept_window(owner);
        let low = device.hit(owner, 8 * MIB).expect("it is at home");
        assert_eq!((device.empty(), device.in_windows()), (12 * MIB, 4));
        device.free(low, 3);
        let new = device.allocate(0, 18 * MIB);
        assert_eq!((new.slot, new.offset), (held.slot, held.offset + 10 * MIB));
        assert_eq!((device.in_windows(), device.reserved()), (9, 22 * MIB));
    }
}

/// A window that begins within a page ends with the bytes in front of it: all its addresses are used again.
#[test]
fn a_window_that_begins_within_a_page_ends_with_all_its_addresses() {
    let mut device = Device::new(Growth::Tight, 16 * MIB);
    let [head, tail, _fixed, other] = [3, 5, 4, 4].map(|mib| device.allocate(0, mib * MIB));
    device.free(tail, 1);
    device.free(other, 1);
    let held = device.allocate(0, 9 * MIB);
    assert_eq!(held.offset, MIB);
    device.free(held, 2);
    // The page that the window begins in is in use at home, and its tail stays a window.
    assert_eq!((device.empty(), device.in_windows()), (8 * MIB, 1));
    device.free(head, 2);
    assert_eq!((device.empty(), device.in_windows()), (4 * MIB, 0));
    let [low, _between, high] = [4, 4, 4].map(|mib| device.allocate(0, mib * MIB));
    device.free(low, 3);
    device.free(high, 3);
    let again = device.allocate(0, 8 * MIB);
    assert_eq!((again.slot, again.offset), (held.slot, 0));
}

/// Nothing that a window in use shows is released. A page behind the front that is in use may go.
#[test]
fn what_is_in_use_through_a_window_is_not_released() {
    for owner in [0, 1] {
        let (mut device, held) = kept_window(owner);
        let again = device.allocate_at_no_cost(0, 13 * MIB);
        assert_eq!(again.offset, held.offset);
        // 10 MiB and 3 of the other 8 are in use: with the page that has the last of them, 14.
        assert_eq!((device.empty(), device.in_windows()), (18 * MIB, 7));
        device.set_limit(18 * MIB);
        device.free(again, 4);
        assert_eq!(device.allocate_at_no_cost(0, 14 * MIB).offset, held.offset);
    }
}

/// Work through a window is not over. The pages are released only after that, although all work at home is over.
#[test]
fn a_page_is_released_once_the_work_through_its_windows_is_over() {
    for (reached, is_released) in [(6, false), (7, true)] {
        let (mut device, _) = with_gaps(Growth::Tight, 0, &[8, 4, 10]);
        device.use_until(0, 18 * MIB, 107);
        let mut plan = empty_cache();
        let step = device.until(&mut plan, is_wait);
        assert_eq!(step, Step::Wait(vec![point(0, 107)]));
        // The wait comes back early for work that is never submitted.
        device.gpu.reached[0] = Tick(100 + reached);
        device.learn(&mut plan, millpond_core::Outcome::Reached(vec![point(0, 100 + reached)]));
        device.finish(&mut plan, 0);
        assert_eq!(device.reserved() == 4 * MIB, is_released, "{reached}");
    }
}

/// Memory was used through a window by two other streams, and then at home after a device-side wait for both. The host
/// does not know that any of them is done. All is given back after a wait for the last use, which comes after the
/// others.
#[test]
fn the_work_through_windows_is_waited_for() {
    let mut device = Device::new(Growth::Tight, 44 * MIB);
    device.gpu.reached.fill(Tick::ZERO);
    let (mut device, _) = gaps_on(device, 0, &[20, 4, 20]);
    for (stream, tick) in [(1, 51), (2, 55)] {
        device.use_until(stream, 40 * MIB, tick);
    }
    let at_home = [20, 20].map(|mib| device.allocate(0, mib * MIB));
    assert!(at_home.iter().all(|held| held.shard == 0), "{at_home:?}");
    at_home.into_iter().for_each(|held| device.free(held, 60));
    let mut plan = empty_cache();
    let step = device.until(&mut plan, is_wait);
    assert_eq!(step, Step::Wait(vec![point(0, 60)]));
    device.done(&mut plan, &step);
    device.finish(&mut plan, 0);
    assert_eq!((device.reserved(), device.in_windows()), (4 * MIB, 0));
}

/// Neither is each mapping unmapped twice, where several pages of one window are released together.
#[test]
fn every_mapping_is_unmapped_once() {
    for owner in [0, 1] {
        let (mut device, _) = kept_window(owner);
        device.empty();
        let mut places = Vec::new();
        for step in &device.steps {
            let Step::Pages(calls) = step else { continue };
            places.extend(unmapped(calls));
        }
        let count = places.len();
        places.sort();
        places.dedup();
        assert_eq!((count, places.len()), (18, 18), "9 pages at home and in the window");
    }
}

/// A window is ending, and a plan that could use it waits, and gets new pages.
#[test]
fn a_window_that_is_ending_serves_no_request() {
    for owner in [0, 1] {
        let (mut device, _) = kept_window(owner);
        let mut release = empty_cache();
        let (releasing, _) = device.until_calls(&mut release);
        let mut plan = device.plan(0, 18 * MIB);
        let pause = device.until(&mut plan, |step| is_pages(step) || is_pause(step));
        assert!(is_pause(&pause), "{pause:?}");
        device.done(&mut release, &releasing);
        device.finish(&mut release, 1);
        device.done(&mut plan, &pause);
        let held = device.finish(&mut plan, 0).expect("there is room");
        assert!(held.last_use.is_never());
        assert_eq!((device.in_windows(), device.reserved()), (0, 22 * MIB));
        assert_eq!(device.page_stats().returned, 0);
    }
}

/// Sets up stream 0 with 8, 10 and 6 MiB that are free and others between them, on a device with this many MiB of
/// addresses.
fn with_addresses(mib: u64) -> Device {
    let pages = Some(PageCaps::new(2 * MIB).with_address_bytes(mib * MIB));
    gaps_on(Device::of(&Facts { pages, ..Facts::paged(Growth::Tight, 32 * MIB) }), 0, &[8, 4, 10, 4, 6]).0
}

/// Sets up stream 0 with a kept window over 18 MiB of it, of which 10 are in use, and with 6 MiB more that are free.
/// There are addresses for no other window.
fn scarce() -> Device {
    let mut device = with_addresses(52);
    let held = device.allocate(0, 18 * MIB);
    assert_eq!(device.in_windows(), 9);
    device.free(held, 2);
    device.hit(0, 10 * MIB).expect("it is at home");
    device.steps.clear();
    device
}

/// There are no addresses for another window. The one that is not in use ends as a whole, although the memory behind it
/// is, and its addresses are used.
#[test]
fn a_window_ends_where_addresses_are_scarce() {
    let mut device = scarce();
    let held = device.allocate(0, 14 * MIB);
    assert_eq!((device.in_windows(), device.reserved(), held.size), (7, 32 * MIB, 14 * MIB));
    assert!(!held.last_use.is_never(), "what is free is gathered");
}

/// The window of another pool's home, which was not used for longer, has no addresses that are of use, and stays.
#[test]
fn the_windows_of_other_homes_do_not_end_for_addresses() {
    let pages = Some(PageCaps::new(2 * MIB).with_address_bytes(104 * MIB));
    let shards = vec![(0, PoolId::DEFAULT), (1, PoolId(7))];
    let mut device =
        Device::of(&Facts { pages, shards, limit: Some(64 * MIB), ..Facts::under(Policy::paged(Growth::Tight), 0) });
    device.coordinator.hold_pool(PoolId(7));
    for lane in [1, 0] {
        device.gaps(lane, &[8, 4, 10, 4, 6], 1);
        device.use_until(lane, 18 * MIB, 2);
    }
    assert_eq!((device.in_windows(), device.reserved()), (9 + 9, 64 * MIB));
    let at_home = device.hit(0, 10 * MIB).expect("it is at home");
    let gathered = device.allocate(0, 14 * MIB);
    assert_eq!((device.in_windows(), device.reserved()), (9 + 7, 64 * MIB));
    device.free(at_home, 3);
    device.free(gathered, 3);
    device.allocate_at_no_cost(1, 18 * MIB);
}

/// Returns the numbers of the first step that unmaps something and of the first that waits on the host.
fn unmaps_and_waits(device: &Device) -> (Option<usize>, Option<usize>) {
    let unmaps = |step: &Step| matches!(step, Step::Pages(calls) if !unmapped(calls).is_empty());
    let find = |is: &dyn Fn(&Step) -> bool| device.steps.iter().position(is);
    (find(&unmaps), find(&is_wait))
}

/// Work through a window is not over, so that it does not end before the host has waited for that.
#[test]
fn a_window_that_the_device_uses_does_not_end() {
    let mut device = with_addresses(52);
    device.use_until(0, 18 * MIB, 107);
    device.hit(0, 10 * MIB).expect("it is at home");
    device.steps.clear();
    device.allocate(0, 14 * MIB);
    let (unmaps, waits) = unmaps_and_waits(&device);
    assert!(waits.is_some_and(|wait| unmaps.is_none_or(|unmap| wait < unmap)), "{:?}", device.steps);
}

/// Another stream has used memory through a window, and is not done with that, although the window's own stream is.
#[test]
fn a_window_that_another_stream_uses_does_not_end() {
    let mut device = with_addresses(52);
    let held = device.allocate(0, 18 * MIB);
    device.record(held, 1);
    device.gpu.reached = vec![Tick(200), Tick(149), Tick(100)];
    device.free(held, 150);
    device.allocate(0, 10 * MIB);
    device.steps.clear();
    device.allocate(0, 14 * MIB);
    let (unmaps, waits) = unmaps_and_waits(&device);
    assert!(waits.is_some_and(|wait| unmaps.is_none_or(|unmap| wait < unmap)), "{:?}", device.steps);
}

/// A part of a window is in use, so that the window does not end.
#[test]
fn a_window_that_is_used_in_part_does_not_end() {
    let mut device = with_addresses(52);
    device.use_until(0, 18 * MIB, 2);
    let held = device.allocate_at_no_cost(0, 13 * MIB);
    device.steps.clear();
    let other = device.allocate(0, 8 * MIB);
    assert_ne!(other.slot, held.slot, "there are no addresses in the range of the window");
    assert!(device.in_windows() >= 7, "{} pages are in the window", device.in_windows());
    assert!(device.steps.iter().any(is_pages), "idle pages were released: {:?}", device.steps);
    device.check();
}

/// A page is being unmapped in a window that ends. It is free at home, and another plan, which gives everything back,
/// does not release it: it would be unmapped a second time.
#[test]
fn a_page_that_a_window_is_losing_stays() {
    let mut device = scarce();
    let mut plan = device.plan(0, 14 * MIB);
    let (step, calls) = device.until_calls(&mut plan);
    assert_eq!((released(&calls).len(), unmapped(&calls).len()), (0, 9), "{calls:?}");
    let mut second = empty_cache();
    let (end, calls) = device.until_calls(&mut second);
    assert_eq!((released(&calls).len(), unmapped(&calls).len()), (3, 3), "those that are in no window: {calls:?}");
    device.done(&mut second, &end);
    device.finish(&mut second, 0);
    device.done(&mut plan, &step);
    device.finish(&mut plan, 0).expect("there is room, and addresses for as many pages as are missing");
    assert_eq!((device.in_windows(), device.reserved()), (7, 32 * MIB));
}

/// Returns the mappings of stream 0 that are told to be leaving, each as a page and its place.
fn leaving(device: &mut Device) -> Vec<(PageId, Place)> {
    let views = device.coordinator.layout(&mut device.shards);
    let pages = views.iter().flat_map(|view| view.pages.iter().map(|page| (view.slot, page)));
    let leaving = pages.filter(|(_, page)| page.is_leaving);
    leaving.map(|(slot, page)| (page.page, Place { shard: ShardId(0), slot, offset: page.offset })).collect()
}

/// Pages of a window are released, or the window ends for want of addresses. Until the driver has unmapped them, just
/// their mappings in the window are told to be leaving.
#[test]
fn what_the_driver_unmaps_of_a_window_is_leaving() {
    for is_release in [true, false] {
        let mut device = if is_release { kept_window(0).0 } else { scarce() };
        assert_eq!(leaving(&mut device), []);
        let mut plan = if is_release { empty_cache() } else { device.plan(0, 14 * MIB) };
        let (step, calls) = device.until_calls(&mut plan);
        let mut expected = unmapped(&calls);
        expected.retain(|&(page, at)| device.coordinator.is_home(page, at) == Some(false));
        expected.sort_by_key(|&(_, at)| at);
        assert_eq!((leaving(&mut device), expected.is_empty()), (expected, false), "{calls:?}");
        device.done(&mut plan, &step);
        assert_eq!(leaving(&mut device), []);
    }
}

/// A range is emptied by one plan, and filled by another before the first gives the range back.
#[test]
fn an_emptied_range_is_used_before_it_is_released() {
    let mut device = Device::new(Growth::Balanced, 200 * MIB);
    device.use_until(0, 60 * MIB, 1);
    let mut release = empty_cache();
    let (releasing, _) = device.until_calls(&mut release);
    device.done(&mut release, &releasing);
    assert_eq!(device.reserved(), 0);
    let held = device.allocate(0, 20 * MIB);
    assert!(device.finish(&mut release, 0).is_none());
    device.free(held, 2);
    assert_eq!((device.empty(), device.coordinator.layout(&mut device.shards).len()), (0, 0));
}
