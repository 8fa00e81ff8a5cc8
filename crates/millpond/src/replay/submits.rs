//! Submits of a replay, on devices where the application closes ticks.
//!
//! Where the backend closes ticks, a freed block is over as soon as somebody asks, if nothing else is queued. Where the
//! application does, somebody has to submit first: here the replay, in the program's place. It calls the backend past
//! the allocator, so that this is not counted as the allocator's driver activity.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use millpond_backend::{Backend, Closing, Point, Reuse, StreamId};
use millpond_core::settings::Policy;

use crate::allocator::Allocator;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::stream::Stream;
use crate::trace::Event;

/// So many frees at most are left without a submit where work is queued: what is recorded takes memory of the
/// driver's until it is submitted.
const FREES_MAX: usize = 64;

/// The other streams that blocks of a trace are used on, by block.
pub(super) type Elsewhere = HashMap<u32, Vec<u32>>;

/// Collects them.
pub(super) fn elsewhere(events: impl Iterator<Item = Event>) -> Elsewhere {
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
/// An allocation that a cached block serves asks nobody what was reached. Before every other one, and before whatever
/// else looks, the streams are submitted that something was freed on since they last were. So a replay costs submits
/// where a program would make some, and none while the cache serves it.
pub(super) struct Submits<'a, B: Backend> {
    allocator: &'a Allocator<B>,
    /// The streams that the trace uses, in order.
    streams: &'a [Stream<B>],
    elsewhere: &'a Elsewhere,
    /// The application closes ticks.
    needed: bool,
    /// Waits for what it submits: as no work is queued, that makes the time that a device has on which all work is
    /// done at once, and the decisions are the same.
    waits: bool,
    /// A free gives memory back to the driver if its last use is over. It was not, before the submit that follows the
    /// free, so somebody has to ask once more.
    direct: bool,
    /// The streams with marks that no submit covers.
    open: Vec<StreamId>,
    frees: usize,
    spent: Duration,
}

impl<'a, B: Backend> Submits<'a, B> {
    /// With `waits`, each submit is waited for.
    pub(super) fn new(
        allocator: &'a Allocator<B>,
        streams: &'a [Stream<B>],
        elsewhere: &'a Elsewhere,
        waits: bool,
    ) -> Self {
        let caps = allocator.backend().caps();
        Self {
            allocator,
            streams,
            elsewhere,
            needed: caps.closing == Closing::Submit,
            waits,
            direct: allocator.settings().policy == Policy::Direct && caps.reuse == Reuse::InOrder,
            open: Vec::new(),
            frees: 0,
            spent: Duration::ZERO,
        }
    }

    /// How long the submits took since that was last asked, if they do not belong to the time of a pass: those that
    /// cover no work.
    pub(super) fn take_spent(&mut self) -> Duration {
        std::mem::take(&mut self.spent)
    }

    /// A stream was marked.
    #[inline]
    pub(super) fn marked(&mut self, stream: StreamId) {
        if self.needed && !self.open.contains(&stream) {
            self.open.push(stream);
        }
    }

    /// Allocates, after the submits that make the answer the same on every device.
    #[inline]
    pub(super) fn allocate(&mut self, stream: &Stream<B>, bytes: u64) -> Result<Buffer<B>, Error<B::Error>> {
        if let Some((want, grant)) = stream.hit(bytes) {
            return Ok(stream.buffer(&want, &grant));
        }
        if let Some(buffer) = stream.recorded_hit(bytes) {
            return Ok(buffer);
        }
        self.submit()?;
        let granted = stream.allocate_otherwise(bytes);
        // Moving pages may have marked it.
        self.marked(stream.id());
        granted
    }

    /// Frees a block.
    #[inline]
    pub(super) fn free(&mut self, id: u32, buffer: Buffer<B>) -> Result<(), Error<B::Error>> {
        if self.needed { self.free_and_note(id, buffer) } else { Ok(()) }
    }

    #[inline(never)]
    fn free_and_note(&mut self, id: u32, buffer: Buffer<B>) -> Result<(), Error<B::Error>> {
        // The lane is another stream's where the block is lent.
        self.marked(buffer.stream());
        self.marked(buffer.lane().stream);
        let (streams, elsewhere) = (self.streams, self.elsewhere);
        for &stream in elsewhere.get(&id).into_iter().flatten() {
            self.marked(streams[stream as usize].id());
        }
        drop(buffer);
        self.frees += 1;
        if self.direct {
            self.submit()?;
            self.streams.first().map_or(Ok(()), |stream| stream.lane().owner().run_idle())
        } else if !self.waits && self.frees >= FREES_MAX {
            self.submit()
        } else {
            Ok(())
        }
    }

    /// Submits every stream with open marks.
    #[inline]
    pub(super) fn submit(&mut self) -> Result<(), Error<B::Error>> {
        if self.open.is_empty() { Ok(()) } else { self.submit_open() }
    }

    #[inline(never)]
    fn submit_open(&mut self) -> Result<(), Error<B::Error>> {
        let backend = self.allocator.backend();
        let start = Instant::now();
        self.frees = 0;
        let submit = |stream| {
            let tick = backend.submit(stream).map_err(|error| Error::driver("submit", error))?;
            Ok(Point { stream, tick })
        };
        let points: Vec<Point> = self.open.drain(..).map(submit).collect::<Result<_, Error<_>>>()?;
        if self.waits {
            for point in points {
                let reached = backend.wait(point).map_err(|error| Error::driver("wait", error))?;
                assert!(reached >= point.tick, "{point} was submitted, and a wait for it ended at tick {reached}");
            }
            self.spent += start.elapsed();
        }
        Ok(())
    }
}
