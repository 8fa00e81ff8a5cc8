//! Windows that end because more pages would be mapped in them than the driver is taken to bear.

use millpond_backend::{PageCaps, Tick};
use millpond_core::Step;
use millpond_core::settings::{Growth, Policy};

use crate::driver::{Device, Facts, Held, MIB, gaps_on, is_pages, is_wait, unmapped};

/// Creates blocks of stream 0 with gaps between them, on a device whose driver is taken to bear `mappings` pages in
/// windows. What can be gathered is never created.
fn with_gaps(mappings: u64, mib: &[u64]) -> Device {
    let pages = PageCaps::new(2 * MIB).with_mappings(mappings);
    let policy = Policy::Paged { growth: Growth::Tight, slack: 0.0 };
    gaps_on(Device::of(&Facts { pages: Some(pages), ..Facts::under(policy, 3) }), 0, mib).0
}

/// The memory of the first window of [`crowded`], and that of the second one: where the blocks begin, in MiB.
const WINDOWS: [[u64; 2]; 2] = [[0, 8], [16, 24]];

/// Sets up six blocks of 4 MiB with others between them, and two kept windows over two of them each: 4 pages. The
/// driver is taken to bear `mappings` pages in windows.
fn crowded(mappings: u64) -> Device {
    let mut device = with_gaps(mappings, &[4; 12]);
    let windows = [1, 2].map(|stream| device.allocate(stream, 8 * MIB));
    windows.into_iter().for_each(|held| device.free(held, 2));
    assert_eq!((device.in_windows(), device.reserved()), (8, 48 * MIB));
    device.steps.clear();
    device
}

/// Has a stream hold all that is free at home in blocks of this number of MiB, but for those that begin at these MiB.
fn hold_all_but(device: &mut Device, stream: usize, mib: u64, free: &[u64]) -> Vec<Held> {
    device.poll();
    let all: Vec<_> = std::iter::from_fn(|| device.hit(stream, mib * MIB)).collect();
    assert!(all.iter().all(|held| held.slot == all[0].slot && held.size == mib * MIB), "{all:?}");
    let (free, held) = all.into_iter().partition(|held: &Held| free.contains(&(held.offset / MIB)));
    Vec::into_iter(free).for_each(|held| device.free(held, 3));
    held
}

/// Has a stream use 8 MiB through a window over the blocks that begin at these MiB, and returns the window's offset.
fn use_window(device: &mut Device, free: [u64; 2]) -> u64 {
    let held = hold_all_but(device, 0, 4, &free);
    let window = device.allocate(0, 8 * MIB);
    held.into_iter().chain([window]).for_each(|held| device.free(held, 4));
    window.offset
}

/// A request gets a new window, instead of another one, which another stream used last.
#[test]
fn a_window_that_another_stream_used_ends() {
    let mut device = with_gaps(4, &[4; 7]);
    device.use_until(0, 8 * MIB, 2);
    assert_eq!(device.in_windows(), 4);
    let held = hold_all_but(&mut device, 0, 4, &[0, 16]);
    let window = device.allocate(1, 8 * MIB);
    assert!(!window.last_use.is_never(), "what is free is gathered");
    assert_eq!((device.in_windows(), device.reserved()), (4, 28 * MIB));
    held.into_iter().chain([window]).for_each(|held| device.free(held, 3));
    device.poll();
    device.allocate_at_no_cost(1, 8 * MIB);
}

/// No window ends as long as the driver bears all of them.
#[test]
fn up_to_so_many_mappings_are_kept() {
    let mut device = crowded(8);
    let places = WINDOWS.map(|window| use_window(&mut device, window));
    assert_ne!(places[0], places[1]);
    assert!(!device.steps.iter().any(is_pages), "{:?}", device.steps);
}

#[test]
fn the_window_that_was_not_used_for_longest_ends() {
    for used in [0, 1] {
        let mut device = crowded(8);
        let place = use_window(&mut device, WINDOWS[used]);
        // Neither of the two is lengthened, as both end with what is in use.
        use_window(&mut device, [WINDOWS[0][0], WINDOWS[1][0]]);
        assert_eq!((device.in_windows(), device.reserved()), (8, 48 * MIB));
        device.steps.clear();
        assert_eq!(use_window(&mut device, WINDOWS[used]), place);
        assert!(!device.steps.iter().any(is_pages), "{:?}", device.steps);
    }
}

/// As many windows end as it takes, and not more.
#[test]
fn several_windows_end_for_one() {
    for (mappings, left, ended) in [(9, 6, 8), (10, 10, 4)] {
        let mut device = crowded(mappings);
        hold_all_but(&mut device, 0, 4, &[WINDOWS[0][0], WINDOWS[1][0], 32]);
        device.allocate(0, 12 * MIB);
        assert_eq!((device.in_windows(), device.reserved()), (left, 48 * MIB));
        let unmaps = |step: &Step| if let Step::Pages(calls) = step { unmapped(calls).len() } else { 0 };
        assert_eq!(device.steps.iter().map(unmaps).sum::<usize>(), ended, "{:?}", device.steps);
    }
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
        hold_all_but(&mut device, 1, 4, &[16, 24]);
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
        hold_all_but(&mut device, 2, 4, &[16, 24]);
        let second = device.allocate(0, 8 * MIB);
        assert_eq!((device.in_windows(), device.reserved()), (mappings, 28 * MIB), "up to tick {reached}");
        device.free(second, 3);
    }
}

/// A window that was lengthened was used just then: another one ends before it.
#[test]
fn a_window_that_was_lengthened_was_used() {
    let mut device = with_gaps(9, &[4, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
    let [first, second] = [6, 4].map(|mib| device.allocate(0, mib * MIB));
    assert_eq!(device.in_windows(), 3 + 2);
    [first, second].into_iter().for_each(|held| device.free(held, 2));
    let longer = device.allocate(0, 8 * MIB);
    assert_eq!((longer.offset, device.in_windows()), (first.offset, 4 + 2));
    device.free(longer, 3);
    // What both windows end with is in use: neither is lengthened.
    let held = hold_all_but(&mut device, 0, 2, &[0, 2, 6, 22]);
    let new = device.allocate(1, 8 * MIB);
    assert_eq!(device.in_windows(), 4 + 4, "the shorter one has ended");
    held.into_iter().chain([new]).for_each(|held| device.free(held, 4));
    device.poll();
    assert_eq!(device.allocate_at_no_cost(0, 8 * MIB).offset, longer.offset);
}
