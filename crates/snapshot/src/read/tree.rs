//! What a file says, before it is known what it means: values, each with its place.

use std::collections::{HashMap, HashSet};
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

    /// Returns it as it is compared with others, if it is plain.
    fn plain(self, key: u32) -> Option<Plain> {
        match self {
            Value::Null => Some((key, 0, 0)),
            Value::Bool(value) => Some((key, 1, value.into())),
            Value::Int(value) => Some((key, 2, value.cast_unsigned())),
            Value::Uint(value) => Some((key, 3, value)),
            Value::Text(text) => Some((key, 4, text.into())),
            Value::Float(_) | Value::List(_) | Value::Dict(_) => None,
        }
    }
}

/// The most pairs of a dictionary that is compared with others. Frames have three, and some a fourth.
const SMALL_PAIRS: usize = 4;

/// A key, and a value that is no list, dictionary or fraction: its kind and its bits.
type Plain = (u32, u8, u64);

/// How much there is in a [`Tree`].
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    nodes: usize,
    dicts: usize,
    parts: u64,
}

/// A value and the number of bytes before it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Item {
    pub(crate) at: u64,
    pub(crate) value: Value,
}

/// The number of a value in the [`Tree`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node(u32);

/// How many references to values count as one value. A reference takes 4 bytes here, and 8 where a call stack has it.
const REFERENCES_OF_A_VALUE: u64 = 8;

/// All values of a file. Lists and dictionaries refer to the values in them by their numbers, so that to refer to a
/// value once more takes 4 bytes.
pub(crate) struct Tree {
    nodes: Vec<Item>,
    texts: Vec<Arc<str>>,
    /// The texts, to share those that are equal.
    known: HashSet<Known>,
    pub(crate) lists: Vec<Vec<Node>>,
    pub(crate) dicts: Vec<Vec<(u32, Node)>>,
    /// Small dictionaries of plain values, to share those that are equal.
    small: HashMap<Vec<Plain>, Node>,
    tally: Tally,
}

/// The values that were counted, and the most that there may be.
pub(crate) struct Tally {
    /// In parts of a value, as many as there are references of one.
    parts: u64,
    most: u64,
}

impl Tally {
    pub(crate) fn new(limits: &Limits) -> Self {
        // Values have numbers of 32 bits.
        Self { parts: 0, most: limits.values.min(u64::from(u32::MAX)) }
    }

    /// Counts a value.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than the limit allows.
    pub(crate) fn value(&mut self, at: u64) -> Result<(), SnapshotError> {
        self.values(1, at)
    }

    /// Counts some values.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than the limit allows.
    pub(crate) fn values(&mut self, count: u64, at: u64) -> Result<(), SnapshotError> {
        self.parts(count.saturating_mul(REFERENCES_OF_A_VALUE), at)
    }

    /// Counts a reference to a value.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than the limit allows.
    pub(crate) fn reference(&mut self, at: u64) -> Result<(), SnapshotError> {
        self.parts(1, at)
    }

    fn parts(&mut self, parts: u64, at: u64) -> Result<(), SnapshotError> {
        let most = self.most;
        self.parts = self.parts.saturating_add(parts);
        if self.parts > most * REFERENCES_OF_A_VALUE {
            return Err(SnapshotError::Limit { limit: Limit::Values, most, at, enough: None });
        }
        Ok(())
    }
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
        let (nodes, texts, lists, dicts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (known, small) = (HashSet::new(), HashMap::new());
        Self { nodes, texts, known, lists, dicts, small, tally: Tally::new(limits) }
    }

    /// Counts one more value.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than the limit allows.
    pub(crate) fn count(&mut self, at: u64) -> Result<(), SnapshotError> {
        self.tally.value(at)
    }

    /// Counts one more reference to a value that was counted.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than the limit allows.
    pub(crate) fn count_reference(&mut self, at: u64) -> Result<(), SnapshotError> {
        self.tally.reference(at)
    }

    /// Returns the limit that would be enough for these further values and references.
    pub(crate) fn enough(&self, values: u64, references: u64) -> u64 {
        let parts = self.tally.parts + values * REFERENCES_OF_A_VALUE + references;
        parts.div_ceil(REFERENCES_OF_A_VALUE)
    }

    /// Adds a value, which must have been counted.
    pub(crate) fn add(&mut self, at: u64, value: Value) -> Node {
        self.nodes.push(Item { at, value });
        Node((self.nodes.len() - 1) as u32)
    }

    /// Returns a value by its number.
    pub(crate) fn item(&self, node: Node) -> Item {
        self.nodes[node.0 as usize]
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

    /// Returns how much there is, for [`one_of_equals`](Self::one_of_equals).
    pub(crate) fn extent(&self) -> Extent {
        Extent { nodes: self.nodes.len(), dicts: self.dicts.len(), parts: self.tally.parts }
    }

    /// Replaces the dictionary of a frame that is whole, and was added last, by an equal one that was added before, if
    /// it is small and has plain values alone. What was added since `before` is then gone, and counts as one reference.
    /// Formats in which nothing can refer to the frames of other stacks have each of them again and again.
    ///
    /// # Errors
    ///
    /// Returns an error if the reference exceeds the limit.
    pub(crate) fn one_of_equals(&mut self, node: Node, before: Extent) -> Result<Node, SnapshotError> {
        let Item { at, value: Value::Dict(dict) } = self.item(node) else { return Ok(node) };
        let pairs = &self.dicts[dict as usize];
        let is_frame = pairs.iter().any(|(key, _)| **self.get(*key) == *"filename");
        if !is_frame || pairs.len() > SMALL_PAIRS {
            return Ok(node);
        }
        let plain = pairs.iter().map(|(key, node)| self.item(*node).value.plain(*key));
        let Some(content) = plain.collect::<Option<Vec<Plain>>>() else { return Ok(node) };
        let Some(equal) = self.small.get(&content).copied() else {
            self.small.insert(content, node);
            return Ok(node);
        };
        self.nodes.truncate(before.nodes);
        self.dicts.truncate(before.dicts);
        self.tally.parts = before.parts;
        self.tally.reference(at)?;
        Ok(equal)
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
