//! The cache of page-locked host memory that belongs to a device, and its buffers.

use std::ptr::NonNull;

use millpond::{Pinned, PinnedBuffer};

use crate::allocator::AnyAllocator;
use crate::error::AnyError;
use crate::macros::{erase, erased, on, on_both};
use crate::stream::{AnyStream, other_backend};

erased! {
    /// A cache of page-locked host memory, for copies to and from one device: the erased form of [`Pinned`], which has
    /// an example. Cheap to clone; clones are the same cache. [`AnyAllocator::pinned`] creates it.
    #[derive(Clone, Debug)]
    AnyPinned:
    Pinned<millpond_sim::Sim>, Pinned<millpond_cuda::Cuda>,
    Pinned<millpond_vulkan::Vulkan>, Pinned<millpond_wgpu::Wgpu>
}

impl AnyPinned {
    /// Allocates at least `bytes` bytes. Their content is unspecified, unless the cache scrubs. A miss may release idle
    /// segments, which waits for the device where releases do (CUDA). 0 bytes give an empty buffer.
    ///
    /// # Errors
    ///
    /// The errors of [`Pinned::allocate`].
    #[track_caller]
    pub fn allocate(&self, bytes: u64) -> Result<AnyPinnedBuffer, AnyError> {
        Ok(erase!(self, AnyPinned(pinned) => AnyPinnedBuffer(pinned.allocate(bytes)?)))
    }

    /// Returns the allocator behind the cache: for limits, statistics, and the calls that release memory. It has no
    /// streams, and [`Pinned::cache`] says what else holds for it.
    pub fn cache(&self) -> AnyAllocator {
        erase!(self, AnyPinned(pinned) => AnyAllocator(pinned.cache().clone()))
    }
}

erased! {
    /// Page-locked host memory: the erased form of [`PinnedBuffer`]. Dropping it returns the block to its cache; it is
    /// granted again only after the copies that use it.
    #[must_use = "a buffer that is not kept goes straight back to the cache"]
    #[derive(Debug)]
    AnyPinnedBuffer:
    PinnedBuffer<millpond_sim::Sim>, PinnedBuffer<millpond_cuda::Cuda>,
    PinnedBuffer<millpond_vulkan::Vulkan>, PinnedBuffer<millpond_wgpu::Wgpu>
}

impl AnyPinnedBuffer {
    /// Returns the requested size in bytes, all of which can be reached.
    pub fn len(&self) -> u64 {
        on!(self, AnyPinnedBuffer(buffer) => buffer.len())
    }

    /// Returns whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        on!(self, AnyPinnedBuffer(buffer) => buffer.is_empty())
    }

    /// Returns the size of its block in bytes.
    pub fn capacity(&self) -> u64 {
        on!(self, AnyPinnedBuffer(buffer) => buffer.capacity())
    }

    /// Returns the address at which devices see it, on devices that have addresses. `None` for an empty buffer.
    pub fn address(&self) -> Option<u64> {
        on!(self, AnyPinnedBuffer(buffer) => buffer.address())
    }

    /// Returns the address at which the host sees it; dangling for an empty buffer. [`PinnedBuffer::host_address`] says
    /// what accesses through it must heed.
    pub fn host_address(&self) -> NonNull<u8> {
        on!(self, AnyPinnedBuffer(buffer) => buffer.host_address())
    }

    /// Returns its bytes, to be read. Asks the driver for the progress of the streams that write to it, and never
    /// blocks.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`](millpond::Error::InUse) while a copy to it is in progress: [`wait`](Self::wait) first.
    pub fn bytes(&self) -> Result<&[u8], AnyError> {
        on!(self, AnyPinnedBuffer(buffer) => Ok(buffer.bytes()?))
    }

    /// Returns its bytes, to be written. Asks the driver for the progress of the streams that use it, and never blocks.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`](millpond::Error::InUse) while a copy from or to it is in progress.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8], AnyError> {
        on!(self, AnyPinnedBuffer(buffer) => Ok(buffer.bytes_mut()?))
    }

    /// Blocks until the device is done with it. Submits the streams that use it where their work is not submitted yet.
    ///
    /// # Errors
    ///
    /// The errors of [`PinnedBuffer::wait`].
    pub fn wait(&self) -> Result<(), AnyError> {
        on!(self, AnyPinnedBuffer(buffer) => Ok(buffer.wait()?))
    }

    /// Records that work of the program itself, queued on the stream, uses the buffer. Call it after each such piece of
    /// work. The copies of [`AnyStream`] do this themselves.
    ///
    /// # Errors
    ///
    /// The errors of [`PinnedBuffer::record_use`], and [`AnyError::OtherBackend`].
    pub fn record_use(&self, stream: &AnyStream) -> Result<(), AnyError> {
        on_both!(
            (self, stream), (AnyPinnedBuffer(buffer), AnyStream(stream)) => Ok(buffer.record_use(stream)?),
            else Err(other_backend("stream", stream.backend_name(), self.backend_name()))
        )
    }
}
