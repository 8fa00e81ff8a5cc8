//! The contract, by the rooms.

use millpond_backend::{Backend, Caps, ClassId, Left, Point, Readback, StreamId, StreamWait, Tick, Transfer};

use super::Wgpu;
use crate::error::WgpuError;
use crate::memory::Segment;
use crate::open::Page;

// SAFETY: each segment is a buffer of its own, made by wgpu with the bytes that were asked for. A lane's `reached`
// rises only when wgpu reports that the submission of that tick is done: in the callback left behind it, or by a wait
// for its index. A tick is closed before its work is submitted and under the lock that recording takes, so work that
// was recorded before a mark is in that tick's submission or in a later one, and ticks are submitted in their order.
// Stream ids are indices of a vector that only grows.
unsafe impl Backend for Wgpu {
    type Segment = Segment;
    type Page = Page;
    type Error = WgpuError;

    fn caps(&self) -> &Caps {
        &self.shared.memory.caps
    }

    fn create_stream(&self) -> Result<StreamId, WgpuError> {
        self.shared.streams.create()
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.shared.streams.has(stream)
    }

    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, WgpuError> {
        self.shared.memory.reserve(class, bytes)
    }

    unsafe fn release(&self, segment: Segment) {
        self.shared.memory.release(segment);
    }

    /// Lets wgpu have the buffers. It knows of all work that was recorded with them, and frees the memory after it.
    unsafe fn leave(&self, left: Left<Segment, Page>) {
        let Left { segments, ranges, pages, .. } = left;
        if self.shared.memory.caps.pages.is_some() {
            self.leave_pages(&ranges, pages);
        }
        self.shared.memory.leave(segments.into_iter().chain(ranges).collect());
    }

    fn address(&self, _segment: &Segment) -> Option<u64> {
        None
    }

    #[inline]
    fn mark(&self, stream: StreamId) -> Tick {
        self.shared.streams.lane(stream).clock.ticks.open()
    }

    #[inline]
    fn reached(&self, stream: StreamId) -> Result<Tick, WgpuError> {
        self.shared.time.reached(&self.shared.streams.lane(stream).clock)
    }

    fn submit(&self, stream: StreamId) -> Result<Tick, WgpuError> {
        self.submit_with(stream, [])
    }

    fn wait(&self, point: Point) -> Result<Tick, WgpuError> {
        let shared = &*self.shared;
        shared.driver.alive()?;
        shared.time.wait(&shared.streams.lane(point.stream).clock, point.tick)
    }

    #[cfg(all(feature = "vulkan-segments", not(target_vendor = "apple"), not(target_family = "wasm")))]
    fn virtual_memory(
        &self,
    ) -> Option<&dyn millpond_backend::VirtualMemory<Segment = Segment, Page = Page, Error = WgpuError>> {
        if self.shared.memory.caps.pages.is_some() { Some(self) } else { None }
    }

    #[cfg(all(feature = "vulkan-segments", not(target_vendor = "apple"), not(target_family = "wasm")))]
    fn budget(&self) -> Option<&dyn millpond_backend::Budget<Error = WgpuError>> {
        if self.shared.memory.caps.budget { Some(self) } else { None }
    }

    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = WgpuError>> {
        Some(self)
    }

    fn transfer(&self) -> Option<&dyn Transfer<Segment = Segment, Error = WgpuError>> {
        Some(self)
    }
}

impl StreamWait for Wgpu {
    type Error = WgpuError;

    /// Checks that the point's work is submitted; the wait itself costs nothing: there is one queue, and work that was
    /// submitted runs before work that is submitted later. A wait of a stream for itself is always allowed.
    ///
    /// # Errors
    ///
    /// [`WgpuError::NotSubmitted`] if the point's stream was not submitted, which must come first; [`WgpuError::Lost`].
    fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), WgpuError> {
        self.shared.driver.enter("wait_for")?;
        self.shared.streams.lane(stream);
        let submitted = self.submitted(point.stream).0;
        if stream == point.stream || point.tick.0 <= submitted {
            Ok(())
        } else {
            Err(WgpuError::NotSubmitted { point, submitted })
        }
    }
}

/// Transfers run in stream order, through the stream's own encoder, and take any range. wgpu itself writes whole words:
/// the bytes beyond them, at most three at each end, are written by a shader, and so is all of a copy whose two places
/// differ by no multiple of 4. Where segments have not the usage `STORAGE`, such ranges are refused with
/// [`Misuse::Misaligned`](crate::Misuse::Misaligned).
///
/// An upload does not go through `Queue::write_buffer`: that would write before everything that is submitted next, also
/// before work recorded earlier that still uses the block for its previous user.
impl Transfer for Wgpu {
    type Segment = Segment;
    type Error = WgpuError;

    fn fill(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64, value: u8) -> Result<(), WgpuError> {
        self.shared.transfers.fill(stream, segment, offset, bytes, value)
    }

    /// Returns whether the segment belongs to this device: a buffer of another wgpu device cannot be used on this one.
    fn can_copy(&self, segment: &Segment) -> bool {
        segment.of(&self.shared.memory.account, "copy").is_ok()
    }

    fn copy(&self, stream: StreamId, from: (&Segment, u64), to: (&Segment, u64), bytes: u64) -> Result<(), WgpuError> {
        self.shared.transfers.copy(stream, from, to, bytes)
    }

    fn upload(&self, stream: StreamId, from: &[u8], segment: &Segment, offset: u64) -> Result<(), WgpuError> {
        self.shared.transfers.upload(stream, from, segment, offset)
    }

    fn download(&self, stream: StreamId, segment: &Segment, offset: u64, to: &mut [u8]) -> Result<(), WgpuError> {
        self.shared.transfers.download(stream, segment, offset, to)
    }

    /// Begins a download to buffers that can be mapped: wgpu has no memory that the host and the device reach at the
    /// same time.
    fn begin_download(
        &self,
        stream: StreamId,
        segment: &Segment,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<(Tick, Box<dyn Readback<Error = WgpuError>>)>, WgpuError> {
        let (tick, arriving) = self.shared.transfers.begin_download(stream, segment, offset, bytes)?;
        Ok(Some((tick, Box::new(arriving))))
    }
}
