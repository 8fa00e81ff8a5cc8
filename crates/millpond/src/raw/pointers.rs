//! Pointers to lanes, to the state that owns them and to segments. [The room](super) argues why what they point to is
//! alive.

use std::ops::Deref;
use std::ptr::NonNull;

use millpond_backend::Backend;

/// A pointer to a lane, for objects that keep the lane alive: buffers (through the lane's own reference) and streams
/// (through the allocator's handle).
pub(crate) struct LaneRef<L>(NonNull<L>);

impl<L> LaneRef<L> {
    /// Creates the pointer. The caller keeps the lane's allocator alive for as long as it lives: by a handle, or by a
    /// live block.
    pub(crate) fn new(lane: &L) -> Self {
        Self(NonNull::from(lane))
    }
}

impl<L> Clone for LaneRef<L> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<L> Deref for LaneRef<L> {
    type Target = L;

    #[inline]
    fn deref(&self) -> &L {
        // SAFETY: lanes are in the allocator's append-only table, never move, and are not dropped before it. That state
        // is alive: a `Stream` holds the allocator's handle, which holds it; a `Buffer` is a live block or one of the
        // lane's empty buffers, and a lane with either holds it in `LaneState::keep`, which is given up only under the
        // lane's lock with none left. A thread that frees a buffer does not use the returned reference after that lock
        // is open.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: a `LaneRef` gives out `&L` only, so it may go wherever such a reference may, which `Sync` allows.
unsafe impl<L: Sync> Send for LaneRef<L> {}
// SAFETY: as above.
unsafe impl<L: Sync> Sync for LaneRef<L> {}

/// A pointer to the state that owns a lane, for the lane itself.
pub(crate) struct OwnerRef<O>(NonNull<O>);

impl<O> OwnerRef<O> {
    /// Creates the pointer. The state owns the lane that gets it, and is behind an `Arc` itself, so it does not move.
    pub(crate) fn new(state: &O) -> Self {
        Self(NonNull::from(state))
    }

    #[inline]
    pub(crate) fn get<'a, L>(&self, _owned: &'a L) -> &'a O {
        // SAFETY: the state owns its lanes and drops them with itself, so it is alive as long as the lane can be
        // borrowed.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: as for `LaneRef`: it gives out `&O` only.
unsafe impl<O: Sync> Send for OwnerRef<O> {}
// SAFETY: as above.
unsafe impl<O: Sync> Sync for OwnerRef<O> {}

/// A pointer to a segment, for the buffer that lies in it.
pub(crate) struct SegmentRef<B: Backend>(NonNull<B::Segment>);

impl<B: Backend> SegmentRef<B> {
    pub(crate) fn new(segment: &B::Segment) -> Self {
        Self(NonNull::from(segment))
    }

    /// Returns the segment, for as long as the buffer is borrowed that lies in it.
    pub(crate) fn under<K>(self, _buffer: &K) -> &B::Segment {
        // SAFETY: segments are behind an `Arc` in their lane's table. The core releases a segment only when all of it
        // is one free block, and the buffer, which is borrowed for as long as the returned reference, is a live block
        // in it.
        unsafe { self.get() }
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
