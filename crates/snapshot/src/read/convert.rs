//! From a tree of values to a snapshot: which field means what, and what must be there.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use millpond_trace::printable;
use serde_json::Number;

use super::shared::Shared;
use super::tree::{Item, Node, Tally, Tree, Value};
use crate::error::{Place, Problem, SnapshotError};
use crate::limits::{DEPTH_MAX, FIELDS_DEPTH_MAX, Limits};
use crate::model::{Action, Annotation, Block, Frame, Other, Segment, Snapshot, Stack, State, TraceEntry};

/// How many values the structure of an event, a block or a segment counts, whose fields are part of it.
const VALUES_OF_A_STRUCTURE: u64 = 3;

/// The largest size in bytes.
const BYTES_MAX: u64 = i64::MAX as u64;

type Result<T> = std::result::Result<T, SnapshotError>;

/// Returns the snapshot that a tree holds.
///
/// # Errors
///
/// Returns the first value that is missing or wrong, with its place. A value to which the file refers more than once
/// counts each time, except for call stacks and frames, which are shared.
pub(super) fn snapshot(tree: &Tree, root: Node, limits: &Limits) -> Result<Snapshot> {
    let (shared, path) = (Shared::default(), Vec::new());
    Converter { tree, shared, path, tally: Tally::new(limits) }.snapshot(tree.item(root))
}

/// A step from a value to one in it.
enum Step<'t> {
    Field(&'t str),
    Index(usize),
}

struct Converter<'t> {
    tree: &'t Tree,
    shared: Shared,
    path: Vec<Step<'t>>,
    tally: Tally,
}

impl<'t> Converter<'t> {
    fn wrong(&self, at: u64, problem: Problem) -> SnapshotError {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) => {
                    let dot = if path.is_empty() { "" } else { "." };
                    path += dot;
                    path += &printable(&name.chars().take(60).collect::<String>());
                }
                Step::Index(index) => {
                    let _ = write!(path, "[{index}]");
                }
            }
        }
        SnapshotError::Content { place: Place { at, path }, problem }
    }

    fn kind(&self, item: Item, expected: &'static str) -> SnapshotError {
        self.wrong(item.at, Problem::Kind { found: item.value.kind(), expected })
    }

    fn count(&mut self, at: u64) -> Result<()> {
        self.tally.value(at)
    }

    /// Counts the copy of a text, a value for each 64 bytes. Without it, a long text that a file refers to often would
    /// take memory without bound.
    fn count_copy(&mut self, text: &str, at: u64) -> Result<()> {
        self.tally.values(1 + text.len() as u64 / 64, at)
    }

    /// Converts each field of a dictionary.
    fn fields(&mut self, item: Item, mut field: impl FnMut(&mut Self, &'t Arc<str>, Item) -> Result<()>) -> Result<()> {
        let tree = self.tree;
        let Value::Dict(dict) = item.value else { return Err(self.kind(item, "a dictionary")) };
        let pairs = &tree.dicts[dict as usize];
        // Dictionaries of snapshots are small, so that looking at those before is faster than a set.
        let mut seen = HashSet::new();
        for (number, (key, value)) in pairs.iter().enumerate() {
            let (name, value) = (tree.get(*key), tree.item(*value));
            self.path.push(Step::Field(name));
            let is_small = pairs.len() <= 16;
            if is_small && pairs[..number].iter().any(|(other, _)| other == key) || !is_small && !seen.insert(*key) {
                return Err(self.wrong(value.at, Problem::Twice));
            }
            field(self, name, value)?;
            self.path.pop();
        }
        Ok(())
    }

    /// Converts each field of a dictionary that becomes a structure, and counts the structure.
    fn structure(&mut self, item: Item, field: impl FnMut(&mut Self, &'t Arc<str>, Item) -> Result<()>) -> Result<()> {
        self.tally.values(VALUES_OF_A_STRUCTURE, item.at)?;
        self.fields(item, field)
    }

    /// Converts each value of a list.
    fn list<T>(&mut self, item: Item, mut value: impl FnMut(&mut Self, Item) -> Result<T>) -> Result<Vec<T>> {
        let tree = self.tree;
        let Value::List(list) = item.value else { return Err(self.kind(item, "a list")) };
        let mut values = Vec::new();
        for (index, item) in tree.lists[list as usize].iter().enumerate() {
            let item = tree.item(*item);
            self.count(item.at)?;
            self.path.push(Step::Index(index));
            values.push(value(self, item)?);
            self.path.pop();
        }
        Ok(values)
    }

    fn required<T>(&self, value: Option<T>, at: u64, field: &'static str) -> Result<T> {
        value.ok_or_else(|| self.wrong(at, Problem::NoField { field }))
    }

    fn snapshot(&mut self, root: Item) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        if let Value::List(_) = root.value {
            snapshot.segments = self.list(root, Self::segment)?;
            return Ok(snapshot);
        }
        let mut has_segments = false;
        self.fields(root, |this, name, item| {
            match &**name {
                "segments" => {
                    has_segments = true;
                    snapshot.segments = this.list(item, Self::segment)?;
                }
                "device_traces" => {
                    snapshot.device_traces = this.list(item, |this, trace| this.list(trace, Self::entry))?;
                }
                "allocator_settings" => {
                    this.fields(item, |this, name, item| this.other(&mut snapshot.allocator_settings, name, item))?;
                }
                "external_annotations" => snapshot.external_annotations = this.list(item, Self::annotation)?,
                "host_segments" => snapshot.host_segments = this.list(item, Self::segment)?,
                _ => this.other(&mut snapshot.other, name, item)?,
            }
            Ok(())
        })?;
        self.required(has_segments.then_some(()), root.at, "segments")?;
        Ok(snapshot)
    }

    fn segment(&mut self, item: Item) -> Result<Segment> {
        let mut segment = Segment::default();
        let (mut address, mut total, mut blocks) = (None, None, None);
        let (mut allocated, mut active, mut requested) = (None, None, None);
        self.structure(item, |this, name, item| {
            match &**name {
                "device" => segment.device = this.int(item)?,
                "address" => address = Some(this.uint(item)?),
                "total_size" => total = Some(this.size(item)?),
                "allocated_size" => allocated = Some(this.size(item)?),
                "active_size" => active = Some(this.size(item)?),
                "requested_size" => requested = Some(this.size(item)?),
                "stream" => segment.stream = this.uint(item)?,
                "segment_type" => segment.segment_type = this.text_or(&mut segment.other, name, item)?,
                "segment_pool_id" => segment.segment_pool_id = this.pair_or(&mut segment.other, name, item)?,
                "is_expandable" => match item.value {
                    Value::Bool(expandable) => segment.is_expandable = Some(expandable),
                    _ => return Err(this.kind(item, "a truth value")),
                },
                "frames" => segment.frames = Some(this.stack(item)?),
                "blocks" => blocks = Some(item),
                _ => this.other(&mut segment.other, name, item)?,
            }
            Ok(())
        })?;
        segment.address = self.required(address, item.at, "address")?;
        segment.total_size = self.required(total, item.at, "total_size")?;
        let blocks = self.required(blocks, item.at, "blocks")?;
        self.path.push(Step::Field("blocks"));
        let mut next = Some(segment.address);
        segment.blocks = self.list(blocks, |this, item| this.block(item, &mut next))?;
        self.path.pop();
        let computed = Segment::new(0, 0, 0, std::mem::take(&mut segment.blocks));
        segment.allocated_size = allocated.unwrap_or(computed.allocated_size);
        segment.active_size = active.unwrap_or(computed.active_size);
        segment.requested_size = requested.unwrap_or(computed.requested_size);
        segment.blocks = computed.blocks;
        Ok(segment)
    }

    /// Converts a block. `next` is the address behind the block before it, unless that is beyond the last one.
    fn block(&mut self, item: Item, next: &mut Option<u64>) -> Result<Block> {
        let (mut address, mut size, mut requested, mut state, mut frames) = (None, None, None, None, None);
        let mut history = None;
        let mut other = Other::new();
        self.structure(item, |this, name, item| {
            match &**name {
                "address" => address = Some(this.uint(item)?),
                "size" => size = Some(this.size(item)?),
                "requested_size" => requested = Some(this.size(item)?),
                "state" => state = Some(State::of(this.text(item)?)),
                "frames" => frames = Some(this.stack(item)?),
                "history" => history = Some(item),
                _ => this.other(&mut other, name, item)?,
            }
            Ok(())
        })?;
        let size = self.required(size, item.at, "size")?;
        let state = self.required(state, item.at, "state")?;
        if let Some(history) = history {
            self.path.push(Step::Field("history"));
            for (real_size, stack) in self.list(history, Self::history)?.into_iter().take(1) {
                requested = requested.or(real_size);
                frames = frames.or(stack);
            }
            self.path.pop();
        }
        let follows = next.ok_or_else(|| self.wrong(item.at, Problem::Beyond))?;
        let address = address.unwrap_or(follows);
        *next = address.checked_add(size);
        let requested_size = requested.unwrap_or(if state.is_active() { size } else { 0 });
        Ok(Block { address, size, requested_size, state, frames: frames.unwrap_or_default(), other })
    }

    /// Converts an entry of what old versions of PyTorch wrote instead of frames.
    fn history(&mut self, item: Item) -> Result<(Option<u64>, Option<Stack>)> {
        let (mut real_size, mut stack) = (None, None);
        self.structure(item, |this, name, item| {
            match &**name {
                "real_size" => real_size = Some(this.size(item)?),
                "frames" => stack = Some(this.stack(item)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok((real_size, stack))
    }

    fn entry(&mut self, item: Item) -> Result<TraceEntry> {
        let mut entry = TraceEntry::new(Action::Snapshot, 0, 0, 0);
        let (mut action, mut size) = (None, None);
        entry.addr = None;
        self.structure(item, |this, name, item| {
            match &**name {
                "action" => action = Some(Action::of(this.text(item)?)),
                "addr" => entry.addr = Some(this.uint(item)?),
                "size" => size = Some(this.size(item)?),
                "stream" => entry.stream = this.uint(item)?,
                "time_us" => entry.time_us = Some(this.int(item)?),
                "device_free" => entry.device_free = Some(this.uint(item)?),
                "pool_id" => entry.pool_id = this.pair_or(&mut entry.other, name, item)?,
                "compile_context" => entry.compile_context = this.text_or(&mut entry.other, name, item)?,
                "user_metadata" => entry.user_metadata = this.text_or(&mut entry.other, name, item)?,
                "category" => entry.category = this.text_or(&mut entry.other, name, item)?,
                "frames" => entry.frames = Some(this.stack(item)?),
                _ => this.other(&mut entry.other, name, item)?,
            }
            Ok(())
        })?;
        entry.action = self.required(action, item.at, "action")?;
        let is_of_memory =
            !matches!(entry.action, Action::Snapshot | Action::Oom | Action::Annotate | Action::Other(_));
        entry.size = if is_of_memory { self.required(size, item.at, "size")? } else { size.unwrap_or(0) };
        if is_of_memory {
            self.required(entry.addr, item.at, "addr")?;
        }
        Ok(entry)
    }

    fn annotation(&mut self, item: Item) -> Result<Annotation> {
        let mut annotation =
            Annotation { name: "".into(), stage: "".into(), device: 0, time_us: 0, other: Other::new() };
        self.structure(item, |this, name, item| {
            match &**name {
                "name" => annotation.name = Arc::clone(this.text(item)?),
                "stage" => annotation.stage = Arc::clone(this.text(item)?),
                "device" => annotation.device = this.int(item)?,
                "time_us" => annotation.time_us = this.int(item)?,
                _ => this.other(&mut annotation.other, name, item)?,
            }
            Ok(())
        })?;
        Ok(annotation)
    }

    fn stack(&mut self, item: Item) -> Result<Stack> {
        let tree = self.tree;
        let Value::List(list) = item.value else { return Err(self.kind(item, "a list")) };
        if let Some(stack) = self.shared.stack_of(list) {
            return Ok(stack);
        }
        let mut frames = std::mem::take(&mut self.shared.scratch);
        frames.clear();
        for (index, item) in tree.lists[list as usize].iter().enumerate() {
            let item = tree.item(*item);
            self.tally.reference(item.at)?;
            self.path.push(Step::Index(index));
            frames.push(self.frame(item)?);
            self.path.pop();
        }
        let stack = self.shared.stack(list, &frames);
        self.shared.scratch = frames;
        Ok(stack)
    }

    /// Converts a frame, and returns its number among those that are shared.
    fn frame(&mut self, item: Item) -> Result<u32> {
        if let Value::Dict(dict) = item.value
            && let Some(frame) = self.shared.frame_of(dict)
        {
            return Ok(frame);
        }
        let (mut name, mut filename, mut line) = (None, None, 0);
        let mut other = Other::new();
        self.structure(item, |this, field, item| {
            match &**field {
                "name" => name = Some(Arc::clone(this.text(item)?)),
                "filename" => filename = Some(Arc::clone(this.text(item)?)),
                "line" => line = this.int(item)?,
                _ => this.other(&mut other, field, item)?,
            }
            Ok(())
        })?;
        let name = self.required(name, item.at, "name")?;
        let filename = self.required(filename, item.at, "filename")?;
        let frame = Frame { name, filename, line, other };
        let Value::Dict(dict) = item.value else { return Err(self.kind(item, "a dictionary")) };
        Ok(self.shared.frame(dict, frame))
    }

    fn text(&self, item: Item) -> Result<&'t Arc<str>> {
        match item.value {
            Value::Text(text) => Ok(self.tree.get(text)),
            _ => Err(self.kind(item, "a text")),
        }
    }

    fn int(&self, item: Item) -> Result<i64> {
        match item.value {
            Value::Int(number) => Ok(number),
            _ => Err(self.kind(item, "a whole number of at most 2^63 - 1")),
        }
    }

    fn uint(&self, item: Item) -> Result<u64> {
        match item.value {
            Value::Int(number) if number >= 0 => Ok(number.cast_unsigned()),
            Value::Uint(number) => Ok(number),
            Value::Int(_) => {
                Err(self.wrong(item.at, Problem::Kind { found: "a negative number", expected: "0 or more" }))
            }
            _ => Err(self.kind(item, "a whole number")),
        }
    }

    fn size(&self, item: Item) -> Result<u64> {
        let value = self.uint(item)?;
        if value <= BYTES_MAX {
            return Ok(value);
        }
        Err(self.wrong(item.at, Problem::Range { what: "the size", value, most: BYTES_MAX }))
    }

    /// Converts a text. Anything else is kept as it is.
    fn text_or(&mut self, other: &mut Other, name: &str, item: Item) -> Result<Option<Arc<str>>> {
        if let Value::Text(text) = item.value {
            return Ok(Some(Arc::clone(self.tree.get(text))));
        }
        self.other(other, name, item)?;
        Ok(None)
    }

    /// Converts a pool's two numbers. Anything else is kept as it is.
    fn pair_or(&mut self, other: &mut Other, name: &str, item: Item) -> Result<Option<(u64, u64)>> {
        if let Value::List(list) = item.value
            && let [first, second] = self.tree.lists[list as usize][..]
            && let (Ok(first), Ok(second)) = (self.uint(self.tree.item(first)), self.uint(self.tree.item(second)))
        {
            return Ok(Some((first, second)));
        }
        self.other(other, name, item)?;
        Ok(None)
    }

    fn other(&mut self, other: &mut Other, name: &str, item: Item) -> Result<()> {
        // As if it lay as deep as a field can, so that it can be read again from every format.
        self.count(item.at)?;
        let value = self.kept(item, FIELDS_DEPTH_MAX)?;
        self.count_copy(name, item.at)?;
        other.insert(name.into(), value);
        Ok(())
    }

    /// Converts a value that this crate does not know.
    fn kept(&mut self, item: Item, depth: usize) -> Result<serde_json::Value> {
        if depth == DEPTH_MAX {
            return Err(self.wrong(item.at, Problem::Depth { most: DEPTH_MAX }));
        }
        Ok(match item.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => value.into(),
            Value::Int(value) => value.into(),
            Value::Uint(value) => value.into(),
            Value::Float(value) => Number::from_f64(value).map_or(serde_json::Value::Null, serde_json::Value::Number),
            Value::Text(text) => {
                let text = self.tree.get(text);
                self.count_copy(text, item.at)?;
                serde_json::Value::String(text.to_string())
            }
            Value::List(_) => serde_json::Value::Array(self.list(item, |this, item| this.kept(item, depth + 1))?),
            Value::Dict(_) => {
                let mut map = Other::new();
                self.fields(item, |this, name, item| {
                    this.count(item.at)?;
                    let value = this.kept(item, depth + 1)?;
                    this.count_copy(name, item.at)?;
                    map.insert(name.to_string(), value);
                    Ok(())
                })?;
                serde_json::Value::Object(map)
            }
        })
    }
}
