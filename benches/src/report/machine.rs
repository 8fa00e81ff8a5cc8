//! The machine of a run, and its date.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// The machine, as far as the system describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Its name in the record: processor and number of cores.
    pub name: String,
    /// The name that the processor reports.
    pub processor: String,
    /// The number of cores that this process may use.
    pub cores: usize,
    /// The clock rate in MHz at the moment, as the system writes it.
    pub mhz: Option<String>,
}

impl Machine {
    /// Returns this machine. `name` replaces the name that would be generated.
    pub fn this(name: Option<String>) -> Self {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::of(&text, cores, name)
    }

    fn of(cpuinfo: &str, cores: usize, name: Option<String>) -> Self {
        let field = |key: &str| {
            let value =
                |line: &str| line.split_once(':').filter(|(k, _)| k.trim() == key).map(|(_, v)| v.trim().to_owned());
            cpuinfo.lines().find_map(value)
        };
        let mut processor = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        if let (Some(family), Some(model)) = (field("cpu family"), field("model")) {
            processor = format!("{processor}, family {family} model {model}");
        }
        let name = name.unwrap_or_else(|| slug(&format!("{processor} {cores} cores")));
        Self { name, processor, cores, mhz: field("cpu MHz") }
    }
}

/// Returns the system's load over the last minutes and its running tasks, as `/proc/loadavg` has them.
pub fn load() -> Option<String> {
    fs::read_to_string("/proc/loadavg").ok().map(|text| text.trim().to_owned())
}

/// Returns the text's letters and digits in lower case, and everything else as single dashes.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').to_owned()
}

/// Returns the date in UTC, as 2026-01-31.
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(seconds / 86_400)
}

/// Returns the date this number of days after 1 January 1970, by the Gregorian calendar: whole years first, then whole
/// months.
fn date(mut days: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::{Machine, date, slug};

    #[test]
    fn days_become_dates() {
        for (days, expected) in [(0, "1970-01-01"), (59, "1970-03-01"), (789, "1972-02-29"), (11_016, "2000-02-29")] {
            assert_eq!(date(days), expected);
        }
        assert_eq!((date(20_453).as_str(), date(20_454).as_str()), ("2025-12-31", "2026-01-01"));
    }

    #[test]
    fn the_processor_names_the_machine() {
        let text = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: Some CPU (R) @ 2.0GHz\n\
                    cpu MHz\t\t: 2000.5\n";
        let machine = Machine::of(text, 4, None);
        assert_eq!(machine.name, "some-cpu-r-2-0ghz-family-25-model-17-4-cores");
        assert_eq!(machine.mhz.as_deref(), Some("2000.5"));
        assert_eq!(Machine::of("", 1, Some("mine".to_owned())).name, "mine");
        assert_eq!(slug("--A__b--"), "a-b");
    }
}
