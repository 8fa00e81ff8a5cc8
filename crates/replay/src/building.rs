//! A trace that is being made of what happened to an allocator.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use millpond::SegmentId;
use millpond_backend::{Point, StreamId, Tick};
use millpond_trace::{Details, Event, Header, Place as At, Trace};

/// The place of a block: no two live ones have the same.
pub(crate) type Place = (SegmentId, u64);

/// The events so far, and the numbers that blocks and points have in them.
#[derive(Default)]
pub(crate) struct Building {
    events: Vec<Event>,
    streams: u32,
    /// The numbers of the live blocks.
    blocks: HashMap<Place, u32>,
    /// The numbers of what live blocks have grown by. The trace format has no growth: each is a block of its own, which
    /// is used and freed with the first one.
    grown: HashMap<Place, Vec<u32>>,
    points: BTreeMap<(StreamId, Tick), u32>,
    /// Of each stream the newest tick that was submitted, and the newest point that was seen to be reached.
    submitted: HashMap<StreamId, Tick>,
    reached: HashMap<StreamId, u32>,
    allocations: u32,
    details: Details,
    /// What is known of the events that are added next.
    now: At,
}

impl Building {
    /// Says where and when the events happen that are added next: in a frame, under a tag, and so long after the
    /// beginning.
    pub(crate) fn at(&mut self, frame: Option<&str>, tag: Option<&str>, time: Duration) {
        let stack = self.details.stack(frame);
        let label = tag.map(|tag| self.details.label(tag));
        self.now = At { stack, label, micros: u64::try_from(time.as_micros()).ok() };
    }

    fn push_on(&mut self, stream: StreamId, event: Event) {
        self.streams = self.streams.max(stream.0 + 1);
        self.push(event);
    }

    fn push(&mut self, event: Event) {
        self.details.push(self.events.len(), self.now);
        self.events.push(event);
    }

    /// Adds an allocation. The trace format has none of 0 bytes.
    pub(crate) fn allocate(&mut self, place: Place, bytes: u64, stream: StreamId) {
        let id = self.allocate_nowhere(bytes, stream);
        self.blocks.insert(place, id);
    }

    /// Adds the growth of a block; nothing for a block that is not known.
    pub(crate) fn grow(&mut self, place: Place, bytes: u64, stream: StreamId) {
        if self.blocks.contains_key(&place) {
            let id = self.allocate_nowhere(bytes, stream);
            self.grown.entry(place).or_default().push(id);
        }
    }

    /// Returns the numbers of a block and of what it has grown by; none for a block that is not known.
    fn numbers(&self, place: Place) -> Vec<u32> {
        let grown = self.grown.get(&place).into_iter().flatten();
        self.blocks.get(&place).into_iter().chain(grown).copied().collect()
    }

    fn allocate_nowhere(&mut self, bytes: u64, stream: StreamId) -> u32 {
        let id = self.allocations;
        self.allocations += 1;
        self.push_on(stream, Event::Allocate { id, bytes: bytes.max(1), stream: stream.0 });
        id
    }

    /// Adds a request that was refused: an allocation that is freed at once.
    pub(crate) fn refused(&mut self, bytes: u64, stream: StreamId) {
        let id = self.allocate_nowhere(bytes, stream);
        self.push(Event::Free { id });
    }

    /// Adds a free; nothing for a block that is not known.
    pub(crate) fn free(&mut self, place: Place) {
        for id in self.numbers(place) {
            self.push(Event::Free { id });
        }
        self.blocks.remove(&place);
        self.grown.remove(&place);
    }

    /// Adds a use on another stream; nothing for a block that is not known.
    pub(crate) fn used_on(&mut self, place: Place, stream: StreamId) {
        for id in self.numbers(place) {
            self.push_on(stream, Event::Use { id, stream: stream.0 });
        }
    }

    /// Adds a use until a point; nothing for a block that is not known.
    pub(crate) fn used_until(&mut self, place: Place, point: Point) {
        for id in self.numbers(place) {
            let point = self.point(point);
            self.push(Event::Until { id, point });
        }
    }

    /// Returns the number of a point, which is defined here if it is new. A point that was taken before the trace began
    /// is so defined later than it was taken, so that a replay never reuses the memory too early.
    pub(crate) fn point(&mut self, point: Point) -> u32 {
        let next = self.points.len() as u32;
        let known = *self.points.entry((point.stream, point.tick)).or_insert(next);
        if known == next {
            self.push_on(point.stream, Event::Mark { point: next, stream: point.stream.0 });
        }
        known
    }

    /// Adds that a stream was submitted up to a point; nothing if it was before.
    pub(crate) fn submitted(&mut self, point: Point) {
        let newest = self.submitted.entry(point.stream).or_default();
        if *newest < point.tick {
            *newest = point.tick;
            self.point(point);
            self.push_on(point.stream, Event::Submit { stream: point.stream.0 });
        }
    }

    /// Adds that a stream waits for a point on the device.
    pub(crate) fn stream_waits(&mut self, stream: StreamId, point: Point) {
        // Where the application submits, a wait takes a point that was submitted.
        if !self.submitted.is_empty() {
            self.submitted(point);
        }
        let point = self.point(point);
        self.push_on(stream, Event::StreamWait { stream: stream.0, point });
    }

    /// Adds that the program has waited for a point.
    pub(crate) fn host_waits(&mut self, point: Point) {
        let point = self.point(point);
        self.push(Event::HostWait { point });
    }

    /// Adds that a stream was seen to have reached a point: the newest one that is known up to there, unless that was
    /// reached before.
    pub(crate) fn reached(&mut self, point: Point) {
        let up_to = (point.stream, Tick::ZERO)..=(point.stream, point.tick);
        let Some((_, &newest)) = self.points.range(up_to).next_back() else { return };
        if self.reached.get(&point.stream).is_none_or(|&before| before != newest) {
            self.reached.insert(point.stream, newest);
            self.push(Event::Reached { point: newest });
        }
    }

    pub(crate) fn empty_cache(&mut self) {
        self.push(Event::EmptyCache);
    }

    pub(crate) fn trim(&mut self, bytes: u64) {
        // The format holds no more.
        self.push(Event::Trim { bytes: bytes.min(i64::MAX as u64) });
    }

    pub(crate) fn into_trace(self) -> Trace {
        Trace { header: Header::default(), events: self.events, streams: self.streams, details: self.details }
    }
}
