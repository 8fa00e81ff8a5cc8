//! A buffer: a block in the program's hands.

use std::fmt;

use millpond_backend::{Backend, Point, StreamId, Tick};
use millpond_core::{Grant, LastUse, SegmentId, Side, Slot, Want};

use crate::error::Error;
use crate::raw::{self, LaneRef, SegmentRef};
use crate::state::{Held, State};
use crate::stream::Stream;
use crate::sync::Arc;

/// How the memory of a buffer is safe to use on the stream it was allocated on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reuse {
    /// Nobody has used it since it came from the driver.
    Fresh,
    /// Its last use is known to be over: any stream, and the host, may use it.
    Complete,
    /// Its last use was on the same stream, or the stream waits for it on the device: later work there is ordered after
    /// it, so use it there without any ado.
    Ordered,
    /// As `Ordered`, once you place a memory barrier before the first new use there. It must be a global one (on Vulkan
    /// a `VkMemoryBarrier`): the last use may have been through another buffer, at another address, when a page has
    /// moved since, and a barrier for one buffer does not cover that.
    NeedsBarrier,
    /// Wait for this point, on the device or the host, before the first use. No policy hands such memory out: `paged`
    /// does move memory whose last use on another stream is under way, and queues the device-side wait itself, so that
    /// the grant is `Ordered` or `NeedsBarrier`.
    After(Point),
}

/// Device memory. Dropping it gives the block back to the pool: that cannot fail, calls no driver and needs no lookup.
///
/// (Under the `direct` policy, whose point that is, the drop does give idle memory back to the driver.)
///
/// A buffer may be sent to and dropped on any thread. It keeps what it needs of its allocator alive.
#[must_use = "a buffer that is not kept goes straight back to the pool"]
pub struct Buffer<B: Backend> {
    lane: LaneRef<B>,
    held: Held,
    slot: Slot,
    /// Whose buffer it is; the lane is another stream's where the block is lent.
    stream: StreamId,
    offset: u64,
    size: u64,
    requested: u64,
    /// The device address, 0 where there is none.
    address: u64,
    last_use: LastUse,
}

/// The block number of a buffer of 0 bytes, which has no block.
const EMPTY: millpond_core::BlockId = millpond_core::BlockId(u32::MAX);

impl<B: Backend> Buffer<B> {
    #[inline]
    pub(crate) fn new(lane: LaneRef<B>, stream: StreamId, want: &Want, grant: &Grant) -> Self {
        Self {
            lane,
            held: Held { block: grant.block, side: want.side },
            slot: grant.slot,
            stream,
            offset: grant.offset,
            size: grant.size,
            requested: want.requested,
            address: if grant.base == 0 { 0 } else { grant.base + grant.offset },
            last_use: grant.last_use,
        }
    }

    /// A buffer of 0 bytes: PyTorch's null pointer. No statistic counts it. It keeps the allocator alive, whose lane it
    /// refers to.
    pub(crate) fn empty(lane: LaneRef<B>, state: &Arc<State<B>>) -> Self {
        lane.lock().hand_out_nothing(state);
        Self {
            stream: lane.stream,
            lane,
            held: Held { block: EMPTY, side: Side::Small },
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

    /// Where all of its block lies in the lane: the segment's slot, the offset there and the length in bytes.
    pub(crate) fn extent(&self) -> (Slot, u64, u64) {
        (self.slot, self.offset, self.size)
    }

    /// The allocator has queued work on it, covered by that tick of the stream that it was allocated on.
    pub(crate) fn was_overwritten(&mut self, tick: Tick) {
        self.last_use = LastUse::at(tick);
    }

    /// The stream that it was allocated on: its home stream.
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// What was asked for, in bytes.
    pub fn len(&self) -> u64 {
        self.requested
    }

    /// Whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.requested == 0
    }

    /// How many bytes it keeps from others: `len` after rounding. Transfers end with `len`. Work of the program's own,
    /// which goes to the [`segment`](Self::segment) or the [`address`](Self::address), may use all of them; those
    /// behind `len` hold what the last owner left there, unless the allocator [scrubs](millpond_core::settings::Scrub).
    pub fn capacity(&self) -> u64 {
        self.size
    }

    /// Where it starts in its segment, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its device address, on devices that have addresses. `None` for an empty buffer.
    pub fn address(&self) -> Option<u64> {
        (self.address != 0).then_some(self.address)
    }

    /// Which segment it lies in; `None` for an empty buffer. For logs: the number says nothing to a driver. Takes the
    /// stream's lock for a moment.
    pub fn segment_id(&self) -> Option<SegmentId> {
        (self.held.block != EMPTY).then(|| self.lane.lock().shard.segment_id(self.slot))
    }

    /// The backend's segment that it lies in, at [`offset`](Self::offset); `None` for an empty buffer. Takes the
    /// stream's lock for a moment.
    pub fn segment(&self) -> Option<&B::Segment> {
        raw::segment_of(self)
    }

    pub(crate) fn segment_place(&self) -> Option<SegmentRef<B>> {
        (self.held.block != EMPTY).then(|| SegmentRef::new(self.lane.lock().segment(self.slot)))
    }

    /// How the memory is safe to use, as of now: the answer may get better with time. May ask the backend, without
    /// blocking.
    pub fn reuse(&self) -> Reuse {
        let state = self.lane.owner();
        if self.last_use.is_never() {
            Reuse::Fresh
        } else if self.is_over() {
            Reuse::Complete
        } else if state.backend.caps().needs_barrier {
            Reuse::NeedsBarrier
        } else {
            Reuse::Ordered
        }
    }

    /// The stream that the block was granted for has reached its last use.
    fn is_over(&self) -> bool {
        let reached = self.lane.owner().backend.reached(self.stream);
        reached.is_ok_and(|reached| reached >= self.last_use.tick())
    }

    /// The buffer is used on another stream: everything that is queued there **until the buffer is dropped** must be
    /// done before the memory goes to anyone else. PyTorch's `record_stream`; naming the home stream has no effect.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if the stream is another allocator's.
    pub fn record_stream(&self, stream: &Stream<B>) -> Result<(), Error<B::Error>> {
        let state = self.lane.owner();
        state.expect_own("stream", stream.lane().owner())?;
        if self.held.block != EMPTY {
            let other = stream.lane().stream;
            self.lane.lock().shard.record_stream(self.held.block, other);
            if state.records.is_on() {
                state.records.used(self.lane.shard, self.held.block, other);
            }
        }
        Ok(())
    }

    /// The buffer is used up to a point, taken with [`Stream::point`] after the last use was queued: a more precise
    /// `record_stream`, whose work queued later does not delay the reuse. A point of the home stream has no effect.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownStream`] if the allocator has no such stream. [`Error::NotMarked`] if the stream has not come to
    /// the tick: nothing is noted then, as the memory would wait for work that may never be recorded.
    pub fn used_until(&self, point: Point) -> Result<(), Error<B::Error>> {
        let state = self.lane.owner();
        state.expect_marked(point)?;
        if self.held.block != EMPTY {
            self.lane.lock().shard.used_until(self.held.block, point);
            if state.records.is_on() {
                state.records.used_until(self.lane.shard, self.held.block, point);
            }
        }
        Ok(())
    }

    /// As `used_until`, for points of streams that are not this allocator's but the backend's.
    pub(crate) fn note_use(&self, point: Point) {
        if self.held.block != EMPTY {
            self.lane.lock().shard.used_until(self.held.block, point);
        }
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
        if state.records.is_on() {
            state.record_free(&self.lane, &self.held, self.slot, self.offset);
        }
        let keep = State::free(&self.lane, &self.held);
        // Nothing of the allocator is borrowed here any more, so it may go with this.
        drop(keep);
    }
}

impl<B: Backend> fmt::Debug for Buffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.requested)
            .field("capacity", &self.size)
            .field("segment", &self.segment_id())
            .field("offset", &self.offset)
            .field("stream", &self.stream)
            .finish()
    }
}
