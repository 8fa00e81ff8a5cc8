//! A lane: a shard with its lock, and the driver's objects that belong to it.

use millpond_backend::{Backend, StreamId, Tick};
use millpond_core::{Shard, ShardId, Slot};

use crate::notes::lane::Notes;
use crate::raw::latched::{Guard, Latched};
use crate::raw::pointers::OwnerRef;
use crate::sync::{Arc, AtomicU64, Ordering};

mod noted;

/// One stream of one allocator, in one pool; or all streams of a pool, where they have their memory together. The
/// alignment makes sure that neighbours in the table of lanes share no cache line, and no pair of lines that the
/// processor fetches together.
///
/// `O` is what owns the lane, of which it needs nothing but that it lives as long as a block is handed out.
#[repr(align(128))]
pub(crate) struct Lane<B: Backend, O> {
    /// The stream that it was opened for.
    pub(crate) stream: StreamId,
    pub(crate) shard: ShardId,
    /// Whether the stream is set aside: no work is put there, so everything that its ticks cover is complete.
    set_aside: bool,
    owner: OwnerRef<O>,
    /// The bytes of blocks that are handed out. It is written under the lock, and read without it.
    allocated: AtomicU64,
    inner: Latched<LaneState<B, O>>,
}

/// The number of operations of a stream that may be short of room before it is overdrawn, while other threads are short
/// of room as well,
const TURNS_MAX: u32 = 4;
/// and before it settles.
const SHORT_MAX: u32 = 8;

/// A driver's segment at a fixed place in memory.
type SharedSegment<B> = std::sync::Arc<<B as Backend>::Segment>;

/// The state that a lane's lock guards. `O` is what owns the lane.
pub(crate) struct LaneState<B: Backend, O> {
    pub(crate) shard: Shard,
    /// The driver's segments and ranges by slot. The `Arc` is never cloned. It is used because references to its
    /// content outlive moves of the table, which a `Box` does not allow.
    pub(crate) segments: Vec<Option<SharedSegment<B>>>,
    /// Keeps the allocator alive while blocks are handed out: see [`crate::raw`].
    keep: Option<Arc<O>>,
    /// Whether the user's handles are dropped, so that `keep` is given up with the last block.
    closing: bool,
    /// The number of buffers of 0 bytes that are handed out. They have no block, and rely on the lane as blocks do.
    empty: u64,
    /// Whether a free releases memory to the driver.
    direct: bool,
    /// The number of operations that were short of room for a peak since the last settlement.
    short: u32,
    /// What is noted of the blocks, if anything is.
    pub(crate) notes: Option<Box<Notes>>,
}

impl<B: Backend, O> Lane<B, O> {
    pub(crate) fn new(owner: OwnerRef<O>, shard: Shard, set_aside: bool, direct: bool) -> Self {
        Self {
            stream: shard.stream(),
            shard: shard.id(),
            set_aside,
            owner,
            allocated: AtomicU64::new(0),
            inner: Latched::new(LaneState {
                shard,
                segments: Vec::new(),
                keep: None,
                closing: false,
                empty: 0,
                direct,
                short: 0,
                notes: None,
            }),
        }
    }

    /// Returns the allocator's state, which owns this lane.
    #[inline]
    pub(crate) fn owner(&self) -> &O {
        self.owner.get(self)
    }

    /// Returns the tick that covers everything recorded so far on a stream of the lane.
    #[inline(always)]
    pub(crate) fn mark(&self, backend: &B, stream: StreamId) -> Tick {
        if self.set_aside { Tick::ZERO } else { backend.mark(stream) }
    }

    /// Returns the tick that a stream of the lane has reached.
    pub(crate) fn reached(&self, backend: &B, stream: StreamId) -> Result<Tick, B::Error> {
        if self.set_aside { Ok(Tick(u64::MAX)) } else { backend.reached(stream) }
    }

    /// Returns the bytes of blocks that are handed out, without taking the lock.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Counts a block that was handed out. The caller holds the lock, so that no other thread counts meanwhile.
    #[inline(always)]
    pub(crate) fn count_out(&self, bytes: u64) {
        self.allocated.store(self.allocated.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    }

    /// Counts a block that came back. The caller holds the lock.
    #[inline(always)]
    pub(crate) fn count_back(&self, bytes: u64) {
        self.allocated.store(self.allocated.load(Ordering::Relaxed).wrapping_sub(bytes), Ordering::Relaxed);
    }

    /// Takes the lock if no other thread holds it.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, LaneState<B, O>>> {
        self.inner.try_lock()
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, LaneState<B, O>> {
        self.inner.lock()
    }
}

impl<B: Backend, O> LaneState<B, O> {
    /// Counts an operation that was short of room for a peak. Returns whether it is time to settle: at once if one
    /// thread does all such operations, else once for many of them. If threads go on doing them in turns, their streams
    /// are overdrawn meanwhile, so that not each operation comes here. A thread that takes over from another one is
    /// soon alone.
    pub(crate) fn settles_now(&mut self, is_alone: bool) -> bool {
        self.short = if is_alone { 0 } else { self.short + 1 };
        match self.short {
            0 => return true,
            1..=TURNS_MAX => {}
            SHORT_MAX => {
                self.short = TURNS_MAX;
                return true;
            }
            _ => self.shard.overdraw(),
        }
        false
    }

    /// Keeps the allocator alive from now on, because a block is handed out.
    #[inline]
    pub(crate) fn hold(&mut self, state: &Arc<O>) {
        if self.keep.is_none() {
            self.keep = Some(Arc::clone(state));
        }
    }

    /// Counts a buffer of 0 bytes that is handed out, and keeps the allocator alive for it, too.
    pub(crate) fn hand_out_nothing(&mut self, state: &Arc<O>) {
        self.hold(state);
        self.empty += 1;
    }

    /// Counts a buffer of 0 bytes that was dropped. Returns the same as [`let_go`](Self::let_go).
    pub(crate) fn take_nothing(&mut self) -> Option<Arc<O>> {
        assert!(self.empty > 0, "a buffer of 0 bytes came back to a lane that has handed out none");
        self.empty -= 1;
        self.let_go()
    }

    /// Returns whether the lane keeps the allocator alive, because a block was handed out before.
    #[inline(always)]
    pub(crate) fn holds(&self) -> bool {
        self.keep.is_some()
    }

    /// Returns whether a free has more to do than what the shard does.
    #[inline(always)]
    pub(crate) fn looks_back(&self) -> bool {
        self.closing | self.direct
    }

    /// Returns whether a free releases memory to the driver.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Gives up the reference to the allocator if the user's handles are dropped and no buffer is left. It is called
    /// when a block was freed. The caller drops the returned reference last of all, outside the lock.
    #[inline]
    pub(crate) fn let_go(&mut self) -> Option<Arc<O>> {
        let is_last = self.closing && self.empty == 0 && self.shard.live_blocks() == 0;
        if is_last { self.keep.take() } else { None }
    }

    /// Returns another reference to what keeps the allocator alive.
    pub(crate) fn kept(&self) -> Option<Arc<O>> {
        self.keep.clone()
    }

    /// Records that the user's handles are dropped.
    pub(crate) fn close(&mut self) -> Option<Arc<O>> {
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

    /// Returns the device address of a segment; 0 on devices without addresses, or if there is none.
    pub(crate) fn segment_base(&self, backend: &B, slot: Slot) -> u64 {
        let segment = self.segments.get(slot.0 as usize).and_then(Option::as_ref);
        segment.and_then(|segment| backend.address(segment)).unwrap_or(0)
    }

    /// Calls `f` with the shard, and notes which blocks it has made free after a wait.
    pub(crate) fn visit(&mut self, f: &mut dyn FnMut(&mut Shard)) {
        f(self.shard.tidied());
        if self.notes.is_some() {
            self.note_retired();
        }
    }

    pub(crate) fn segment(&self, slot: Slot) -> &B::Segment {
        match self.segments.get(slot.0 as usize) {
            Some(Some(segment)) => segment,
            _ => panic!("slot {} holds no segment", slot.0),
        }
    }
}
