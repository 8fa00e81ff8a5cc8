//! Replaying a recording through an allocator on the simulated device, and comparing every operation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use millpond::conf;
use millpond::text::format_bytes;
use millpond::{Allocator, Buffer, BuildError, Error, OutOfMemory, SegmentView, Side, Stream};
use millpond_backend::StreamId;
use millpond_sim::{CostModel, Sim};

use super::{BlockRow, BlockState, Op, OpKind, Recording, SegmentRow};

/// The result of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The number of operations whose effects were all as recorded, from the first on.
    pub matched: usize,
    /// The number of operations of the recording.
    pub total: usize,
    /// A description of the first operation that differed.
    pub difference: Option<String>,
}

impl Outcome {
    /// Returns whether every operation matched.
    pub fn is_match(&self) -> bool {
        self.matched == self.total
    }
}

/// Replays a recording and compares statistics, layout, addresses and out-of-memory amounts after every operation. The
/// allocator's invariants are checked after every 64th operation and at the end.
///
/// # Errors
///
/// If the recording has a configuration that this allocator refuses.
pub fn replay(recording: &Recording) -> Result<Outcome, BuildError> {
    let mut player = Player::new(recording)?;
    for (at, op) in recording.ops.iter().enumerate() {
        if let Err(difference) = player.play(op) {
            let difference = format!("line {}: {:?}\n{difference}", op.line, op.kind);
            return Ok(Outcome { matched: at, total: recording.ops.len(), difference: Some(difference) });
        }
        if at % 64 == 0 {
            player.allocator.check();
        }
    }
    player.allocator.check();
    Ok(Outcome { matched: recording.ops.len(), total: recording.ops.len(), difference: None })
}

/// PyTorch visits the event queues of its streams in the order of their handles. In the recordings that order was 0, 2,
/// 1, so the recorded streams are assigned to ours in this order, in which our allocator visits them.
const VISITED: [u32; 3] = [0, 2, 1];

struct Player {
    sim: Sim,
    allocator: Allocator<Sim>,
    /// The streams by the number in the recording.
    streams: BTreeMap<u32, Stream<Sim>>,
    blocks: BTreeMap<u32, Buffer<Sim>>,
    expected: BTreeMap<String, i64>,
    layout: Vec<SegmentRow>,
}

impl Player {
    fn new(recording: &Recording) -> Result<Self, BuildError> {
        let sim = Sim::builder().total_bytes(recording.total).cost(CostModel::free()).build();
        let options = conf::parse(&recording.conf).map_err(|source| BuildError::Conf { source })?;
        // PyTorch has no other policy, whatever the device can do.
        let settings = options.resolve(false).as_recorded();
        let mut builder = Allocator::builder(sim.clone()).settings(settings);
        if let Some(limit) = recording.limit_bytes {
            builder = builder.limit(limit);
        }
        let allocator = builder.build()?;
        let ids = sim.open_streams(streams_of(recording).max(VISITED.len()));
        let named: Vec<u32> = VISITED.into_iter().chain(VISITED.len() as u32..).take(ids.len()).collect();
        let open = |id| allocator.stream(id).unwrap_or_else(|error| panic!("{error}"));
        let streams = named.into_iter().zip(ids).map(|(recorded, id)| (recorded, open(id))).collect();
        Ok(Self { sim, allocator, streams, blocks: BTreeMap::new(), expected: BTreeMap::new(), layout: Vec::new() })
    }

    fn play(&mut self, op: &Op) -> Result<(), String> {
        match &op.kind {
            OpKind::Begin => {}
            OpKind::Alloc { id, size, stream, addr, oom } => {
                self.allocate(*id, *size, *stream, *addr, oom.as_deref())?
            }
            OpKind::Free { id } => drop(self.blocks.remove(id)),
            OpKind::RecordStream { id, stream } => {
                self.blocks[id].record_stream(&self.streams[stream]).map_err(|e| e.to_string())?;
            }
            OpKind::Busy { stream } => drop(self.sim.busy(self.streams[stream].id())),
            OpKind::Sync => self.sim.synchronize(),
            OpKind::EmptyCache => self.allocator.empty_cache().map_err(|e| e.to_string())?,
            OpKind::ResetPeak => self.allocator.reset_peak_stats(),
        }
        self.compare(op)
    }

    fn allocate(
        &mut self,
        id: u32,
        size: u64,
        stream: u32,
        addr: Option<u64>,
        oom: Option<&str>,
    ) -> Result<(), String> {
        if let Some(addr) = addr {
            // Driver addresses are inputs: if this operation takes a segment from the driver, it begins here.
            self.sim.place_next(addr);
        }
        match (self.streams[&stream].allocate(size), addr, oom) {
            (Ok(buffer), Some(addr), _) => {
                let ours = buffer.address();
                self.blocks.insert(id, buffer);
                if ours == Some(addr) { Ok(()) } else { Err(format!("  address: recorded {addr}, ours {ours:?}")) }
            }
            (Err(Error::OutOfMemory(error)), _, Some(message)) => compare_amounts(message, &error),
            (Ok(buffer), None, _) => Err(format!("  recorded out of memory, ours {buffer:?}")),
            (Err(error), ..) => Err(format!("  recorded success, ours: {error}")),
        }
    }

    fn compare(&mut self, op: &Op) -> Result<(), String> {
        for (key, value) in &op.changed {
            self.expected.insert(key.clone(), *value);
        }
        if let Some(layout) = &op.layout {
            self.layout.clone_from(layout);
        }
        let mut differences = String::new();
        let ours = self.allocator.stats().flat();
        if ours.len() != self.expected.len() {
            let _ = writeln!(differences, "  statistics: recorded {} keys, ours {}", self.expected.len(), ours.len());
        }
        for (key, ours) in ours {
            match self.expected.get(&key) {
                Some(recorded) if *recorded == ours => {}
                Some(recorded) => drop(writeln!(differences, "  {key}: recorded {recorded}, ours {ours}")),
                None => drop(writeln!(differences, "  {key}: not recorded, ours {ours}")),
            }
        }
        let ours = rows(&self.allocator.layout(), &|id| self.recorded_stream(id));
        if !same_layout(&self.layout, &ours) {
            let _ = writeln!(differences, "  layout recorded: {:?}\n  layout ours:     {ours:?}", self.layout);
        }
        if differences.is_empty() { Ok(()) } else { Err(differences) }
    }

    fn recorded_stream(&self, id: StreamId) -> u32 {
        let found = self.streams.iter().find(|(_, stream)| stream.id() == id);
        found.map_or(u32::MAX, |(recorded, _)| *recorded)
    }
}

fn streams_of(recording: &Recording) -> usize {
    let named = recording.ops.iter().filter_map(|op| match op.kind {
        OpKind::Alloc { stream, .. } | OpKind::RecordStream { stream, .. } | OpKind::Busy { stream } => Some(stream),
        _ => None,
    });
    named.max().map_or(0, |highest| highest as usize + 1)
}

/// Returns the layout in the recordings' form: each contiguous mapped range in the order of addresses.
fn rows(views: &[SegmentView], recorded_stream: &dyn Fn(StreamId) -> u32) -> Vec<SegmentRow> {
    let mut rows = Vec::new();
    for view in views {
        let mut open: Option<SegmentRow> = None;
        for block in &view.blocks {
            let state = match block.state {
                millpond::BlockState::ActiveAllocated => BlockState::ActiveAllocated,
                millpond::BlockState::ActivePendingFree => BlockState::ActivePendingFree,
                millpond::BlockState::Inactive => BlockState::Inactive,
                millpond::BlockState::Unmapped => {
                    rows.extend(open.take());
                    continue;
                }
            };
            let row = open.get_or_insert_with(|| SegmentRow {
                address: view.address + block.offset,
                total: 0,
                large: view.side == Side::Large,
                stream: recorded_stream(view.stream),
                blocks: Vec::new(),
            });
            row.total += block.size;
            row.blocks.push(BlockRow { size: block.size, requested: block.requested, state });
        }
        rows.extend(open);
    }
    rows.sort_by_key(|row| row.address);
    rows
}

/// Returns whether two layouts are equal. Requested sizes are compared on active blocks only: on free blocks they are
/// left over from the last use.
fn same_layout(recorded: &[SegmentRow], ours: &[SegmentRow]) -> bool {
    let same_block = |a: &BlockRow, b: &BlockRow| {
        (a.size, a.state) == (b.size, b.state) && (a.state == BlockState::Inactive || a.requested == b.requested)
    };
    recorded.len() == ours.len()
        && recorded.iter().zip(ours).all(|(a, b)| {
            (a.address, a.total, a.large, a.stream) == (b.address, b.total, b.large, b.stream)
                && a.blocks.len() == b.blocks.len()
                && a.blocks.iter().zip(&b.blocks).all(|(a, b)| same_block(a, b))
        })
}

/// Compares the four amounts in PyTorch's message that come from the allocator.
fn compare_amounts(message: &str, error: &OutOfMemory) -> Result<(), String> {
    let report = error.report();
    let unallocated = report.reserved_bytes - report.allocated_bytes;
    let amounts = [
        ("tried", between(message, "Tried to allocate ", ". GPU"), Some(report.tried_bytes)),
        ("allowed", before(message, " allowed;"), report.limit_bytes),
        ("allocated", between(message, "Of the allocated memory ", " is allocated"), Some(report.allocated_bytes)),
        ("unallocated", between(message, ", and ", " is reserved by PyTorch but unallocated"), Some(unallocated)),
    ];
    let mut differences = String::new();
    for (name, recorded, ours) in amounts {
        let ours = ours.map(format_bytes);
        if recorded != ours.as_deref() {
            let _ = writeln!(differences, "  {name}: recorded {recorded:?}, ours {ours:?}");
        }
    }
    if differences.is_empty() { Ok(()) } else { Err(differences) }
}

/// Returns the text between two phrases.
fn between<'a>(text: &'a str, left: &str, right: &str) -> Option<&'a str> {
    let end = text.find(right)?;
    let start = text[..end].rfind(left)? + left.len();
    Some(&text[start..end])
}

/// Returns the amount (number and unit) directly before a phrase.
fn before<'a>(text: &'a str, right: &str) -> Option<&'a str> {
    let head = &text[..text.find(right)?];
    let mut spaces = head.rmatch_indices(' ').map(|(at, _)| at);
    let start = spaces.nth(1)? + 1;
    Some(&head[start..])
}
