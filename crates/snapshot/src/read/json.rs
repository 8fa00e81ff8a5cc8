//! Reads JSON into a tree.
//!
//! `serde_json` reports the place of a syntax error, and no longer knows the place of a value once it was read. Here
//! most mistakes are of the second kind, a field that is missing or of the wrong kind, so each value keeps its place.
//! The same texts are accepted, except those with a whole number beyond 64 bits.

use super::tree::{Item, Tree, Value, at};
use crate::error::{Problem, SnapshotError};
use crate::limits::{DEPTH_MAX, Limits};

/// Reads a JSON text.
///
/// # Errors
///
/// Returns the first place that is no JSON, or that exceeds a limit.
pub(super) fn read(bytes: &[u8], limits: &Limits) -> Result<(Tree, Item), SnapshotError> {
    let mut reader = Reader { bytes, at: 0, tree: Tree::new(limits) };
    let root = reader.value(0)?;
    reader.space();
    match bytes.len() - reader.at {
        0 => Ok((reader.tree, root)),
        left => Err(reader.wrong(Problem::Trailing { bytes: left as u64 })),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    tree: Tree,
}

impl Reader<'_> {
    fn wrong(&self, problem: Problem) -> SnapshotError {
        at(self.at as u64, problem)
    }

    /// Returns the error that the next byte is not what it would have to be.
    fn unexpected(&self, expected: &'static str) -> SnapshotError {
        match self.peek() {
            None => self.wrong(Problem::End { expected }),
            Some(byte) => {
                let found = format!("`{}`", byte.escape_ascii());
                self.wrong(Problem::Json { found, expected })
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Takes a byte, if it is the next one behind spaces.
    fn take(&mut self, byte: u8) -> bool {
        self.space();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self, depth: usize) -> Result<Item, SnapshotError> {
        self.space();
        let at = self.at as u64;
        self.tree.count(at)?;
        if depth == DEPTH_MAX {
            return Err(self.wrong(Problem::Depth { most: DEPTH_MAX }));
        }
        let value = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => {
                let text = self.text()?;
                self.tree.text(&text)
            }
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            _ => return Err(self.unexpected("a value")),
        };
        Ok(Item { at, value })
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value, SnapshotError> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(value);
        }
        Err(self.unexpected("a value"))
    }

    fn array(&mut self, depth: usize) -> Result<Value, SnapshotError> {
        self.at += 1;
        let list = self.tree.list();
        if self.take(b']') {
            return Ok(Value::List(list));
        }
        loop {
            let item = self.value(depth + 1)?;
            self.tree.lists[list as usize].push(item);
            if self.take(b']') {
                return Ok(Value::List(list));
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, SnapshotError> {
        self.at += 1;
        let dict = self.tree.dict();
        if self.take(b'}') {
            return Ok(Value::Dict(dict));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in quotation marks"));
            }
            let key = self.text()?;
            let Value::Text(id) = self.tree.text(&key) else { unreachable!("a text is a text") };
            if !self.take(b':') {
                return Err(self.unexpected("`:`"));
            }
            let item = self.value(depth + 1)?;
            self.tree.dicts[dict as usize].push((id, item));
            if self.take(b'}') {
                return Ok(Value::Dict(dict));
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn digits(&mut self) -> Result<(), SnapshotError> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected("a digit"));
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value, SnapshotError> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let first = self.at;
        self.digits()?;
        if self.bytes[first] == b'0' && self.at > first + 1 {
            self.at = first + 1;
            return Err(self.unexpected("a number without leading zeros"));
        }
        let mut whole = true;
        if self.peek() == Some(b'.') {
            self.at += 1;
            whole = false;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            whole = false;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        let text = str::from_utf8(&self.bytes[start..self.at]).unwrap_or("");
        if !whole {
            let number = text.parse().unwrap_or(f64::NAN);
            return if f64::is_finite(number) {
                Ok(Value::Float(number))
            } else {
                Err(at(start as u64, Problem::TooBig))
            };
        }
        let signed = text.parse().map(Value::Int);
        signed.or_else(|_| text.parse().map(Value::Uint)).map_err(|_| at(start as u64, Problem::TooBig))
    }

    /// Reads a text, whose first quotation mark is next.
    fn text(&mut self) -> Result<String, SnapshotError> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let start = self.at;
            while self.peek().is_some_and(|byte| byte != b'"' && byte != b'\\' && byte >= 0x20) {
                self.at += 1;
            }
            let part = str::from_utf8(&self.bytes[start..self.at]);
            text += part.map_err(|error| at((start + error.valid_up_to()) as u64, Problem::NotText))?;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                _ => return Err(self.unexpected("the end of the text, a quotation mark")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, SnapshotError> {
        self.at += 1;
        let escaped = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.unexpected("one of \\ / b f n r t u behind a backslash")),
        };
        self.at += 1;
        Ok(escaped)
    }

    /// Reads the digits of `\u`, and of the second one where two make up a character.
    fn unicode(&mut self) -> Result<char, SnapshotError> {
        let start = self.at as u64;
        let first = self.unit()?;
        let code = match first {
            0xd800..0xdc00 => {
                if !self.bytes[self.at..].starts_with(b"\\u") {
                    return Err(self.unexpected("the second half of a character, \\u"));
                }
                self.at += 1;
                let second = self.unit()?;
                if !(0xdc00..0xe000).contains(&second) {
                    return Err(at(start, Problem::NotText));
                }
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            code => code,
        };
        char::from_u32(code).ok_or_else(|| at(start, Problem::NotText))
    }

    /// Reads `u` and four digits.
    fn unit(&mut self) -> Result<u32, SnapshotError> {
        self.at += 1;
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.unexpected("four hexadecimal digits"))?;
            self.at += 1;
        }
        Ok(code)
    }
}
