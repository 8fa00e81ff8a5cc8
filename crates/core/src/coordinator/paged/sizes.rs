//! How large pages are made, and how much may be made before pages move.
//!
//! A driver call costs the same for a page of any size, and a page moves whole or not at all: large pages are cheap to
//! make and to move, small ones leave less memory behind beside a live block. What a page may waste is measured against
//! what there is: a page is at most a small share of the reserved bytes, or of the one request that needs it. The table
//! of rules that were tried stands in the design document.

use crate::ids::Side;
use crate::size::Want;
use crate::units::MIB;

/// A page is at most this share of what will be reserved,
const OF_RESERVED: u64 = 256;
/// or this share of the request, if that is more.
const OF_REQUEST: u64 = 64;
/// The least that a page should have.
const LEAST_BYTES: u64 = 2 * MIB;
/// The most: beyond it the driver's calls are no cost to speak of.
const MOST_BYTES: u64 = 64 * MIB;
/// Pages are created, and idle ones left where they are, as long as no more than so much is reserved beyond what was
/// ever live.
const SLACK_BYTES: u64 = 8 * MIB;

/// The largest page to create for a request while so many bytes are reserved, in multiples of the granularity.
pub(super) fn page_cap(want: &Want, reserved: u64, granularity: u64) -> u64 {
    let least = LEAST_BYTES.next_multiple_of(granularity);
    match want.side {
        Side::Small => least,
        Side::Large => {
            let share = ((reserved + want.rounded) / OF_RESERVED).max(want.rounded / OF_REQUEST);
            let power = share.checked_ilog2().map_or(0, |log| 1 << log);
            (power.min(MOST_BYTES) / granularity * granularity).max(least)
        }
    }
}

/// Up to so many reserved bytes pages are created rather than moved.
///
/// A program that has been seen to repeat itself, and still lacks memory, gets more with each round until it lacks
/// none: then it calls the driver no more. It may have as much as a cache that never moves a page.
pub(super) fn slack(high_live: u64, repeated: u32) -> u64 {
    high_live + SLACK_BYTES + high_live / 2 * u64::from(repeated.min(4))
}

/// The sizes of the pages to create for `bytes`.
pub(super) fn created(bytes: u64, cap: u64) -> impl Iterator<Item = u64> {
    let rest = bytes % cap;
    core::iter::repeat_n(cap, (bytes / cap) as usize).chain((rest > 0).then_some(rest))
}
