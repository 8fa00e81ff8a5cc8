//! A buffer: a block that the program holds.

use std::fmt;

use millpond_backend::{Backend, Point, StreamId, Tick};
use millpond_core::{Extent, Grant, LastUse, SegmentId, Side, Slot, Want};

use crate::aligned::Start;
use crate::error::Error;
use crate::events::Event;
use crate::frees::Held;
use crate::notes::note::Out;
use crate::raw::pointers::SegmentRef;
use crate::state::{LaneRef, State};
use crate::sync::Arc;

/// Why the memory of a buffer is safe to use on the stream that it was allocated on.
///
/// No policy hands out memory that its user would have to wait for. If the last use on another stream is still in
/// progress, `paged` queues a device-side wait before it hands the memory out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// It has not been used since it came from the driver.
    Fresh,
    /// Its last use is known to be complete: any stream, and the host, may use it.
    Complete,
    /// Its last use was on the same stream, or the stream waits for it on the device: later work there is ordered after
    /// it, so the memory can be used there without a further wait or barrier.
    Ordered,
    /// Like `Ordered`, once you place a memory barrier before the first new use there. It must be a global barrier (on
    /// Vulkan a `VkMemoryBarrier`): the last use may have been through another buffer, at another address, if
    /// that was through a window of `paged`, and a barrier for one buffer does not cover that.
    NeedsBarrier,
}

/// Device memory. Dropping it returns the block to the pool: that cannot fail, makes no driver call and needs no
/// lookup.
///
/// (Under the `direct` policy, the drop does return idle memory to the driver. That is its purpose.)
///
/// A buffer may be sent to any thread and dropped there. It keeps the parts of its allocator alive that it needs.
#[must_use = "a buffer that is not kept goes straight back to the pool"]
pub struct Buffer<B: Backend> {
    lane: LaneRef<B>,
    held: Held,
    slot: Slot,
    /// The stream that it was allocated on.
    stream: StreamId,
    /// The offset of the block in its segment.
    offset: u64,
    /// The bytes of the block.
    size: u64,
    requested: u64,
    /// The device address of the block, 0 where there is none.
    address: u64,
    last_use: LastUse,
}

/// The block number of a buffer of 0 bytes, which has no block.
pub(crate) const EMPTY: millpond_core::BlockId = millpond_core::BlockId(u32::MAX);

impl<B: Backend> Buffer<B> {
    #[inline]
    pub(crate) fn new(lane: LaneRef<B>, stream: StreamId, want: &Want, grant: &Grant) -> Self {
        Self {
            lane,
            held: Held { block: grant.block, side: want.side, start: Start::OF_BLOCK },
            slot: grant.slot,
            stream,
            offset: grant.offset,
            size: grant.size,
            requested: want.requested,
            address: if grant.base == 0 { 0 } else { grant.base + grant.offset },
            last_use: grant.last_use,
        }
    }

    /// Creates a buffer of 0 bytes, like PyTorch's null pointer. No statistic counts it. It keeps the allocator alive,
    /// because it refers to one of its lanes.
    pub(crate) fn empty(lane: LaneRef<B>, stream: StreamId, state: &Arc<State<B>>) -> Self {
        lane.lock().hand_out_nothing(state);
        Self {
            stream,
            lane,
            held: Held { block: EMPTY, side: Side::Small, start: Start::OF_BLOCK },
            slot: Slot(0),
            offset: 0,
            size: 0,
            requested: 0,
            address: 0,
            last_use: LastUse::NEVER,
        }
    }

    pub(crate) fn lane(&self) -> &LaneRef<B> {
        &self.lane
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Notes that the block became longer. `requested` is the new requested size in bytes.
    pub(crate) fn has_grown(&mut self, grant: &Grant, requested: u64) {
        (self.size, self.requested) = (grant.size, requested);
        self.last_use = self.last_use.max(grant.last_use);
    }

    /// Returns a live block as a buffer, which frees it when it is dropped.
    pub(crate) fn of_live(lane: LaneRef<B>, held: Held, extent: Extent, stream: StreamId, requested: u64) -> Self {
        let Extent { slot, offset, bytes: size } = extent;
        Self { lane, held, slot, stream, offset, size, requested, address: 0, last_use: LastUse::NEVER }
    }

    /// Returns where its whole block lies in the lane.
    pub(crate) fn extent(&self) -> Extent {
        Extent { slot: self.slot, offset: self.offset, bytes: self.size }
    }

    /// Records that the allocator has queued work on it, covered by this tick of the stream that it was allocated on.
    pub(crate) fn was_overwritten(&mut self, tick: Tick) {
        self.last_use = LastUse::at(tick);
    }

    /// Makes it begin at the first multiple of an alignment in its block, with this requested size.
    pub(crate) fn begin_at(&mut self, start: Start, requested: u64) {
        (self.held.start, self.requested) = (start, requested);
        debug_assert!(self.lead() + requested <= self.size, "{self:?} leaves its block of {} bytes", self.size);
    }

    /// Returns the number of bytes of its block in front of it.
    fn lead(&self) -> u64 {
        if self.held.start == Start::OF_BLOCK {
            return 0;
        }
        let is_by_offset = self.address == 0 || self.lane.owner().backend.aligns_offsets();
        let begin = if is_by_offset { self.offset } else { self.address };
        begin.wrapping_neg() & (self.held.start.alignment() - 1)
    }

    /// Returns how many bytes its block was requested with, if `len` bytes of it are the buffer's.
    pub(crate) fn with_padding(&self, len: u64) -> u64 {
        len.saturating_add(self.lane.owner().padding(self.held.start))
    }

    /// Returns the stream that it was allocated on: its home stream.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// Returns the requested size, in bytes.
    pub fn len(&self) -> u64 {
        self.requested
    }

    /// Returns whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.requested == 0
    }

    /// Returns the bytes from its beginning to the end of its block: `len` after rounding, and after padding if it was
    /// allocated with an [alignment](crate::Stream::allocate_aligned). Transfers end at `len`. Work of the program
    /// itself, through the [`segment`](Self::segment) or the [`address`](Self::address), may use all of these bytes.
    /// Those after `len` hold what the last owner left there, unless the allocator
    /// [scrubs](millpond_core::settings::Scrub).
    pub fn capacity(&self) -> u64 {
        self.size - self.lead()
    }

    /// Returns its offset in its segment, in bytes: a multiple of 512, and of the alignment that it was allocated with
    /// where that is one of offsets.
    pub fn offset(&self) -> u64 {
        self.offset + self.lead()
    }

    /// Returns its device address, on devices that have addresses. `None` for an empty buffer. It is a multiple of 512,
    /// or of the class's [alignment](millpond_backend::Class::alignment) if that is less, and of the alignment that the
    /// buffer was allocated with where that is one of addresses.
    pub fn address(&self) -> Option<u64> {
        (self.address != 0).then(|| {
            self.lane.owner().tell_address();
            self.address + self.lead()
        })
    }

    /// Returns the number of the segment in which it lies; `None` for an empty buffer. It is meant for logs: a driver
    /// does not know the number. Takes the stream's lock briefly.
    pub fn segment_id(&self) -> Option<SegmentId> {
        (self.held.block != EMPTY).then(|| self.lane.lock().shard.segment_id(self.slot))
    }

    /// Returns the backend's segment in which it lies, at [`offset`](Self::offset); `None` for an empty buffer. Takes
    /// the stream's lock briefly.
    pub fn segment(&self) -> Option<&B::Segment> {
        self.segment_place().map(|place| place.under(self))
    }

    fn segment_place(&self) -> Option<SegmentRef<B>> {
        (self.held.block != EMPTY).then(|| SegmentRef::new(self.lane.lock().segment(self.slot)))
    }

    /// Returns why the memory is safe to use now. A later call may return a less restrictive value. May poll the
    /// backend, without blocking.
    pub fn readiness(&self) -> Readiness {
        let state = self.lane.owner();
        if self.last_use.is_never() {
            Readiness::Fresh
        } else if self.is_over() {
            Readiness::Complete
        } else if state.backend.caps().needs_barrier {
            Readiness::NeedsBarrier
        } else {
            Readiness::Ordered
        }
    }

    /// Returns whether the stream that the block was granted for has reached the last use.
    fn is_over(&self) -> bool {
        let reached = self.lane.owner().closing(self.stream, |backend| backend.reached(self.stream));
        reached.is_ok_and(|reached| reached >= self.last_use.tick())
    }

    /// Records that the buffer is used up to a point, taken with [`Stream::point`](crate::Stream::point) after the last
    /// use was queued. It is more precise than `record_stream`, because work queued later does not delay the reuse. A
    /// point of the home stream has no effect.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownStream`] if the allocator has no such stream. [`Error::NotMarked`] if the tick lies beyond the
    /// work that was recorded on the stream so far: nothing is noted then, because the memory would wait for work that
    /// may never be recorded.
    pub fn used_until(&self, point: Point) -> Result<(), Error<B::Error>> {
        let state = self.lane.owner();
        state.expect_marked(point)?;
        if self.held.block != EMPTY {
            self.lane.lock().use_until(self.held.block, point);
            if state.sinks.is_told() {
                let event = |segment, offset| Event::Until { segment, offset, point };
                state.tell_of(&self.lane, (self.slot, self.offset), event);
            }
        }
        Ok(())
    }

    /// Works like `used_until`, for points of streams that belong to the backend and not to this allocator.
    pub(crate) fn note_use(&self, point: Point) {
        if self.held.block != EMPTY {
            self.lane.lock().use_until(self.held.block, point);
        }
    }

    /// Frees the block where sinks are told or something is noted. It is a function of its own, and does all that the
    /// drop has to do, so that the drop needs no more registers for it.
    #[cold]
    #[inline(never)]
    fn free_watched(&self) {
        let Self { slot, offset, size, stream, .. } = *self;
        let requested = self.with_padding(self.requested);
        let out = Out { slot, offset, size, requested, stream };
        drop(State::free_watched(&self.lane, &self.held, &out));
    }
}

impl<B: Backend> Drop for Buffer<B> {
    #[inline]
    fn drop(&mut self) {
        if self.held.block == EMPTY {
            drop(State::free_nothing(&self.lane));
            return;
        }
        let state = self.lane.owner();
        if state.sinks.is_on() {
            return self.free_watched();
        }
        let keep = State::free(&self.lane, &self.held, Some(self.size));
        // No part of the allocator is borrowed here any more, so this may drop the allocator.
        drop(keep);
    }
}

impl<B: Backend> fmt::Debug for Buffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.requested)
            .field("capacity", &self.capacity())
            .field("segment", &self.segment_id())
            .field("offset", &self.offset())
            .field("stream", &self.stream)
            .finish()
    }
}
