//! PyTorch's snapshots: a device's history becomes a trace.
//!
//! The history is the last events alone, so blocks that were allocated before them come first, in the order of their
//! addresses: those that an event of the history frees, and those that the segments have and of which there is no
//! event. The rest follows the history: `alloc` and `free_requested` are allocations and frees, and `free_completed` is
//! a completion where it is not the very next event of the block. Blocks that were freed and not completed when the
//! snapshot was taken complete at the end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use millpond_snapshot::{Action, Snapshot, Stack, State, TraceEntry};
use millpond_trace::{BYTES_MAX, Event, Limits};
use serde_json::{Map, Value};

use crate::counts::VALUES_OF_AN_EVENT;
use crate::error::ImportError;
use crate::places::Spot;
use crate::program::{Program, Recorded};
use crate::{Options, part};

/// A block: the n-th that was allocated before the history, or in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Block {
    Before(u64),
    Within(usize),
}

/// What happens to a block, before blocks have their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Allocate(usize),
    /// A request that was refused: the bytes and the stream are those of this block.
    Refuse(usize),
    Free(Block),
    Complete(Block),
}

impl Step {
    /// Returns the block that it completes.
    fn completed(&self) -> Option<Block> {
        if let Step::Complete(block) = self { Some(*block) } else { None }
    }
}

/// A block that was allocated before the history.
struct Before {
    bytes: u64,
    stream: u64,
    /// Whether it was freed before the history, too.
    is_freed: bool,
    /// Where it was allocated, if the snapshot has it.
    stack: Option<Stack>,
}

/// The history of a device as steps.
#[derive(Default)]
struct History {
    /// The steps, each with the number of its event.
    steps: Vec<(usize, Step)>,
    /// Blocks by their address.
    before: BTreeMap<u64, Before>,
    /// The bytes and streams of the blocks that are allocated in the history.
    within: Vec<(u64, u64)>,
    /// The blocks that are allocated or freed without completion, and which of the two.
    now: HashMap<u64, (Block, bool)>,
    /// The addresses that any event told of.
    seen: HashSet<u64>,
    /// Whether refused requests become allocations.
    with_refused: bool,
    /// The bytes and the addresses of the segments that the driver gave, in order.
    given: Vec<(u64, u64)>,
    /// Whether any segment can grow.
    is_expandable: bool,
    left: BTreeMap<String, u64>,
    /// Whether the call stacks, labels and times of events are of use.
    with_details: bool,
    /// Whether what is left out is of the part that becomes the trace.
    is_in_part: bool,
}

/// The most segments whose addresses are kept. Each takes at most 44 bytes of the header, whose line has at most 1 MiB.
const SEGMENTS_MAX: usize = 1 << 14;

/// Returns the limits of a snapshot that go with those of a trace.
pub(crate) fn limits(limits: &Limits) -> millpond_snapshot::Limits {
    let values = limits.events.saturating_mul(VALUES_OF_AN_EVENT);
    millpond_snapshot::Limits { bytes: limits.text_bytes, expansion: limits.expansion, values }
}

/// Adds the history of a snapshot's device to a program.
///
/// # Errors
///
/// Returns what exceeds a limit, or that a device has to be chosen.
pub(crate) fn record(snapshot: &Snapshot, options: &Options, program: &mut Program) -> Result<Recorded, ImportError> {
    let device = choose(snapshot, options.device)?;
    let no_trace = Vec::new();
    let trace = snapshot.device_traces.get(device).unwrap_or(&no_trace);
    program.select(part(options, |since| since_time(trace, since))?);
    let (with_refused, with_details) = (options.refused, !options.without_details);
    let mut history = History { with_refused, with_details, ..History::default() };
    for (number, entry) in trace.iter().enumerate() {
        history.is_in_part = program.has(number as u64);
        history.entry(number, entry);
    }
    history.is_in_part = true;
    history.segments(snapshot, device);
    history.end(trace.len());
    let of_part = trace.iter().enumerate().filter(|(number, _)| program.has(*number as u64));
    let mut header = header(snapshot, of_part.map(|(_, entry)| entry));
    if let Some(segments) = history.segment_addresses().filter(|_| program.has(0)) {
        header.insert("segment_addresses".into(), segments.into());
    }
    history.emit(program, trace).map_err(|(entry, problem)| ImportError::Event { device, entry, problem })?;
    Ok(Recorded { device: Some(device), header, events: trace.len() as u64 })
}

/// Returns the devices that have any memory or events.
fn devices(snapshot: &Snapshot) -> Vec<usize> {
    let with_segments = snapshot.segments.iter().filter_map(|segment| usize::try_from(segment.device).ok());
    let traces = snapshot.device_traces.iter().enumerate();
    let with_events = traces.filter(|(_, trace)| !trace.is_empty()).map(|(device, _)| device);
    let mut devices: Vec<usize> = with_segments.chain(with_events).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

fn choose(snapshot: &Snapshot, asked: Option<usize>) -> Result<usize, ImportError> {
    let mut devices = devices(snapshot);
    match asked {
        Some(device) if devices.contains(&device) => Ok(device),
        Some(device) => {
            devices.truncate(64);
            Err(ImportError::NoDevice { device, devices })
        }
        None => match devices[..] {
            [] => Ok(0),
            [device] => Ok(device),
            _ => {
                devices.truncate(64);
                Err(ImportError::Devices { devices })
            }
        },
    }
}

/// Returns where an event happened. Its label is what the program told about itself, or else what the block was for.
fn spot(entry: &TraceEntry) -> Spot {
    let label = [&entry.user_metadata, &entry.category].into_iter().flatten().find(|text| !text.is_empty()).cloned();
    let micros = entry.time_us.and_then(|time| u64::try_from(time).ok());
    Spot { stack: entry.frames.clone(), label, micros }
}

/// Returns the number of the first entry that is at most so long before the last one.
fn since_time(trace: &[TraceEntry], since: Duration) -> Option<u64> {
    let last = trace.iter().rev().find_map(|entry| entry.time_us)?;
    let first = last.saturating_sub(i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
    let number = trace.iter().position(|entry| entry.time_us.is_some_and(|time| time >= first))?;
    Some(number as u64)
}

fn header<'a>(snapshot: &Snapshot, trace: impl DoubleEndedIterator<Item = &'a TraceEntry>) -> Map<String, Value> {
    let mut header = Map::new();
    if let Some(Value::String(conf)) = snapshot.allocator_settings.get("PYTORCH_CUDA_ALLOC_CONF")
        && !conf.is_empty()
    {
        header.insert("conf".into(), conf.as_str().into());
    }
    let mut times = trace.filter_map(|entry| entry.time_us);
    if let Some(first) = times.next()
        && let Some(micros) = times.next_back().and_then(|last| last.checked_sub(first)).filter(|micros| *micros > 0)
    {
        header.insert("seconds".into(), (micros as f64 / 1e6).into());
    }
    header
}

impl History {
    fn leave(&mut self, what: &str) {
        if !self.is_in_part {
            return;
        }
        match self.left.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(self.left.insert(what.to_owned(), 1)),
        }
    }

    fn step(&mut self, number: usize, step: Step) {
        self.steps.push((number, step));
    }

    fn entry(&mut self, number: usize, entry: &TraceEntry) {
        if !self.with_details && entry.frames.as_ref().is_some_and(|stack| !stack.frames().is_empty()) {
            self.leave("call stacks of events");
        }
        let address = entry.addr.unwrap_or(0);
        match &entry.action {
            Action::Alloc => self.allocate(number, address, entry),
            Action::FreeRequested => self.free(number, address, entry),
            Action::FreeCompleted => self.complete(number, address, entry),
            Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap => {
                match &entry.action {
                    Action::SegmentAlloc if address > 0 => self.given.push((entry.size, address)),
                    Action::SegmentMap => self.is_expandable = true,
                    _ => {}
                }
                self.leave("segments that were allocated, released, mapped or unmapped");
            }
            Action::Oom if self.with_refused && (1..=BYTES_MAX).contains(&entry.size) => self.refused(number, entry),
            Action::Oom => self.leave("allocations that were refused"),
            Action::Snapshot => self.leave("snapshots that were taken"),
            Action::Annotate => self.leave("annotations of blocks"),
            Action::Other(name) => {
                let known = self.left.len() < 50;
                let name: String = name.chars().take(40).collect();
                self.leave(&if known { format!("events of the unknown kind {name:?}") } else { "other events".into() });
            }
        }
    }

    fn allocate(&mut self, number: usize, address: u64, entry: &TraceEntry) {
        self.seen.insert(address);
        if entry.size == 0 {
            return self.leave("allocations of 0 bytes");
        }
        if entry.pool_id.is_some_and(|pool| pool != (0, 0)) {
            self.leave("allocations in private pools, which become allocations of the default pool");
        }
        match self.now.remove(&address) {
            Some((block, false)) => {
                self.leave("frees that the history lacks, found as the address is allocated again");
                self.step(number, Step::Free(block));
            }
            Some((block, true)) => {
                self.leave("completions that the history lacks, found as the address is allocated again");
                self.step(number, Step::Complete(block));
            }
            None => {}
        }
        let within = self.within.len();
        self.within.push((entry.size, entry.stream));
        self.now.insert(address, (Block::Within(within), false));
        self.step(number, Step::Allocate(within));
    }

    fn refused(&mut self, number: usize, entry: &TraceEntry) {
        let within = self.within.len();
        self.within.push((entry.size, entry.stream));
        self.step(number, Step::Refuse(within));
    }

    fn free(&mut self, number: usize, address: u64, entry: &TraceEntry) {
        let block = match self.now.get(&address) {
            Some((block, false)) => *block,
            None if entry.size > 0 && self.seen.insert(address) => self.add_before(address, entry, false),
            _ => return self.leave("frees of blocks that are not allocated"),
        };
        self.now.insert(address, (block, true));
        self.step(number, Step::Free(block));
    }

    fn complete(&mut self, number: usize, address: u64, entry: &TraceEntry) {
        let block = match self.now.get(&address) {
            Some((block, true)) => *block,
            None if entry.size > 0 && self.seen.insert(address) => self.add_before(address, entry, true),
            _ => return self.leave("completions of blocks that are not freed"),
        };
        self.now.remove(&address);
        // A completion that follows its free at once is no event of its own.
        if self.steps.last().is_none_or(|(_, step)| *step != Step::Free(block)) {
            self.step(number, Step::Complete(block));
        }
    }

    fn add_before(&mut self, address: u64, entry: &TraceEntry, is_freed: bool) -> Block {
        self.before.insert(address, Before { bytes: entry.size, stream: entry.stream, is_freed, stack: None });
        Block::Before(address)
    }

    /// Adds the blocks that the segments have and of which there is no event.
    fn segments(&mut self, snapshot: &Snapshot, device: usize) {
        for segment in &snapshot.segments {
            if usize::try_from(segment.device) != Ok(device) {
                continue;
            }
            self.is_expandable |= segment.is_expandable == Some(true);
            for block in &segment.blocks {
                let is_freed = match block.state {
                    State::Allocated => false,
                    State::PendingFree => true,
                    State::Inactive | State::Other(_) => continue,
                };
                let bytes = if block.requested_size > 0 { block.requested_size } else { block.size };
                if bytes == 0 || !self.seen.insert(block.address) {
                    continue;
                }
                self.before.insert(
                    block.address,
                    Before { bytes, stream: segment.stream, is_freed, stack: Some(block.frames.clone()) },
                );
                self.now.insert(block.address, (Block::Before(block.address), is_freed));
            }
        }
    }

    /// Returns the bytes and the address of each segment that the driver gave, in order. `None` where a replay
    /// could not follow them: segments can grow, or the history lacks its beginning, and so the first of them.
    fn segment_addresses(&self) -> Option<Vec<Value>> {
        let decide = !self.given.is_empty() && !self.is_expandable && self.before.is_empty();
        let given = self.given.iter().take(SEGMENTS_MAX);
        decide.then(|| given.map(|&(bytes, address)| vec![bytes, address].into()).collect())
    }

    /// Completes what was freed and is not complete at the end of the history.
    fn end(&mut self, number: usize) {
        let pending = self.now.iter().filter(|(_, (_, is_freed))| *is_freed);
        let mut pending: Vec<(u64, Block)> = pending.map(|(address, (block, _))| (*address, *block)).collect();
        pending.sort_unstable_by_key(|(address, _)| *address);
        let count = pending.len() as u64;
        if count > 0 {
            self.left.insert("blocks still in use by the device in the end, which complete there".into(), count);
        }
        for (_, block) in pending {
            self.step(number, Step::Complete(block));
        }
    }

    /// Numbers the blocks and adds all events to the program.
    fn emit(self, program: &mut Program, trace: &[TraceEntry]) -> Result<(), (usize, crate::TextProblem)> {
        let mut before = HashMap::new();
        for (address, block) in &self.before {
            let start = |problem| (0, problem);
            let stack = block.stack.clone().filter(|_| self.with_details);
            program.at(0, Spot { stack, ..Spot::default() });
            let stream = program.stream(block.stream).map_err(start)?;
            let id = program.allocate(block.bytes, stream).map_err(start)?.id;
            before.insert(*address, id);
        }
        program.at(0, Spot::default());
        for (address, _) in self.before.iter().filter(|(_, block)| block.is_freed) {
            program.free_until_complete(before[address]).map_err(|problem| (0, problem))?;
        }
        let complete: HashSet<Block> = self.steps.iter().filter_map(|(_, step)| step.completed()).collect();
        let mut within = vec![0; self.within.len()];
        for (number, step) in self.steps {
            let id = |block| match block {
                Block::Before(address) => before[&address],
                Block::Within(index) => within[index],
            };
            let entry = trace.get(number).filter(|_| self.with_details);
            program.at(number as u64, entry.map_or(Spot::default(), spot));
            let added = match step {
                Step::Free(block) if complete.contains(&block) => program.free_until_complete(id(block)),
                Step::Free(block) => program.push(Event::Free { id: id(block) }),
                Step::Complete(block) => program.push(Event::Complete { id: id(block) }),
                Step::Refuse(index) => {
                    let (bytes, stream) = self.within[index];
                    let stream = program.stream(stream).map_err(|problem| (number, problem))?;
                    program.refuse(bytes, stream)
                }
                Step::Allocate(index) => {
                    let (bytes, stream) = self.within[index];
                    let stream = program.stream(stream).map_err(|problem| (number, problem))?;
                    program.allocate(bytes, stream).map(|live| within[index] = live.id)
                }
            };
            added.map_err(|problem| (number, problem))?;
        }
        program.begin_with(before.len() as u64);
        for (what, count) in self.left {
            program.leave_many(&what, count);
        }
        Ok(())
    }
}
