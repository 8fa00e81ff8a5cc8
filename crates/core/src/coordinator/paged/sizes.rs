//! How large pages are made, and how much may be made before pages move.

use crate::ids::Side;
use crate::units::MIB;

/// The largest page to create for a side while so many bytes are reserved.
pub(super) fn page_cap(side: Side, reserved: u64, granularity: u64) -> u64 {
    let least = (2 * MIB).div_ceil(granularity) * granularity;
    match side {
        Side::Small => least,
        Side::Large => {
            let share = reserved / 128;
            let power = if share == 0 { 0 } else { 1 << share.ilog2() };
            least.max((power / granularity) * granularity).min(64 * MIB)
        }
    }
}

/// Up to so many reserved bytes pages are created rather than moved.
pub(super) fn slack(high_live: u64) -> u64 {
    high_live
}

/// The sizes of the pages to create for `bytes`.
pub(super) fn created(bytes: u64, cap: u64) -> impl Iterator<Item = u64> {
    let whole = bytes / cap;
    let rest = bytes % cap;
    core::iter::repeat_n(cap, whole as usize).chain((rest > 0).then_some(rest))
}
