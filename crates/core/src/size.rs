//! The way from a request in bytes to a block size, a side and a segment size: PyTorch's rounding.

use core::num::NonZeroU64;

use crate::ids::Side;
use crate::settings::{Divisions, Settings};
use crate::units::{
    LARGE_ROUNDING, QUANTUM, REQUEST_BYTES_MAX, SHARED_SEGMENT_BELOW, SMALL_BYTES, SMALL_SEGMENT_BYTES, align_up,
};

/// A request as the search uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// The bytes that the program asked for.
    pub requested: u64,
    /// The same after rounding: the smallest size that a block must have, in bytes.
    pub rounded: u64,
    /// The side to search.
    pub side: Side,
}

/// The segment that a request takes after a miss.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSegment {
    pub(crate) bytes: u64,
    /// Whether blocks are cut from it.
    pub(crate) shared: bool,
}

/// The rounding rules of one allocator.
#[derive(Clone, Debug)]
pub struct Sizes {
    divisions: Option<Divisions>,
    large_segment_bytes: u64,
    shares_segments: bool,
    /// The largest size of the small side, in bytes.
    small_bytes: u64,
}

impl Sizes {
    /// Creates the rules that the settings ask for.
    pub fn new(settings: &Settings) -> Self {
        let divisions = settings.divisions;
        let is_snug = settings.policy.slack_of_segments().is_some();
        Self {
            divisions: divisions.0.iter().any(|&d| d > 1).then_some(divisions),
            large_segment_bytes: settings.large_segment_bytes,
            shares_segments: settings.policy.caches() && !is_snug,
            small_bytes: if is_snug { 0 } else { SMALL_BYTES },
        }
    }

    /// Rounds a request (not 0). Returns `None` for 2^60 bytes and more, which no device has.
    ///
    /// The rules are those of PyTorch's `round_size`: at least 512; then either a step of the octave
    /// (`roundup_power2_divisions`) or a multiple of 512.
    #[inline(always)]
    pub fn want(&self, requested: u64) -> Option<Want> {
        debug_assert_ne!(requested, 0, "an empty request has no block");
        if requested >= REQUEST_BYTES_MAX {
            return None;
        }
        let rounded = match &self.divisions {
            None => Self::in_quanta(requested),
            Some(divisions) => round_to_division(requested, divisions.of(requested)),
        };
        Some(self.want_of(requested, rounded))
    }

    /// Returns the numbers of steps into which octaves are divided, if any is.
    pub fn divisions(&self) -> Option<Divisions> {
        self.divisions
    }

    /// Rounds a request of less than 2^60 bytes to a multiple of 512, as [`want`](Self::want) does without divisions.
    #[inline(always)]
    pub const fn in_quanta(requested: u64) -> u64 {
        (requested + QUANTUM - 1) & !(QUANTUM - 1)
    }

    /// Rounds a request (not 0) as [`want`](Self::want) does with this number of divisions in its octave. Returns
    /// `None` for 2^60 bytes and more.
    pub fn in_steps(requested: u64, divisions: u64) -> Option<NonZeroU64> {
        if requested >= REQUEST_BYTES_MAX { None } else { NonZeroU64::new(round_to_division(requested, divisions)) }
    }

    /// Returns a request that was rounded to this size.
    #[inline(always)]
    pub fn want_of(&self, requested: u64, rounded: u64) -> Want {
        let side = if rounded <= self.small_bytes { Side::Small } else { Side::Large };
        Want { requested, rounded, side }
    }

    /// Returns the size of the segment that a miss takes from the driver, in bytes, as PyTorch's `get_allocation_size`
    /// does. Without caching it is that of the block; with a slack it is the smallest that the segment may have.
    pub fn segment_bytes(&self, rounded: u64) -> u64 {
        if !self.shares_segments {
            rounded
        } else if rounded <= SMALL_BYTES {
            SMALL_SEGMENT_BYTES
        } else if rounded < SHARED_SEGMENT_BELOW {
            self.large_segment_bytes
        } else {
            align_up(rounded, LARGE_ROUNDING)
        }
    }

    /// Returns the page size of an expandable segment, in bytes and a multiple of the device's granularity.
    pub fn page_bytes(&self, side: Side, granularity: u64) -> u64 {
        let bytes = match side {
            Side::Small => SMALL_SEGMENT_BYTES,
            Side::Large => self.large_segment_bytes,
        };
        align_up(bytes, granularity)
    }
}

#[inline(never)]
fn round_to_division(bytes: u64, divisions: u64) -> u64 {
    if bytes < QUANTUM {
        return QUANTUM;
    }
    if divisions <= 1 || bytes <= QUANTUM * divisions {
        return align_up(bytes, QUANTUM);
    }
    if bytes.is_power_of_two() {
        return bytes;
    }
    let floor = 1 << bytes.ilog2();
    match floor >> divisions.ilog2() {
        0 => 2 * floor,
        step => bytes.checked_next_multiple_of(step).unwrap_or(u64::MAX),
    }
}

/// Returns the bytes of a segment that serves where there are no addresses: no more than the request needs, as many
/// requests may have to have one of their own.
pub(crate) fn exact_segment(want: &Want) -> u64 {
    want.rounded.next_multiple_of(SMALL_SEGMENT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;

    fn rounded(sizes: &Sizes, bytes: u64) -> u64 {
        sizes.want(bytes).unwrap().rounded
    }

    #[test]
    fn default_rounding_and_segments() {
        let sizes = Sizes::new(&Settings::default());
        let table = [
            (1, 512, Side::Small, 2 * MIB),
            (512, 512, Side::Small, 2 * MIB),
            (513, 1024, Side::Small, 2 * MIB),
            (4097, 4608, Side::Small, 2 * MIB),
            (MIB, MIB, Side::Small, 2 * MIB),
            (MIB + 1, MIB + 512, Side::Large, 20 * MIB),
            (10 * MIB - 512, 10 * MIB - 512, Side::Large, 20 * MIB),
            (10 * MIB - 511, 10 * MIB, Side::Large, 10 * MIB),
            (10 * MIB + 1, 10 * MIB + 512, Side::Large, 12 * MIB),
            (84 * MIB, 84 * MIB, Side::Large, 84 * MIB),
        ];
        for (bytes, round, side, segment) in table {
            let want = sizes.want(bytes).unwrap();
            assert_eq!((want.rounded, want.side, sizes.segment_bytes(want.rounded)), (round, side, segment), "{bytes}");
        }
        assert_eq!(sizes.want(1 << 60), None);
        assert!(sizes.want((1 << 60) - 1).is_some());
    }

    #[test]
    fn divisions_round_within_the_octave() {
        let with = |d| Sizes::new(&Settings { divisions: Divisions([d; 16]), ..Settings::default() });
        let table = [
            (1200, [1536, 1536, 1536, 1536]),
            (2049, [3072, 2560, 2560, 2560]),
            (4097, [6144, 5120, 4608, 4608]),
            (33000, [49152, 40960, 36864, 34816]),
            (84 * MIB, [96 * MIB, 96 * MIB, 88 * MIB, 84 * MIB]),
            (400 * MIB, [512 * MIB, 448 * MIB, 416 * MIB, 400 * MIB]),
        ];
        for (bytes, by_divisions) in table {
            for (d, expected) in [2, 4, 8, 16].into_iter().zip(by_divisions) {
                assert_eq!(rounded(&with(d), bytes), expected, "{bytes} with {d} divisions");
            }
        }
        assert_eq!(rounded(&with(2), (1 << 60) - 1), 1 << 60, "rounding near 2^60 does not overflow");
    }
}
