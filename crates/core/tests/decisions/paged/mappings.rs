//! Windows that end because more pages would be mapped in them than the driver is taken to bear.

use millpond_backend::{PageCaps, Tick};
use millpond_core::Step;
use millpond_core::settings::{Growth, Policy};

use crate::driver::{Device, Facts, MIB, gaps_on, is_wait, unmapped};

/// Creates blocks of stream 0 with gaps between them, on a device whose driver is taken to bear `mappings` pages in
/// windows. What can be gathered is never created.
fn with_gaps(mappings: u64, mib: &[u64]) -> Device {
    let pages = PageCaps { mappings, ..PageCaps::new(2 * MIB) };
    let policy = Policy::Paged { growth: Growth::Tight, slack: 0.0 };
    gaps_on(Device::of(&Facts { pages: Some(pages), ..Facts::under(policy, 3) }), 0, mib).0
}

/// Sets up 22 MiB of stream 0, of which 4 in the middle are in use, and for each of some streams a kept window over the
/// other 18: 9 pages. The driver is taken to bear `mappings` pages in windows.
fn crowded(mappings: u64, streams: &[usize]) -> Device {
    let mut device = with_gaps(mappings, &[8, 4, 10]);
    for &stream in streams {
        device.use_until(stream, 18 * MIB, 2);
    }
    assert_eq!((device.in_windows(), device.reserved()), (9 * streams.len() as u64, 22 * MIB));
    device.steps.clear();
    device
}

/// A stream that has no window gets one all the same, in place of one of another stream. It used to get new pages.
#[test]
fn a_window_of_another_stream_ends() {
    let mut device = crowded(9, &[0]);
    let held = device.allocate(1, 18 * MIB);
    assert!(!held.last_use.is_never(), "what is free is gathered");
    assert_eq!((device.in_windows(), device.reserved()), (9, 22 * MIB));
    device.free(held, 3);
    device.allocate_at_no_cost(1, 18 * MIB);
}

/// No window ends as long as the driver bears all of them.
#[test]
fn up_to_so_many_mappings_are_kept() {
    let mut device = crowded(18, &[0, 1]);
    for stream in [0, 1] {
        let held = device.allocate_at_no_cost(stream, 18 * MIB);
        device.free(held, 3);
    }
}

#[test]
fn the_window_that_was_not_used_for_longest_ends() {
    for used in [0, 1] {
        let mut device = crowded(18, &[0, 1]);
        let held = device.allocate_at_no_cost(used, 18 * MIB);
        device.free(held, 3);
        device.use_until(2, 18 * MIB, 4);
        assert_eq!((device.in_windows(), device.reserved()), (18, 22 * MIB));
        let kept = device.allocate_at_no_cost(used, 18 * MIB);
        device.free(kept, 5);
    }
}

/// As many windows end as it takes, and not more.
#[test]
fn several_windows_end_for_one() {
    let mut device = with_gaps(9, &[4; 5]);
    device.use_until(1, 8 * MIB, 2);
    assert_eq!(device.in_windows(), 4);
    device.use_until(2, 8 * MIB, 3);
    assert_eq!(device.in_windows(), 8);
    device.steps.clear();
    device.use_until(0, 12 * MIB, 4);
    assert_eq!((device.in_windows(), device.reserved()), (6, 20 * MIB));
    let ended = |step: &Step| if let Step::Pages(calls) = step { unmapped(calls).len() } else { 0 };
    assert_eq!(device.steps.iter().map(ended).sum::<usize>(), 8, "{:?}", device.steps);
}

/// A window that is in use, or through which the device works, stays. There are too many mappings for a while then,
/// rather than that memory is created or that the request waits on the host.
#[test]
fn what_is_in_use_does_not_end() {
    for is_held in [true, false] {
        let mut device = with_gaps(4, &[4; 7]);
        let first = device.allocate(1, 8 * MIB);
        if !is_held {
            device.gpu.reached[1] = Tick(2);
            device.free(first, 107);
        }
        device.steps.clear();
        let second = device.allocate(2, 8 * MIB);
        assert_eq!((device.in_windows() > 4, device.reserved()), (true, 28 * MIB), "{is_held}");
        assert!(!device.steps.iter().any(is_wait), "{:?}", device.steps);
        device.free(second, 3);
    }
}

/// Another stream has used memory through a window, and the device is not done with that, although the window's own
/// stream is: the window stays until it is.
#[test]
fn what_another_stream_uses_does_not_end() {
    for (reached, mappings) in [(149, 8), (150, 4)] {
        let mut device = with_gaps(4, &[4; 7]);
        let first = device.allocate(1, 8 * MIB);
        device.record(first, 2);
        device.gpu.reached = vec![Tick(100), Tick(200), Tick(reached)];
        device.free(first, 150);
        let second = device.allocate(0, 8 * MIB);
        assert_eq!((device.in_windows(), device.reserved()), (mappings, 28 * MIB), "up to tick {reached}");
        device.free(second, 3);
    }
}

/// A window that was lengthened was used just then: another one ends before it.
#[test]
fn a_window_that_was_lengthened_was_used() {
    let mut device = with_gaps(9, &[4, 2, 2, 2, 2, 2, 2]);
    let [first, second] = [6, 4].map(|mib| device.allocate(0, mib * MIB));
    assert_eq!(device.in_windows(), 3 + 2);
    [first, second].into_iter().for_each(|held| device.free(held, 2));
    let longer = device.allocate(0, 8 * MIB);
    assert_eq!((longer.offset, device.in_windows()), (first.offset, 4 + 2));
    device.free(longer, 3);
    device.allocate(1, 10 * MIB);
    assert_eq!(device.in_windows(), 4 + 5, "the shorter one has ended");
}
