//! Sizes and times, as people write and read them. Sizes are read as in the names of devices.
//!
//! Crates that do this accept other texts (fractions, sums such as `1m30s`, `K` for 1000) or round a size that does not
//! fit, and print a time in several units, not in one with three digits.

use std::time::Duration;

use millpond_trace::Limits;

pub(crate) use millpond_any::options::parse_bytes;

/// Sets limits by a text: `KEY=N,...`, where a limit that is not named stays, or `none`. The first limit is a size.
///
/// # Errors
///
/// Returns a message that names what is accepted if the text is something else.
pub(crate) fn set_limits(text: &str, limits: &mut [(&str, &mut u64)]) -> Result<(), String> {
    if text == "none" {
        limits.iter_mut().for_each(|(_, limit)| **limit = u64::MAX);
        return Ok(());
    }
    for pair in text.split(',').filter(|_| !text.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(at) = limits.iter().position(|(known, _)| *known == key) else {
            let mut known: Vec<&str> = limits.iter().map(|(known, _)| *known).collect();
            let last = known.pop().unwrap_or_default();
            let known = known.join(", ");
            return Err(format!("`{key}` is no limit; the limits are {known} and {last}, or `none` alone"));
        };
        *limits[at].1 = if at == 0 {
            parse_bytes(value).map_err(|what| format!("`{key}`: {what}"))?
        } else {
            value.parse().map_err(|_| format!("`{key}` is `{value}`, must be a whole number: {key}=5000"))?
        };
    }
    Ok(())
}

/// Parses a time from a text such as `500ms`, `20s`, `10m` or `2h`.
///
/// # Errors
///
/// Returns a message that names what is accepted if the text is something else.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = trimmed.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => 0,
    };
    let time = number.parse::<u64>().ok().and_then(|number| number.checked_mul(millis));
    let time = time.filter(|millis| *millis > 0).map(Duration::from_millis);
    time.ok_or_else(|| format!("`{text}` is no time: write a whole number above 0 with ms, s, m or h, such as 20s"))
}

/// Parses `none`, or `KEY=N,...`, where every limit that is not named keeps its default.
///
/// # Errors
///
/// Returns a message that names what is accepted if the text is something else.
pub(crate) fn parse_limits(text: &str) -> Result<Limits, String> {
    let mut limits = Limits::default();
    let Limits { text_bytes, expansion, events, streams, details } = &mut limits;
    let all = &mut [
        ("text_bytes", text_bytes),
        ("expansion", expansion),
        ("events", events),
        ("streams", streams),
        ("details", details),
    ];
    set_limits(text, all)?;
    Ok(limits)
}

/// Formats a duration in the unit that suits it, with about three digits.
pub(crate) fn format_time(time: Duration) -> String {
    let nanos = time.as_nanos() as f64;
    let (value, unit) = match nanos {
        0.0 => return "0".into(),
        _ if nanos < 1e3 => (nanos, "ns"),
        _ if nanos < 1e6 => (nanos / 1e3, "us"),
        _ if nanos < 1e9 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    if value < 100.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_by_name() {
        let set = |text: &str| {
            let [mut bytes, mut values] = [1, 2];
            set_limits(text, &mut [("bytes", &mut bytes), ("values", &mut values)]).map(|()| [bytes, values])
        };
        assert_eq!(set(""), Ok([1, 2]));
        assert_eq!(set("none"), Ok([u64::MAX; 2]));
        assert_eq!(set("values=5,bytes=2KiB"), Ok([2048, 5]));
        assert_eq!(set("bytes=7"), Ok([7, 2]));
        assert!(set("events=1").is_err_and(|error| error.contains("the limits are bytes and values, or `none` alone")));
        assert!(set("values=1KiB").is_err_and(|error| error.contains("`values` is `1KiB`")));
        assert!(set("bytes=x").is_err_and(|error| error.contains("`bytes`: ")));
    }

    #[test]
    fn times_are_read_with_their_unit() {
        for (text, millis) in [("500ms", 500), ("20s", 20_000), (" 10m", 600_000), ("2h", 7_200_000)] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "20", "0s", "1.5s", "-1s", "20 s", "1d", "1m30s", "18446744073709551615h"] {
            let error = parse_time(text).expect_err(text);
            assert!(error.contains("is no time: write a whole number") && error.contains("20s"), "{error}");
        }
    }

    #[test]
    fn times_have_a_unit_that_suits_them() {
        let cases = [
            (0, "0"),
            (43, "43.0 ns"),
            (43_000, "43.0 us"),
            (677_000, "677 us"),
            (3_600_000, "3.6 ms"),
            (12_345_000_000, "12.3 s"),
        ];
        for (nanos, expected) in cases {
            assert_eq!(format_time(Duration::from_nanos(nanos)), expected);
        }
    }
}
