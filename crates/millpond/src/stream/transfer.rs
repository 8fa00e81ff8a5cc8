//! Moving bytes into, out of and between buffers, as queued work of a stream.

use millpond_backend::{Backend, Transfer};

use super::Stream;
use crate::buffer::Buffer;
use crate::error::Error;

/// How a device moves bytes.
pub(super) type Device<'a, B> = dyn Transfer<Segment = <B as Backend>::Segment, Error = <B as Backend>::Error> + 'a;

/// Moving bytes. Each call is queued on this stream, behind what was queued there before; where the application closes
/// ticks (Vulkan, wgpu) it runs once the stream is [submitted](Stream::submit), and a download submits by itself.
///
/// Offsets and lengths are in bytes, and offsets count from the start of the buffer. All of its
/// [`capacity`](Buffer::capacity) may be used. 0 bytes are moved without a call of the driver, also of an empty buffer.
/// wgpu writes whole words: there offsets and lengths that are no multiples of 4 are refused, except by downloads.
///
/// The allocator does not watch who uses what. A buffer that is moved on another stream than its own
/// ([`Buffer::stream`]) needs [`record_stream`](Buffer::record_stream) or [`used_until`](Buffer::used_until) as after
/// any other use there, and the two streams must be ordered ([`wait_for`](Stream::wait_for)).
impl<B: Backend> Stream<B> {
    /// Sets `bytes` bytes of the buffer to `value`, beginning at `offset`. Does not block; costs what recording a
    /// command costs.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for another allocator's buffer, [`Error::OutOfRange`], [`Error::Unsupported`] on a device
    /// that cannot move bytes, and [`Error::Driver`].
    pub fn fill(&self, buffer: &Buffer<B>, offset: u64, bytes: u64, value: u8) -> Result<(), Error<B::Error>> {
        let device = self.mover()?;
        let Some((segment, at)) = self.place(buffer, offset, bytes)? else { return Ok(()) };
        device.fill(self.id(), segment, at, bytes, value).map_err(|e| Error::driver("fill", e))
    }

    /// Copies host bytes into the buffer, beginning at `offset`. They are taken before the call returns; the device
    /// sees them in the order of the stream. Costs a copy into memory that the device can read, and blocks only where
    /// that is used up by earlier uploads of the stream.
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::new(Sim::builder().bytes(true).build());
    /// let stream = allocator.create_stream()?;
    /// let (from, to) = (stream.allocate(8)?, stream.allocate(8)?);
    /// stream.upload(&from, 0, b"millpond")?;
    /// stream.fill(&to, 0, 8, b'.')?;
    /// stream.copy((&from, 4), (&to, 0), 4)?;
    /// let mut bytes = [0; 8];
    /// stream.download(&to, 0, &mut bytes)?;
    /// assert_eq!(&bytes, b"pond....");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill).
    pub fn upload(&self, buffer: &Buffer<B>, offset: u64, from: &[u8]) -> Result<(), Error<B::Error>> {
        let device = self.mover()?;
        let Some((segment, at)) = self.place(buffer, offset, from.len() as u64)? else { return Ok(()) };
        device.upload(self.id(), from, segment, at).map_err(|e| Error::driver("upload", e))
    }

    /// Copies bytes of the buffer to the host, beginning at `offset`, behind all earlier work of the stream. Submits
    /// the stream and **blocks** until they are there; unless there are none to copy.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill); what `to` holds then is not said.
    pub fn download(&self, buffer: &Buffer<B>, offset: u64, to: &mut [u8]) -> Result<(), Error<B::Error>> {
        let device = self.mover()?;
        let Some((segment, at)) = self.place(buffer, offset, to.len() as u64)? else { return Ok(()) };
        device.download(self.id(), segment, at, to).map_err(|e| Error::driver("download", e))
    }

    /// Copies `bytes` bytes from one place to another, each a buffer and an offset in it. Both may be in one buffer, as
    /// long as no byte is both read and written. Does not block; costs what recording a command costs.
    ///
    /// # Errors
    ///
    /// As [`fill`](Self::fill), for both buffers; [`Error::Driver`] if the places overlap.
    pub fn copy(&self, from: (&Buffer<B>, u64), to: (&Buffer<B>, u64), bytes: u64) -> Result<(), Error<B::Error>> {
        let device = self.mover()?;
        let (from, to) = (self.place(from.0, from.1, bytes)?, self.place(to.0, to.1, bytes)?);
        let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
        device.copy(self.id(), from, to, bytes).map_err(|e| Error::driver("copy", e))
    }

    pub(super) fn mover(&self) -> Result<&Device<'_, B>, Error<B::Error>> {
        let none = || self.unsupported("transfers", "move the bytes with commands of your own");
        self.lane.owner().backend.transfer().ok_or_else(none)
    }

    /// Where a range of a buffer lies; `None` for no bytes, which lie nowhere.
    #[expect(clippy::type_complexity, reason = "a segment and an offset, as transfers take them")]
    pub(super) fn place<'b>(
        &self,
        buffer: &'b Buffer<B>,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<(&'b B::Segment, u64)>, Error<B::Error>> {
        self.lane.owner().expect_own("buffer", buffer.lane().owner())?;
        let capacity = buffer.capacity();
        if offset.checked_add(bytes).is_none_or(|end| end > capacity) {
            return Err(Error::OutOfRange { offset, bytes, capacity });
        }
        if bytes == 0 {
            return Ok(None);
        }
        Ok(buffer.segment().map(|segment| (segment, buffer.offset() + offset)))
    }
}
