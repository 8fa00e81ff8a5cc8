//! Splits a line into words, which are read one after the other.

use millpond::Readiness;

use super::{Refusal, Relation, ReportField};

/// The rest of a line.
pub(super) struct Words<'a> {
    rest: std::str::SplitWhitespace<'a>,
}

const UNITS: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("EiB", 60)];

impl<'a> Words<'a> {
    /// Splits a line into words, without its comment.
    pub(super) fn new(line: &'a str) -> Self {
        let content = line.split_once('#').map_or(line, |(content, _)| content);
        Self { rest: content.split_whitespace() }
    }

    /// Returns the next word. A line that ends here is an error, in which `what` names the expected word.
    pub(super) fn word(&mut self, what: &str) -> Result<&'a str, String> {
        self.rest.next().ok_or_else(|| format!("the line ends where {what} should be"))
    }

    /// Returns the next word, if there is one.
    pub(super) fn next(&mut self) -> Option<&'a str> {
        self.rest.next()
    }

    /// Reads a word that must be exactly this one.
    pub(super) fn expect(&mut self, exactly: &str) -> Result<(), String> {
        let word = self.word(&format!("`{exactly}`"))?;
        if word == exactly { Ok(()) } else { Err(format!("`{word}` stands where `{exactly}` should be")) }
    }

    /// Checks that the line ends here.
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.rest.next().map_or(Ok(()), |word| Err(format!("`{word}` stands behind the end of the step")))
    }

    /// Reads the name of a buffer or a point.
    pub(super) fn name(&mut self) -> Result<String, String> {
        let word = self.word("a name")?;
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(good) {
            Ok(word.to_owned())
        } else {
            Err(format!("`{word}` is no name: a small letter, then small letters, digits and -"))
        }
    }

    /// Reads a stream: `s0` to `s7`.
    pub(super) fn stream(&mut self) -> Result<u32, String> {
        let word = self.word("a stream")?;
        match word.as_bytes() {
            [b's', digit @ b'0'..=b'7'] => Ok(u32::from(digit - b'0')),
            _ => Err(format!("`{word}` is no stream: s0 to s7")),
        }
    }

    /// Reads `on` and a stream.
    pub(super) fn on_stream(&mut self) -> Result<u32, String> {
        self.expect("on")?;
        self.stream()
    }

    /// Reads a number of bytes or of other things.
    pub(super) fn number(&mut self) -> Result<u64, String> {
        let word = self.word("a number")?;
        number(word).ok_or_else(|| format!("`{word}` is no number: digits, a unit up to EiB, +N or -N behind it"))
    }

    /// Reads a number, or `none`.
    pub(super) fn number_or_none(&mut self) -> Result<Option<u64>, String> {
        let before = self.rest.clone();
        if self.rest.next() == Some("none") {
            return Ok(None);
        }
        self.rest = before;
        self.number().map(Some)
    }

    pub(super) fn relation(&mut self) -> Result<Relation, String> {
        match self.word("=, <= or >=")? {
            "=" => Ok(Relation::Equal),
            "<=" => Ok(Relation::AtMost),
            ">=" => Ok(Relation::AtLeast),
            word => Err(format!("`{word}` stands where =, <= or >= should be")),
        }
    }

    /// Reads whether two things must be the same: `=` or `!=`.
    pub(super) fn sameness(&mut self) -> Result<bool, String> {
        match self.word("= or !=")? {
            "=" => Ok(true),
            "!=" => Ok(false),
            word => Err(format!("`{word}` stands where = or != should be")),
        }
    }

    pub(super) fn refusal(&mut self) -> Result<Refusal, String> {
        match self.word("oom or too-large")? {
            "oom" => Ok(Refusal::OutOfMemory),
            "too-large" => Ok(Refusal::TooLarge),
            word => Err(format!("`{word}` stands where oom or too-large should be")),
        }
    }

    pub(super) fn reuse(&mut self) -> Result<Readiness, String> {
        match self.word("fresh, complete or ordered")? {
            "fresh" => Ok(Readiness::Fresh),
            "complete" => Ok(Readiness::Complete),
            "ordered" => Ok(Readiness::Ordered),
            word => Err(format!("`{word}` stands where fresh, complete or ordered should be")),
        }
    }

    pub(super) fn report_field(&mut self) -> Result<ReportField, String> {
        match self.word("a field of the report")? {
            "requested" => Ok(ReportField::Requested),
            "empty-cache-frees" => Ok(ReportField::EmptyCacheFrees),
            "waiting-frees" => Ok(ReportField::WaitingFrees),
            "allocated" => Ok(ReportField::Allocated),
            "reserved" => Ok(ReportField::Reserved),
            word => {
                Err(format!("`{word}` is no field: requested, empty-cache-frees, waiting-frees, allocated or reserved"))
            }
        }
    }
}

/// Parses a number such as `20MiB`, `1MiB+1`, `512` or `1EiB-1`.
fn number(word: &str) -> Option<u64> {
    if let Some((whole, more)) = word.split_once('+') {
        return amount(whole)?.checked_add(amount(more)?);
    }
    if let Some((whole, less)) = word.split_once('-') {
        return amount(whole)?.checked_sub(amount(less)?);
    }
    amount(word)
}

fn amount(word: &str) -> Option<u64> {
    let unit = UNITS.iter().find_map(|&(unit, shift)| Some((word.strip_suffix(unit)?, shift)));
    let (digits, shift) = unit.unwrap_or((word, 0));
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value: u64 = plain.then(|| digits.parse().ok())??;
    value.checked_mul(1 << shift)
}
