//! A stream of an allocator.

use std::fmt;

use millpond_backend::{Backend, Point, StreamId, Tick};
use millpond_core::settings::Scrub;
use millpond_core::{Grant, Want};

use crate::allocator::Handle;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::raw::LaneRef;
use crate::state::State;
use crate::sync::Arc;

mod order;
mod pinned;
mod transfer;

/// A stream to allocate on. Cheap to clone; clones are the same stream.
///
/// Threads that work on streams of their own do not meet in the allocator.
pub struct Stream<B: Backend> {
    handle: Arc<Handle<B>>,
    lane: LaneRef<B>,
}

impl<B: Backend> Stream<B> {
    pub(crate) fn new(handle: Arc<Handle<B>>, lane: LaneRef<B>) -> Self {
        Self { handle, lane }
    }

    pub(crate) fn lane(&self) -> &LaneRef<B> {
        &self.lane
    }

    /// Its number with the backend.
    pub fn id(&self) -> StreamId {
        self.lane.stream
    }

    /// Everything queued on the stream so far, for [`Buffer::used_until`]. Calls no driver.
    pub fn point(&self) -> Point {
        let state = self.lane.owner();
        let point = state.mark(self.lane.stream);
        if state.records.is_on() {
            state.records.marked(point);
        }
        point
    }

    /// Allocates at least `bytes` bytes, for use on this stream.
    ///
    /// A hit costs tens of nanoseconds and calls no driver. A miss takes memory from the driver, and may first give
    /// cached memory back or wait for the device: the policy's ladder. 0 bytes give an empty buffer and count nothing.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] with a report; [`Error::TooLarge`] from 2^60 bytes; [`Error::Driver`], also where memory
    /// is to be [scrubbed](millpond_core::settings::Scrub) and that fails: nothing is handed out then.
    #[inline]
    pub fn allocate(&self, bytes: u64) -> Result<Buffer<B>, Error<B::Error>> {
        match self.hit(bytes) {
            Some((want, grant)) => Ok(self.buffer(&want, &grant)),
            None => self.allocate_apart(bytes),
        }
    }

    /// The hot path: a cached block, where nothing but its lane is needed and nothing is recorded. Asks nobody what was
    /// reached. What it answers becomes a buffer where that is wanted: one that is passed on is copied.
    #[inline(always)]
    pub(crate) fn hit(&self, bytes: u64) -> Option<(Want, Grant)> {
        if self.lane.owner().records.is_on() { None } else { self.cached(bytes) }
    }

    /// The hot path where it is recorded: apart, because a grant that another function looks at lies in memory.
    #[inline(never)]
    pub(crate) fn recorded_hit(&self, bytes: u64) -> Option<Buffer<B>> {
        let state = self.lane.owner();
        let (want, grant) = if state.records.is_on() { self.cached(bytes)? } else { return None };
        state.record_grant(&self.lane, self.lane.stream, bytes, &grant);
        Some(self.buffer(&want, &grant))
    }

    #[inline(always)]
    fn cached(&self, bytes: u64) -> Option<(Want, Grant)> {
        let state = self.lane.owner();
        if bytes != 0
            && state.is_plain()
            && let Some(want) = state.sizes.want(bytes)
        {
            let mut lane = self.lane.lock();
            if lane.holds()
                && let Some(grant) = lane.shard.allocate(&want, 0, Tick(u64::MAX))
            {
                drop(lane);
                if grant.unsettled {
                    state.settle(self.lane.shard);
                }
                return Some((want, grant));
            }
        }
        None
    }

    /// The buffer of a hit.
    #[inline(always)]
    pub(crate) fn buffer(&self, want: &Want, grant: &Grant) -> Buffer<B> {
        Buffer::new(self.lane.clone(), self.lane.stream, want, grant)
    }

    #[inline(never)]
    fn allocate_apart(&self, bytes: u64) -> Result<Buffer<B>, Error<B::Error>> {
        match self.recorded_hit(bytes) {
            Some(buffer) => Ok(buffer),
            None => self.allocate_otherwise(bytes),
        }
    }

    /// What the hot path leaves: nothing is asked for, something is waited for or counted, or it was a miss.
    #[inline(never)]
    pub(crate) fn allocate_otherwise(&self, bytes: u64) -> Result<Buffer<B>, Error<B::Error>> {
        if bytes == 0 {
            return Ok(Buffer::empty(self.lane.clone(), &self.handle.state));
        }
        let state = &self.handle.state;
        let want = state.sizes.want(bytes).ok_or(Error::TooLarge { requested: bytes })?;
        let (grant, lane) = State::allocate(state, &self.lane, &want)?;
        if state.records.is_on() {
            state.record_grant(lane, self.lane.stream, bytes, &grant);
        }
        let mut buffer = Buffer::new(LaneRef::new(lane), self.lane.stream, &want, &grant);
        if state.scrub != Scrub::Off {
            state.scrub(self.lane.shard, &mut buffer)?;
        }
        Ok(buffer)
    }
}

impl<B: Backend> Clone for Stream<B> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle), lane: self.lane.clone() }
    }
}

impl<B: Backend> fmt::Debug for Stream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.lane.stream.0)
    }
}
