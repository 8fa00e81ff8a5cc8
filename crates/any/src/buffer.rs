//! A buffer: a block that the program holds.

use millpond::{Buffer, Readiness, SegmentId};
use millpond_backend::{Point, StreamId};

use crate::error::AnyError;
use crate::macros::{erased, on, on_both};
use crate::stream::{AnyStream, other_backend};

erased! {
    /// Device memory: the erased form of [`Buffer`]. Dropping it returns the block to the pool: that cannot fail and
    /// makes no driver call.
    ///
    /// A buffer may be sent to any thread and dropped there. What a backend itself is called with, such as a
    /// `VkBuffer`, is reached through the typed form: [`Buffer::segment`].
    #[must_use = "a buffer that is not kept goes straight back to the pool"]
    #[derive(Debug)]
    AnyBuffer:
    Buffer<millpond_sim::Sim>, Buffer<millpond_cuda::Cuda>,
    Buffer<millpond_vulkan::Vulkan>, Buffer<millpond_wgpu::Wgpu>
}

impl AnyBuffer {
    /// Returns the stream that it was allocated on: its home stream.
    pub fn stream(&self) -> StreamId {
        on!(self, AnyBuffer(buffer) => buffer.stream())
    }

    /// Returns the requested size, in bytes.
    pub fn len(&self) -> u64 {
        on!(self, AnyBuffer(buffer) => buffer.len())
    }

    /// Returns whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        on!(self, AnyBuffer(buffer) => buffer.is_empty())
    }

    /// Returns the size of its block in bytes: `len` after rounding. Transfers end at `len`.
    pub fn capacity(&self) -> u64 {
        on!(self, AnyBuffer(buffer) => buffer.capacity())
    }

    /// Returns its offset in its segment, in bytes.
    pub fn offset(&self) -> u64 {
        on!(self, AnyBuffer(buffer) => buffer.offset())
    }

    /// Returns its device address, on devices that have addresses. `None` for an empty buffer.
    pub fn address(&self) -> Option<u64> {
        on!(self, AnyBuffer(buffer) => buffer.address())
    }

    /// Returns the number of the segment in which it lies; `None` for an empty buffer. Takes the stream's lock briefly.
    pub fn segment_id(&self) -> Option<SegmentId> {
        on!(self, AnyBuffer(buffer) => buffer.segment_id())
    }

    /// Returns how the memory is safe to use now. A later call may return a less restrictive value. May ask the
    /// device, without blocking.
    pub fn readiness(&self) -> Readiness {
        on!(self, AnyBuffer(buffer) => buffer.readiness())
    }

    /// Records that the buffer is used on another stream: everything that is queued there **until the buffer is
    /// dropped** must be complete before the memory is used for another buffer. Naming the home stream has no effect.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`](millpond::Error::WrongDevice) and [`AnyError::OtherBackend`] if the stream is another
    /// allocator's.
    pub fn record_stream(&self, stream: &AnyStream) -> Result<(), AnyError> {
        on_both!(
            (self, stream), (AnyBuffer(buffer), AnyStream(stream)) => Ok(buffer.record_stream(stream)?),
            else Err(other_backend("stream", stream.backend_name(), self.backend_name()))
        )
    }

    /// Records that the buffer is used up to a point, taken with [`AnyStream::point`] after the last use was queued. A
    /// point of the home stream has no effect.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownStream`](millpond::Error::UnknownStream) if the allocator has no such stream;
    /// [`Error::NotMarked`](millpond::Error::NotMarked) if the tick lies beyond the work that was recorded there so
    /// far.
    pub fn used_until(&self, point: Point) -> Result<(), AnyError> {
        on!(self, AnyBuffer(buffer) => Ok(buffer.used_until(point)?))
    }
}
