//! Optional powers, each a trait of its own. A backend that has one returns itself from the matching method of
//! [`Backend`](crate::Backend) and announces it in [`Caps`](crate::Caps).

use core::ptr::NonNull;

use crate::{BackendError, ClassId, Point, StreamId};

/// Address ranges without memory, and memory without addresses.
///
/// CUDA's virtual memory management, Vulkan's sparse binding, the simulated device's page table. A page is mapped
/// whole or not at all. Where [`PageCaps::aliasing`](crate::PageCaps::aliasing) says so, one page may be mapped at
/// several addresses at once, and all of them show the same bytes.
pub trait VirtualMemory {
    /// The backend's segment; here, a range of addresses.
    type Segment;
    /// A handle of physical memory.
    type Page;
    /// The driver's error.
    type Error: BackendError;

    /// Reserves `bytes` of addresses with nothing behind them. `bytes` is a multiple of the granularity.
    ///
    /// # Errors
    ///
    /// [`Fault::OutOfMemory`](crate::Fault::OutOfMemory) when the address space is exhausted.
    fn reserve_range(&self, class: ClassId, bytes: u64) -> Result<Self::Segment, Self::Error>;

    /// Gives the addresses back. Cannot fail, as [`Backend::release`](crate::Backend::release) cannot.
    ///
    /// # Safety
    ///
    /// Nothing is mapped in the range and no work will touch it.
    unsafe fn release_range(&self, range: Self::Segment);

    /// Creates physical memory of `bytes`, a multiple of the granularity.
    ///
    /// # Errors
    ///
    /// [`Fault::OutOfMemory`](crate::Fault::OutOfMemory) when the device has none left.
    fn create_page(&self, class: ClassId, bytes: u64) -> Result<Self::Page, Self::Error>;

    /// Gives physical memory back. Cannot fail.
    ///
    /// # Safety
    ///
    /// The page is mapped nowhere, and no work touches its bytes.
    unsafe fn release_page(&self, page: Self::Page);

    /// Maps the whole page at `offset` of the range and opens it for reading and writing by work that is recorded on
    /// `stream` from now on. Where mapping is itself queued work, `stream` is where it is ordered.
    ///
    /// # Errors
    ///
    /// The driver's; nothing is mapped then.
    ///
    /// # Safety
    ///
    /// The target addresses are unmapped. If the page is mapped elsewhere, the device allows aliasing and the caller
    /// orders the accesses.
    unsafe fn map(
        &self,
        range: &Self::Segment,
        offset: u64,
        page: &Self::Page,
        stream: StreamId,
    ) -> Result<(), Self::Error>;

    /// Unmaps the page that [`map`](VirtualMemory::map) put at `offset`. Does not wait for running work. Cannot fail,
    /// as `release` cannot.
    ///
    /// # Safety
    ///
    /// The page is mapped there, and no recorded or submitted work touches it through these addresses.
    unsafe fn unmap(&self, range: &Self::Segment, offset: u64, page: &Self::Page, stream: StreamId);
}

/// Makes one stream wait for a point of another, on the device, without the host waiting.
pub trait StreamWait {
    /// The driver's error.
    type Error: BackendError;

    /// Work recorded on `stream` from now on begins only after `point` is reached.
    ///
    /// # Errors
    ///
    /// The driver's; no wait is recorded then. [`Fault::NotNow`](crate::Fault::NotNow) if one of the streams cannot
    /// take part in a wait at this moment.
    fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), Self::Error>;
}

/// Segments that the host can touch.
pub trait HostMemory {
    /// The backend's segment.
    type Segment;

    /// Where the host sees the segment, or `None` if it cannot. The pointer is valid for the whole segment and until
    /// its release; ordering with device work is the caller's.
    fn host_address(&self, segment: &Self::Segment) -> Option<NonNull<u8>>;
}

/// Moving bytes, each call queued on a stream in order.
///
/// Offsets and lengths are in bytes and lie inside the segment; where the device wants a coarser alignment (4 bytes on
/// Vulkan and wgpu), the backend handles the rest itself or says so in its documentation.
pub trait Transfer {
    /// The backend's segment.
    type Segment;
    /// The driver's error.
    type Error: BackendError;

    /// Sets `bytes` bytes to `value`.
    ///
    /// # Errors
    ///
    /// The driver's, and a range that leaves the segment or touches unmapped addresses.
    fn fill(
        &self,
        stream: StreamId,
        segment: &Self::Segment,
        offset: u64,
        bytes: u64,
        value: u8,
    ) -> Result<(), Self::Error>;

    /// Sets bytes to 0 for good, as [`fill`](Transfer::fill) does, and refuses where what is queued on the stream does
    /// not run by itself, because it is being recorded into a graph (CUDA's captures): the bytes would stay as they are
    /// until the graph is launched, and be overwritten at every launch.
    ///
    /// # Errors
    ///
    /// As [`fill`](Transfer::fill).
    fn overwrite(&self, stream: StreamId, segment: &Self::Segment, offset: u64, bytes: u64) -> Result<(), Self::Error> {
        self.fill(stream, segment, offset, bytes, 0)
    }

    /// Whether [`copy`](Transfer::copy) takes the segment as one of its ends: any of this device's, and where bytes go
    /// from device to device those of another. Callers who cannot know whose a segment is ask this first. Calls no
    /// driver.
    fn can_copy(&self, segment: &Self::Segment) -> bool;

    /// Copies between two places of this device, or between it and another device of the same backend: the segments
    /// say where they live. The ranges must not overlap. The stream is this device's and orders the copy here; what
    /// the other device does with the bytes is ordered by whoever calls.
    ///
    /// # Errors
    ///
    /// As [`fill`](Transfer::fill).
    fn copy(
        &self,
        stream: StreamId,
        from: (&Self::Segment, u64),
        to: (&Self::Segment, u64),
        bytes: u64,
    ) -> Result<(), Self::Error>;

    /// Copies host bytes to the device. They are taken before the call returns; the device sees them in stream order.
    ///
    /// # Errors
    ///
    /// As [`fill`](Transfer::fill).
    fn upload(&self, stream: StreamId, from: &[u8], segment: &Self::Segment, offset: u64) -> Result<(), Self::Error>;

    /// Copies device bytes to the host, after all earlier work of the stream. Blocks until they are there, and submits
    /// what it needs to get there.
    ///
    /// # Errors
    ///
    /// As [`fill`](Transfer::fill).
    fn download(
        &self,
        stream: StreamId,
        segment: &Self::Segment,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), Self::Error>;
}

/// What is left of a class of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetInfo {
    /// Bytes that can still be had, as far as the platform tells.
    pub free_bytes: u64,
    /// Bytes there are in all.
    pub total_bytes: u64,
    /// Bytes that other processes hold, where the platform tells.
    pub others_bytes: Option<u64>,
    /// Bytes that this process holds, through Millpond or not, with what the driver keeps for it (contexts, modules),
    /// where the platform tells.
    pub process_bytes: Option<u64>,
}

/// How much memory the device has left.
pub trait Budget {
    /// The driver's error.
    type Error: BackendError;

    /// Asks the driver now. Costs a driver call.
    ///
    /// # Errors
    ///
    /// The driver's.
    fn budget(&self, class: ClassId) -> Result<BudgetInfo, Self::Error>;
}
