//! The command line of the `ladder`.

use std::fmt;

/// The message on how to call it.
pub const USAGE: &str = "\
usage: cargo bench -p millpond-benches --features peers --bench ladder -- [OPTIONS] [PART...]
  PART...         only the cases whose name contains one of these
  --rounds N      rounds per case (15)
  --record        write benches/record/<machine>/<date>.csv and .md
  --machine NAME  the machine's name in the record (processor and cores)
  --date DATE     the date in the record, as 2026-01-31 (today, UTC)
  --list          name the cases and stop";

/// The options of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Parts of names: only cases whose name contains one of them run; all if empty.
    pub parts: Vec<String>,
    /// Rounds per case, at least 1.
    pub rounds: usize,
    /// Whether to write a record.
    pub record: bool,
    /// The machine's name, if it was given.
    pub machine: Option<String>,
    /// The date, if it was given.
    pub date: Option<String>,
    /// Whether to print only the names of the cases.
    pub list: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { parts: Vec::new(), rounds: 15, record: false, machine: None, date: None, list: false }
    }
}

/// A mistake in the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misuse(String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{USAGE}", self.0)
    }
}

impl std::error::Error for Misuse {}

impl Options {
    /// Parses the words behind the program's name.
    ///
    /// # Errors
    ///
    /// Returns an error for unknown options, options without their value, and values that cannot be part of a file's
    /// name.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, Misuse> {
        let mut options = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| Misuse(format!("{word} needs a value")));
            match word.as_str() {
                // Cargo passes this to every benchmark.
                "--bench" => {}
                "--record" => options.record = true,
                "--list" => options.list = true,
                "--rounds" => options.rounds = rounds(&value()?)?,
                "--machine" => options.machine = Some(file_name("--machine", value()?)?),
                "--date" => options.date = Some(file_name("--date", value()?)?),
                unknown if unknown.starts_with('-') => return Err(Misuse(format!("unknown option {unknown}"))),
                _ => options.parts.push(word),
            }
        }
        Ok(options)
    }

    /// Returns whether a case is asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|part| name.contains(part.as_str()))
    }
}

fn rounds(text: &str) -> Result<usize, Misuse> {
    match text.parse() {
        Ok(rounds) if rounds > 0 => Ok(rounds),
        _ => Err(Misuse(format!("--rounds is '{text}', must be a whole number from 1"))),
    }
}

fn file_name(option: &str, text: String) -> Result<String, Misuse> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.starts_with('.') || !text.chars().all(plain) {
        return Err(Misuse(format!("{option} is '{text}', must be of letters, digits, '-', '_' and '.'")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(str::to_owned)).map_err(|misuse| misuse.to_string())
    }

    #[test]
    fn words_become_options() {
        let options = parse("--bench churn --rounds 3 --record --machine a-b --date 2026-01-31 hit").expect("valid");
        assert_eq!(options.parts, ["churn", "hit"]);
        assert_eq!((options.rounds, options.record, options.list), (3, true, false));
        assert_eq!((options.machine.as_deref(), options.date.as_deref()), (Some("a-b"), Some("2026-01-31")));
        assert!(options.wants("hit/1MiB") && options.wants("threads/churn/1") && !options.wants("rmm/1"));
        assert!(parse("").expect("valid").wants("anything"));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, part) in [
            ("--rounds", "--rounds needs a value"),
            ("--rounds 0", "--rounds is '0'"),
            ("--machine ../x", "--machine is '../x'"),
            ("--fast", "unknown option --fast"),
        ] {
            let error = parse(line).expect_err("a mistake");
            assert!(error.contains(part) && error.contains("usage:"), "{error}");
        }
    }
}
