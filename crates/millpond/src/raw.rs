//! The only module of the library with `unsafe` code: a pointer from buffers to their lane, the value that a lane's
//! latch guards, and driver calls whose contract the core's decisions fulfil. Buffers as numbers, whose free relies on
//! its caller, are in [`number`]; [`source`] has the segments that other allocators supply.
//!
//! # Why a pointer
//!
//! A buffer must reach its lane when it is dropped, and buffers of different streams must not write to a common cache
//! line. A counted reference to something shared would make all threads write one cache line; a count per lane would
//! cost two atomic operations on every allocation. Instead a lane that has handed out a block keeps the whole allocator
//! alive through one counted reference of its own (`LaneState::keep`). It is taken with the first block and given up,
//! under the lane's lock, only when the user's handles are dropped and the last block has been freed.
//!
//! # What keeps the state alive
//!
//! The state owns its lanes, and is dropped with the last of these counted references to it:
//!
//! - `Handle::state`, one for all handles of the user: `Allocator`, `Stream`, `Pinned`. A borrow of one of them keeps
//!   the state alive for as long as the borrow lasts. When the last handle is dropped, `Handle::drop` marks every lane
//!   as closing, and gives up its own reference after that.
//! - `LaneState::keep` of each lane. `State::allocate` and `Buffer::empty` set it before the first buffer of the lane
//!   exists, while the requesting stream has a handle; a hit is served only where it is set, and a request that missed
//!   on the hot path goes to `State::miss` only from there. It stays set while the stream has a handle.
//!   `LaneState::let_go` takes it out, which requires the lane's lock, `closing`, no live block and no buffer of 0
//!   bytes. So a `Buffer` of the lane keeps the state alive until it is freed, which is one step under that lock.
//! - The return value of `State::free`: `freed` takes a reference, still under the lock, whenever something remains to
//!   be done with the state after the lock is open. The buffer's drop gives it up last.
//!
//! # After the lock is open
//!
//! A thread that frees a block holds nothing that keeps the state alive once the lane's lock is open, except where
//! `freed` took a reference. From the store in `Guard::drop` on, another thread may free the last block, or drop the
//! last handle, and with it the state and the lane, while the first thread is still returning from `Guard::drop`,
//! `freed`, `free` and `Buffer::drop`. It accesses neither any more, but that is not enough: a reference that is an
//! *argument* of a function must be valid until the function returns, used or not (Stacked Borrows and Tree Borrows
//! call it protected, and LLVM may read through it anywhere). Therefore:
//!
//! - `State::free`, `freed` and `free_nothing` take a `&LaneRef`: a reference into the buffer, which holds a pointer.
//!   The references to state and lane that they derive from it are arguments only of functions that return before the
//!   store (`mark`, `is_plain`, `lock`, the shard's `free`, `let_go`, `kept`), or that run while `freed` holds a
//!   reference of its own (`go_on_from`).
//! - A [`Guard`] holds pointers, so passing it to `drop` passes no reference to the lane. [`Guard`]'s drop takes what
//!   it needs of the latch before the store. The store is `AtomicBool::store(&self)`, whose argument covers an
//!   `UnsafeCell` and nothing else; such bytes are not protected, on which `Arc` in the standard library relies as
//!   well.
//! - `Buffer::drop` borrows only the buffer, which belongs to its owner. A caller further up the stack that borrows the
//!   state has a handle or a live buffer for it.
//!
//! The last reference may be dropped by any thread. The reference count orders that drop after everything that other
//! holders did. What a thread did up to the store that ended its free is ordered by the lane's latch: that store
//! releases, the next closing acquires, and the `let_go` that took the lane's reference out ran under such a closing.
//! The same holds for handles and the lanes that they close.
//!
//! `State::drop` borrows the state mutably, which ends the validity of pointers that were derived from shared borrows
//! (`OwnerRef`). It reaches lanes through its own table, and none of them uses its owner then: no buffer, no stream and
//! no handle is left that could.

#![allow(unsafe_code)]

pub(crate) mod clock;
pub(crate) mod number;
pub(crate) mod source;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use millpond_backend::{Backend, Left, StreamId, VirtualMemory};
use millpond_core::Slot;

use crate::lane::Lane;
use crate::latch::Latch;
use crate::pinned::{NoConflict, PinnedBuffer};
use crate::state::State;
use crate::sync::{Ordering, Place, Taken};

/// A pointer to a lane, for objects that keep the lane alive: buffers (through the lane's own reference) and streams
/// (through the allocator's handle).
pub(crate) struct LaneRef<B: Backend>(NonNull<Lane<B>>);

impl<B: Backend> LaneRef<B> {
    /// Creates the pointer. The caller keeps the lane's allocator alive for as long as it lives: by a handle, or by a
    /// live block.
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
        // SAFETY: lanes are in the allocator's append-only table, never move, and are not dropped before it. That state
        // is alive: a `Stream` holds the allocator's handle, which holds it; a `Buffer` is a live block or one of the
        // lane's empty buffers, and a lane with either holds it in `LaneState::keep`, which is given up only under the
        // lane's lock with none left. A thread that frees a buffer does not use the returned reference after that lock
        // is open.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: a `LaneRef` gives out `&Lane` only, so it may go wherever such a reference may; `Lane` is Sync because its
// state is behind a lock and the backend is Sync by contract.
unsafe impl<B: Backend> Send for LaneRef<B> {}
// SAFETY: as above.
unsafe impl<B: Backend> Sync for LaneRef<B> {}

/// A pointer to the state that owns a lane, for the lane itself.
pub(crate) struct OwnerRef<B: Backend>(NonNull<State<B>>);

impl<B: Backend> OwnerRef<B> {
    /// Creates the pointer. The state owns the lane that gets it, and is behind an `Arc` itself, so it does not move.
    pub(crate) fn new(state: &State<B>) -> Self {
        Self(NonNull::from(state))
    }

    #[inline]
    pub(crate) fn get<'a>(&self, _owned: &'a Lane<B>) -> &'a State<B> {
        // SAFETY: the state owns its lanes and drops them with itself, so it is alive as long as the lane can be
        // borrowed.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: as for `LaneRef`: it gives out `&State` only, and `State` is Sync.
unsafe impl<B: Backend> Send for OwnerRef<B> {}
// SAFETY: as above.
unsafe impl<B: Backend> Sync for OwnerRef<B> {}

/// A value that one thread at a time can access, behind a [`Latch`].
pub(crate) struct Latched<T> {
    latch: Latch,
    value: Place<T>,
}

// SAFETY: the value is reached through a `Guard` only, there is one guard at a time, and what was written through one
// is seen through the next: the latch guarantees both. So threads that share this pass the value from one to the next,
// for which `Send` is enough.
unsafe impl<T: Send> Sync for Latched<T> {}

/// Access to the value of a [`Latched`], for as long as the guard lives. It holds a pointer to the latch, not a
/// reference, because the latch may be dropped while the guard's own drop has not returned yet.
pub(crate) struct Guard<'a, T> {
    latch: NonNull<Latch>,
    value: ManuallyDrop<Taken<T>>,
    latched: PhantomData<&'a Latched<T>>,
}

impl<T> Latched<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { latch: Latch::new(), value: Place::new(value) }
    }

    /// Waits until no other guard lives, and returns a guard.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.latch.close();
        self.guard()
    }

    /// Returns a guard, if no other lives.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.latch.try_close().then(|| self.guard())
    }

    /// Creates the guard. The caller has just closed the latch.
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
        // SAFETY: the place is borrowed for as long as the guard, which closed the latch and opens it when it is
        // dropped, so no other guard refers to the value, and this one only as its own borrows allow.
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
        // SAFETY: the value is dropped only here, and not used afterwards. It is dropped before the latch opens,
        // because from then on the place may belong to another guard.
        unsafe { ManuallyDrop::drop(&mut self.value) }
        // SAFETY: the latch is closed by this guard. The reference that keeps the latch's memory is given up only under
        // the latch, or is held by the guard's own thread, so the memory is valid until the store below. After the
        // store only `waiters` is used, which is a clone and no part of the latch.
        let (closed, waiters) = unsafe { self.latch.as_ref() }.parts();
        closed.store(false, Ordering::Release);
        waiters.wake();
    }
}

/// A pointer to a segment, for the buffer that lies in it.
pub(crate) struct SegmentRef<B: Backend>(NonNull<B::Segment>);

impl<B: Backend> SegmentRef<B> {
    pub(crate) fn new(segment: &B::Segment) -> Self {
        Self(NonNull::from(segment))
    }

    /// Returns a reference to the segment.
    ///
    /// # Safety
    ///
    /// The segment is behind an `Arc`, and stays there for the whole of `'a`: a live block or the step of a plan pins
    /// it.
    pub(crate) unsafe fn get<'a>(self) -> &'a B::Segment {
        // SAFETY: the caller guarantees that the segment stays at this place for the whole of `'a`.
        unsafe { self.0.as_ref() }
    }
}

/// Returns the segment of a live block.
pub(crate) fn segment_of<B: Backend>(buffer: &crate::Buffer<B>) -> Option<&B::Segment> {
    let place = buffer.segment_place()?;
    // SAFETY: segments are behind an `Arc` in their lane's table. The core releases a segment only when all of it is
    // one free block, and this buffer, which is borrowed for as long as the returned reference, is a live block in it.
    Some(unsafe { place.get() })
}

/// The address at which the host sees a block of host memory.
pub(crate) struct HostPlace {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is an address, which alone gives no access to the memory; slices are lent under the borrows of the buffer
// that holds it.
unsafe impl Send for HostPlace {}
// SAFETY: as above.
unsafe impl Sync for HostPlace {}

impl HostPlace {
    /// Returns the address of a buffer; `None` if the host does not see the memory. An empty buffer has a dangling
    /// address and no bytes to reach.
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

/// Writes zeros over the whole of a block of host memory that was just granted and not handed out yet. Returns whether
/// the host sees the memory.
pub(crate) fn overwrite_by_host<B: Backend>(buffer: &mut crate::Buffer<B>) -> bool {
    let Some(segment) = buffer.segment() else { return true };
    let Some(host) = buffer.lane().owner().backend.host_memory() else { return false };
    let Some(base) = host.host_address(segment) else { return false };
    let (Ok(offset), Ok(bytes)) = (usize::try_from(buffer.offset()), usize::try_from(buffer.capacity())) else {
        return false;
    };
    // SAFETY: the backend's pointer is valid for the whole segment, and the block, live and borrowed mutably, lies in
    // it. No other code can access its bytes, because it was not handed out yet. Device work of former owners on them
    // is complete, which the core guarantees before it grants memory of this kind.
    unsafe { base.add(offset).write_bytes(0, bytes) };
    true
}

/// Returns the bytes of a pinned buffer, to be read.
pub(crate) fn host_bytes<'b, B: Backend>(buffer: &'b PinnedBuffer<B>, _proof: &NoConflict) -> &'b [u8] {
    let HostPlace { start, bytes } = *buffer.place();
    // SAFETY: the buffer is a live block for as long as the borrow, so its segment stays and no other block has its
    // bytes, which the driver handed out initialised. No device writes them: `NoConflict` proves it for work that was
    // recorded, work that is recorded through the library later needs the buffer mutably, and a program that launches
    // work of its own guarantees it there.
    unsafe { std::slice::from_raw_parts(start.as_ptr(), bytes) }
}

/// Returns the bytes of a pinned buffer, to be written.
pub(crate) fn host_bytes_mut<'b, B: Backend>(buffer: &'b mut PinnedBuffer<B>, _proof: &NoConflict) -> &'b mut [u8] {
    let HostPlace { start, bytes } = *buffer.place();
    // SAFETY: as above, and the mutable borrow excludes every other slice and every copy from or to the buffer.
    unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) }
}

/// Access for engines that record commands of their own.
impl<B: Backend> PinnedBuffer<B> {
    /// Returns the backend's segment in which the buffer lies, and its offset there, in bytes; `None` for an empty
    /// buffer.
    ///
    /// # Safety
    ///
    /// Work that is queued on the segment stays within the buffer, is recorded with
    /// [`record_use`](PinnedBuffer::record_use) before anything else is done with the buffer, and is not in progress
    /// while a slice of its bytes is in use.
    pub unsafe fn segment(&self) -> Option<(&B::Segment, u64)> {
        let buffer = self.buffer();
        buffer.segment().map(|segment| (segment, buffer.offset()))
    }
}

/// Returns an expandable segment's range, for mapping and unmapping pages in it.
pub(crate) fn range_of<B: Backend>(lane: &Lane<B>, slot: Slot) -> &B::Segment {
    let place = SegmentRef::<B>::new(lane.lock().segment(slot));
    // SAFETY: ranges are behind an `Arc` in their lane's table. The caller performs a plan's step on this range: at
    // addresses that the plan has claimed, or on a mapping that stays in the core's table until this step's outcome is
    // reported. The core releases a range only when all of it is unmapped and no mapping is left.
    unsafe { place.get() }
}

/// Releases a segment to the driver.
pub(crate) fn release<B: Backend>(backend: &B, segment: B::Segment) {
    // SAFETY: the core emits a release only for a segment that is wholly one free block whose last use on its home
    // stream is reached, and whose uses on other streams were reached before it became free. No new work can be
    // recorded on it: no buffer refers to it, and the segment is moved in here by value.
    unsafe { backend.release(segment) }
}

/// Leaves with the device what a dropped allocator cannot release.
pub(crate) fn leave<B: Backend>(backend: &B, left: Left<B::Segment, B::Page>) {
    // SAFETY: the allocator is being dropped: no buffer refers to any of it, so no new work can be recorded on it. Its
    // last use on its home stream and the uses on other streams that were not reached are the points. The pages are
    // mapped where the core says, in ranges that are left with them.
    unsafe { backend.leave(left) }
}

/// Releases an address range to the driver.
pub(crate) fn release_range<B: Backend>(vm: &Vm<'_, B>, range: B::Segment) {
    // SAFETY: the core emits this only when all of the range is one unmapped block: nothing is mapped and no buffer is
    // in it.
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
    // SAFETY: the core claimed these addresses for this one plan, and nothing is mapped there: what was mapped has been
    // unmapped by an earlier call. Where the page is mapped elsewhere the device allows aliasing, which the core checks
    // before it plans this. The core has claimed the page's home, and grants the memory here only when the last use
    // there is complete, ordered before on the same stream, or waited for on the device.
    unsafe { vm.map(range, offset, page, stream) }
}

/// Unmaps a page.
pub(crate) fn unmap<B: Backend>(vm: &Vm<'_, B>, range: &B::Segment, offset: u64, page: &B::Page, stream: StreamId) {
    // SAFETY: the core's table says that the page is mapped there, and only this plan uses the page. The core emits an
    // unmap only for a page inside one free block whose last use was seen to be reached, for an old mapping whose point
    // was reached, and for a page that was mapped in vain and that no buffer has used.
    unsafe { vm.unmap(range, offset, page, stream) }
}

/// Releases a page.
pub(crate) fn release_page<B: Backend>(vm: &Vm<'_, B>, page: B::Page) {
    // SAFETY: earlier calls have unmapped it everywhere, which is done only when nothing touches it any more. The
    // handle is moved in here by value.
    unsafe { vm.release_page(page) }
}

/// A backend's virtual memory.
pub(crate) type Vm<'a, B> = dyn VirtualMemory<Segment = SegmentOf<B>, Page = PageOf<B>, Error = ErrorOf<B>> + 'a;

type SegmentOf<B> = <B as Backend>::Segment;
type PageOf<B> = <B as Backend>::Page;
type ErrorOf<B> = <B as Backend>::Error;
