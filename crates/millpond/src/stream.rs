//! A stream of an allocator.

use std::fmt;
use std::panic::Location;

use millpond_backend::{Backend, Point, StreamId};
use millpond_core::settings::Scrub;
use millpond_core::{Extent, Grant, PoolId, Requester, Want};

use crate::bond::Bond;
use crate::buffer::{Buffer, EMPTY};
use crate::created::Lease;
use crate::error::Error;
use crate::events::Event;
use crate::notes::note::{Asked, Site};
use crate::state::{Handle, Lane, LaneRef, State};
use crate::sync::Arc;

mod cached;
mod order;
pub(crate) mod transfer;
mod typed;

/// A stream to allocate on. Cheap to clone; clones are the same stream.
///
/// Threads that work on different streams do not wait for each other in the allocator, except under `paged`, where all
/// streams of a pool share their memory.
pub struct Stream<B: Backend> {
    handle: Arc<Handle<B>>,
    lane: LaneRef<B>,
    id: StreamId,
    /// What keeps it from being handed out again, if it was created by an allocator.
    lease: Option<std::sync::Arc<Lease>>,
    /// The bond to the pool that it allocates in, if that is a private one.
    bond: Option<Bond<B>>,
}

impl<B: Backend> Stream<B> {
    pub(crate) fn new(handle: Arc<Handle<B>>, lane: LaneRef<B>, id: StreamId) -> Self {
        Self { handle, lane, id, lease: None, bond: None }
    }

    pub(crate) fn leased(self, lease: Option<std::sync::Arc<Lease>>) -> Self {
        Self { lease, ..self }
    }

    /// Bonds the stream to the private pool of its lane.
    pub(crate) fn within(self, bond: Bond<B>) -> Self {
        Self { bond: Some(bond), ..self }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle<B>> {
        &self.handle
    }

    pub(crate) fn bond(&self) -> Option<&Bond<B>> {
        self.bond.as_ref()
    }

    #[cfg(not(loom))]
    pub(crate) fn shared_state(&self) -> &Arc<State<B>> {
        &self.handle.state
    }

    pub(crate) fn lane(&self) -> &LaneRef<B> {
        &self.lane
    }

    /// Returns its number with the backend.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Returns the pool that it allocates in: the default pool, or the private pool that
    /// [`Pool::stream`](crate::Pool::stream) was called on.
    pub fn pool(&self) -> PoolId {
        self.bond.as_ref().map_or(PoolId::DEFAULT, Bond::pool)
    }

    /// Returns the point that covers everything queued on the stream so far, for [`Buffer::used_until`]. Makes no
    /// driver call.
    pub fn point(&self) -> Point {
        let state = self.lane.owner();
        let point = state.mark(self.id);
        state.note_point(point);
        point
    }

    /// Allocates at least `bytes` bytes, for use on this stream. They begin at a multiple of 512 bytes in their
    /// segment; [`allocate_aligned`](Self::allocate_aligned) has other alignments.
    ///
    /// A hit costs tens of nanoseconds and makes no driver call. A miss reserves memory from the driver, and may first
    /// release cached memory or wait for the device, in the order that the policy sets. A request for 0 bytes returns
    /// an empty buffer, which is not counted.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] with a report; [`Error::TooLarge`] from 2^60 bytes; [`Error::Driver`] if a driver call
    /// fails, also the one that [scrubs](millpond_core::settings::Scrub) the memory: nothing is handed out then.
    #[inline]
    #[track_caller]
    pub fn allocate(&self, bytes: u64) -> Result<Buffer<B>, Error<B::Error>> {
        self.allocate_prepared(bytes, || Ok(()))
    }

    /// Works like [`allocate`](Self::allocate), but calls `prepare` first unless a cached block serves the request at
    /// once: before a request for 0 bytes, before the device is polled or waited for, and after a miss. `prepare` runs
    /// at most once, with no lock held.
    ///
    /// Where the application closes ticks (Vulkan, wgpu), it can submit there, so that the last use of freed memory can
    /// be reached, and makes no submit while the cache serves it:
    ///
    /// ```
    /// # use millpond::{Allocator, backend::Closing};
    /// # let allocator = Allocator::new(millpond_sim::Sim::builder().closing(Closing::Submit).build());
    /// # let stream = allocator.create_stream()?;
    /// let mut submits = 0;
    /// for _ in 0..10 {
    ///     let buffer = stream.allocate_prepared(4 << 20, || {
    ///         submits += 1;
    ///         stream.submit().map(drop)
    ///     })?;
    ///     drop(buffer);
    /// }
    /// assert_eq!(submits, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error of `prepare`, after which nothing is allocated, and the errors of
    /// [`allocate`](Self::allocate).
    #[inline]
    #[track_caller]
    pub fn allocate_prepared(
        &self,
        bytes: u64,
        prepare: impl FnOnce() -> Result<(), Error<B::Error>>,
    ) -> Result<Buffer<B>, Error<B::Error>> {
        match self.hit(bytes) {
            Ok((want, grant)) => Ok(self.buffer(&want, &grant)),
            Err(missed) => self.allocate_apart(bytes, missed, Location::caller(), prepare),
        }
    }

    /// Works like [`allocate`](Self::allocate), for a call site of the caller's.
    pub(crate) fn allocate_at_site(&self, bytes: u64, site: Site) -> Result<Buffer<B>, Error<B::Error>> {
        match self.hit(bytes) {
            Ok((want, grant)) => Ok(self.buffer(&want, &grant)),
            Err(missed) => self.allocate_apart(bytes, missed, site, || Ok(())),
        }
    }

    /// Grants a cached block on the hot path, where nothing but its lane is needed and there is no sink to tell. It
    /// does not ask the device for its progress. The caller turns the result into a buffer, because a buffer that is
    /// passed on is copied. After a search that missed it returns the shard's
    /// [`changes`](millpond_core::Shard::changes).
    #[inline(always)]
    fn hit(&self, bytes: u64) -> Result<(Want, Grant), Option<u64>> {
        if self.lane.owner().sinks.is_on() { Err(None) } else { self.cached(bytes) }
    }

    /// Allocates where sinks are told or something is noted. It is a separate function, because a grant that is
    /// passed by reference to another function has to be in memory.
    #[inline(never)]
    fn watched_hit(&self, bytes: u64, asked: &Asked) -> Option<Buffer<B>> {
        let state = self.lane.owner();
        if !state.sinks.is_on() || bytes == 0 || !state.is_plain() {
            return None;
        }
        let want = state.sizes.want(bytes)?;
        let mut lane = self.lane.lock();
        if !lane.holds() {
            return None;
        }
        let grant = lane.shard.allocate(&want, 0, Requester::in_order(self.id))?;
        self.lane.count_out(grant.size);
        lane.granted(asked, bytes, &grant);
        drop(lane);
        if grant.unsettled {
            state.settle(self.lane.shard);
        }
        if state.sinks.is_told() {
            state.tell_grant(&self.lane, self.id, bytes, &grant);
        }
        Some(self.buffer(&want, &grant))
    }

    #[inline(always)]
    fn cached(&self, bytes: u64) -> Result<(Want, Grant), Option<u64>> {
        let state = self.lane.owner();
        if bytes != 0
            && state.is_plain()
            && let Some(want) = state.sizes.want(bytes)
        {
            let mut lane = self.lane.lock();
            if lane.holds() {
                if let Some(grant) = lane.shard.allocate(&want, 0, Requester::in_order(self.id)) {
                    self.lane.count_out(grant.size);
                    drop(lane);
                    if grant.unsettled {
                        state.settle(self.lane.shard);
                    }
                    return Ok((want, grant));
                }
                return Err(Some(lane.shard.changes()));
            }
        }
        Err(None)
    }

    /// Returns the buffer of a hit.
    #[inline(always)]
    fn buffer(&self, want: &Want, grant: &Grant) -> Buffer<B> {
        Buffer::new(self.lane.clone(), self.id, want, grant)
    }

    #[inline(never)]
    fn allocate_apart(
        &self,
        bytes: u64,
        missed: Option<u64>,
        site: Site,
        prepare: impl FnOnce() -> Result<(), Error<B::Error>>,
    ) -> Result<Buffer<B>, Error<B::Error>> {
        self.lane.owner().note_tick(self.id);
        let asked = Asked { stream: self.id, site };
        if let Some(buffer) = self.watched_hit(bytes, &asked) {
            return Ok(buffer);
        }
        prepare()?;
        self.allocate_otherwise(bytes, missed, &asked)
    }

    /// Allocates where the hot path does not: for 0 bytes, where something is waited for or counted, and after a miss.
    #[inline(never)]
    fn allocate_otherwise(&self, bytes: u64, missed: Option<u64>, asked: &Asked) -> Result<Buffer<B>, Error<B::Error>> {
        if bytes == 0 {
            return Ok(Buffer::empty(self.lane.clone(), self.id, &self.handle.state));
        }
        let state = &self.handle.state;
        let want = state.sizes.want(bytes).ok_or(Error::TooLarge { requested: bytes })?;
        let (grant, lane) = match missed {
            // What `prepare` has done may let the request hit.
            Some(changes) if state.is_plain() => State::miss(state, &self.lane, (want, changes), asked)?,
            _ => State::allocate(state, &self.lane, &want, asked)?,
        };
        self.hand_out(&want, &grant, lane)
    }

    /// Reports a grant that took more than a look at its lane to the sinks, and scrubs the block. Returns its buffer.
    fn hand_out(&self, want: &Want, grant: &Grant, lane: &Lane<B>) -> Result<Buffer<B>, Error<B::Error>> {
        let state = &self.handle.state;
        if state.sinks.is_told() {
            state.tell_grant(lane, self.id, want.requested, grant);
        }
        let mut buffer = Buffer::new(LaneRef::new(lane), self.id, want, grant);
        if state.scrub != Scrub::Off {
            state.scrub(&mut buffer)?;
        }
        Ok(buffer)
    }
}

impl<B: Backend> Buffer<B> {
    /// Records that the buffer is used on another stream: everything that is queued there **until the buffer is
    /// dropped** must be complete before the memory is used for another buffer. This is PyTorch's `record_stream`;
    /// naming the home stream has no effect.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if the stream is another allocator's.
    pub fn record_stream(&self, stream: &Stream<B>) -> Result<(), Error<B::Error>> {
        let state = self.lane().owner();
        state.expect_own("stream", stream.lane().owner())?;
        if self.held().block != EMPTY {
            let other = stream.id();
            state.note_tick(other);
            self.lane().lock().use_on(self.held().block, other);
            if state.sinks.is_told() {
                let Extent { slot, offset, .. } = self.extent();
                let event = |segment, offset| Event::Use { segment, offset, stream: other };
                state.tell_of(self.lane(), (slot, offset), event);
            }
        }
        Ok(())
    }
}

impl<B: Backend> Clone for Stream<B> {
    fn clone(&self) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
            lane: self.lane.clone(),
            id: self.id,
            lease: self.lease.clone(),
            bond: self.bond.clone(),
        }
    }
}

impl<B: Backend> fmt::Debug for Stream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.id.0)
    }
}
