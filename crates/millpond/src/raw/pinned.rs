//! Page-locked memory for engines that record commands of their own.

use millpond_backend::Backend;

use crate::pinned::buffer::PinnedBuffer;

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
