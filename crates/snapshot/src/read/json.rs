//! Reads JSON into a tree.
//!
//! `serde_json` reports the place of a syntax error, and no longer knows the place of a value once it was read. Here
//! most mistakes are of the second kind, a field that is missing or of the wrong kind, so each value keeps its place.
//! The same texts are accepted, except those with a whole number beyond 64 bits.

use super::pickle::with_enough;
use super::source::Source;
use super::tree::{Node, Tree, Value, at};
use crate::error::{Problem, SnapshotError};
use crate::limits::{DEPTH_MAX, Limits};

/// Reads a JSON text.
///
/// # Errors
///
/// Returns the first place that is no JSON, or that exceeds a limit.
pub(super) fn read(source: &mut Source<'_>, limits: &Limits) -> Result<(Tree, Node), SnapshotError> {
    let mut reader = Reader { source, tree: Tree::new(limits) };
    let root = reader.value(0);
    let root = root.map_err(|error| with_enough(error, || reader.count_rest()))?;
    reader.space()?;
    let end = reader.source.at();
    match reader.source.rest()? {
        0 => Ok((reader.tree, root)),
        left => Err(at(end, Problem::Trailing { bytes: left })),
    }
}

struct Reader<'r, 'a> {
    source: &'r mut Source<'a>,
    tree: Tree,
}

impl Reader<'_, '_> {
    fn wrong(&self, problem: Problem) -> SnapshotError {
        at(self.source.at(), problem)
    }

    /// Returns the error that the next byte is not what it would have to be.
    fn unexpected(&mut self, expected: &'static str) -> SnapshotError {
        match self.peek() {
            Err(error) => error,
            Ok(None) => self.wrong(Problem::End { expected }),
            Ok(Some(byte)) => {
                let found = format!("`{}`", byte.escape_ascii());
                self.wrong(Problem::Json { found, expected })
            }
        }
    }

    fn peek(&mut self) -> Result<Option<u8>, SnapshotError> {
        self.source.peek()
    }

    /// Returns a limit of values that is enough for the whole text. What follows is counted and not kept: a value for
    /// each beginning of a list or dictionary and each comma, which is more than there are.
    fn count_rest(&mut self) -> Option<u64> {
        let (mut values, mut is_text, mut is_escaped) = (1, false, false);
        while let Some(byte) = self.source.byte().ok()? {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = is_text,
                b'"' => is_text = !is_text,
                b'[' | b'{' | b',' if !is_text => values += 1,
                _ => {}
            }
        }
        Some(self.tree.enough(values, 0))
    }

    /// Takes the bytes that are among these.
    fn take_while(&mut self, is_taken: impl Fn(u8) -> bool) -> Result<(), SnapshotError> {
        while self.peek()?.is_some_and(&is_taken) {
            self.source.skip(1);
        }
        Ok(())
    }

    fn space(&mut self) -> Result<(), SnapshotError> {
        self.take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
    }

    /// Takes a byte, if it is the next one behind spaces.
    fn take(&mut self, byte: u8) -> Result<bool, SnapshotError> {
        self.space()?;
        let is_next = self.peek()? == Some(byte);
        self.source.skip(usize::from(is_next));
        Ok(is_next)
    }

    fn value(&mut self, depth: usize) -> Result<Node, SnapshotError> {
        self.space()?;
        let at = self.source.at();
        let before = self.tree.extent();
        self.tree.count(at)?;
        if depth == DEPTH_MAX {
            return Err(self.wrong(Problem::Depth { most: DEPTH_MAX }));
        }
        let value = match self.peek()? {
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
        let node = self.tree.add(at, value);
        self.tree.one_of_equals(node, before)
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value, SnapshotError> {
        if self.source.ahead(word.len())?.starts_with(word.as_bytes()) {
            self.source.skip(word.len());
            return Ok(value);
        }
        Err(self.unexpected("a value"))
    }

    fn array(&mut self, depth: usize) -> Result<Value, SnapshotError> {
        self.source.skip(1);
        let list = self.tree.list();
        if self.take(b']')? {
            return Ok(Value::List(list));
        }
        loop {
            let item = self.value(depth + 1)?;
            self.tree.lists[list as usize].push(item);
            if self.take(b']')? {
                return Ok(Value::List(list));
            }
            if !self.take(b',')? {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, SnapshotError> {
        self.source.skip(1);
        let dict = self.tree.dict();
        if self.take(b'}')? {
            return Ok(Value::Dict(dict));
        }
        loop {
            self.space()?;
            if self.peek()? != Some(b'"') {
                return Err(self.unexpected("a key in quotation marks"));
            }
            let key = self.text()?;
            let Value::Text(id) = self.tree.text(&key) else { unreachable!("a text is a text") };
            if !self.take(b':')? {
                return Err(self.unexpected("`:`"));
            }
            let item = self.value(depth + 1)?;
            self.tree.dicts[dict as usize].push((id, item));
            if self.take(b'}')? {
                return Ok(Value::Dict(dict));
            }
            if !self.take(b',')? {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    /// Takes digits, one at least, and adds them to a text.
    fn digits(&mut self, text: &mut String) -> Result<(), SnapshotError> {
        let known = text.len();
        while let Some(digit @ b'0'..=b'9') = self.peek()? {
            text.push(char::from(digit));
            self.source.skip(1);
        }
        if text.len() > known { Ok(()) } else { Err(self.unexpected("a digit")) }
    }

    /// Takes the next byte if it is one of these, adds it to a text, and returns whether it did.
    fn one_of(&mut self, bytes: &[u8], text: &mut String) -> Result<bool, SnapshotError> {
        let Some(byte) = self.peek()?.filter(|byte| bytes.contains(byte)) else { return Ok(false) };
        text.push(char::from(byte));
        self.source.skip(1);
        Ok(true)
    }

    fn number(&mut self) -> Result<Value, SnapshotError> {
        let start = self.source.at();
        let mut text = String::new();
        self.one_of(b"-", &mut text)?;
        if self.one_of(b"0", &mut text)? {
            if self.peek()?.is_some_and(|byte| byte.is_ascii_digit()) {
                return Err(self.unexpected("a number without leading zeros"));
            }
        } else {
            self.digits(&mut text)?;
        }
        let mut is_whole = true;
        if self.one_of(b".", &mut text)? {
            is_whole = false;
            self.digits(&mut text)?;
        }
        if self.one_of(b"eE", &mut text)? {
            is_whole = false;
            self.one_of(b"+-", &mut text)?;
            self.digits(&mut text)?;
        }
        if !is_whole {
            let number = text.parse().unwrap_or(f64::NAN);
            return if f64::is_finite(number) { Ok(Value::Float(number)) } else { Err(at(start, Problem::TooBig)) };
        }
        let signed = text.parse().map(Value::Int);
        signed.or_else(|_| text.parse().map(Value::Uint)).map_err(|_| at(start, Problem::TooBig))
    }

    /// Reads a text, whose first quotation mark is next.
    fn text(&mut self) -> Result<String, SnapshotError> {
        self.source.skip(1);
        let mut text = Vec::new();
        // Where what is in `text` since the last escape begins, there and in the file.
        let (mut begin, mut start) = (0, self.source.at());
        loop {
            let ahead = self.source.ahead(1)?;
            let is_plain = |byte: &u8| *byte != b'"' && *byte != b'\\' && *byte >= 0x20;
            let plain = ahead.iter().position(|byte| !is_plain(byte)).unwrap_or(ahead.len());
            text.extend_from_slice(&ahead[..plain]);
            let next = ahead.get(plain).copied();
            let is_at_end = ahead.is_empty();
            self.source.skip(plain);
            if next.is_none() && !is_at_end {
                continue;
            }
            if let Err(error) = str::from_utf8(&text[begin..]) {
                return Err(at(start + error.valid_up_to() as u64, Problem::NotText));
            }
            match next {
                Some(b'"') => {
                    self.source.skip(1);
                    return String::from_utf8(text).map_err(|_| at(start, Problem::NotText));
                }
                Some(b'\\') => {
                    let escaped = self.escape()?;
                    text.extend_from_slice(escaped.encode_utf8(&mut [0; 4]).as_bytes());
                    (begin, start) = (text.len(), self.source.at());
                }
                _ => return Err(self.unexpected("the end of the text, a quotation mark")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, SnapshotError> {
        self.source.skip(1);
        let escaped = match self.peek()? {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.unexpected("one of \\ / b f n r t u behind a backslash")),
        };
        self.source.skip(1);
        Ok(escaped)
    }

    /// Reads the digits of `\u`, and of the second one where two make up a character.
    fn unicode(&mut self) -> Result<char, SnapshotError> {
        let start = self.source.at();
        let first = self.unit()?;
        let code = match first {
            0xd800..0xdc00 => {
                if !self.source.ahead(2)?.starts_with(b"\\u") {
                    return Err(self.unexpected("the second half of a character, \\u"));
                }
                self.source.skip(1);
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
        self.source.skip(1);
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek()?.and_then(|byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.unexpected("four hexadecimal digits"))?;
            self.source.skip(1);
        }
        Ok(code)
    }
}
