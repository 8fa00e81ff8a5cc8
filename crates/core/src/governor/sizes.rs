//! The size of new pages, and how much may be created before free memory is gathered.
//!
//! A driver call costs the same for a page of any size, and a page goes to a window whole or not at all. Large pages
//! are cheap to create and to map; small ones leave less memory unused next to a live block. What a page may waste is
//! measured against what there is, so a page is at most a small share of the reserved bytes.

use crate::units::MIB;

/// A divisor: a page has at most this part of the bytes that will be reserved.
const OF_RESERVED: u64 = 48;
/// The smallest size of a page, in bytes, rounded up to the granularity.
const LEAST_BYTES: u64 = 2 * MIB;
/// The largest size of a page, in bytes: for larger pages the cost of the driver calls no longer matters.
const MOST_BYTES: u64 = 64 * MIB;
/// The number of bytes that count as live besides those that are, where pages are created before free memory is
/// gathered: a small program would gather for every request otherwise. At the default slack they allow 8 MiB.
const LIVE_BESIDES: u64 = 400 * MIB;
/// The number of parts that a slack is counted in.
const PARTS: u64 = 1_000_000;

/// How much may be reserved for what was live, and how large pages are for what is reserved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proportions {
    /// The slack: how much more may be reserved than was ever live, as a share of it, in millionths.
    slack: u64,
    /// The size of the smallest page, in bytes: all pages are a multiple of it.
    pub(super) page_unit: u64,
}

impl Proportions {
    /// Returns those of a slack, on a device whose pages are multiples of `granularity` bytes.
    pub(super) fn new(slack: f64, granularity: u64) -> Self {
        Self { slack: (slack * PARTS as f64 + 0.5) as u64, page_unit: LEAST_BYTES.next_multiple_of(granularity) }
    }

    /// Returns the number of reserved bytes that the slack allows, where this many bytes were live at most.
    pub(super) fn bound(&self, high_live: u64) -> u64 {
        high_live.saturating_add(self.of(high_live, 1, 1))
    }

    /// Returns the number of reserved bytes up to which pages are created before anything is gathered: two fifths of
    /// the slack. The rest of it is for what a page, or the memory beside a live block, has too much.
    pub(super) fn eager(&self, high_live: u64) -> u64 {
        high_live.saturating_add(self.of(high_live.saturating_add(LIVE_BESIDES), 2, 5))
    }

    /// Returns a fraction of the slack's share of a number of bytes, rounded down.
    fn of(&self, bytes: u64, numerator: u64, denominator: u64) -> u64 {
        let part = u128::from(bytes) * u128::from(self.slack * numerator) / u128::from(PARTS * denominator);
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// Returns the size of the largest page to create, in bytes, where `reserved` bytes will be reserved.
    pub(super) fn page_cap(&self, reserved: u64) -> u64 {
        let power = (reserved / OF_RESERVED).checked_ilog2().map_or(0, |log| 1 << log);
        (power.min(MOST_BYTES) / self.page_unit * self.page_unit).max(self.page_unit)
    }
}

/// Returns the sizes of the pages to create for `bytes`, a multiple of the smallest size.
pub(crate) fn created(bytes: u64, cap: u64) -> impl Iterator<Item = u64> {
    let rest = bytes % cap;
    core::iter::repeat_n(cap, (bytes / cap) as usize).chain((rest > 0).then_some(rest))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::settings::Policy;

    fn of(slack: f64) -> Proportions {
        Proportions::new(slack, 2 * MIB)
    }

    #[test]
    fn pages_grow_with_the_program() {
        let cap = |reserved| of(0.0).page_cap(reserved * MIB) / MIB;
        assert_eq!((cap(0), cap(191), cap(192), cap(383)), (2, 2, 4, 4), "a 48th of what is reserved");
        assert_eq!((cap(3071), cap(3072), cap(1 << 30)), (32, 64, 64));
        assert_eq!(Proportions::new(0.0, 64 << 10).page_cap(0), 2 * MIB, "whatever the granularity");
        assert_eq!(Proportions::new(0.0, 3 * MIB).page_cap(1 << 30), 15 * MIB, "a multiple of the smallest page");
    }

    /// The sizes that were measured: 2 % and 8 MiB, to the byte.
    #[test]
    fn at_the_default_slack_a_fiftieth_and_eight_mebibytes_are_created_first() {
        let default = of(Policy::DEFAULT_SLACK);
        for live in [0, 1, 49, 50, 99, MIB - 1, 13 * MIB + 512, 999_999_999_999, 1 << 50] {
            assert_eq!(default.eager(live), live + live / 50 + 8 * MIB, "{live}");
            assert_eq!(default.bound(live), live + live / 20, "{live}");
        }
    }

    #[test]
    fn what_is_created_first_goes_by_the_slack() {
        let live = 600 * MIB;
        let mib = |share| (of(share).eager(live) / MIB, of(share).bound(live) / MIB);
        assert_eq!([mib(0.0), mib(0.025), mib(0.5), mib(2.0)], [(600, 600), (610, 615), (800, 900), (1400, 1800)]);
        assert_eq!(of(1000.0).eager(u64::MAX), u64::MAX, "no number of bytes is too large");
    }

    #[test]
    fn the_last_page_has_the_rest() {
        assert_eq!(created(10, 4).collect::<Vec<_>>(), [4, 4, 2]);
        assert_eq!(created(8, 4).collect::<Vec<_>>(), [4, 4]);
    }
}
