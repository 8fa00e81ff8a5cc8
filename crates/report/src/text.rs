//! Numbers and labels as text.

use millpond_trace::printable;

/// Formats a number of bytes with three digits or a little more: `512 B`, `20.0 MiB`, `1.04 GiB`.
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match (unit, value) {
        (0, _) => format!("{bytes} B"),
        (_, value) if value < 10.0 => format!("{value:.2} {}", units[unit]),
        (_, value) if value < 100.0 => format!("{value:.1} {}", units[unit]),
        _ => format!("{value:.0} {}", units[unit]),
    }
}

/// Formats a number with commas between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Escapes a text for HTML, between tags and inside quotes, and its control characters as [`printable`] does.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in printable(text).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_commas() {
        let texts = [0, 1023, 1536, 20 << 20, 999 << 20, 1 << 30, 5 << 40].map(bytes);
        assert_eq!(texts, ["0 B", "1023 B", "1.50 KiB", "20.0 MiB", "999 MiB", "1.00 GiB", "5.00 TiB"]);
        assert_eq!([0, 999, 1000, 670_123, 1_000_000].map(count), ["0", "999", "1,000", "670,123", "1,000,000"]);
    }

    #[test]
    fn no_markup_survives() {
        assert_eq!(escaped("<b a='\"'>&\n"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;\\n");
    }
}
