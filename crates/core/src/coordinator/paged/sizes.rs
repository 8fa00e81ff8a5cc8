//! How large pages are made, and how much may be made before pages move.
//!
//! A driver call costs the same for a page of any size, and a page moves whole or not at all: large pages are cheap to
//! make and to move, small ones leave less memory behind beside a live block. What a page may waste is measured against
//! what there is: a page is at most a small share of the reserved bytes, or of the largest request so far, which tells
//! early how large a program will become. The table of rules that were tried stands in the design document.

use crate::ids::Side;
use crate::settings::Growth;
use crate::units::MIB;

/// A page is at most this share of what will be reserved,
const OF_RESERVED: u64 = 256;
/// or this share of the largest request, if that is more.
const OF_LARGEST: u64 = 36;
/// The least that a page should have.
const LEAST_BYTES: u64 = 2 * MIB;
/// The most: beyond it the driver's calls are no cost to speak of.
const MOST_BYTES: u64 = 64 * MIB;
/// Pages are created, and idle ones left where they are, as long as no more than so much is reserved beyond what was
/// ever live.
const SLACK_BYTES: u64 = 8 * MIB;

/// The largest page to create where `reserved` bytes will be reserved and no request was larger than `largest`, in
/// multiples of the granularity.
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

/// Up to so many reserved bytes pages are created rather than moved. Under `tight` that is what was ever live, and no
/// more.
///
/// A program that has been seen to repeat itself, and still lacks memory, gets more with each round until it lacks
/// none: then it calls the driver no more. It may have as much as a cache that never moves a page.
pub(super) fn slack(growth: Growth, high_live: u64, repeated: u32) -> u64 {
    match growth {
        Growth::Tight => high_live,
        Growth::Balanced => high_live + SLACK_BYTES + high_live / 2 * u64::from(repeated.min(4)),
    }
}

/// The sizes of the pages to create for `bytes`.
pub(super) fn created(bytes: u64, cap: u64) -> impl Iterator<Item = u64> {
    let rest = bytes % cap;
    core::iter::repeat_n(cap, (bytes / cap) as usize).chain((rest > 0).then_some(rest))
}
