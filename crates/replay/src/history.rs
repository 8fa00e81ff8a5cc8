//! Traces of histories: what an allocator remembers of a program, to be replayed under other policies.

use std::collections::HashMap;

use millpond::history::{Action, Entry, History};
use millpond::snapshot::Snapshot;
use millpond::{BlockState, SegmentId};
use millpond_backend::{Point, StreamId};
use millpond_trace::{Event, Header, Trace};

/// The place of a block: no two live ones have the same.
type Place = (SegmentId, u64);

/// Returns a trace of the requests in a history. Replayed under several policies, with the limit of the allocator, it
/// tells which of them would have served a request that was refused: such a request is in the trace as an allocation
/// that is freed at once.
///
/// Where older entries are lost, blocks that are freed in the history and not allocated there are allocated at the
/// beginning. Those that outlive it are not known; [`trace_of_snapshot`] knows them.
///
/// ```
/// use millpond::Allocator;
/// use millpond::history::Recording;
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::new(Sim::new());
/// allocator.record_history(Recording::all(1000));
/// drop(allocator.create_stream()?.allocate(1000)?);
/// let trace = millpond_replay::trace_of(&allocator.history());
/// assert_eq!((trace.allocations(), trace.live_peak()), (1, 1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn trace_of(history: &History) -> Trace {
    Builder::build(history, Vec::new())
}

/// Does the same as [`trace_of`] for the history of a snapshot. Blocks that are alive in the snapshot, and not
/// allocated in its history, are allocated at the beginning.
pub fn trace_of_snapshot(snapshot: &Snapshot) -> Trace {
    let mut open: HashMap<Place, u64> = HashMap::new();
    for entry in &snapshot.history.entries {
        match (&entry.action, place_of(entry)) {
            (Action::Alloc, Some(place)) => *open.entry(place).or_default() += 1,
            (Action::FreeRequested, Some(place)) => drop(open.remove(&place)),
            _ => {}
        }
    }
    let mut before = Vec::new();
    for segment in &snapshot.segments {
        for block in segment.blocks.iter().filter(|block| block.state == BlockState::ActiveAllocated) {
            let place = (segment.segment, block.offset);
            if !open.contains_key(&place) {
                before.push((place, block.requested_size, block.stream.unwrap_or(segment.stream)));
            }
        }
    }
    Builder::build(&snapshot.history, before)
}

fn place_of(entry: &Entry) -> Option<Place> {
    Some((entry.segment?, entry.offset))
}

/// A trace that is being made.
#[derive(Default)]
struct Builder {
    events: Vec<Event>,
    streams: u32,
    /// The numbers of the live blocks.
    blocks: HashMap<Place, u32>,
    points: HashMap<Point, u32>,
    allocations: u32,
}

impl Builder {
    fn build(history: &History, before: Vec<(Place, u64, StreamId)>) -> Trace {
        let mut builder = Self::default();
        // Those that outlive the history come first: they are the oldest ones.
        for (place, bytes, stream) in before.into_iter().chain(freed_only(history)) {
            builder.allocate(Some(place), bytes, stream);
        }
        history.entries.iter().for_each(|entry| builder.add(entry));
        Trace { header: Header::default(), events: builder.events, streams: builder.streams }
    }

    fn push(&mut self, stream: StreamId, event: Event) {
        self.streams = self.streams.max(stream.0 + 1);
        self.events.push(event);
    }

    fn allocate(&mut self, place: Option<Place>, bytes: u64, stream: StreamId) -> u32 {
        let id = self.allocations;
        self.allocations += 1;
        if let Some(place) = place {
            self.blocks.insert(place, id);
        }
        self.push(stream, Event::Allocate { id, bytes: bytes.max(1), stream: stream.0 });
        id
    }

    /// Returns the number of a point, which is defined here if it is new. That is later than the program took it, so a
    /// replay never reuses the memory too early.
    fn point(&mut self, point: Point) -> u32 {
        let next = self.points.len() as u32;
        let known = *self.points.entry(point).or_insert(next);
        if known == next {
            self.push(point.stream, Event::Mark { point: next, stream: point.stream.0 });
        }
        known
    }

    fn add(&mut self, entry: &Entry) {
        let block = place_of(entry).and_then(|place| self.blocks.get(&place).copied());
        match (&entry.action, block) {
            (Action::Alloc, _) => {
                self.allocate(place_of(entry), entry.requested, entry.stream);
            }
            (Action::FreeRequested, Some(id)) => {
                if let Some(place) = place_of(entry) {
                    self.blocks.remove(&place);
                }
                self.events.push(Event::Free { id });
            }
            (Action::Use, Some(id)) => self.push(entry.stream, Event::Use { id, stream: entry.stream.0 }),
            (&Action::Until(tick), Some(id)) => {
                let point = self.point(Point { stream: entry.stream, tick });
                self.events.push(Event::Until { id, point });
            }
            (Action::OutOfMemory { .. }, _) => {
                let id = self.allocate(None, entry.requested, entry.stream);
                self.events.push(Event::Free { id });
            }
            (Action::EmptyCache, _) => self.events.push(Event::EmptyCache),
            (Action::Trim, _) => self.events.push(Event::Trim { bytes: entry.size.min(i64::MAX as u64) }),
            _ => {}
        }
    }
}

/// Returns the blocks that are freed in a history and not allocated there before: they are older than its first entry.
fn freed_only(history: &History) -> Vec<(Place, u64, StreamId)> {
    let mut allocated = std::collections::HashSet::new();
    let mut older = Vec::new();
    for entry in &history.entries {
        let Some(place) = place_of(entry) else { continue };
        match entry.action {
            Action::Alloc => drop(allocated.insert(place)),
            Action::FreeRequested if !allocated.remove(&place) => {
                let bytes = if entry.requested > 0 { entry.requested } else { entry.size };
                older.push((place, bytes, entry.stream));
            }
            _ => {}
        }
    }
    older
}
