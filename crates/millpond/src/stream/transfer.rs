//! Moving bytes into, out of and between buffers, as queued work of a stream.

use millpond_backend::{Backend, BackendError, Transfer};

use super::Stream;
use crate::buffer::Buffer;
use crate::error::Error;

/// The transfers of a device.
pub(crate) type Device<'a, B> = dyn Transfer<Segment = <B as Backend>::Segment, Error = <B as Backend>::Error> + 'a;

/// A segment and an offset in it, as transfers take them.
pub(crate) type Place<'b, B> = Option<(&'b <B as Backend>::Segment, u64)>;

/// Transfers of bytes. Each call is queued on this stream, behind what was queued there before. Where the application
/// closes ticks (Vulkan, wgpu), it runs once the stream is [submitted](Stream::submit); a download submits the stream
/// itself.
///
/// Offsets and lengths are in bytes, and offsets count from the start of the buffer. Transfers end at its
/// [`len`](Buffer::len), the requested size: the bytes that rounding added hold what the last owner left there. A
/// transfer of 0 bytes makes no driver call and is allowed on an empty buffer. Any offset and any length is allowed;
/// where the device itself moves whole words (wgpu), the few bytes beyond them cost a dispatch of a shader.
///
/// The allocator does not track which work uses which buffer. A buffer that is transferred on another stream than its
/// own ([`Buffer::stream`]) needs [`record_stream`](Buffer::record_stream) or [`used_until`](Buffer::used_until) like
/// any other use there, and the two streams must be ordered ([`wait_for`](Stream::wait_for)).
impl<B: Backend> Stream<B> {
    /// Sets `bytes` bytes of the buffer to `value`, beginning at `offset`. Does not block; costs as much as recording a
    /// command.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for another allocator's buffer, [`Error::OutOfRange`], [`Error::Paused`] for a buffer of
    /// a paused group, [`Error::Unsupported`] on a device that cannot move bytes, and [`Error::Driver`].
    pub fn fill(&self, buffer: &Buffer<B>, offset: u64, bytes: u64, value: u8) -> Result<(), Error<B::Error>> {
        let device = self.mover()?;
        let Some((segment, at)) = self.place(buffer, offset, bytes)? else { return Ok(()) };
        device.fill(self.id(), segment, at, bytes, value).map_err(|e| Error::of_driver("fill", e))
    }

    /// Copies host bytes into the buffer, beginning at `offset`. They are read before the call returns; the device sees
    /// them in the order of the stream. Costs a copy into memory that the device can read, and blocks only if earlier
    /// uploads of the stream have used that memory up.
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::new(Sim::new());
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
    /// Returns the errors of [`fill`](Self::fill).
    pub fn upload(&self, buffer: &Buffer<B>, offset: u64, from: &[u8]) -> Result<(), Error<B::Error>> {
        let device = self.mover()?;
        let Some((segment, at)) = self.place(buffer, offset, from.len() as u64)? else { return Ok(()) };
        device.upload(self.id(), from, segment, at).map_err(|e| Error::of_driver("upload", e))
    }

    /// Copies bytes of the buffer to the host, starting at `offset`, after all earlier work of the stream. Submits the
    /// stream and **blocks** until the bytes are there. With no bytes to copy it does neither.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`fill`](Self::fill), after which the contents of `to` are unspecified.
    pub fn download(&self, buffer: &Buffer<B>, offset: u64, to: &mut [u8]) -> Result<(), Error<B::Error>> {
        let device = self.mover()?;
        let Some((segment, at)) = self.place(buffer, offset, to.len() as u64)? else { return Ok(()) };
        let state = self.lane().owner();
        let before = state.sinks.is_on().then(|| state.mark(self.id()));
        device.download(self.id(), segment, at, to).map_err(|e| Error::of_driver("download", e))?;
        if let Some(point) = before {
            state.note_downloaded(point);
        }
        Ok(())
    }

    /// Copies `bytes` bytes from one place to another, each a buffer and an offset in it. Both may be in one buffer, as
    /// long as no byte is both read and written. Does not block; costs as much as recording a command.
    ///
    /// One of the two may be another allocator's buffer: of the same device, such as page-locked memory, and of another
    /// device where the backend copies between devices (CUDA does, with peer access or without). The copy is work of
    /// this stream, and only this stream orders it. The other allocator does not know about it, and points of its
    /// streams mean nothing here. So before the copy, wait until the other buffer's last work is complete, and until
    /// the copy is complete neither use that buffer nor drop it: [`synchronize`](Self::synchronize) the other stream
    /// before, and this one after. A buffer of the same device is simpler: allocate it on this very stream, through a
    /// handle of its own allocator ([`Allocator::stream`](crate::Allocator::stream)). On CUDA the devices can wait
    /// instead of the host: call `Cuda::wait_for_peer` of `millpond-cuda`, here for a point of the other buffer's
    /// stream before the copy, and there for a point of this stream after it; then the other buffer may be dropped at
    /// once.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`fill`](Self::fill), for both buffers, except that [`Error::WrongDevice`] is for a buffer
    /// that the device cannot copy from or to, and for two buffers of other allocators; [`Error::Driver`] also if the
    /// places overlap.
    pub fn copy(&self, from: (&Buffer<B>, u64), to: (&Buffer<B>, u64), bytes: u64) -> Result<(), Error<B::Error>> {
        let device = self.mover()?;
        let state = self.lane.owner();
        let is_own = |buffer: &Buffer<B>| std::ptr::eq(state, buffer.lane().owner());
        let can_copy = |buffer: &Buffer<B>| buffer.segment().is_none_or(|segment| device.can_copy(segment));
        for (buffer, other) in [(from.0, to.0), (to.0, from.0)] {
            if !(is_own(buffer) || is_own(other) && can_copy(buffer)) {
                state.expect_own("buffer", buffer.lane().owner())?;
            }
        }
        let (Some(from), Some(to)) = (inside(from.0, from.1, bytes)?, inside(to.0, to.1, bytes)?) else {
            return Ok(());
        };
        device.copy(self.id(), from, to, bytes).map_err(|e| Error::of_driver("copy", e))
    }

    pub(crate) fn mover(&self) -> Result<&Device<'_, B>, Error<B::Error>> {
        let none = || self.unsupported("transfers", "move the bytes with commands of your own");
        self.lane.owner().backend.transfer().ok_or_else(none)
    }

    /// Returns the place of a range of one of the allocator's own buffers; `None` for no bytes.
    pub(crate) fn place<'b>(
        &self,
        buffer: &'b Buffer<B>,
        offset: u64,
        bytes: u64,
    ) -> Result<Place<'b, B>, Error<B::Error>> {
        self.lane.owner().expect_own("buffer", buffer.lane().owner())?;
        inside(buffer, offset, bytes)
    }
}

/// Returns the place of a range of a buffer; `None` for no bytes, which have no place.
fn inside<B: Backend>(buffer: &Buffer<B>, offset: u64, bytes: u64) -> Result<Place<'_, B>, Error<B::Error>> {
    expect_inside(buffer.len(), offset, bytes)?;
    if bytes == 0 {
        return Ok(None);
    }
    buffer.lane().owner().expect_memory_at(buffer.lane().shard)?;
    Ok(buffer.segment().map(|segment| (segment, buffer.offset() + offset)))
}

/// Refuses a range that leaves a buffer of `len` requested bytes.
pub(crate) fn expect_inside<E: BackendError>(len: u64, offset: u64, bytes: u64) -> Result<(), Error<E>> {
    match offset.checked_add(bytes) {
        Some(end) if end <= len => Ok(()),
        _ => Err(Error::OutOfRange { offset, bytes, len }),
    }
}
