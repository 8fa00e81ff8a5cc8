//! What a file says, before it is known what it means: values, each with its place.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{Place, Problem, SnapshotError};
use crate::limits::{Limit, Limits};

/// A value. Lists and dictionaries are numbers into the [`Tree`], so that one can be referred to more than once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// A whole number of 2^63 at least.
    Uint(u64),
    Float(f64),
    Text(u32),
    List(u32),
    Dict(u32),
}

impl Value {
    /// Returns what it is, for messages.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Value::Null => "nothing (None or null)",
            Value::Bool(_) => "a truth value",
            Value::Int(_) | Value::Uint(_) => "a whole number",
            Value::Float(_) => "a fraction",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Dict(_) => "a dictionary",
        }
    }
}

/// A value and the number of bytes before it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Item {
    pub(crate) at: u64,
    pub(crate) value: Value,
}

/// All values of a file.
pub(crate) struct Tree {
    texts: Vec<Arc<str>>,
    /// The texts, to share those that are equal.
    known: HashSet<Known>,
    pub(crate) lists: Vec<Vec<Item>>,
    pub(crate) dicts: Vec<Vec<(u32, Item)>>,
    values: u64,
    limits: Limits,
}

/// A text and its number, found by the text alone.
struct Known(Arc<str>, u32);

impl PartialEq for Known {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Known {}

impl std::hash::Hash for Known {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl std::borrow::Borrow<str> for Known {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Tree {
    pub(crate) fn new(limits: &Limits) -> Self {
        let (texts, lists, dicts) = (Vec::new(), Vec::new(), Vec::new());
        Self { texts, known: HashSet::new(), lists, dicts, values: 0, limits: *limits }
    }

    /// Counts one more value.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than the limit allows, or than 32 bits count.
    pub(crate) fn count(&mut self, at: u64) -> Result<(), SnapshotError> {
        let most = self.limits.values.min(u64::from(u32::MAX));
        self.values += 1;
        if self.values > most { Err(SnapshotError::Limit { limit: Limit::Values, most, at }) } else { Ok(()) }
    }

    /// Adds a text. Equal texts are one.
    pub(crate) fn text(&mut self, text: &str) -> Value {
        if let Some(Known(_, id)) = self.known.get(text) {
            return Value::Text(*id);
        }
        let (shared, id): (Arc<str>, u32) = (text.into(), self.texts.len() as u32);
        self.texts.push(Arc::clone(&shared));
        self.known.insert(Known(shared, id));
        Value::Text(id)
    }

    /// Adds an empty list.
    pub(crate) fn list(&mut self) -> u32 {
        self.lists.push(Vec::new());
        (self.lists.len() - 1) as u32
    }

    /// Adds an empty dictionary.
    pub(crate) fn dict(&mut self) -> u32 {
        self.dicts.push(Vec::new());
        (self.dicts.len() - 1) as u32
    }

    /// Returns a text by its number.
    pub(crate) fn get(&self, text: u32) -> &Arc<str> {
        &self.texts[text as usize]
    }
}

/// Returns an error of the format at a place.
pub(crate) fn at(at: u64, problem: Problem) -> SnapshotError {
    SnapshotError::Content { place: Place { at, path: String::new() }, problem }
}
