//! The difference of two snapshots: what grew and what shrank.

use std::collections::BTreeMap;

use crate::model::{Block, Frame, Segment, Snapshot, Stack, State};

/// Blocks and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Amount {
    /// The number of blocks, or of segments.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What two snapshots have of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The kind: the name of a state, an upper bound of sizes, a stream, or a place in the program.
    pub key: String,
    /// What the first snapshot has.
    pub before: Amount,
    /// What the second one has.
    pub after: Amount,
}

impl Row {
    /// Returns by how many bytes the second snapshot has more.
    pub fn growth(&self) -> i128 {
        i128::from(self.after.bytes) - i128::from(self.before.bytes)
    }

    /// Returns whether both snapshots have the same.
    pub fn is_same(&self) -> bool {
        self.before == self.after
    }
}

/// A segment that one snapshot alone has, or that has another size in the second one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The device.
    pub device: i64,
    /// The first address.
    pub address: u64,
    /// The stream.
    pub stream: u64,
    /// Its bytes in the first snapshot; `None` if it is new.
    pub before: Option<u64>,
    /// Its bytes in the second one; `None` if it is gone.
    pub after: Option<u64>,
    /// The bytes of it that the program holds, in the second snapshot, or in the first one if it is gone.
    pub allocated: u64,
}

impl Change {
    /// Returns by how many bytes the second snapshot has more of it.
    pub fn growth(&self) -> i128 {
        i128::from(self.after.unwrap_or(0)) - i128::from(self.before.unwrap_or(0))
    }
}

/// The sums of a snapshot, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// The number of segments.
    pub segments: u64,
    /// The bytes of all segments.
    pub reserved: u64,
    /// The bytes of blocks that the program holds.
    pub allocated: u64,
    /// The bytes that it asked for, of these blocks.
    pub requested: u64,
}

/// The difference of two snapshots. Each list is whole: also what both have alike is in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diff {
    /// The sums of the first snapshot.
    pub before: Sums,
    /// The sums of the second one.
    pub after: Sums,
    /// Blocks by their state: `active_allocated`, `active_pending_free`, `inactive`.
    pub states: Vec<Row>,
    /// Blocks in use, by the power of two that their size is at most, in bytes.
    pub sizes: Vec<Row>,
    /// Blocks in use, by the stream of their segment.
    pub streams: Vec<Row>,
    /// Blocks in use, by the place that allocated them, the largest difference first.
    pub sites: Vec<Row>,
    /// Segments that are new, gone, or of another size, the largest difference first.
    pub segments: Vec<Change>,
}

/// The name of the place of blocks whose allocation was not recorded.
const NO_FRAMES: &str = "(not recorded)";

/// Functions and files that belong to the recording and not to the program, by a part of their names. PyTorch's own
/// viewers leave out the same.
const OMITTED_NAMES: [&str; 8] = [
    "unwind::unwind",
    "CapturedTraceback::gather",
    "gather_with_cpp",
    "_start",
    "__libc_start_main",
    "PyEval_",
    "PyObject_",
    "PyFunction_",
];
const OMITTED_FILES: [&str; 10] = [
    "core/boxing",
    "/Register",
    "/Redispatch",
    "pythonrun.c",
    "Modules/main.c",
    "Objects/call.c",
    "Objects/methodobject.c",
    "pycore_ceval.h",
    "ceval.c",
    "cpython/abstract.h",
];

impl Frame {
    /// Returns whether it is part of the program, and not of the interpreter or of the recording.
    pub fn is_shown(&self) -> bool {
        !OMITTED_NAMES.iter().any(|part| self.name.contains(part))
            && !OMITTED_FILES.iter().any(|part| self.filename.contains(part))
    }
}

impl Stack {
    /// Returns the place of the innermost `frames` frames that belong to the program, such as
    /// `linear.py:125:forward < mlp.py:20:forward`. Files are without their folders.
    pub fn site(&self, frames: usize) -> String {
        let shown = self.frames().iter().filter(|frame| frame.is_shown()).take(frames.max(1));
        let names = shown.map(|frame| {
            let file = frame.filename.rsplit(['/', '\\']).next().unwrap_or_default();
            format!("{file}:{}:{}", frame.line, frame.name)
        });
        let site = names.collect::<Vec<_>>().join(" < ");
        if site.is_empty() { NO_FRAMES.into() } else { site }
    }
}

impl Snapshot {
    /// Returns what is different in a later snapshot. Places are told apart by their innermost `frames` frames, one at
    /// least.
    ///
    /// Segments are the same if their device and address are. Costs a pass over both, and memory for each different
    /// place.
    pub fn diff(&self, later: &Snapshot, frames: usize) -> Diff {
        let mut states = Rows::default();
        let (mut sizes, mut streams, mut sites) = (Rows::default(), Rows::default(), Rows::default());
        for (snapshot, is_later) in [(self, false), (later, true)] {
            for state in [State::Allocated, State::PendingFree, State::Inactive] {
                states.amount(state, is_later);
            }
            for (segment, block) in snapshot.blocks() {
                states.amount(block.state.clone(), is_later).add(block.size);
                if block.state.is_active() {
                    sizes.amount(power(block.size), is_later).add(block.size);
                    streams.amount(segment.stream, is_later).add(block.size);
                    sites.amount(block.frames.site(frames), is_later).add(block.size);
                }
            }
        }
        Diff {
            before: self.sums(),
            after: later.sums(),
            states: states.in_order(|state| state.name().to_owned()),
            sizes: sizes.in_order(|bytes| bytes.to_string()),
            streams: streams.in_order(|stream| handle(*stream)),
            sites: sites.by_growth(),
            segments: changes(self, later),
        }
    }

    /// Returns all blocks of all segments, with their segments.
    fn blocks(&self) -> impl Iterator<Item = (&Segment, &Block)> {
        self.segments.iter().flat_map(|segment| segment.blocks.iter().map(move |block| (segment, block)))
    }

    /// Returns the sums of its segments and blocks. Sums beyond 64 bits are `u64::MAX`.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for segment in &self.segments {
            sums.segments += 1;
            sums.reserved = sums.reserved.saturating_add(segment.total_size);
            let is_held = |block: &Block| block.state == State::Allocated;
            sums.allocated = sums.allocated.saturating_add(segment.sum(is_held, |block| block.size));
            sums.requested = sums.requested.saturating_add(segment.sum(is_held, |block| block.requested_size));
        }
        sums
    }
}

/// Returns the text of a stream: small numbers in decimal, handles in hexadecimal.
fn handle(stream: u64) -> String {
    if stream < 1 << 16 { stream.to_string() } else { format!("{stream:#x}") }
}

/// Returns the power of two that a size is at most, at least 512.
fn power(bytes: u64) -> u64 {
    bytes.max(512).checked_next_power_of_two().unwrap_or(u64::MAX)
}

/// Amounts of two snapshots by kind.
struct Rows<K>(BTreeMap<K, [Amount; 2]>);

impl<K> Default for Rows<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Rows<K> {
    fn amount(&mut self, key: K, is_later: bool) -> &mut Amount {
        &mut self.0.entry(key).or_default()[usize::from(is_later)]
    }

    fn in_order(self, name: impl Fn(&K) -> String) -> Vec<Row> {
        self.0.into_iter().map(|(key, [before, after])| Row { key: name(&key), before, after }).collect()
    }
}

impl Rows<String> {
    fn by_growth(self) -> Vec<Row> {
        let mut rows = self.in_order(String::clone);
        rows.sort_by_key(|row| std::cmp::Reverse(row.growth().abs()));
        rows
    }
}

/// Returns the segments that one snapshot alone has, or that have two sizes.
fn changes(before: &Snapshot, after: &Snapshot) -> Vec<Change> {
    let mut changes: BTreeMap<(i64, u64), Change> = BTreeMap::new();
    for (snapshot, is_later) in [(before, false), (after, true)] {
        for segment in &snapshot.segments {
            let (device, address, stream) = (segment.device, segment.address, segment.stream);
            let new = Change { device, address, stream, before: None, after: None, allocated: 0 };
            let change = changes.entry((device, address)).or_insert(new);
            change.stream = stream;
            change.allocated = segment.sum(|block| block.state == State::Allocated, |block| block.size);
            let bytes = if is_later { &mut change.after } else { &mut change.before };
            *bytes = Some(segment.total_size);
        }
    }
    let mut changes: Vec<Change> = changes.into_values().filter(|change| change.before != change.after).collect();
    changes.sort_by_key(|change| std::cmp::Reverse(change.growth().abs()));
    changes
}
