//! The most that may be reserved: a number of bytes, or a multiple of the live peak of the trace.

use std::fmt;

use millpond::text::format_bytes;

use crate::quantity::parse_bytes;

/// The most digits behind the point of a multiple.
const DECIMALS_MAX: usize = 6;

/// A number without a unit is taken for bytes from here on. No program fits in fewer.
const LEAST_WITHOUT_UNIT: u64 = 1 << 20;

/// The value of `--limit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// The same number of bytes for every trace.
    Bytes(u64),
    /// A multiple of each trace's own live peak: `digits` / 10^`decimals`. Kept as it was written, so that no rounding
    /// of binary fractions gets into a limit.
    Times { digits: u64, decimals: usize },
}

impl Limit {
    /// Parses a size such as `12GiB`, or a multiple such as `1.10x`.
    ///
    /// # Errors
    ///
    /// Returns a message that names what is accepted if the text is something else.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let Some(number) = text.trim().strip_suffix(['x', 'X']) else {
            let bytes = parse_bytes(text).map_err(|error| format!("{error}, or a multiple as 1.10x"))?;
            return if lacks_unit(text, bytes) { Err(meant(text.trim(), bytes)) } else { Ok(Self::Bytes(bytes)) };
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let in_shape = is_number(whole) && (part.is_empty() && whole == number || is_number(part));
        let digits = format!("{whole}{part}").parse().ok().filter(|digits| *digits > 0);
        match digits {
            Some(digits) if in_shape && part.len() <= DECIMALS_MAX => Ok(Self::Times { digits, decimals: part.len() }),
            _ => Err(format!(
                "`{text}` is no multiple: write a number above 0 with at most {DECIMALS_MAX} decimals, such as 1.10x"
            )),
        }
    }

    /// Returns the limit in bytes for a trace with that live peak in bytes, rounded down.
    pub(crate) fn bytes(self, live_peak: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Times { digits, decimals } => {
                let bytes = u128::from(live_peak) * u128::from(digits) / 10_u128.pow(decimals as u32);
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Returns whether a number is too small to be meant as bytes, and does not say that it is.
fn lacks_unit(text: &str, bytes: u64) -> bool {
    bytes < LEAST_WITHOUT_UNIT && text.trim().bytes().all(|byte| byte.is_ascii_digit())
}

fn meant(text: &str, bytes: u64) -> String {
    let unit = if bytes <= 1 << 10 { "GiB" } else { "MiB" };
    format!("{text} bytes: did you mean {text}{unit}? So few bytes are written {text}B")
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bytes(bytes) => f.write_str(&format_bytes(bytes)),
            Self::Times { digits, decimals: 0 } => write!(f, "{digits}x live"),
            Self::Times { digits, decimals } => {
                let unit = 10_u64.pow(decimals as u32);
                write!(f, "{}.{:0decimals$}x live", digits / unit, digits % unit)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiple_is_of_the_live_peak_to_the_byte() {
        let bytes = |text, live| Limit::parse(text).expect(text).bytes(live);
        // 1,000,003 * 1.1 = 1,100,003.3
        assert_eq!(bytes("1.10x", 1_000_003), 1_100_003);
        assert_eq!(bytes("1.1x", 1_000_003), 1_100_003);
        assert_eq!(bytes("2x", 1_000_003), 2_000_006);
        assert_eq!(bytes("0.5X", 1_000_003), 500_001);
        assert_eq!(bytes("1.000001x", 1_000_000), 1_000_001);
        // What a binary fraction would miss: 0.07 * 100 is 7.000000000000001 there, and 1.1 * 10 must not be 10.
        assert_eq!((bytes("0.07x", 100), bytes("1.1x", 10)), (7, 11));
        assert_eq!(bytes("18446744073709551615x", 2), u64::MAX);
        assert_eq!(bytes("12GiB", 5), 12 << 30);
    }

    #[test]
    fn a_small_number_without_a_unit_is_asked_about() {
        for (text, expected) in [("12", "12GiB"), ("80", "80GiB"), ("0", "0GiB"), ("81920", "81920MiB")] {
            let error = Limit::parse(text).expect_err(text);
            assert_eq!(
                error,
                format!("{text} bytes: did you mean {expected}? So few bytes are written {text}B"),
                "{text}"
            );
        }
        for (text, bytes) in [("12B", 12), ("12 b", 12), ("512K", 512 << 10), ("1048576", 1 << 20), ("0B", 0)] {
            assert_eq!(Limit::parse(text), Ok(Limit::Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn limits_print_as_they_are_written() {
        for (text, expected) in
            [("1.10x", "1.10x live"), ("3x", "3x live"), ("0.05x", "0.05x live"), ("6GiB", "6.00 GiB")]
        {
            assert_eq!(Limit::parse(text).expect(text).to_string(), expected);
        }
    }

    #[test]
    fn what_is_no_limit_is_refused_with_both_forms() {
        for text in ["x", "0x", "0.0x", "1.x", ".5x", "-1x", "1,1x", "1.1.1x", "1.0000001x", "1e3x", "1 x", "+1x"] {
            let error = Limit::parse(text).expect_err(text);
            assert!(error.contains("is no multiple") && error.contains("1.10x"), "{text}: {error}");
        }
        let error = Limit::parse("1.5GiB").expect_err("no size");
        assert!(error.contains("is no size") && error.contains("1.10x"), "{error}");
    }
}
