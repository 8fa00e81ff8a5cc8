//! Copies between page-locked host memory and the device.

use millpond_backend::Backend;

use super::buffer::PinnedBuffer;
use super::uses::Access;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::stream::Stream;
use crate::stream::transfer::expect_inside;

/// Copies between page-locked host memory and the device, each queued on this stream behind what was queued there
/// before. None of them blocks. They record their use on the pinned buffer, which can be dropped at once.
///
/// The copies that a graph captured from the stream makes at each of its launches are not recorded: keep the buffer for
/// as long as the graph.
impl<B: Backend> Stream<B> {
    /// Copies `bytes` bytes from the host to the device. Each place is a buffer and an offset in it, in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] for a buffer of another allocator or of another device's cache, [`Error::SetAside`] on
    /// the cache's own stream, [`Error::OutOfRange`], [`Error::Unsupported`] on a device that cannot move bytes, and
    /// [`Error::Driver`].
    pub fn upload_pinned(
        &self,
        from: (&PinnedBuffer<B>, u64),
        to: (&Buffer<B>, u64),
        bytes: u64,
    ) -> Result<(), Error<B::Error>> {
        let device = self.mover()?;
        let (source, target) = (self.host_place(from.0, from.1, bytes)?, self.place(to.0, to.1, bytes)?);
        let (Some(source), Some(target)) = (source, target) else { return Ok(()) };
        let _use = from.0.in_use(Access::Read, self);
        device.copy(self.id(), source, target, bytes).map_err(|e| Error::of_driver("copy", e))
    }

    /// Copies `bytes` bytes from the device to the host. Each place is a buffer and an offset in it, in bytes. The
    /// bytes are there once [`PinnedBuffer::wait`] has returned, or once [`PinnedBuffer::bytes`] returns them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`upload_pinned`](Self::upload_pinned).
    pub fn download_pinned(
        &self,
        from: (&Buffer<B>, u64),
        to: (&mut PinnedBuffer<B>, u64),
        bytes: u64,
    ) -> Result<(), Error<B::Error>> {
        let device = self.mover()?;
        let (source, target) = (self.place(from.0, from.1, bytes)?, self.host_place(to.0, to.1, bytes)?);
        let (Some(source), Some(target)) = (source, target) else { return Ok(()) };
        let _use = to.0.in_use(Access::Write, self);
        device.copy(self.id(), source, target, bytes).map_err(|e| Error::of_driver("copy", e))
    }

    /// Returns the place of a range of a pinned buffer; `None` for no bytes.
    #[expect(clippy::type_complexity, reason = "a segment and an offset, as transfers take them")]
    fn host_place<'b>(
        &self,
        pinned: &'b PinnedBuffer<B>,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<(&'b B::Segment, u64)>, Error<B::Error>> {
        pinned.expect_beside(self)?;
        expect_inside(pinned.len(), offset, bytes)?;
        if bytes == 0 {
            return Ok(None);
        }
        let buffer = pinned.buffer();
        Ok(buffer.segment().map(|segment| (segment, buffer.offset() + offset)))
    }
}
