//! Sinks of an allocator's events: the program's requests as a trace, and the core's decisions as a log.

use std::collections::HashMap;

use millpond::events::{Event as Told, Sink};
use millpond::{Allocator, SegmentId};
use millpond_backend::{Backend, Point, StreamId};
use millpond_trace::{Event, Header, Trace};

/// Records what a program asks of its allocator, as a trace.
///
/// Costs 24 bytes of host memory for each event and some more for each live block, and a lock that all streams of the
/// allocator share.
#[derive(Default)]
pub struct Recorder {
    events: Vec<Event>,
    streams: u32,
    /// The numbers of the live blocks that were handed out since the start, by segment and offset.
    blocks: HashMap<(SegmentId, u64), u32>,
    points: HashMap<Point, u32>,
    allocations: u32,
}

impl Recorder {
    /// Starts to record an allocator. A recording in progress is dropped.
    pub fn start<B: Backend>(allocator: &Allocator<B>) {
        drop(allocator.set_sink(Self::default()));
    }

    /// Ends the recording and returns the trace; `None` if there was no recording. Blocks that were handed out before
    /// the start do not appear in it.
    pub fn finish<B: Backend>(allocator: &Allocator<B>) -> Option<Trace> {
        allocator.take_sink().map(Self::into_trace)
    }

    /// Returns what was recorded so far.
    fn into_trace(self) -> Trace {
        Trace { header: Header::default(), events: self.events, streams: self.streams }
    }

    fn push(&mut self, stream: StreamId, event: Event) {
        self.streams = self.streams.max(stream.0 + 1);
        self.events.push(event);
    }

    /// Returns the number of a point, which is defined here if it is new.
    fn point(&mut self, point: Point) -> u32 {
        let next = self.points.len() as u32;
        let known = *self.points.entry(point).or_insert(next);
        if known == next {
            self.push(point.stream, Event::Mark { point: next, stream: point.stream.0 });
        }
        known
    }
}

impl Sink for Recorder {
    fn event(&mut self, event: &Told) {
        match *event {
            Told::Grant { stream, requested, segment, offset, .. } => {
                let id = self.allocations;
                self.allocations += 1;
                self.blocks.insert((segment, offset), id);
                self.push(stream, Event::Allocate { id, bytes: requested, stream: stream.0 });
            }
            Told::Free { segment, offset } => {
                if let Some(id) = self.blocks.remove(&(segment, offset)) {
                    self.events.push(Event::Free { id });
                }
            }
            Told::Use { segment, offset, stream } => {
                if let Some(&id) = self.blocks.get(&(segment, offset)) {
                    self.push(stream, Event::Use { id, stream: stream.0 });
                }
            }
            Told::Mark { point } => drop(self.point(point)),
            Told::Until { segment, offset, point } => {
                if let Some(&id) = self.blocks.get(&(segment, offset)) {
                    // A point taken before the recording began is written as if it was taken now. That is later, so a
                    // replay never reuses the memory too early.
                    let point = self.point(point);
                    self.events.push(Event::Until { id, point });
                }
            }
            Told::EmptyCache => self.events.push(Event::EmptyCache),
            // The format holds no more.
            Told::Trim { bytes } => self.events.push(Event::Trim { bytes: bytes.min(i64::MAX as u64) }),
            _ => {}
        }
    }
}

/// A log of decisions, so that runs can be compared: the events [`Grant`](Told::Grant), [`Free`](Told::Free) and
/// [`Step`](Told::Step), which do not depend on the device's time. The same trace gives the same ones on every device
/// that reuses in order.
///
/// Takes 40 bytes of host memory for each decision.
#[derive(Default)]
pub struct DecisionLog(Vec<Told>);

impl DecisionLog {
    /// Starts to log the decisions of an allocator. A log in progress is dropped.
    pub fn start<B: Backend>(allocator: &Allocator<B>) {
        drop(allocator.set_sink(Self::default()));
    }

    /// Ends the log and returns it; empty if there was none.
    pub fn finish<B: Backend>(allocator: &Allocator<B>) -> Vec<Told> {
        allocator.take_sink::<Self>().unwrap_or_default().0
    }
}

impl Sink for DecisionLog {
    fn event(&mut self, event: &Told) {
        if matches!(event, Told::Grant { .. } | Told::Free { .. } | Told::Step { .. }) {
            self.0.push(*event);
        }
    }
}
