//! The times of a log that has the time of day alone.

/// The microseconds of a day.
const DAY: u64 = 24 * 60 * 60 * 1_000_000;

/// Times of day, one after the other, as times that do not jump back at midnight.
#[derive(Default)]
pub(crate) struct Clock {
    /// The latest time so far.
    latest: u64,
    /// What is added to the time of day.
    offset: u64,
    /// Whether the next time is the first of a log.
    is_first: bool,
}

impl Clock {
    /// Notes that another log begins, whose first time follows the last one of this.
    pub(crate) fn restart(&mut self) {
        self.is_first = true;
    }

    /// Returns a time in microseconds since the midnight before the first one: hours, minutes, seconds and their
    /// millionths, with a colon or a point before these. Another text is none.
    pub(crate) fn micros(&mut self, text: &str) -> Option<u64> {
        let time = time_of_day(text)?;
        if std::mem::take(&mut self.is_first) {
            self.offset = self.latest.saturating_sub(time);
        }
        // Threads may write a little out of order. What lies half a day back is of the next day.
        if time + self.offset + DAY / 2 < self.latest {
            self.offset += DAY;
        }
        let micros = time + self.offset;
        self.latest = self.latest.max(micros);
        Some(micros)
    }
}

fn time_of_day(text: &str) -> Option<u64> {
    let mut parts = text.split([':', '.']);
    let mut number = |most: u64| {
        let part = parts.next()?;
        let is_number = !part.is_empty() && part.len() <= 6 && part.bytes().all(|byte| byte.is_ascii_digit());
        let number = part.parse::<u64>().ok().filter(|number| is_number && *number <= most)?;
        Some((number, part.len()))
    };
    let ((hours, _), (minutes, _), (seconds, _)) = (number(23)?, number(59)?, number(60)?);
    let micros = match number(999_999) {
        Some((fraction, digits)) => fraction * 10_u64.pow(6 - digits as u32),
        None => 0,
    };
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_on_over_midnight_and_into_another_log() {
        let mut clock = Clock::default();
        assert_eq!(clock.micros("23:59:59.999999"), Some(DAY - 1));
        assert_eq!(clock.micros("23:59:58:000000"), Some(DAY - 2_000_000), "another thread");
        assert_eq!(clock.micros("00:00:00:000005"), Some(DAY + 5));
        clock.restart();
        assert_eq!(clock.micros("10:00:00.5"), Some(DAY + 5), "another log");
        assert_eq!(clock.micros("10:00:01.5"), Some(DAY + 1_000_005));
        assert_eq!(clock.micros("23:00:00"), Some(DAY + 5 + (12 * 60 + 59) * 60_000_000 + 59_500_000));
    }

    #[test]
    fn another_text_is_no_time() {
        for text in ["", "2", "10:00", "24:00:00", "10:60:00", "10:00:61", "a:00:00", "+1:00:00"] {
            assert_eq!(Clock::default().micros(text), None, "{text}");
        }
    }
}
