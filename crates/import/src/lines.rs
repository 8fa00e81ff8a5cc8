//! Lines and fields of a text, with their places.
//!
//! The tables are plain: their tools write and read them without quotation marks, by splitting at commas, and so does
//! this. A reader of CSV would accept more and tell the place of a field less exactly.

use millpond_trace::BYTES_MAX;

use crate::error::{ImportError, TextProblem};

/// The longest line in bytes.
const LINE_BYTES_MAX: usize = 1 << 20;

/// A field of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: u64,
    /// The number of its first byte in the line, from 1.
    pub(crate) column: u64,
}

impl<'a> Field<'a> {
    /// Returns an error at this field.
    pub(crate) fn wrong(&self, problem: TextProblem) -> ImportError {
        ImportError::Text { line: self.line, column: self.column, problem }
    }

    /// Returns the error that this field is not what it must be.
    pub(crate) fn no(&self, expected: &'static str) -> ImportError {
        let text = self.text.chars().take(60).flat_map(char::escape_debug).collect();
        self.wrong(TextProblem::Field { text, expected })
    }

    /// Splits the field at a separator. The parts have no spaces around them.
    pub(crate) fn split(self, separator: char) -> impl Iterator<Item = Field<'a>> {
        let mut column = self.column;
        self.text.split(separator).map(move |part| {
            let spaces = (part.len() - part.trim_start().len()) as u64;
            let field = Field { text: part.trim(), line: self.line, column: column + spaces };
            column += part.len() as u64 + separator.len_utf8() as u64;
            field
        })
    }

    /// Reads a size in bytes, of at most 2^60 - 1.
    pub(crate) fn size(&self) -> Result<u64, ImportError> {
        let bytes = self.any_size()?;
        if bytes <= BYTES_MAX { Ok(bytes) } else { Err(self.wrong(TextProblem::Size { bytes })) }
    }

    /// Reads a size in bytes that was asked for and not served, of any 64 bits.
    pub(crate) fn any_size(&self) -> Result<u64, ImportError> {
        self.digits().ok_or_else(|| self.no("size: expected a whole number of bytes"))
    }

    /// Reads an address or a handle: `0x` and hexadecimal digits, decimal digits, or `(nil)`.
    pub(crate) fn address(&self) -> Result<u64, ImportError> {
        let number = match self.text.strip_prefix("0x").or_else(|| self.text.strip_prefix("0X")) {
            Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
            Some(_) => None,
            None if self.text == "(nil)" => Some(0),
            None => self.digits(),
        };
        number.ok_or_else(|| self.no("address: expected 0x and up to 16 hexadecimal digits"))
    }

    /// Reads an address or a handle of RMM, which writes them in hexadecimal, with `0x` or without it, and no address
    /// as `(nil)` or 0.
    pub(crate) fn handle(&self) -> Result<u64, ImportError> {
        let is_hex = !self.text.is_empty() && self.text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(self.text, 16) {
            Ok(number) if is_hex => Ok(number),
            _ => self.address(),
        }
    }

    /// Reads a time, which may lie before zero.
    pub(crate) fn time(&self) -> Result<i64, ImportError> {
        let digits = self.text.strip_prefix('-').unwrap_or(self.text);
        let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| self.text.parse().ok()).flatten();
        number.ok_or_else(|| self.no("time: expected a whole number below 2^63"))
    }

    fn digits(&self) -> Option<u64> {
        self.text.bytes().all(|byte| byte.is_ascii_digit()).then(|| self.text.parse().ok()).flatten()
    }
}

/// The lines of a text that are not blank and that end with a line break, without spaces around them. A line that is no
/// text, or too long, is an error in its place.
#[derive(Clone)]
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    line: u64,
    /// Whether the text ends inside a line, which is not among these.
    pub(crate) is_cut_off: bool,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(content: &'a [u8]) -> Self {
        let end = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let (whole, cut) = content.split_at(end);
        Self { rest: whole, line: 0, is_cut_off: !cut.trim_ascii().is_empty() }
    }

    /// Returns whether no line follows.
    pub(crate) fn are_over(&self) -> bool {
        self.rest.trim_ascii().is_empty()
    }

    /// Returns the error of a text without a line.
    pub(crate) fn none(&self, expected: &'static str) -> ImportError {
        let problem = if self.is_cut_off { TextProblem::CutOff } else { TextProblem::Empty { expected } };
        ImportError::Text { line: if self.is_cut_off { self.line + 1 } else { 1 }, column: 1, problem }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<Field<'a>, ImportError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let end = self.rest.iter().position(|byte| *byte == b'\n')?;
            let (bytes, rest) = (&self.rest[..end], &self.rest[end + 1..]);
            (self.rest, self.line) = (rest, self.line + 1);
            let wrong = |column: usize, problem| {
                Some(Err(ImportError::Text { line: self.line, column: column as u64 + 1, problem }))
            };
            if bytes.len() > LINE_BYTES_MAX {
                return wrong(LINE_BYTES_MAX, TextProblem::LineTooLong { most: LINE_BYTES_MAX });
            }
            let text = match str::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => return wrong(error.valid_up_to(), TextProblem::NotText),
            };
            let spaces = (text.len() - text.trim_start().len()) as u64;
            if !text.trim().is_empty() {
                return Some(Ok(Field { text: text.trim(), line: self.line, column: spaces + 1 }));
            }
        }
    }
}

/// The columns of a table, by the names in its head.
pub(crate) struct Columns {
    names: Vec<String>,
}

impl Columns {
    /// Reads the head, the first of the lines.
    pub(crate) fn read<'a>(lines: &mut Lines<'a>, expected: &'static str) -> Result<(Self, Field<'a>), ImportError> {
        let head = lines.next().ok_or_else(|| lines.none(expected))??;
        let mut names: Vec<String> = Vec::new();
        for field in head.split(',') {
            let name = field.text.to_ascii_lowercase();
            if names.contains(&name) {
                let column = field.text.chars().take(60).collect();
                return Err(field.wrong(TextProblem::Twice { column }));
            }
            names.push(name);
        }
        Ok((Self { names }, head))
    }

    /// Returns the number of columns.
    pub(crate) fn count(&self) -> usize {
        self.names.len()
    }

    /// Returns the place of the column with one of these names.
    pub(crate) fn find(&self, names: &[&str]) -> Option<usize> {
        self.names.iter().position(|name| names.contains(&&**name))
    }

    /// Returns whether fields are those of the head once more.
    pub(crate) fn are_head(&self, fields: &[Field<'_>]) -> bool {
        fields.iter().map(|field| field.text.to_ascii_lowercase()).eq(self.names.iter().cloned())
    }

    /// Returns whether a line ends with the head, after the beginning of another line. So does the first line of a log
    /// that follows one which was cut off.
    pub(crate) fn end(&self, line: Field<'_>) -> bool {
        let head = self.names.join(",");
        let spaceless = line.text.replace(' ', "").to_ascii_lowercase();
        spaceless.len() > head.len() && spaceless.ends_with(&head)
    }

    /// Splits a line into as many fields as there are columns.
    pub(crate) fn fields<'a>(&self, line: Field<'a>, into: &mut Vec<Field<'a>>) -> Result<(), ImportError> {
        into.clear();
        into.extend(line.split(','));
        let (found, expected) = (into.len(), self.names.len());
        if found == expected { Ok(()) } else { Err(line.wrong(TextProblem::Fields { found, expected })) }
    }
}
