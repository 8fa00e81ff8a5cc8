//! A trace that is being made of what happened to an allocator.

use std::collections::HashMap;
use std::time::Duration;

use millpond::SegmentId;
use millpond_backend::{Point, StreamId, Tick};
use millpond_trace::{Details, Event, Header, Place as At, Trace};

use crate::ticks::Ticks;

/// The place of a block: no two live ones have the same.
pub(crate) type Place = (SegmentId, u64);

/// A block that is alive.
struct Live {
    /// Its number, and those of what it has grown by. The trace format has no growth: each is a block of its own, which
    /// is used and freed with the first one.
    numbers: Vec<u32>,
    /// The streams that use it: first the one that it was allocated on.
    streams: Vec<StreamId>,
}

/// The events so far, and the numbers that blocks have in them.
#[derive(Default)]
pub(crate) struct Building {
    events: Vec<Event>,
    streams: u32,
    blocks: HashMap<Place, Live>,
    ticks: Ticks,
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
        self.blocks.insert(place, Live { numbers: vec![id], streams: vec![stream] });
    }

    /// Adds the growth of a block; nothing for a block that is not known.
    pub(crate) fn grow(&mut self, place: Place, bytes: u64, stream: StreamId) {
        if self.blocks.contains_key(&place) {
            let id = self.allocate_nowhere(bytes, stream);
            self.blocks.entry(place).and_modify(|block| block.numbers.push(id));
        }
    }

    fn allocate_nowhere(&mut self, bytes: u64, stream: StreamId) -> u32 {
        let id = self.allocations;
        self.allocations += 1;
        self.ticks.sees(stream);
        self.push_on(stream, Event::Allocate { id, bytes: bytes.max(1), stream: stream.0 });
        self.ticks.queued(stream, self.events.len());
        id
    }

    /// Adds a request that was refused: an allocation that is freed at once.
    pub(crate) fn refused(&mut self, bytes: u64, stream: StreamId) {
        let id = self.allocate_nowhere(bytes, stream);
        self.push(Event::Free { id });
    }

    /// Adds a free; nothing for a block that is not known.
    pub(crate) fn free(&mut self, place: Place) {
        let Some(Live { numbers, streams }) = self.blocks.remove(&place) else { return };
        numbers.into_iter().for_each(|id| self.push(Event::Free { id }));
        for stream in streams {
            self.ticks.queued(stream, self.events.len());
            self.ticks.sees(stream);
        }
    }

    /// Adds a use on another stream; nothing for a block that is not known.
    pub(crate) fn used_on(&mut self, place: Place, stream: StreamId) {
        let Some(block) = self.blocks.get_mut(&place) else { return };
        block.streams.push(stream);
        self.ticks.sees(stream);
        let numbers = block.numbers.clone();
        numbers.into_iter().for_each(|id| self.push_on(stream, Event::Use { id, stream: stream.0 }));
        self.ticks.queued(stream, self.events.len());
    }

    /// Adds a use until a point; nothing for a block that is not known.
    pub(crate) fn used_until(&mut self, place: Place, point: Point) {
        let Some(block) = self.blocks.get(&place) else { return };
        let point = self.ticks.number(point);
        let numbers = block.numbers.clone();
        numbers.into_iter().for_each(|id| self.push(Event::Until { id, point }));
    }

    /// Takes in which tick of a stream is open.
    pub(crate) fn open(&mut self, point: Point) {
        self.ticks.opens(point);
    }

    /// Adds that a stream was submitted up to a point; nothing if it was before.
    pub(crate) fn submitted(&mut self, point: Point) {
        let stream = point.stream;
        let newest = self.submitted.entry(stream).or_default();
        if *newest < point.tick {
            *newest = point.tick;
            if self.ticks.submits(point) {
                self.push_on(stream, Event::Submit { stream: stream.0 });
            }
        }
    }

    /// Adds that a stream waits for a point on the device.
    pub(crate) fn stream_waits(&mut self, stream: StreamId, point: Point) {
        // Where the application submits, a wait takes a point that was submitted.
        if !self.submitted.is_empty() {
            self.submitted(point);
        }
        let point = self.ticks.number(point);
        self.push_on(stream, Event::StreamWait { stream: stream.0, point });
        self.ticks.queued(stream, self.events.len());
        self.ticks.sees(stream);
    }

    /// Adds that the program has waited for a point.
    pub(crate) fn host_waits(&mut self, point: Point) {
        let point = self.ticks.number(point);
        self.push(Event::HostWait { point });
    }

    /// Adds that a stream was seen to have reached a point: the newest one that is known up to there, unless that was
    /// reached before.
    pub(crate) fn reached(&mut self, point: Point) {
        let Some(newest) = self.ticks.newest(point) else { return };
        if self.reached.get(&point.stream).is_none_or(|&before| before != newest) {
            self.reached.insert(point.stream, newest);
            self.push(Event::Reached { point: newest });
        }
    }

    /// Adds that the device was asked how far it is, at a time of its clock.
    pub(crate) fn look(&mut self, nanos: u64) {
        self.push(Event::Look { nanos });
    }

    pub(crate) fn empty_cache(&mut self) {
        self.push(Event::EmptyCache);
    }

    pub(crate) fn trim(&mut self, bytes: u64) {
        // The format holds no more.
        self.push(Event::Trim { bytes: bytes.min(i64::MAX as u64) });
    }

    pub(crate) fn into_trace(self) -> Trace {
        let Self { events, mut details, ticks, .. } = self;
        let streams = self.streams.max(ticks.streams());
        let (events, places) = ticks.put_into(events);
        details.make_room(&places);
        Trace { header: Header::default(), events, streams, details }
    }
}
