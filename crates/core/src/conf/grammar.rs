//! The step from text to pairs of words: separators and brackets, without meanings.

use alloc::string::String;
use alloc::vec::Vec;

use super::error::{ConfError, ConfErrorKind as Kind, Found, shorten};

/// A word, and the position in bytes where it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

/// The right side of a pair.
#[derive(Debug)]
pub(super) enum Value<'a> {
    Word(Word<'a>),
    List { at: usize, entries: Vec<(Word<'a>, Word<'a>)> },
}

/// A pair `key:value`.
#[derive(Debug)]
pub(super) struct Pair<'a> {
    pub(super) key: Word<'a>,
    pub(super) value: Value<'a>,
}

/// Returns all pairs of a text, in its order.
pub(super) fn pairs(text: &str) -> Result<Vec<Pair<'_>>, ConfError> {
    let mut cursor = Cursor { text, at: 0 };
    let mut pairs = Vec::new();
    if cursor.peek().0 == Token::End {
        return Ok(pairs);
    }
    loop {
        let key = cursor.key()?;
        let value = cursor.value(key)?;
        pairs.push(Pair { key, value });
        match cursor.next() {
            (Token::End, _) => return Ok(pairs),
            (Token::Separator(','), at) => {
                if cursor.peek().0 == Token::End {
                    return Err(ConfError::new(at, Kind::TrailingComma));
                }
            }
            (token, at) => return Err(after_pair(token, at)),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Separator(char),
    End,
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Returns the token at the cursor and the position where it begins, after white space.
    fn peek(&self) -> (Token<'a>, usize) {
        let rest = self.text[self.at..].trim_start();
        let at = self.text.len() - rest.len();
        match rest.chars().next() {
            None => (Token::End, at),
            Some(first) if is_separator(first) => (Token::Separator(first), at),
            Some(_) => {
                let end = rest.find(|c: char| is_separator(c) || c.is_whitespace()).unwrap_or(rest.len());
                (Token::Word(&rest[..end]), at)
            }
        }
    }

    fn next(&mut self) -> (Token<'a>, usize) {
        let (token, at) = self.peek();
        self.at = at
            + match token {
                Token::Word(word) => word.len(),
                Token::Separator(_) => 1,
                Token::End => 0,
            };
        (token, at)
    }

    /// Reads the left side of a pair and its `:`.
    fn key(&mut self) -> Result<Word<'a>, ConfError> {
        let key = match self.next() {
            (Token::Word(text), at) => Word { text, at },
            (Token::Separator(bracket @ ('[' | ']')), at) => {
                return Err(ConfError::new(at, Kind::StrayBracket { bracket }));
            }
            (token, at) => return Err(ConfError::new(at, Kind::MissingKey { found: found(token) })),
        };
        match self.next() {
            (Token::Separator(':'), _) => Ok(key),
            (token, at) => Err(ConfError::new(at, Kind::MissingColon { key: shorten(key.text), found: found(token) })),
        }
    }

    /// Reads the right side of a pair.
    fn value(&mut self, key: Word<'a>) -> Result<Value<'a>, ConfError> {
        if let (Token::Separator('['), at) = self.peek() {
            self.next();
            return Ok(Value::List { at, entries: self.list(key, at)? });
        }
        self.word(key).map(Value::Word)
    }

    fn word(&mut self, key: Word<'a>) -> Result<Word<'a>, ConfError> {
        match self.next() {
            (Token::Word(text), at) => Ok(Word { text, at }),
            (Token::Separator('['), at) => Err(ConfError::new(at, Kind::StrayBracket { bracket: '[' })),
            (token, at) => Err(ConfError::new(at, Kind::EmptyValue { key: shorten(key.text), found: found(token) })),
        }
    }

    /// Reads the pairs of a list that was opened at `open`, up to and including its `]`.
    fn list(&mut self, key: Word<'a>, open: usize) -> Result<Vec<(Word<'a>, Word<'a>)>, ConfError> {
        let unclosed = || ConfError::new(open, Kind::UnclosedList { key: shorten(key.text) });
        let mut entries = Vec::new();
        match self.peek() {
            (Token::Separator(']'), _) => {
                return Err(ConfError::new(open, Kind::EmptyList { key: shorten(key.text) }));
            }
            (Token::End, _) => return Err(unclosed()),
            _ => {}
        }
        loop {
            let name = self.key()?;
            let value = self.word(name)?;
            entries.push((name, value));
            match self.next() {
                (Token::Separator(']'), _) => return Ok(entries),
                (Token::Separator(','), at) => match self.peek().0 {
                    Token::Separator(']') => return Err(ConfError::new(at, Kind::TrailingComma)),
                    Token::End => return Err(unclosed()),
                    _ => {}
                },
                (Token::End, _) => return Err(unclosed()),
                (token, at) => return Err(after_pair(token, at)),
            }
        }
    }
}

fn after_pair(token: Token<'_>, at: usize) -> ConfError {
    match token {
        Token::Separator(bracket @ ('[' | ']')) => ConfError::new(at, Kind::StrayBracket { bracket }),
        token => ConfError::new(at, Kind::MissingComma { found: found(token) }),
    }
}

fn is_separator(c: char) -> bool {
    matches!(c, ',' | ':' | '[' | ']')
}

fn found(token: Token<'_>) -> Found {
    match token {
        Token::Word(word) => Found::Word(shorten(word)),
        Token::Separator(separator) => Found::Separator(separator),
        Token::End => Found::End,
    }
}

impl Word<'_> {
    /// Returns the word as messages show it.
    pub(super) fn shown(&self) -> String {
        shorten(self.text)
    }
}
