//! Requests that the cache has to serve, and what a request would take.

use std::panic::Location;

use millpond_backend::{Backend, Closing, Point, StreamId, Tick};
use millpond_core::{Conditions, Outcome, Requester, Shard, Want};

use super::Stream;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::fit::Fit;
use crate::notes::note::Asked;
use crate::state::{Lane, LockedShards, State};

impl<B: Backend> Stream<B> {
    /// Allocates at least `bytes` bytes if the cache has them, and returns `None` if it has not.
    ///
    /// It never asks the driver for memory, releases none, and never waits on the host, neither for the device nor for
    /// other threads that are short of memory. Under `paged` it maps free pages side by side where that serves the
    /// request, for which it may reserve addresses, and may have the stream wait on the device for others. `None`
    /// is not an error, is not counted, and calls no [hook](crate::hooks). It may be out of date at once, because other
    /// threads free memory.
    ///
    /// For prefetches and other work that is done early if there is room. A hit costs what one of
    /// [`allocate`](Self::allocate) does; otherwise streams are polled, and under `paged` free memory is searched.
    ///
    /// ```
    /// # use millpond::Allocator;
    /// # let allocator = Allocator::new(millpond_sim::Sim::new());
    /// let stream = allocator.create_stream()?;
    /// assert!(stream.allocate_cached(20 << 20)?.is_none(), "nothing is cached");
    /// drop(stream.allocate(20 << 20)?);
    /// assert!(stream.allocate_cached(20 << 20)?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] from 2^60 bytes; [`Error::Paused`] in a paused group; [`Error::Driver`] if a driver call
    /// fails.
    #[track_caller]
    pub fn allocate_cached(&self, bytes: u64) -> Result<Option<Buffer<B>>, Error<B::Error>> {
        if let Ok((want, grant)) = self.hit(bytes) {
            return Ok(Some(self.buffer(&want, &grant)));
        }
        let asked = Asked { stream: self.id, site: Location::caller() };
        let state = &self.handle.state;
        state.note_tick(self.id);
        if bytes == 0 {
            return Ok(Some(Buffer::empty(self.lane.clone(), self.id, state)));
        }
        let want = state.sizes.want(bytes).ok_or(Error::TooLarge { requested: bytes })?;
        let served = State::allocate_cached(state, &self.lane, &want, &asked)?;
        served.map(|(grant, lane)| self.hand_out(&want, &grant, lane)).transpose()
    }

    /// Returns what would serve a request of `bytes` bytes on this stream, and how many bytes more would be reserved:
    /// for programs that admit work by the memory that it takes. Changes nothing.
    ///
    /// The request's way is rehearsed on a copy of the allocator's books, under the rules by which
    /// [`allocate`](Self::allocate) serves it. If it [fits](Fit::fits), and nothing else happens before, `allocate`
    /// succeeds: it releases [`releases_bytes`](Fit::releases_bytes), then reserves
    /// [`reserves_bytes`](Fit::reserves_bytes). If it does not, `allocate` is refused, unless a
    /// [hook](crate::hooks) makes room. There are exceptions:
    ///
    /// - The device is taken to have what it reports as free, or else all that is not reserved here. Other programs may
    ///   take that, the driver may have none in one piece, or it may give more than it reports, as Vulkan does.
    /// - A pool with a source of its own gets nothing from the source, which cannot be asked without effect.
    /// - Other threads in the middle of a request count as if they stopped there. What they are about to give back is
    ///   not counted.
    /// - Work that waits for other work which was never submitted (Vulkan, wgpu) is taken to end.
    /// - The device keeps working. By the time of the request more work may be done, so the request may reserve less
    ///   than forecast.
    ///
    /// If a cached block serves a large request at once, that takes under a microsecond. Otherwise streams whose work
    /// free memory waits for are polled, the driver may be asked what it has left, and the tables of blocks, pages and
    /// windows are copied, under a lock that every request needs which the cache cannot serve: those of this stream's
    /// shard, or of all shards if the request would wait or be refused. That takes tens of microseconds, and up to a
    /// millisecond for each ten thousand blocks.
    ///
    /// ```
    /// use millpond::{Allocator, Bound, ServedBy};
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::builder(Sim::new()).limit(64 << 20).build()?;
    /// let stream = allocator.create_stream()?;
    /// let fit = stream.would_fit(40 << 20)?;
    /// assert_eq!((fit.served_by, fit.reserves_bytes), (ServedBy::New, 40 << 20));
    /// let buffer = stream.allocate(40 << 20)?;
    /// let fit = stream.would_fit(40 << 20)?;
    /// assert_eq!((fit.fits(), fit.bound, fit.short_bytes), (false, Some(Bound::Limit(64 << 20)), 16 << 20));
    /// drop(buffer);
    /// assert_eq!(stream.would_fit(40 << 20)?.served_by, ServedBy::Cached);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] from 2^60 bytes; [`Error::Paused`] in a paused group; [`Error::Driver`] if a stream cannot
    /// be polled.
    pub fn would_fit(&self, bytes: u64) -> Result<Fit, Error<B::Error>> {
        if bytes == 0 {
            return Ok(Fit::AT_ONCE);
        }
        let state = &self.handle.state;
        let want = state.sizes.want(bytes).ok_or(Error::TooLarge { requested: bytes })?;
        let by = Requester::in_order(self.id);
        if state.is_plain() && self.lane.lock().shard.would_hit(&want, by) {
            return Ok(Fit::AT_ONCE);
        }
        state.expect_running_at(self.lane.shard)?;
        state.rehearse(&self.lane, want, self.id)
    }
}

impl<B: Backend> State<B> {
    /// Returns up to where a stream was submitted, where submits close ticks.
    fn submitted(&self, stream: StreamId) -> Point {
        Point { stream, tick: Tick(self.backend.mark(stream).0.saturating_sub(1)) }
    }

    /// Returns what would become of a request of a lane.
    fn rehearse(&self, lane: &Lane<B>, want: Want, stream: StreamId) -> Result<Fit, Error<B::Error>> {
        let (all, behind, most) = {
            let coordinator = self.coordinator.lock();
            // A request asks as many before its plan begins.
            let most = if coordinator.asks_first() { Shard::BEHIND_MAX } else { usize::MAX };
            (coordinator.streams(), coordinator.streams_to_ask(lane.shard, &mut LockedShards(self)), most)
        };
        let Outcome::Polled { streams: polled, time } = self.polled(&behind, most)? else {
            unreachable!("a poll says how far streams are")
        };
        let submitted = match self.backend.caps().closing {
            Closing::Backend => Vec::new(),
            Closing::Submit => all.into_iter().map(|stream| self.submitted(stream)).collect(),
        };
        let conditions = Conditions { polled, time, submitted, left: self.budget_left() };
        let plan = self.plan_for(lane, want, stream);
        let coordinator = self.coordinator.lock();
        Ok(Fit::of(&coordinator.rehearse(plan, &conditions, &mut LockedShards(self))))
    }
}
