//! A lane: one stream's shard with its lock, and the driver's objects that belong to it.

use millpond_backend::{Backend, StreamId, Tick};
use millpond_core::{Shard, ShardId, Slot};

use crate::raw::{Guard, Latched, OwnerRef};
use crate::state::State;
use crate::sync::Arc;

/// One stream of one allocator. Aligned so that neighbours in the table of lanes share no cache line, nor a pair of
/// lines that the processor fetches together.
#[repr(align(128))]
pub(crate) struct Lane<B: Backend> {
    pub(crate) stream: StreamId,
    pub(crate) shard: ShardId,
    /// The stream is set aside, and no work is put there: all that it covers is over.
    idle: bool,
    owner: OwnerRef<B>,
    inner: Latched<LaneState<B>>,
}

/// So many operations of a stream may be short of room before it settles, while other threads settle too.
const SHORT_MAX: u32 = 32;

/// A driver's segment at a place of its own.
type SharedSegment<B> = std::sync::Arc<<B as Backend>::Segment>;

/// What a lane's lock guards.
pub(crate) struct LaneState<B: Backend> {
    pub(crate) shard: Shard,
    /// The driver's segments and ranges by slot. Never cloned: an `Arc`, because references to what is in it outlive
    /// moves of the table, which a `Box` does not allow.
    pub(crate) segments: Vec<Option<SharedSegment<B>>>,
    /// Keeps the allocator alive while blocks are out: see [`crate::raw`].
    keep: Option<Arc<State<B>>>,
    /// The user's handles are gone: give `keep` up with the last block.
    closing: bool,
    /// Buffers of 0 bytes that are out. They have no block, and rely on the lane as blocks do.
    empty: u64,
    /// A free gives memory back to the driver.
    direct: bool,
    /// Operations short of room for a peak since the last settlement.
    short: u32,
}

impl<B: Backend> Lane<B> {
    pub(crate) fn new(owner: OwnerRef<B>, shard: Shard, idle: bool, direct: bool) -> Self {
        Self {
            stream: shard.stream(),
            shard: shard.id(),
            idle,
            owner,
            inner: Latched::new(LaneState {
                shard,
                segments: Vec::new(),
                keep: None,
                closing: false,
                empty: 0,
                direct,
                short: 0,
            }),
        }
    }

    /// The allocator's state, which owns this lane.
    #[inline]
    pub(crate) fn owner(&self) -> &State<B> {
        self.owner.get(self)
    }

    /// The tick that covers everything recorded on the stream so far.
    #[inline(always)]
    pub(crate) fn mark(&self, backend: &B) -> Tick {
        if self.idle { Tick::ZERO } else { backend.mark(self.stream) }
    }

    /// How far the stream is.
    pub(crate) fn reached(&self, backend: &B) -> Result<Tick, B::Error> {
        if self.idle { Ok(Tick(u64::MAX)) } else { backend.reached(self.stream) }
    }

    /// The lock, if nobody holds it.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, LaneState<B>>> {
        self.inner.try_lock()
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, LaneState<B>> {
        self.inner.lock()
    }
}

impl<B: Backend> LaneState<B> {
    /// An operation was short of room for a peak. Answers whether it is time to settle, where that is done for many at
    /// once.
    pub(crate) fn is_short(&mut self) -> bool {
        self.short = (self.short + 1) % SHORT_MAX;
        self.short == 0
    }

    /// A block goes out: from now on the lane keeps the allocator alive.
    #[inline]
    pub(crate) fn hold(&mut self, state: &Arc<State<B>>) {
        if self.keep.is_none() {
            self.keep = Some(Arc::clone(state));
        }
    }

    /// A buffer of 0 bytes goes out: the lane keeps the allocator alive for it, too.
    pub(crate) fn hand_out_nothing(&mut self, state: &Arc<State<B>>) {
        self.hold(state);
        self.empty += 1;
    }

    /// A buffer of 0 bytes came back. The answer is as [`let_go`](Self::let_go)'s.
    pub(crate) fn take_nothing(&mut self) -> Option<Arc<State<B>>> {
        assert!(self.empty > 0, "a buffer of 0 bytes came back to a lane that has handed out none");
        self.empty -= 1;
        self.let_go()
    }

    /// A block went out before, so the lane keeps the allocator alive.
    #[inline(always)]
    pub(crate) fn holds(&self) -> bool {
        self.keep.is_some()
    }

    /// There is more to a free than the shard does.
    #[inline(always)]
    pub(crate) fn looks_back(&self) -> bool {
        self.closing | self.direct
    }

    /// A free gives memory back to the driver.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// A block came back. With the user's handles gone and no buffer left, the allocator need not be kept; the caller
    /// drops the answer last of all, outside the lock.
    #[inline]
    pub(crate) fn let_go(&mut self) -> Option<Arc<State<B>>> {
        let is_last = self.closing && self.empty == 0 && self.shard.live_blocks() == 0;
        if is_last { self.keep.take() } else { None }
    }

    /// What keeps the allocator, once more.
    pub(crate) fn kept(&self) -> Option<Arc<State<B>>> {
        self.keep.clone()
    }

    /// The user's handles are gone.
    pub(crate) fn close(&mut self) -> Option<Arc<State<B>>> {
        self.closing = true;
        self.let_go()
    }

    pub(crate) fn put_segment(&mut self, slot: Slot, segment: B::Segment) {
        let at = slot.0 as usize;
        if self.segments.len() <= at {
            self.segments.resize_with(at + 1, || None);
        }
        let place = &mut self.segments[at];
        assert!(place.is_none(), "slot {} holds a segment already", slot.0);
        *place = Some(SharedSegment::<B>::new(segment));
    }

    pub(crate) fn take_segment(&mut self, slot: Slot) -> B::Segment {
        let place = self.segments.get_mut(slot.0 as usize).and_then(Option::take);
        match place.and_then(SharedSegment::<B>::into_inner) {
            Some(segment) => segment,
            None => panic!("slot {} holds no segment", slot.0),
        }
    }

    pub(crate) fn segment(&self, slot: Slot) -> &B::Segment {
        match self.segments.get(slot.0 as usize) {
            Some(Some(segment)) => segment,
            _ => panic!("slot {} holds no segment", slot.0),
        }
    }
}
