//! A buffer of page-locked host memory.

use std::fmt;
use std::ptr::NonNull;

use millpond_backend::Backend;

use super::uses::{Access, Uses};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::raw::host::{HostPlace, host_bytes, host_bytes_mut};
use crate::state::State;
use crate::stream::Stream;

/// Page-locked host memory. Dropping it returns the block to its cache, at once and without a driver call. The block is
/// reused only after the work that was recorded here.
///
/// The host reaches its bytes through [`bytes`](Self::bytes) and [`bytes_mut`](Self::bytes_mut), the device through
/// [`Stream::upload_pinned`] and [`Stream::download_pinned`]. Both at the same time would be a race, so the first two
/// ask the device for its progress and return an error while it may still use the bytes. The buffer may be sent to any
/// thread, shared with it and dropped there.
///
/// ```
/// use millpond::Allocator;
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::new(Sim::new());
/// let (stream, pinned) = (allocator.create_stream()?, allocator.pinned()?);
/// let result = stream.allocate(1024)?;
/// stream.fill(&result, 0, 1024, 7)?;
///
/// let mut back = pinned.allocate(1024)?;
/// stream.download_pinned((&result, 0), (&mut back, 0), 1024)?;
/// back.wait()?; // Until then `bytes` returns `Error::InUse`.
/// assert_eq!(back.bytes()?, [7; 1024]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a buffer that is not kept goes straight back to the cache"]
pub struct PinnedBuffer<B: Backend> {
    buffer: Buffer<B>,
    place: HostPlace,
    uses: Uses,
}

impl<B: Backend> PinnedBuffer<B> {
    /// Wraps a buffer. Returns `None` if the host does not see the memory.
    pub(crate) fn new(buffer: Buffer<B>) -> Option<Self> {
        let place = HostPlace::of(&buffer)?;
        Some(Self { buffer, place, uses: Uses::new() })
    }

    /// Returns the block behind it, for tracking its uses.
    pub(crate) fn buffer(&self) -> &Buffer<B> {
        &self.buffer
    }

    fn state(&self) -> &State<B> {
        self.buffer.lane().owner()
    }

    /// Returns the requested size in bytes, all of which can be reached.
    pub fn len(&self) -> u64 {
        self.buffer.len()
    }

    /// Returns whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the size of its block in bytes: `len` after rounding, or more where that stays within the slack.
    pub fn capacity(&self) -> u64 {
        self.buffer.capacity()
    }

    /// Returns the address at which devices see it, for kernels that read host memory, on devices that have addresses.
    /// `None` for an empty buffer. Record such work with [`record_use`](Self::record_use).
    pub fn address(&self) -> Option<u64> {
        self.buffer.address()
    }

    /// Returns the address at which the host sees it; dangling for an empty buffer. It is valid for `len` bytes as long
    /// as the buffer lives. Accesses through it must not overlap with the device's work or with the slices lent here.
    pub fn host_address(&self) -> NonNull<u8> {
        self.place.start()
    }

    /// Returns its bytes, to be read. Asks the driver for the progress of the streams that write to it, and never
    /// blocks.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while a copy to it is in progress: [`wait`](Self::wait) first. [`Error::Driver`] if a driver
    /// call fails.
    pub fn bytes(&self) -> Result<&[u8], Error<B::Error>> {
        let proof = self.uses.expect_no_conflict(self.state(), Access::Read)?;
        Ok(host_bytes(&self.place, &proof))
    }

    /// Returns its bytes, to be written. Asks the driver for the progress of the streams that use it, and never blocks.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while a copy from or to it is in progress: [`wait`](Self::wait) first, or take another buffer.
    /// [`Error::Driver`] if a driver call fails.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8], Error<B::Error>> {
        let proof = self.uses.expect_no_conflict(self.state(), Access::Write)?;
        Ok(host_bytes_mut(&mut self.place, &proof))
    }

    /// Submits the streams that use it, if their work is not submitted yet, and blocks until the device is done with
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::NotReached`] if a stream waits for work that was never submitted; [`Error::Driver`] if a driver call
    /// fails.
    pub fn wait(&self) -> Result<(), Error<B::Error>> {
        self.uses.wait(self.state())
    }

    /// Records that work of the program itself, queued on the stream, uses the buffer: everything queued there so far
    /// must be complete before the host accesses the memory or it is granted again. Call it after each such piece of
    /// work. The copies of [`Stream`] do this themselves.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if the stream is not of the device that the cache was made for; [`Error::SetAside`] if it
    /// is the cache's own.
    pub fn record_use(&self, stream: &Stream<B>) -> Result<(), Error<B::Error>> {
        self.expect_beside(stream)?;
        self.used(Access::Write, stream);
        Ok(())
    }

    /// Refuses a stream that is numbered by another backend, and the home stream of the cache, whose points mean
    /// nothing to its memory. A handle of that home stream exists if it was opened by its number before the cache set
    /// it aside.
    pub(crate) fn expect_beside(&self, stream: &Stream<B>) -> Result<(), Error<B::Error>> {
        let (own, other) = (self.state(), stream.lane().owner());
        if !own.is_beside(other) {
            Err(own.wrong_device("stream", other))
        } else if stream.id() == self.buffer.stream() {
            Err(Error::SetAside { stream: stream.id() })
        } else {
            Ok(())
        }
    }

    /// Announces that work on the buffer is about to be queued on the stream. The use is recorded when the returned
    /// value is dropped, so also when only a part of the work was queued, because of an error or a panic.
    pub(crate) fn in_use<'a>(&'a self, access: Access, stream: &'a Stream<B>) -> BeingUsed<'a, B> {
        BeingUsed { buffer: self, access, stream }
    }

    /// Records that work on the buffer was just queued on the stream.
    fn used(&self, access: Access, stream: &Stream<B>) {
        let point = self.state().mark(stream.id());
        self.uses.add(access, point);
        self.buffer.note_use(point);
    }
}

/// Records a use of a buffer when it is dropped.
#[must_use]
pub(crate) struct BeingUsed<'a, B: Backend> {
    buffer: &'a PinnedBuffer<B>,
    access: Access,
    stream: &'a Stream<B>,
}

impl<B: Backend> Drop for BeingUsed<'_, B> {
    fn drop(&mut self) {
        self.buffer.used(self.access, self.stream);
    }
}

impl<B: Backend> fmt::Debug for PinnedBuffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("host_address", &self.host_address())
            .finish()
    }
}
