//! The size of new pages, and how much may be created before free memory is gathered.
//!
//! A driver call costs the same for a page of any size, and a page goes to a window whole or not at all. Large pages
//! are cheap to create and to map; small ones leave less memory unused next to a live block. What a page may waste is
//! measured against what there is: a page is at most a small share of the reserved bytes, or of the largest request so
//! far, which shows early how large a program will become.

use super::Growth;
use crate::units::MIB;

/// A divisor: a page has at most this part of the bytes that will be reserved, or of the largest request if that is
/// more.
const OF_RESERVED: u64 = 64;
/// The same for a program that often has memory gathered: what is free beside a live block in a large page can be
/// gathered only in part.
const OF_RESERVED_GATHERED: u64 = 150;
/// A divisor: a program often has memory gathered if this part of the number of pages is mapped in windows.
const OF_PAGES: usize = 4;
/// A divisor: that part of the largest request.
const OF_LARGEST: u64 = 36;
/// The smallest size of a page, in bytes, rounded up to the granularity.
const LEAST_BYTES: u64 = 2 * MIB;
/// The largest size of a page, in bytes: for larger pages the cost of the driver calls no longer matters.
const MOST_BYTES: u64 = 64 * MIB;
/// The number of bytes that may be reserved beyond the most that was ever live, besides a share of it, while pages are
/// still created and idle ones left where they are.
const SLACK_BYTES: u64 = 8 * MIB;
/// A divisor: that share.
const OF_LIVE: u64 = 50;

/// Returns the size of the smallest page, in bytes: all pages are a multiple of it.
pub(super) fn least(granularity: u64) -> u64 {
    LEAST_BYTES.next_multiple_of(granularity)
}

/// Returns whether a program often has memory gathered, by the number of its pages and that of mappings in its windows.
pub(super) fn gathers_often(pages: usize, mappings: usize) -> bool {
    mappings > pages / OF_PAGES
}

/// Returns the size of the largest page to create, in bytes and a multiple of the smallest, where `reserved` bytes will
/// be reserved, no request was larger than `largest`, and the program often has memory gathered or does not.
pub(super) fn page_cap(reserved: u64, largest: u64, granularity: u64, gathers_often: bool) -> u64 {
    let least = least(granularity);
    let of_reserved = if gathers_often { OF_RESERVED_GATHERED } else { OF_RESERVED };
    let share = (reserved / of_reserved).max(largest / OF_LARGEST);
    let power = share.checked_ilog2().map_or(0, |log| 1 << log);
    (power.min(MOST_BYTES) / least * least).max(least)
}

/// Returns the number of reserved bytes up to which pages are created before anything is gathered.
pub(super) fn slack(high_live: u64) -> u64 {
    high_live + high_live / OF_LIVE + SLACK_BYTES
}

/// Returns the number of reserved bytes up to which pages are created rather than that a stream waits for another one.
pub(super) fn cap_in_flight(growth: Growth, high_live: u64) -> u64 {
    match growth {
        Growth::Tight => slack(high_live),
        Growth::Balanced => high_live + high_live / 5 * 6 + SLACK_BYTES,
    }
}

/// Returns the sizes of the pages to create for `bytes`, a multiple of the smallest size.
pub(super) fn created(bytes: u64, cap: u64) -> impl Iterator<Item = u64> {
    let rest = bytes % cap;
    core::iter::repeat_n(cap, (bytes / cap) as usize).chain((rest > 0).then_some(rest))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    #[test]
    fn pages_grow_with_the_program() {
        let cap = |reserved, largest| page_cap(reserved * MIB, largest * MIB, 2 * MIB, false) / MIB;
        assert_eq!((cap(0, 0), cap(255, 0), cap(256, 0)), (2, 2, 4), "a 64th of what is reserved");
        assert_eq!((cap(0, 143), cap(0, 144)), (2, 4), "a 36th of the largest request");
        assert_eq!(cap(1 << 30, 0), 64);
        assert_eq!(page_cap(0, 0, 64 << 10, false), 2 * MIB, "whatever the granularity");
        assert_eq!(page_cap(1 << 30, 0, 3 * MIB, false), 15 * MIB, "a multiple of the smallest page");
    }

    #[test]
    fn pages_are_smaller_where_memory_is_gathered() {
        assert_eq!([0, 25, 26].map(|mappings| gathers_often(100, mappings)), [false, false, true]);
        let cap = |reserved| page_cap(reserved * MIB, 0, 2 * MIB, true) / MIB;
        assert_eq!((cap(599), cap(600)), (2, 4), "a 150th of what is reserved");
    }

    #[test]
    fn the_last_page_has_the_rest() {
        assert_eq!(created(10, 4).collect::<Vec<_>>(), [4, 4, 2]);
        assert_eq!(created(8, 4).collect::<Vec<_>>(), [4, 4]);
    }
}
