//! Recording: the program's requests as a trace, and the core's decisions as a log.
//!
//! While it is off, it costs one relaxed load for each operation. While it is on, every operation takes one lock that
//! all streams share.

use std::collections::HashMap;

use millpond_backend::{Backend, Point, StreamId};
use millpond_core::{BlockId, Grant, PageCall, SegmentId, ShardId, Slot, Step};

use crate::lane::Lane;
use crate::state::{Held, State};
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::trace::{Event, Header, Trace};

/// A decision, independent of device time: the same trace gives the same decisions on every device that reuses in
/// order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Decision {
    /// A block was handed out.
    Grant {
        /// The stream of the request.
        stream: StreamId,
        /// The requested size, in bytes.
        requested: u64,
        /// The segment.
        segment: SegmentId,
        /// The offset in the segment, in bytes.
        offset: u64,
        /// The size of the block, in bytes.
        size: u64,
    },
    /// A block was freed.
    Free {
        /// The segment.
        segment: SegmentId,
        /// The offset in the segment, in bytes.
        offset: u64,
    },
    /// The core asked for a driver's action or ended a plan.
    Step {
        /// The name of the step.
        name: &'static str,
        /// The bytes that the step concerns, 0 where it has none.
        bytes: u64,
    },
}

pub(crate) struct Records {
    on: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    trace: Option<Recorder>,
    decisions: Option<Vec<Decision>>,
}

/// A trace that is being recorded.
#[derive(Default)]
struct Recorder {
    events: Vec<Event>,
    streams: u32,
    /// The numbers of the blocks that were handed out since the start, by shard and block.
    blocks: HashMap<(ShardId, BlockId), u32>,
    points: HashMap<Point, u32>,
    allocations: u32,
}

impl Records {
    pub(crate) fn new() -> Self {
        Self { on: AtomicBool::new(false), inner: Mutex::new(Inner::default()) }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub(crate) fn start_trace(&self) {
        self.inner.lock().trace = Some(Recorder::default());
        self.on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn finish_trace(&self) -> Option<Trace> {
        let mut inner = self.inner.lock();
        let recorder = inner.trace.take()?;
        self.on.store(inner.decisions.is_some(), Ordering::Relaxed);
        Some(Trace { header: Header::default(), events: recorder.events, streams: recorder.streams })
    }

    pub(crate) fn start_decisions(&self) {
        self.inner.lock().decisions = Some(Vec::new());
        self.on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn finish_decisions(&self) -> Vec<Decision> {
        let mut inner = self.inner.lock();
        let decisions = inner.decisions.take().unwrap_or_default();
        self.on.store(inner.trace.is_some(), Ordering::Relaxed);
        decisions
    }

    #[cold]
    fn granted(&self, lane: (ShardId, StreamId), requested: u64, segment: SegmentId, grant: &Grant) {
        let (shard, stream) = lane;
        let mut inner = self.inner.lock();
        if let Some(recorder) = &mut inner.trace {
            let id = recorder.allocations;
            recorder.allocations += 1;
            recorder.blocks.insert((shard, grant.block), id);
            recorder.push(stream, Event::Allocate { id, bytes: requested, stream: stream.0 });
        }
        if let Some(decisions) = &mut inner.decisions {
            let Grant { offset, size, .. } = *grant;
            decisions.push(Decision::Grant { stream, requested, segment, offset, size });
        }
    }

    /// Records a free. It is called before the block is freed, so that its number is not assigned again first.
    #[cold]
    fn freed(&self, shard: ShardId, block: BlockId, segment: SegmentId, offset: u64) {
        let mut inner = self.inner.lock();
        if let Some(recorder) = &mut inner.trace
            && let Some(id) = recorder.blocks.remove(&(shard, block))
        {
            recorder.events.push(Event::Free { id });
        }
        if let Some(decisions) = &mut inner.decisions {
            decisions.push(Decision::Free { segment, offset });
        }
    }

    #[cold]
    pub(crate) fn used(&self, shard: ShardId, block: BlockId, stream: StreamId) {
        if let Some(recorder) = &mut self.inner.lock().trace
            && let Some(&id) = recorder.blocks.get(&(shard, block))
        {
            recorder.push(stream, Event::Use { id, stream: stream.0 });
        }
    }

    #[cold]
    pub(crate) fn marked(&self, point: Point) {
        if let Some(recorder) = &mut self.inner.lock().trace {
            recorder.point(point);
        }
    }

    #[cold]
    pub(crate) fn used_until(&self, shard: ShardId, block: BlockId, point: Point) {
        if let Some(recorder) = &mut self.inner.lock().trace
            && let Some(&id) = recorder.blocks.get(&(shard, block))
        {
            // A point taken before the recording began is written as if it was taken now. That is later, so a replay
            // never reuses the memory too early.
            let point = recorder.point(point);
            recorder.events.push(Event::Until { id, point });
        }
    }

    #[cold]
    pub(crate) fn asked(&self, event: Event) {
        if let Some(recorder) = &mut self.inner.lock().trace {
            recorder.events.push(event);
        }
    }

    pub(crate) fn step(&self, step: &Step) {
        if self.is_on()
            && let Some(decisions) = &mut self.inner.lock().decisions
            && let Some((name, bytes)) = name_of(step)
        {
            decisions.push(Decision::Step { name, bytes });
        }
    }
}

impl<B: Backend> State<B> {
    #[cold]
    pub(crate) fn record_grant(&self, lane: &Lane<B>, stream: StreamId, requested: u64, grant: &Grant) {
        let segment = lane.lock().shard.segment_id(grant.slot);
        self.records.granted((lane.shard, stream), requested, segment, grant);
    }

    #[cold]
    pub(crate) fn record_free(&self, lane: &Lane<B>, held: &Held, slot: Slot, offset: u64) {
        let segment = lane.lock().shard.segment_id(slot);
        self.records.freed(lane.shard, held.block, segment, offset);
    }
}

impl Recorder {
    fn push(&mut self, stream: StreamId, event: Event) {
        self.streams = self.streams.max(stream.0 + 1);
        self.events.push(event);
    }

    fn point(&mut self, point: Point) -> u32 {
        let next = self.points.len() as u32;
        let known = *self.points.entry(point).or_insert(next);
        if known == next {
            self.push(point.stream, Event::Mark { point: next, stream: point.stream.0 });
        }
        known
    }
}

/// Returns what a decision log keeps of a step. A grant is logged with its request, and polls depend on device time.
fn name_of(step: &Step) -> Option<(&'static str, u64)> {
    Some(match step {
        Step::Grant(_) | Step::Lend { .. } | Step::Poll(_) | Step::Pause { .. } => return None,
        Step::Refuse(report) => ("refuse", report.tried_bytes),
        Step::Done => ("done", 0),
        Step::Wait(_) => ("wait", 0),
        Step::Synchronize(_) => ("synchronize", 0),
        Step::Reserve { bytes, .. } => ("reserve", *bytes),
        Step::ReserveRange { bytes, .. } => ("reserve_range", *bytes),
        Step::Pages(calls) => (name_of_calls(calls), bytes_of(calls)),
        Step::StreamWait { .. } => ("stream_wait", 0),
        Step::Release { bytes, .. } => ("release", *bytes),
        Step::ReleaseRange { .. } => ("release_range", 0),
    })
}

/// Returns the name of a batch of page calls, which its last call decides.
fn name_of_calls(calls: &[PageCall]) -> &'static str {
    match calls.last() {
        Some(PageCall::Create { .. } | PageCall::Map { .. }) => "map",
        Some(PageCall::Unmap { .. } | PageCall::Release { .. }) | None => "unmap",
    }
}

/// Returns the bytes that the calls create. Pages that move were counted when they were created.
fn bytes_of(calls: &[PageCall]) -> u64 {
    let created = calls.iter().map(|call| if let PageCall::Create { bytes, .. } = call { *bytes } else { 0 });
    created.sum()
}
