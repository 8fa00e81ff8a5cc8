//! Sources: other allocators that supply the segments of private pools.

use std::sync::Arc;

use millpond_backend::{Backend, StreamId};

/// Another allocator, which supplies a private pool with segments instead of the driver. Give it to
/// [`Allocator::create_pool_from`](crate::Allocator::create_pool_from).
///
/// Both functions are called on the thread that needs memory, with no lock held. They must not use the allocator of the
/// pool, because others may wait for this call. The source is dropped once no handle of the pool is left and its last
/// segment went back.
///
/// # Safety
///
/// What [`reserve`](SegmentSource::reserve) returns is what [`Backend::reserve`] promises: memory of that many bytes,
/// aligned for the device's own class of memory, that overlaps no other segment, on which no work is under way, and
/// which stays until it is given back.
pub unsafe trait SegmentSource<B: Backend>: Send + Sync + 'static {
    /// Returns a segment of that many bytes for blocks of a stream, or `None` if there is no memory for it. The
    /// allocator then gives back what it can and asks again, before it refuses the request.
    fn reserve(&self, device: &B, stream: StreamId, bytes: u64) -> Option<B::Segment>;

    /// Takes a segment back that [`reserve`](SegmentSource::reserve) returned for the same stream. Cannot fail.
    ///
    /// # Safety
    ///
    /// The segment came from this source, and no work touches it any more.
    unsafe fn release(&self, device: &B, stream: StreamId, segment: B::Segment);
}

/// A source, which a pool and its segments share.
pub(crate) type SharedSource<B> = Arc<dyn SegmentSource<B>>;

/// Gives a segment back to the source that it came from.
pub(crate) fn give_back<B: Backend>(source: &SharedSource<B>, device: &B, stream: StreamId, segment: B::Segment) {
    // SAFETY: the shell notes for each segment which source it came from, and removes the note with the segment.
    // Nothing touches it, as in `release`.
    unsafe { source.release(device, stream, segment) }
}
