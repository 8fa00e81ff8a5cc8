//! The step from text to pairs of words: separators and brackets, without meanings.

use super::error::{ConfError, ConfErrorKind as Kind, shorten};

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
    if cursor.peek().0 == Token::End {
        return Ok(Vec::new());
    }
    let end = || unreachable!("the end of a text ends it");
    cursor.until(Token::End, end, |cursor| {
        let key = cursor.key()?;
        Ok(Pair { key, value: cursor.value(key)? })
    })
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
                return Err(ConfError::new(at, Kind::StrayBracket(bracket)));
            }
            (token, at) => return Err(ConfError::new(at, Kind::MissingKey(found(token)))),
        };
        match self.next() {
            (Token::Separator(':'), _) => Ok(key),
            (token, at) => Err(ConfError::new(at, Kind::MissingColon { key: key.shown(), found: found(token) })),
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
            (Token::Separator('['), at) => Err(ConfError::new(at, Kind::StrayBracket('['))),
            (token, at) => Err(ConfError::new(at, Kind::EmptyValue { key: key.shown(), found: found(token) })),
        }
    }

    /// Reads the pairs of a list that was opened at `open`, up to and including its `]`.
    fn list(&mut self, key: Word<'a>, open: usize) -> Result<Vec<(Word<'a>, Word<'a>)>, ConfError> {
        let unclosed = || ConfError::new(open, Kind::UnclosedList(key.shown()));
        match self.peek() {
            (Token::Separator(']'), _) => Err(ConfError::new(open, Kind::EmptyList(key.shown()))),
            (Token::End, _) => Err(unclosed()),
            _ => self.until(Token::Separator(']'), unclosed, |cursor| {
                let name = cursor.key()?;
                Ok((name, cursor.word(name)?))
            }),
        }
    }

    /// Reads what is separated by `,`, up to and including the token that ends it. `unclosed` is the error where the
    /// text ends before that.
    fn until<T>(
        &mut self,
        end: Token<'_>,
        unclosed: impl Fn() -> ConfError,
        read: impl Fn(&mut Self) -> Result<T, ConfError>,
    ) -> Result<Vec<T>, ConfError> {
        let mut all = Vec::new();
        loop {
            all.push(read(self)?);
            match self.next() {
                (token, _) if token == end => return Ok(all),
                (Token::End, _) => return Err(unclosed()),
                (Token::Separator(','), at) => match self.peek().0 {
                    token if token == end => return Err(ConfError::new(at, Kind::TrailingComma)),
                    Token::End => return Err(unclosed()),
                    _ => {}
                },
                (Token::Separator(bracket @ ('[' | ']')), at) => {
                    return Err(ConfError::new(at, Kind::StrayBracket(bracket)));
                }
                (token, at) => return Err(ConfError::new(at, Kind::MissingComma(found(token)))),
            }
        }
    }
}

fn is_separator(c: char) -> bool {
    matches!(c, ',' | ':' | '[' | ']')
}

/// Returns what was found where something else was expected, in words.
fn found(token: Token<'_>) -> String {
    match token {
        Token::Word(word) => format!("`{}`", shorten(word)),
        Token::Separator(separator) => format!("`{separator}`"),
        Token::End => "the end of the text".into(),
    }
}

/// A word that is the value of a key, or stands in its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    pub(super) key: &'static str,
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Word<'a> {
    /// Returns the word as what is given for a key.
    pub(super) fn of(self, key: &'static str) -> Given<'a> {
        Given { key, text: self.text, at: self.at }
    }

    /// Returns the word as messages show it.
    pub(super) fn shown(&self) -> String {
        shorten(self.text)
    }
}
