//! Formats quantities and errors for people.

use std::error::Error;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Formats a byte count in the style of PyTorch's out-of-memory message: `512 bytes`, `1.50 KiB`, `20.00 MiB`, `79.11
/// GiB`.
///
/// A unit is used only above 1, so 1024 is `1024 bytes` and 1048576 is `1024.00 KiB`; the largest unit is GiB. The
/// number has two decimals, rounded to nearest. It is for people only, because the rounding loses bytes. Allocates one
/// string.
pub fn format_bytes(bytes: u64) -> String {
    match unit_of(bytes) {
        None => format!("{bytes} bytes"),
        Some((unit, name)) => format!("{:.2} {name}", bytes as f64 / unit as f64),
    }
}

/// Formats a byte count that something has to be raised or freed by: like [`format_bytes`], and rounded up, so that the
/// printed amount is enough. Allocates one string.
pub fn format_bytes_up(bytes: u64) -> String {
    match unit_of(bytes) {
        None => format!("{bytes} bytes"),
        Some((unit, name)) => {
            let hundredths = (u128::from(bytes) * 100).div_ceil(u128::from(unit));
            format!("{}.{:02} {name}", hundredths / 100, hundredths % 100)
        }
    }
}

/// Returns the unit that a byte count is printed in, and its name; `None` for bytes.
fn unit_of(bytes: u64) -> Option<(u64, &'static str)> {
    if bytes <= KIB {
        None
    } else if bytes <= MIB {
        Some((KIB, "KiB"))
    } else if bytes <= GIB {
        Some((MIB, "MiB"))
    } else {
        Some((GIB, "GiB"))
    }
}

/// Returns the text of an error and of its causes, separated by colons. Allocates one string for each.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_before_its_causes() {
        #[derive(Debug, thiserror::Error)]
        enum Nested {
            #[error("cannot open it")]
            Outer(#[source] Box<Nested>),
            #[error("no such file")]
            Inner,
        }
        assert_eq!(with_causes(&Nested::Inner), "no such file");
        assert_eq!(with_causes(&Nested::Outer(Box::new(Nested::Inner))), "cannot open it: no such file");
    }

    #[test]
    fn a_unit_begins_above_one_of_it() {
        let cases = [
            (0, "0 bytes"),
            (512, "512 bytes"),
            (KIB, "1024 bytes"),
            (KIB + 1, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (MIB, "1024.00 KiB"),
            (MIB + 1, "1.00 MiB"),
            (20 * MIB, "20.00 MiB"),
            (GIB, "1024.00 MiB"),
            (GIB + 1, "1.00 GiB"),
            (84_942_979_072, "79.11 GiB"),
            (5000 * GIB, "5000.00 GiB"),
            (u64::MAX, "17179869184.00 GiB"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(format_bytes(bytes), expected, "{bytes} bytes");
        }
    }

    #[test]
    fn two_decimals_round_to_nearest() {
        assert_eq!(format_bytes(10 * KIB + 5), "10.00 KiB");
        assert_eq!(format_bytes(10 * KIB + 6), "10.01 KiB");
        assert_eq!(format_bytes(2 * MIB - 1), "2.00 MiB");
    }

    #[test]
    fn two_decimals_round_up_where_the_amount_has_to_be_enough() {
        let cases = [
            (0, "0 bytes"),
            (KIB, "1024 bytes"),
            (KIB + 1, "1.01 KiB"),
            (1536, "1.50 KiB"),
            (10 * KIB + 5, "10.01 KiB"),
            (2 * MIB - 1, "2.00 MiB"),
            (2 * MIB + 1, "2.01 MiB"),
            (20 * MIB, "20.00 MiB"),
            (GIB, "1024.00 MiB"),
            (u64::MAX, "17179869184.00 GiB"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(format_bytes_up(bytes), expected, "{bytes} bytes");
        }
    }
}
