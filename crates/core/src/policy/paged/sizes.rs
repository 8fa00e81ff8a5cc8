//! The size of new pages, and how much may be created before pages move.
//!
//! A driver call costs the same for a page of any size, and a page moves whole or not at all. Large pages are cheap to
//! create and to move; small ones leave less memory unused next to a live block. What a page may waste is measured
//! against what there is: a page is at most a small share of the reserved bytes, or of the largest request so far,
//! which shows early how large a program will become. The table of rules that were tried is in the design document.

use super::Growth;
use crate::ids::Side;
use crate::units::MIB;

/// A divisor: a page has at most this part of the bytes that will be reserved, or the following part if that is more.
const OF_RESERVED: u64 = 256;
/// A divisor: a page may have this part of the largest request.
const OF_LARGEST: u64 = 36;
/// The smallest size of a page, and the size of all pages on the small side, in bytes. Both are rounded up to the
/// granularity.
const LEAST_BYTES: u64 = 2 * MIB;
/// The largest size of a page, in bytes: for larger pages the cost of the driver calls no longer matters.
const MOST_BYTES: u64 = 64 * MIB;
/// The number of bytes that may be reserved beyond the most that was ever live while pages are still created and idle
/// ones left where they are.
const SLACK_BYTES: u64 = 8 * MIB;

/// Returns the size of the largest page to create, in bytes and a multiple of the granularity, where `reserved` bytes
/// will be reserved and no request was larger than `largest`.
pub(super) fn page_cap(side: Side, reserved: u64, largest: u64, granularity: u64) -> u64 {
    let least = LEAST_BYTES.next_multiple_of(granularity);
    match side {
        Side::Small => least,
        Side::Large => {
            let share = (reserved / OF_RESERVED).max(largest / OF_LARGEST);
            let power = share.checked_ilog2().map_or(0, |log| 1 << log);
            (power.min(MOST_BYTES) / granularity * granularity).max(least)
        }
    }
}

/// Returns the number of reserved bytes up to which pages are created rather than moved. Under `tight` it is the most
/// bytes that were ever live.
///
/// A program that is known to repeat itself, and still lacks memory, gets more with each round until it lacks none:
/// after that it needs no more driver calls. It may get as much as a cache that never moves a page.
pub(super) fn slack(growth: Growth, high_live: u64, repeated: u32) -> u64 {
    match growth {
        Growth::Tight => high_live,
        Growth::Balanced => high_live + SLACK_BYTES + high_live / 2 * u64::from(repeated.min(4)),
    }
}

/// Returns the sizes of the pages to create for `bytes`.
pub(super) fn created(bytes: u64, cap: u64) -> impl Iterator<Item = u64> {
    let rest = bytes % cap;
    core::iter::repeat_n(cap, (bytes / cap) as usize).chain((rest > 0).then_some(rest))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    const PAGE: u64 = 2 * MIB;

    #[test]
    fn large_pages_are_a_share_of_what_there_is() {
        let cap = |reserved, largest| page_cap(Side::Large, reserved, largest, PAGE) / MIB;
        assert_eq!((cap(0, 0), cap(1023 * MIB, 0), cap(1024 * MIB, 0)), (2, 2, 4), "a 256th of what is reserved");
        assert_eq!((cap(0, 143 * MIB), cap(0, 144 * MIB)), (2, 4), "a 36th of the largest request");
        assert_eq!(cap(1 << 50, 0), 64, "the largest page");
        assert_eq!(page_cap(Side::Large, 0, 0, 64 << 10), PAGE, "whatever the granularity");
    }

    #[test]
    fn small_blocks_have_small_pages() {
        assert_eq!(page_cap(Side::Small, 1 << 50, 1 << 40, PAGE), PAGE);
        assert_eq!(page_cap(Side::Small, 0, 0, 3 * MIB), 3 * MIB, "a multiple of the granularity");
    }

    #[test]
    fn a_program_that_repeats_itself_gets_more_in_each_round_up_to_a_bound() {
        let live = 100 * MIB;
        assert_eq!(slack(Growth::Tight, live, 9), live);
        let balanced = [0, 1, 4, 5].map(|rounds| (slack(Growth::Balanced, live, rounds) - SLACK_BYTES) / MIB);
        assert_eq!(balanced, [100, 150, 300, 300]);
    }

    #[test]
    fn the_last_page_has_the_rest() {
        assert_eq!(created(10, 4).collect::<Vec<_>>(), [4, 4, 2]);
        assert_eq!(created(8, 4).collect::<Vec<_>>(), [4, 4]);
    }
}
