//! The range of every setting, which is the same for settings made in code and for those that the parser reads.

use alloc::format;
use alloc::string::{String, ToString};

use super::Settings;
use crate::units::{MIB, QUANTUM, REQUEST_BYTES_MAX};

/// The largest slack, the same as in the parser.
const SLACK_MAX: f64 = 1000.0;
/// The largest number of divisions of an octave: 512 times this number still fits in 64 bits.
const DIVISIONS_MAX: u64 = 1 << 30;
/// The size that a large segment must exceed, in bytes.
const LARGE_SEGMENT_ABOVE: u64 = 10 * MIB;

/// A setting outside its range.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the setting `{field}` is {value}, must be {allowed}")]
pub struct SettingError {
    /// The field of [`Settings`].
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// The values that it may have.
    pub allowed: String,
}

impl Settings {
    /// Verifies that every field is within its range, so that an allocator can be made with the settings. Whether a
    /// device supports them is not checked.
    ///
    /// # Errors
    ///
    /// Returns the first field that is out of its range, with its value and the values that it may have.
    pub fn validate(&self) -> Result<(), SettingError> {
        let large = self.large_segment_bytes;
        let is_large = large > LARGE_SEGMENT_ABOVE && large <= REQUEST_BYTES_MAX && large.is_multiple_of(QUANTUM);
        expect(is_large, "large_segment_bytes", large, || {
            "more than 10 MiB (10485760) and at most 2^60, a multiple of 512".to_string()
        })?;
        for (field, bytes) in [
            ("max_split_bytes", self.max_split_bytes),
            ("max_non_split_rounding_bytes", self.max_non_split_rounding_bytes),
        ] {
            let range = || format!("from large_segment_bytes ({large}) to 2^60, or none");
            let bytes = bytes.unwrap_or(large);
            expect((large..=REQUEST_BYTES_MAX).contains(&bytes), field, bytes, range)?;
        }
        let slack = self.policy.slack().unwrap_or_default();
        expect((0.0..=SLACK_MAX).contains(&slack), "slack", slack, || "from 0 to 1000, or none".to_string())?;
        let threshold = self.gc_threshold;
        let range = || "0 (off) or above 0 and below 1".to_string();
        expect((0.0..1.0).contains(&threshold), "gc_threshold", threshold, range)?;
        let fraction = self.memory_fraction;
        expect((0.0..=1.0).contains(&fraction), "memory_fraction", fraction, || "from 0 to 1".to_string())?;
        for number in self.divisions.0 {
            let good = number == 0 || (number.is_power_of_two() && number <= DIVISIONS_MAX);
            expect(good, "divisions", number, || "0 or a power of two up to 2^30, in every slot".to_string())?;
        }
        Ok(())
    }
}

fn expect(
    holds: bool,
    field: &'static str,
    value: impl ToString,
    allowed: impl FnOnce() -> String,
) -> Result<(), SettingError> {
    if holds { Ok(()) } else { Err(SettingError { field, value: value.to_string(), allowed: allowed() }) }
}
