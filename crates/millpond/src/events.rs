//! Events: what the program asks of the allocator and what the core decides, told to sinks as they happen.
//!
//! The library keeps no log of its own. A [`Sink`] is told every event and keeps what it wants: `millpond-replay` has
//! one that records a trace and one that logs decisions, and a program can write others.
//!
//! Requests and decisions take the same way, so that one switch serves both: without a sink, an operation reads one
//! flag with a relaxed load and constructs no event. A log of decisions beside it would be a second flag on the hot
//! path, or a second meaning of the first. With a sink, every operation takes one lock that all streams share.

use std::any::Any;

use millpond_backend::{Point, StreamId};
use millpond_core::{Outcome, PageCall, SegmentId, Step};

use crate::notes::switches::Noting;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// Something that happened in an allocator. None of it depends on the device's time, except
/// [`Reached`](Event::Reached), [`Look`](Event::Look), the ticks, and when a program asks: the same requests lead to
/// the same other events on every device that reuses in order.
///
/// From its `Grant` to its `Free`, a block is identified by its segment and the offset in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A block was handed out. Buffers of 0 bytes have no block and no events.
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
    /// A block that is handed out became longer at its place ([`Buffer::grow`](crate::Buffer::grow)). What its last
    /// page had room for is not told: it was added before.
    Grow {
        /// The stream of the block.
        stream: StreamId,
        /// The number of bytes that were added to it.
        added: u64,
        /// The segment.
        segment: SegmentId,
        /// The offset in the segment, in bytes.
        offset: u64,
        /// The size of the block now, in bytes.
        size: u64,
    },
    /// A block is about to be freed.
    Free {
        /// The segment.
        segment: SegmentId,
        /// The offset in the segment, in bytes.
        offset: u64,
    },
    /// A block is used on a stream until its free ([`Buffer::record_stream`](crate::Buffer::record_stream)).
    Use {
        /// The segment.
        segment: SegmentId,
        /// The offset in the segment, in bytes.
        offset: u64,
        /// The stream, which may be the block's own.
        stream: StreamId,
    },
    /// A point was taken ([`Stream::point`](crate::Stream::point) or [`Stream::submit`](crate::Stream::submit)), or a
    /// stream is found at a new tick before it is given memory, frees some or waits. The tick is open: it may cover
    /// what is queued later, too. The same point may be told several times.
    Mark {
        /// The point.
        point: Point,
    },
    /// A block is used until a point is reached ([`Buffer::used_until`](crate::Buffer::used_until)).
    Until {
        /// The segment.
        segment: SegmentId,
        /// The offset in the segment, in bytes.
        offset: u64,
        /// The point, which may have been taken before the sink was set.
        point: Point,
    },
    /// A stream was submitted up to a point, on a device where the application does that
    /// ([`Stream::submit`](crate::Stream::submit)). Submits that are made otherwise are told before the stream is next
    /// given memory, frees some, waits or is looked at, the last one alone. The same point may be told several times.
    Submit {
        /// The point.
        point: Point,
    },
    /// What is queued on a stream from now on waits for a point, on the device
    /// ([`Stream::wait_for`](crate::Stream::wait_for)). Waits that the allocator itself queues are
    /// [steps](Event::Step).
    StreamWait {
        /// The stream that waits.
        stream: StreamId,
        /// The point.
        point: Point,
    },
    /// The program has waited until a point was reached ([`Stream::synchronize`](crate::Stream::synchronize),
    /// [`Allocator::wait`](crate::Allocator::wait), a download).
    HostWait {
        /// The point.
        point: Point,
    },
    /// The allocator has seen that the device has reached a point. The same point may be told several times.
    Reached {
        /// The point.
        point: Point,
    },
    /// The allocator has asked how far streams are, at this time of the clock by which the device's work proceeds. Not
    /// told where the application closes ticks, and not twice for one time.
    Look {
        /// The time, in nanoseconds since any moment.
        nanos: u64,
    },
    /// A request found no cached block that serves it. Steps follow, unless memory has come free meanwhile.
    Miss {
        /// The stream of the request.
        stream: StreamId,
        /// The requested size, in bytes.
        requested: u64,
    },
    /// The driver has refused a call for lack of memory. The allocator goes on with what its policy tries next.
    Refused {
        /// The name of the step, as [`Step`](Event::Step) has it.
        call: &'static str,
        /// The bytes that were asked for.
        bytes: u64,
    },
    /// The program empties the cache.
    EmptyCache,
    /// The program asks to keep at most this number of bytes reserved.
    Trim {
        /// The number of bytes.
        bytes: u64,
    },
    /// The core asked for a driver's action or ended a plan. Grants are events of their own. Questions about the
    /// device's progress and about its budget are none, and pauses neither, because they depend on its time. Nor is a
    /// question to [hooks](crate::Allocator::on_out_of_memory).
    Step {
        /// The name of the step.
        name: &'static str,
        /// The bytes that the step concerns, 0 where it has none.
        bytes: u64,
    },
}

/// A receiver of events, installed with [`Allocator::set_sink`](crate::Allocator::set_sink).
///
/// ```
/// use millpond::Allocator;
/// use millpond::events::{Event, Sink};
/// use millpond_sim::Sim;
///
/// /// Counts the requests that the cache could not serve.
/// struct Misses(u64);
///
/// impl Sink for Misses {
///     fn event(&mut self, event: &Event) {
///         self.0 += u64::from(matches!(event, Event::Miss { .. }));
///     }
/// }
///
/// let allocator = Allocator::new(Sim::new());
/// allocator.set_sink(Misses(0));
/// let stream = allocator.create_stream()?;
/// for _ in 0..10 {
///     drop(stream.allocate(1000)?);
/// }
/// let misses = allocator.take_sink::<Misses>().map(|sink| sink.0);
/// assert_eq!(misses, Some(1), "the first request alone");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Sink: Any + Send {
    /// Takes an event. It is called by the thread that caused the event, under a lock that all streams of the allocator
    /// share: it must not use the allocator, its streams or its buffers, which would wait for that lock forever, and
    /// should be short. It must not panic, because a buffer's drop calls it.
    fn event(&mut self, event: &Event);
}

/// The sinks of an allocator.
pub(crate) struct Sinks {
    /// Whether there is a sink, or something is noted.
    on: AtomicBool,
    /// Whether there is a sink.
    told: AtomicBool,
    inner: Mutex<Vec<Box<dyn Sink>>>,
    /// What is noted of buffers, and of what happens to them.
    pub(crate) noting: Noting,
    /// By stream, the open tick that was told last, or 0.
    open: boxcar::Vec<AtomicU64>,
    /// The time of the look that was told last, or 0.
    looked: AtomicU64,
}

impl Sinks {
    pub(crate) fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            told: AtomicBool::new(false),
            inner: Mutex::new(Vec::new()),
            noting: Noting::new(),
            open: boxcar::Vec::new(),
            looked: AtomicU64::new(0),
        }
    }

    /// Sets the flags anew, after something was turned on or off.
    pub(crate) fn look(&self) {
        self.set_flags(&self.inner.lock());
    }

    fn set_flags(&self, sinks: &[Box<dyn Sink>]) {
        // Whoever is new knows nothing.
        self.open.iter().for_each(|(_, open)| open.store(0, Ordering::Relaxed));
        self.looked.store(0, Ordering::Relaxed);
        self.told.store(!sinks.is_empty(), Ordering::Relaxed);
        self.on.store(!sinks.is_empty() || self.noting.is_on(), Ordering::Relaxed);
    }

    /// Returns whether there is a sink to tell, or something is noted.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Returns whether there is a sink to tell.
    #[inline]
    pub(crate) fn is_told(&self) -> bool {
        self.told.load(Ordering::Relaxed)
    }

    /// Returns whether somebody keeps what happens: a sink, or a history. Labels of live buffers alone do not.
    #[inline]
    pub(crate) fn records(&self) -> bool {
        self.is_told() || self.noting.records()
    }

    /// Takes in which tick of a stream is open. Returns whether that is a later one than was told before.
    pub(crate) fn is_new(&self, Point { stream, tick }: Point) -> bool {
        let at = stream.0 as usize;
        loop {
            match self.open.get(at) {
                Some(open) => return open.fetch_max(tick.0, Ordering::Relaxed) < tick.0,
                None => self.open.push(AtomicU64::new(0)),
            };
        }
    }

    /// Takes in the time of a look, in nanoseconds. Returns whether that is another one than was told before.
    pub(crate) fn is_new_time(&self, nanos: u64) -> bool {
        self.looked.swap(nanos, Ordering::Relaxed) != nanos
    }

    /// Adds a sink. Returns the one of the same type that it replaces.
    pub(crate) fn set<S: Sink>(&self, sink: S) -> Option<S> {
        let mut sinks = self.inner.lock();
        let replaced = remove(&mut sinks);
        sinks.push(Box::new(sink));
        self.set_flags(&sinks);
        replaced
    }

    /// Removes the sink of a type and returns it.
    pub(crate) fn take<S: Sink>(&self) -> Option<S> {
        let mut sinks = self.inner.lock();
        let taken = remove(&mut sinks);
        self.set_flags(&sinks);
        taken
    }

    /// Passes an event to every sink.
    #[cold]
    pub(crate) fn tell(&self, event: &Event) {
        self.inner.lock().iter_mut().for_each(|sink| sink.event(event));
    }

    /// Passes an event to every sink, if there are any.
    pub(crate) fn tell_if_told(&self, event: &Event) {
        if self.is_told() {
            self.tell(event);
        }
    }

    /// Reports to the sinks, if there are any, that the driver has refused a step.
    pub(crate) fn refused(&self, step: &Step, outcome: &Outcome) {
        let is_refused = matches!(outcome, Outcome::Refused | Outcome::Stopped { refused: true, .. });
        if is_refused
            && self.is_told()
            && let Some((call, bytes)) = name_of(step)
        {
            self.tell(&Event::Refused { call, bytes });
        }
    }

    pub(crate) fn step(&self, step: &Step) {
        if self.is_told()
            && let Some((name, bytes)) = name_of(step)
        {
            self.tell(&Event::Step { name, bytes });
        }
    }
}

/// Removes the sink of a type from a list. There is at most one.
fn remove<S: Sink>(sinks: &mut Vec<Box<dyn Sink>>) -> Option<S> {
    let is_it = |sink: &dyn Any| sink.is::<S>();
    let at = sinks.iter().position(|sink| is_it(&**sink))?;
    let sink: Box<dyn Any> = sinks.remove(at);
    sink.downcast().ok().map(|sink| *sink)
}

/// Returns what sinks are told of a step. A grant is told with its request, queries depend on device time, and what a
/// hook answers is the program's.
fn name_of(step: &Step) -> Option<(&'static str, u64)> {
    Some(match step {
        Step::Grant(_) | Step::Lend { .. } | Step::Grown(_) | Step::Appeal(_) => return None,
        Step::Poll(_) | Step::Budget | Step::Pause { .. } => return None,
        Step::Stuck(_) => ("stuck", 0),
        Step::Refuse(report) => ("refuse", report.tried_bytes),
        Step::Denied(_) => ("deny", 0),
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

/// Returns the bytes that the calls create. Pages that are mapped once more were counted when they were created.
fn bytes_of(calls: &[PageCall]) -> u64 {
    let created = calls.iter().map(|call| if let PageCall::Create { bytes, .. } = call { *bytes } else { 0 });
    created.sum()
}
