//! The one room of the library with `unsafe` in it: a pointer from buffers to their lane, what a lane's latch guards,
//! and driver calls whose contract the core's decisions fulfil.
//!
//! # Why a pointer
//!
//! A buffer must reach its lane when it is dropped, and buffers of different streams must not meet. A counted
//! reference to something shared would make all threads write one cache line; a count per lane would cost two atomic
//! operations on every allocation. Instead a lane that has handed out a block keeps the whole allocator alive through
//! one counted reference of its own (`LaneState::keep`), taken with the first block and given
//! up, under the lane's lock, only when the user's handles are gone and the last block has come back.
//!
//! # Who keeps what alive
//!
//! The state owns its lanes, and goes with the last of these counted references to it:
//!
//! - `Handle::state`, one for all handles of the user: `Allocator`, `Stream`, `Pinned`. Who borrows one of them has the
//!   state for as long as the borrow. When the last handle goes, `Handle::drop` tells every lane that it is closing,
//!   and gives its own reference up after that.
//! - `LaneState::keep` of each lane. `State::allocate`, `State::miss` and `Buffer::empty` see to it before the first
//!   buffer of the lane exists, while the stream that asks has a handle; a hit is served only where it is there.
//!   `LaneState::let_go` takes it out, which needs the lane's lock, `closing`, no live block and no buffer of 0 bytes.
//!   So a `Buffer` of the lane has the state until it is given back, which is one step under that lock.
//! - What `State::free` holds: `freed` takes a reference, still under the lock, whenever something remains to be done
//!   with the state after the lock is open. The buffer's drop gives it up last.
//!
//! # After the lock is open
//!
//! A thread that gives a block back has nothing that keeps the state once the lane's lock is open, except where `freed`
//! took a reference. From the store in `Guard::drop` on, another thread may give back the last block, or drop the last
//! handle, and with it the state and the lane, while the first thread is still on its way out of `Guard::drop`,
//! `freed`, `free` and `Buffer::drop`. It touches neither any more, but that is not enough: a reference that is an
//! *argument* of a function is promised to be valid until the function returns, used or not (Stacked Borrows and Tree
//! Borrows call it protected, and LLVM may read through it anywhere). Therefore:
//!
//! - `State::free`, `freed` and `free_nothing` take a `&LaneRef`: a reference into the buffer, which holds a pointer.
//!   The references to state and lane that they make of it are arguments only of functions that return before the store
//!   (`mark`, `is_plain`, `lock`, the shard's `free`, `let_go`, `kept`), or that run under a reference of `freed`'s own
//!   (`go_on_from`).
//! - A [`Guard`] holds pointers, so passing it to `drop` passes no reference to the lane. [`Guard`]'s drop makes what
//!   it needs of the latch before the store. The store is `AtomicBool::store(&self)`, whose argument covers an
//!   `UnsafeCell` and nothing else; such bytes are not protected, which `Arc` in the standard library relies on as
//!   well.
//! - `Buffer::drop` borrows the buffer only, which lies with its owner. A frame further up that borrows the state has a
//!   handle or a live buffer for it.
//!
//! The last reference may be dropped by any thread. Its count orders that drop after everything that other holders did;
//! what a thread did that had given its block back is ordered by the lane's latch: its store releases, the next closing
//! acquires, and `let_go` by which the lane's reference came out ran under such a closing. Handles see to the lanes
//! they close in the same way.
//!
//! In `State::drop` the state is borrowed mutably, which ends the validity of pointers that were made of shared borrows
//! (`OwnerRef`). It reaches lanes through its own table, and none of them asks for its owner then: no buffer, no stream
//! and no handle is left that could.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use millpond_backend::{Backend, Point, StreamId, VirtualMemory};
use millpond_core::Slot;

use crate::lane::Lane;
use crate::latch::Latch;
use crate::pinned::{Idle, PinnedBuffer};
use crate::state::State;
use crate::sync::{Ordering, Place, Taken};

/// A lane, for those whose existence keeps it alive: buffers (through the lane's own count) and streams (through the
/// allocator's handle).
pub(crate) struct LaneRef<B: Backend>(NonNull<Lane<B>>);

impl<B: Backend> LaneRef<B> {
    /// The caller keeps the lane's allocator alive for as long as this lives: by a handle, or by a live block.
    pub(crate) fn new(lane: &Lane<B>) -> Self {
        Self(NonNull::from(lane))
    }
}

impl<B: Backend> Clone for LaneRef<B> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<B: Backend> Deref for LaneRef<B> {
    type Target = Lane<B>;

    #[inline]
    fn deref(&self) -> &Lane<B> {
        // SAFETY: lanes stand in the allocator's append-only table and never move or go before it. That state is alive:
        // a `Stream` holds the allocator's handle, which holds it; a `Buffer` is a live block or one of the lane's
        // empty buffers, and a lane with either holds it in `LaneState::keep`, which is given up only under the lane's
        // lock with none left. Who gives a buffer back uses no answer of this after that lock is open.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: a `LaneRef` gives out `&Lane` only, so it may go wherever such a reference may; `Lane` is Sync because its
// state is behind a lock and the backend is Sync by contract.
unsafe impl<B: Backend> Send for LaneRef<B> {}
// SAFETY: as above.
unsafe impl<B: Backend> Sync for LaneRef<B> {}

/// The state that owns a lane, for the lane itself.
pub(crate) struct OwnerRef<B: Backend>(NonNull<State<B>>);

impl<B: Backend> OwnerRef<B> {
    /// The state owns the lane that gets this, and stands behind an `Arc` itself, so it does not move.
    pub(crate) fn new(state: &State<B>) -> Self {
        Self(NonNull::from(state))
    }

    #[inline]
    pub(crate) fn get<'a>(&self, _owned: &'a Lane<B>) -> &'a State<B> {
        // SAFETY: the state owns its lanes and drops them with itself, so as long as somebody can borrow the lane the
        // state is there.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: as for `LaneRef`: it gives out `&State` only, and `State` is Sync.
unsafe impl<B: Backend> Send for OwnerRef<B> {}
// SAFETY: as above.
unsafe impl<B: Backend> Sync for OwnerRef<B> {}

/// Something that one thread has at a time, behind a [`Latch`].
pub(crate) struct Latched<T> {
    latch: Latch,
    value: Place<T>,
}

// SAFETY: the value is reached through a `Guard` only, there is one at a time, and what one of them wrote is seen
// through the next: the latch sees to both. So threads that share this hand the value from one to the next, for which
// `Send` is enough.
unsafe impl<T: Send> Sync for Latched<T> {}

/// The value of a [`Latched`], for as long as this lives. A pointer to the latch, not a reference: when this is
/// dropped, and before that has returned, the latch may be gone.
pub(crate) struct Guard<'a, T> {
    latch: NonNull<Latch>,
    value: ManuallyDrop<Taken<T>>,
    latched: PhantomData<&'a Latched<T>>,
}

impl<T> Latched<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { latch: Latch::new(), value: Place::new(value) }
    }

    /// Waits until no other guard lives.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.latch.close();
        self.guard()
    }

    /// A guard, if no other lives.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.latch.try_close().then(|| self.guard())
    }

    /// For who has just closed the latch.
    #[inline(always)]
    fn guard(&self) -> Guard<'_, T> {
        let value = ManuallyDrop::new(self.value.take());
        Guard { latch: NonNull::from(&self.latch), value, latched: PhantomData }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the place is borrowed for as long as the guard, which closed the latch and opens it when it goes, so
        // no other guard refers to the value, and this one only as its own borrows allow.
        unsafe { &*self.value.pointer() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard itself is borrowed mutably.
        unsafe { &mut *self.value.pointer() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: dropped here alone, and not used afterwards. It goes before the latch opens, as the place is
        // another's from then on.
        unsafe { ManuallyDrop::drop(&mut self.value) }
        // SAFETY: the latch is closed by this guard. Whoever keeps its memory gives that up under the latch, or is kept
        // by the guard's own thread, so it is there until the store below, and neither part is used after that.
        let (closed, waiters) = unsafe { self.latch.as_ref() }.parts();
        closed.store(false, Ordering::Release);
        waiters.wake();
    }
}

/// A segment's place in memory, for the buffer that lies in it.
pub(crate) struct SegmentRef<B: Backend>(NonNull<B::Segment>);

impl<B: Backend> SegmentRef<B> {
    pub(crate) fn new(segment: &B::Segment) -> Self {
        Self(NonNull::from(segment))
    }

    /// # Safety
    ///
    /// The segment stands behind an `Arc`, and for the whole of `'a` a live block pins it.
    pub(crate) unsafe fn get<'a>(self) -> &'a B::Segment {
        // SAFETY: the caller's promise.
        unsafe { self.0.as_ref() }
    }
}

/// The segment of a live block.
pub(crate) fn segment_of<B: Backend>(buffer: &crate::Buffer<B>) -> Option<&B::Segment> {
    let place = buffer.segment_place()?;
    // SAFETY: segments stand behind an `Arc` in their lane's table; the core gives a segment back only when all of it
    // is one free block, and this buffer, borrowed for as long as the answer, is a live block in it.
    Some(unsafe { place.get() })
}

/// Where the host sees a block of host memory.
pub(crate) struct HostPlace {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is an address and gives nothing else away by itself; slices are lent under the borrows of the buffer that
// holds it.
unsafe impl Send for HostPlace {}
// SAFETY: as above.
unsafe impl Sync for HostPlace {}

impl HostPlace {
    /// `None` if the host does not see the memory. An empty buffer is nowhere, and has no bytes to reach.
    pub(crate) fn of<B: Backend>(buffer: &crate::Buffer<B>) -> Option<Self> {
        let Some(segment) = buffer.segment() else { return Some(Self { start: NonNull::dangling(), bytes: 0 }) };
        let base = buffer.lane().owner().backend.host_memory()?.host_address(segment)?;
        let (offset, bytes) = (usize::try_from(buffer.offset()).ok()?, usize::try_from(buffer.len()).ok()?);
        // SAFETY: the backend's pointer is valid for the whole segment, and the block lies in it.
        Some(Self { start: unsafe { base.add(offset) }, bytes })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

/// Writes zeros over all of a block of host memory that was just granted and not handed out yet. Answers whether the
/// host sees the memory.
pub(crate) fn overwrite_by_host<B: Backend>(buffer: &mut crate::Buffer<B>) -> bool {
    let Some(segment) = buffer.segment() else { return true };
    let Some(host) = buffer.lane().owner().backend.host_memory() else { return false };
    let Some(base) = host.host_address(segment) else { return false };
    let (Ok(offset), Ok(bytes)) = (usize::try_from(buffer.offset()), usize::try_from(buffer.capacity())) else {
        return false;
    };
    // SAFETY: the backend's pointer is valid for the whole segment, and the block, live and borrowed mutably, lies in
    // it. Nobody else has its bytes, as it was not handed out yet; device work of former owners on them is over, which
    // the core makes sure of before it grants memory of this kind.
    unsafe { base.add(offset).write_bytes(0, bytes) };
    true
}

/// The bytes of a pinned buffer, to be read.
pub(crate) fn host_bytes<'b, B: Backend>(buffer: &'b PinnedBuffer<B>, _idle: &Idle) -> &'b [u8] {
    let HostPlace { start, bytes } = *buffer.place();
    // SAFETY: the buffer is a live block for as long as the borrow, so its segment stays and nobody else has its bytes,
    // which the driver handed out initialised. No device writes them: `Idle` says so for what was recorded, work that
    // is recorded through the library later needs the buffer mutably, and whoever launches work of his own vouches for
    // it there.
    unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes) }
}

/// The bytes of a pinned buffer, to be written.
pub(crate) fn host_bytes_mut<'b, B: Backend>(buffer: &'b mut PinnedBuffer<B>, _idle: &Idle) -> &'b mut [u8] {
    let HostPlace { start, bytes } = *buffer.place();
    // SAFETY: as above, and the mutable borrow keeps out every other slice and every copy from or to the buffer.
    unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) }
}

/// What engines need who record commands of their own.
impl<B: Backend> PinnedBuffer<B> {
    /// The backend's segment that the buffer lies in, and where in it, in bytes; `None` for an empty buffer.
    ///
    /// # Safety
    ///
    /// Work that is queued on the segment stays within the buffer, is told to it
    /// ([`record_use`](PinnedBuffer::record_use)) before anything else is done with the buffer, and is not under way
    /// while a slice of its bytes is in use.
    pub unsafe fn segment(&self) -> Option<(&B::Segment, u64)> {
        let buffer = self.buffer();
        buffer.segment().map(|segment| (segment, buffer.offset()))
    }
}

/// An expandable segment's range, for mapping and unmapping pages in it.
pub(crate) fn range_of<B: Backend>(lane: &Lane<B>, slot: Slot) -> &B::Segment {
    let place = SegmentRef::<B>::new(lane.lock().segment(slot));
    // SAFETY: ranges stand behind an `Arc` in their lane's table. The caller performs a plan's step on this range: at
    // addresses that the plan has claimed, or on a mapping that stays in the core's table until this step's outcome is
    // told. The core gives a range back only with all of it unmapped and no mapping left.
    unsafe { place.get() }
}

/// Gives a segment back to the driver.
pub(crate) fn release<B: Backend>(backend: &B, segment: B::Segment) {
    // SAFETY: the core emits a release only for a segment that is wholly one free block whose last use on its home
    // stream is reached, and whose uses on other streams were reached before it became free. Nobody can record new
    // work on it: no buffer refers to it, and the segment is given up here by value.
    unsafe { backend.release(segment) }
}

/// Gives back a segment that was taken past the allocator and used by device work on these streams alone. Waits for
/// them. A segment that they cannot be waited for is left for the driver to take with the device.
pub(crate) fn release_own<B: Backend>(backend: &B, segment: B::Segment, streams: &[StreamId]) {
    let is_over = |&stream: &StreamId| {
        let Ok(tick) = backend.submit(stream) else { return false };
        backend.wait(Point { stream, tick }).is_ok_and(|reached| reached >= tick)
    };
    if streams.iter().all(is_over) {
        // SAFETY: all work that was recorded on the streams so far is over, and the caller recorded what there was for
        // this segment. None can be recorded later, as it is given up here by value.
        unsafe { backend.release(segment) }
    } else {
        std::mem::forget(segment);
    }
}

/// Gives an address range back to the driver.
pub(crate) fn release_range<B: Backend>(vm: &Vm<'_, B>, range: B::Segment) {
    // SAFETY: the core emits this only when all of the range is one unmapped block: nothing is mapped, no buffer is in
    // it.
    unsafe { vm.release_range(range) }
}

/// Maps a page.
pub(crate) fn map<B: Backend>(
    vm: &Vm<'_, B>,
    range: &B::Segment,
    offset: u64,
    page: &B::Page,
    stream: StreamId,
) -> Result<(), B::Error> {
    // SAFETY: the core claimed these addresses for this one plan, and nothing is mapped there: what was has been
    // unmapped by an earlier call. Where the page is mapped elsewhere the device allows aliasing, which the core looks
    // up before it plans so; it has claimed the page's home, and grants the memory here only with the last use there
    // over, ordered before on the same stream, or waited for on the device.
    unsafe { vm.map(range, offset, page, stream) }
}

/// Unmaps a page.
pub(crate) fn unmap<B: Backend>(vm: &Vm<'_, B>, range: &B::Segment, offset: u64, page: &B::Page, stream: StreamId) {
    // SAFETY: the core's table says that the page is mapped there, and this plan alone is at it. The core emits an
    // unmap only for a page inside one free block whose last use was seen to be reached, for an old mapping whose point
    // was, and for a page that was mapped in vain and that no buffer has seen.
    unsafe { vm.unmap(range, offset, page, stream) }
}

/// Releases a page.
pub(crate) fn release_page<B: Backend>(vm: &Vm<'_, B>, page: B::Page) {
    // SAFETY: earlier calls have unmapped it everywhere, which they may only do when nothing touches it any more; the
    // handle is given up here by value.
    unsafe { vm.release_page(page) }
}

/// A backend's virtual memory.
pub(crate) type Vm<'a, B> = dyn VirtualMemory<Segment = SegmentOf<B>, Page = PageOf<B>, Error = ErrorOf<B>> + 'a;

type SegmentOf<B> = <B as Backend>::Segment;
type PageOf<B> = <B as Backend>::Page;
type ErrorOf<B> = <B as Backend>::Error;
