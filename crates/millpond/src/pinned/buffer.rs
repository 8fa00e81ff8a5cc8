//! A buffer of page-locked host memory.

use std::fmt;
use std::ptr::NonNull;

use millpond_backend::Backend;

use super::uses::{Access, Uses};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::raw::{self, HostPlace};
use crate::state::State;
use crate::stream::Stream;

/// Page-locked host memory. Dropping it gives the block back to its cache, at once and without a call of the driver:
/// who gets it next gets it after the work that was recorded here.
///
/// The host reaches its bytes through [`bytes`](Self::bytes) and [`bytes_mut`](Self::bytes_mut), the device through
/// [`Stream::upload_pinned`] and [`Stream::download_pinned`]. Both at once would be a race, so the first two ask how
/// far the device is and refuse while it may be in the way. It may be sent to, shared with and dropped on any thread.
#[must_use = "a buffer that is not kept goes straight back to the cache"]
pub struct PinnedBuffer<B: Backend> {
    buffer: Buffer<B>,
    place: HostPlace,
    uses: Uses,
}

impl<B: Backend> PinnedBuffer<B> {
    /// `None` if the host does not see the memory.
    pub(crate) fn new(buffer: Buffer<B>) -> Option<Self> {
        let place = HostPlace::of(&buffer)?;
        Some(Self { buffer, place, uses: Uses::new() })
    }

    /// The block behind it, for those who watch over its uses.
    pub(crate) fn buffer(&self) -> &Buffer<B> {
        &self.buffer
    }

    pub(crate) fn place(&self) -> &HostPlace {
        &self.place
    }

    fn state(&self) -> &State<B> {
        self.buffer.lane().owner()
    }

    /// What was asked for, in bytes: as many can be reached.
    pub fn len(&self) -> u64 {
        self.buffer.len()
    }

    /// Whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// How many bytes it keeps from others: `len` after rounding, or more where that stays within the slack.
    pub fn capacity(&self) -> u64 {
        self.buffer.capacity()
    }

    /// Where devices see it, for kernels that read host memory, on devices that have addresses. `None` for an empty
    /// buffer. Tell of such work with [`record_use`](Self::record_use).
    pub fn address(&self) -> Option<u64> {
        self.buffer.address()
    }

    /// Where the host sees it; dangling for an empty buffer. Valid for `len` bytes as long as the buffer lives. Who
    /// goes through it keeps clear of the device's work and of the slices lent here.
    pub fn host_address(&self) -> NonNull<u8> {
        self.place.start()
    }

    /// Its bytes, to be read. Asks the driver how far the streams are that write to it, and never blocks.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while a copy to it is under way: [`wait`](Self::wait) first. [`Error::Driver`].
    pub fn bytes(&self) -> Result<&[u8], Error<B::Error>> {
        let idle = self.uses.expect_idle(self.state(), Access::Read)?;
        Ok(raw::host_bytes(self, &idle))
    }

    /// Its bytes, to be written. Asks the driver how far the streams are that use it, and never blocks.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while a copy from or to it is under way: [`wait`](Self::wait) first, or take another buffer.
    /// [`Error::Driver`].
    pub fn bytes_mut(&mut self) -> Result<&mut [u8], Error<B::Error>> {
        let idle = self.uses.expect_idle(self.state(), Access::Write)?;
        Ok(raw::host_bytes_mut(self, &idle))
    }

    /// Blocks until the device is done with it. Submits the streams that use it where that is still to be done.
    ///
    /// # Errors
    ///
    /// [`Error::NotReached`] if a stream waits for work that nobody submitted; [`Error::Driver`].
    pub fn wait(&self) -> Result<(), Error<B::Error>> {
        self.uses.wait(self.state())
    }

    /// The buffer is used by work of the program's own that was queued on the stream: everything that is queued there
    /// so far must be done before the host or anyone else gets the memory. Call it after each such work. The copies of
    /// [`Stream`] do this themselves.
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

    /// Refuses a stream that is numbered by another backend, and the home of the buffer's own memory, whose points mean
    /// nothing to that memory. A handle of that stream can be had by who names it before the cache has set it aside.
    pub(crate) fn expect_beside(&self, stream: &Stream<B>) -> Result<(), Error<B::Error>> {
        let (own, other) = (self.state(), stream.lane().owner());
        if !own.is_beside(other) {
            Err(Error::WrongDevice { what: "stream", belongs_to: other.device, given_to: own.device })
        } else if stream.id() == self.buffer.stream() {
            Err(Error::SetAside { stream: stream.id() })
        } else {
            Ok(())
        }
    }

    /// Work on the buffer is about to be queued on the stream. It is noted when the answer is dropped, so also when
    /// only a part of it was queued, because of an error or a panic.
    pub(crate) fn in_use<'a>(&'a self, access: Access, stream: &'a Stream<B>) -> BeingUsed<'a, B> {
        BeingUsed { buffer: self, access, stream }
    }

    /// Work on the buffer was queued on the stream just now.
    fn used(&self, access: Access, stream: &Stream<B>) {
        let point = self.state().mark(stream.id());
        self.uses.add(access, point);
        self.buffer.note_use(point);
    }
}

/// Notes a use of a buffer when it is dropped.
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
