//! Lines and fields of a text, with their places.
//!
//! The tables are plain: their tools write and read them without quotation marks, by splitting at commas, and so does
//! this. A reader of CSV would accept more and tell the place of a field less exactly.

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

    /// Reads a size in bytes, of at most 2^63 - 1.
    pub(crate) fn size(&self) -> Result<u64, ImportError> {
        let bytes = self.digits().ok_or_else(|| self.no("size: expected a whole number of bytes"))?;
        if bytes < 1 << 63 { Ok(bytes) } else { Err(self.wrong(TextProblem::Size { bytes })) }
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

/// Returns the lines of a text that are not blank, without spaces around them. A line that is no text, or too long, is
/// an error in its place.
pub(crate) fn lines(content: &[u8]) -> impl Iterator<Item = Result<Field<'_>, ImportError>> {
    let numbered = (1..).zip(content.split(|byte| *byte == b'\n'));
    let lines = numbered.map(|(line, bytes): (u64, &[u8])| {
        let wrong = |column: usize, problem| ImportError::Text { line, column: column as u64 + 1, problem };
        if bytes.len() > LINE_BYTES_MAX {
            return Err(wrong(LINE_BYTES_MAX, TextProblem::LineTooLong { most: LINE_BYTES_MAX }));
        }
        let text = str::from_utf8(bytes).map_err(|error| wrong(error.valid_up_to(), TextProblem::NotText))?;
        let spaces = (text.len() - text.trim_start().len()) as u64;
        Ok(Field { text: text.trim(), line, column: spaces + 1 })
    });
    lines.filter(|line| line.as_ref().map_or(true, |line| !line.text.is_empty()))
}

/// The columns of a table, by the names in its head.
pub(crate) struct Columns {
    names: Vec<String>,
}

impl Columns {
    /// Reads the head, the first of the lines.
    pub(crate) fn read<'a>(
        lines: &mut impl Iterator<Item = Result<Field<'a>, ImportError>>,
        expected: &'static str,
    ) -> Result<(Self, Field<'a>), ImportError> {
        let empty = ImportError::Text { line: 1, column: 1, problem: TextProblem::Empty { expected } };
        let head = lines.next().ok_or(empty)??;
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

    /// Returns the place of the column with one of these names.
    pub(crate) fn find(&self, names: &[&str]) -> Option<usize> {
        self.names.iter().position(|name| names.contains(&&**name))
    }

    /// Splits a line into as many fields as there are columns.
    pub(crate) fn fields<'a>(&self, line: Field<'a>, into: &mut Vec<Field<'a>>) -> Result<(), ImportError> {
        into.clear();
        into.extend(line.split(','));
        let (found, expected) = (into.len(), self.names.len());
        if found == expected { Ok(()) } else { Err(line.wrong(TextProblem::Fields { found, expected })) }
    }
}
