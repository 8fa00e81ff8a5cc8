//! Windows that are lengthened: which one is, and no farther than the addresses behind it.

use millpond_core::settings::Growth;

use crate::driver::{Device, Held, MIB};

/// Two windows of stream 0 in one range, with the memory of pages of 2 MiB: one of 6 MiB, behind which are 6 MiB of
/// vacant addresses, and one of 4 MiB, behind which are many. Stream 1 has 3 MiB at the beginning of a page of 8 MiB.
/// Nothing else is free, and nothing may be created.
fn scene() -> (Device, [Held; 2]) {
    let mut device = Device::new(Growth::Tight, 1 << 30);
    let blocks = [4, 2, 2, 2, 2, 2, 2, 2].map(|mib| device.allocate(0, mib * MIB));
    let whole = device.allocate(1, 512 * MIB);
    device.set_limit(device.reserved());
    [0, 2].into_iter().for_each(|at: usize| device.free(blocks[at], 1));
    let first = device.allocate(0, 6 * MIB);
    [4, 6].into_iter().for_each(|at: usize| device.free(blocks[at], 1));
    let second = device.allocate(0, 4 * MIB);
    assert_eq!((first.slot, first.offset), (second.slot, 0));
    assert_eq!((second.offset, device.in_windows()), (12 * MIB, 5), "the first one has room behind it");
    device.free(whole, 1);
    let [front, _rest] = [3, 509].map(|mib| device.hit(1, mib * MIB).expect("it is free"));
    assert_eq!(front.offset, whole.offset);
    device.free(front, 1);
    (device, [first, second])
}

/// Only whole pages are mapped: 3 MiB of a page of 8 MiB take more addresses than are vacant.
#[test]
fn a_window_is_not_lengthened_beyond_the_addresses_behind_it() {
    let (mut device, [first, second]) = scene();
    device.free(first, 2);
    let new = device.allocate(0, 9 * MIB);
    assert_eq!(new.slot, second.slot);
    assert!(new.offset > second.offset, "a window of its own: {:?}", new.grant);
    assert_eq!(device.in_windows(), 5 + 4, "three pages are mapped once more, and the large one");
}

/// A window that has more free bytes at its end and cannot be lengthened is not in the way of one that can.
#[test]
fn a_window_is_lengthened_that_has_the_addresses() {
    let (mut device, [first, second]) = scene();
    device.free(first, 2);
    device.free(second, 2);
    let longer = device.allocate(0, 13 * MIB);
    assert_eq!((longer.slot, longer.offset), (second.slot, second.offset));
    assert_eq!(device.in_windows(), 5 + 4, "what the first one has, and the large page");
    // It is one window from now on, and serves as a whole.
    device.free(longer, 3);
    let again = device.allocate_at_no_cost(0, 13 * MIB);
    assert_eq!(again.offset, longer.offset);
}

/// Of two windows that can be lengthened the one is of which more is free at its end, and none of which nothing is.
#[test]
fn the_window_is_lengthened_of_which_most_is_free_at_its_end() {
    let (mut device, [first, second]) = scene();
    device.free(second, 2);
    let longer = device.allocate(0, 7 * MIB);
    assert_eq!(longer.offset, second.offset, "all of the first one is in use");
    device.free(longer, 3);
    device.free(first, 3);
    let whole = device.allocate_at_no_cost(0, 6 * MIB);
    assert_eq!(whole.offset, first.offset, "what serves a request itself is not lengthened");
}
