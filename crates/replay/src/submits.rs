//! Submits of a replay, on devices where the application closes ticks.
//!
//! Where the backend closes ticks, a freed block is complete as soon as the backend is asked, if nothing else is
//! queued. Where the application does, a submit has to come first: here the replay makes it for the program. It
//! calls the backend without the allocator, so that the submit is not counted as the allocator's driver activity.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use millpond::{Allocator, Buffer, Error, Stream};
use millpond_backend::{Backend, BackendError, Closing, Fault, Point, Reuse, StreamId};
use millpond_trace::Event;

/// The most frees without a submit while work is queued. Recorded work takes memory of the driver until it is
/// submitted.
const FREES_MAX: usize = 64;

/// For each block of a trace, the streams besides its own on which it is used.
pub(crate) type Elsewhere = HashMap<u32, Vec<u32>>;

/// Collects the streams on which blocks are used.
pub(crate) fn elsewhere(events: impl Iterator<Item = Event>) -> Elsewhere {
    let mut uses = Elsewhere::new();
    for event in events {
        if let Event::Use { id, stream } = event {
            let streams = uses.entry(id).or_default();
            if !streams.contains(&stream) {
                streams.push(stream);
            }
        }
    }
    uses
}

/// The submits of one replay.
///
/// An allocation that a cached block serves does not ask the device. Before every other allocation, and before whatever
/// else asks it, all streams with frees since their last submit are submitted. So a replay makes submits where a
/// program would make some, and none while the cache serves it.
pub(crate) struct Submits<'a, B: Backend> {
    allocator: &'a Allocator<B>,
    /// The streams that the trace uses, in order.
    streams: &'a [Stream<B>],
    elsewhere: &'a Elsewhere,
    /// Whether the application closes ticks.
    needed: bool,
    /// Whether the program makes its submits itself.
    recorded: bool,
    /// Whether it waits for what it submits. As no work is queued, the device then behaves like one that completes all
    /// work at once, and the decisions are the same.
    waits: bool,
    /// Whether a free releases memory to the driver if its last use is complete. It is not complete before the submit
    /// that follows the free, so the allocator has to be asked once more.
    direct: bool,
    /// The streams with marks that no submit covers.
    open: Vec<StreamId>,
    frees: usize,
    spent: Duration,
}

impl<'a, B: Backend> Submits<'a, B> {
    /// Creates the submits of a replay. With `waits`, each submit is waited for. With `recorded`, they are those of the
    /// trace, and no others are made before a pass is over.
    pub(crate) fn new(
        allocator: &'a Allocator<B>,
        streams: &'a [Stream<B>],
        elsewhere: &'a Elsewhere,
        waits: bool,
        recorded: bool,
    ) -> Self {
        let caps = allocator.backend().caps();
        let closes = caps.closing == Closing::Submit;
        Self {
            allocator,
            streams,
            elsewhere,
            needed: closes && !recorded,
            recorded: closes && recorded,
            waits,
            direct: !allocator.settings().policy.caches() && caps.reuse == Reuse::InOrder,
            open: Vec::new(),
            frees: 0,
            spent: Duration::ZERO,
        }
    }

    /// Returns the allocator.
    pub(crate) fn allocator(&self) -> &'a Allocator<B> {
        self.allocator
    }

    /// Returns the time that submits took since the last call, if it is not part of the time of a pass. That is the
    /// time of submits that cover no work.
    pub(crate) fn take_spent(&mut self) -> Duration {
        std::mem::take(&mut self.spent)
    }

    /// Records that a stream was marked.
    #[inline]
    pub(crate) fn marked(&mut self, stream: StreamId) {
        if self.needed && !self.open.contains(&stream) {
            self.open.push(stream);
        }
    }

    /// Allocates, after the submits that make the result the same on every device.
    #[inline]
    pub(crate) fn allocate(&mut self, stream: &Stream<B>, bytes: u64) -> Result<Buffer<B>, Error<B::Error>> {
        stream.allocate_prepared(bytes, || {
            self.submit()?;
            // Moving pages may mark the stream.
            self.marked(stream.id());
            Ok(())
        })
    }

    /// Frees a block.
    #[inline]
    pub(crate) fn free(&mut self, id: u32, buffer: Buffer<B>) -> Result<(), Error<B::Error>> {
        if self.needed { self.free_and_note(id, buffer) } else { Ok(()) }
    }

    #[inline(never)]
    fn free_and_note(&mut self, id: u32, buffer: Buffer<B>) -> Result<(), Error<B::Error>> {
        self.marked(buffer.stream());
        let (streams, elsewhere) = (self.streams, self.elsewhere);
        for &stream in elsewhere.get(&id).into_iter().flatten() {
            self.marked(streams[stream as usize].id());
        }
        drop(buffer);
        self.frees += 1;
        if self.direct {
            self.submit()?;
            self.allocator.release_idle()
        } else if !self.waits && self.frees >= FREES_MAX {
            self.submit()
        } else {
            Ok(())
        }
    }

    /// Submits a stream where the program did. Elsewhere than where the application closes ticks, it has no effect.
    pub(crate) fn submit_as_recorded(&mut self, stream: StreamId) -> Result<(), Error<B::Error>> {
        if !self.recorded {
            return Ok(());
        }
        self.open.push(stream);
        self.submit_open()?;
        if self.direct { self.allocator.release_idle() } else { Ok(()) }
    }

    /// Submits what the end of a pass leaves open.
    pub(crate) fn end(&mut self) -> Result<(), Error<B::Error>> {
        if self.recorded {
            self.open.extend(self.streams.iter().map(Stream::id));
        }
        self.submit()
    }

    /// Waits for a point, as far as it was submitted.
    pub(crate) fn wait(&mut self, point: Point) -> Result<(), Error<B::Error>> {
        self.allocator.backend().wait(point).map(drop).map_err(|error| failed("wait", error))
    }

    /// Submits every stream with open marks.
    #[inline]
    pub(crate) fn submit(&mut self) -> Result<(), Error<B::Error>> {
        if self.open.is_empty() { Ok(()) } else { self.submit_open() }
    }

    #[inline(never)]
    fn submit_open(&mut self) -> Result<(), Error<B::Error>> {
        let backend = self.allocator.backend();
        let start = Instant::now();
        self.frees = 0;
        let submit = |stream| {
            let tick = backend.submit(stream).map_err(|error| failed("submit", error))?;
            Ok(Point { stream, tick })
        };
        let points: Vec<Point> = self.open.drain(..).map(submit).collect::<Result<_, Error<_>>>()?;
        if self.waits {
            for point in points {
                let reached = backend.wait(point).map_err(|error| failed("wait", error))?;
                assert!(reached >= point.tick, "{point} was submitted, and a wait for it ended at tick {reached}");
            }
            self.spent += start.elapsed();
        }
        Ok(())
    }
}

/// Returns the error of a call of the backend, as the library reports those that it makes itself.
pub(crate) fn failed<E: BackendError>(call: &'static str, source: E) -> Error<E> {
    Error::Driver { call, lost: source.fault() == Fault::Lost, source }
}
