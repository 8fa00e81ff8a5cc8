//! Optional abilities, each with a trait. A backend that has one returns itself from the matching method of
//! [`Backend`](crate::Backend) and announces it in [`Caps`](crate::Caps).

use alloc::boxed::Box;
use core::ptr::NonNull;

use crate::{BackendError, ClassId, Point, StreamId, Tick};

/// Address ranges without memory, and memory without addresses.
///
/// Examples are CUDA's virtual memory management, Vulkan's sparse binding and the simulated device's page table. A page
/// is mapped whole or not at all. Where [`PageCaps::aliasing`](crate::PageCaps::aliasing) allows it, one page may be
/// mapped at several addresses at once, and all of them show the same bytes.
pub trait VirtualMemory {
    /// The backend's segment, which is here a range of addresses.
    type Segment;
    /// A handle of physical memory.
    type Page;
    /// The driver's error.
    type Error: BackendError;

    /// Reserves `bytes` of addresses with nothing behind them. `bytes` is a multiple of the granularity.
    ///
    /// # Errors
    ///
    /// Returns an error with [`Fault::OutOfMemory`](crate::Fault::OutOfMemory) when the address space is exhausted.
    fn reserve_range(&self, class: ClassId, bytes: u64) -> Result<Self::Segment, Self::Error>;

    /// Gives the addresses back. It cannot fail, like [`Backend::release`](crate::Backend::release).
    ///
    /// # Safety
    ///
    /// Nothing is mapped in the range, and no work will use it.
    unsafe fn release_range(&self, range: Self::Segment);

    /// Creates physical memory of `bytes`, a multiple of the granularity.
    ///
    /// # Errors
    ///
    /// Returns an error with [`Fault::OutOfMemory`](crate::Fault::OutOfMemory) when the device has none left.
    fn create_page(&self, class: ClassId, bytes: u64) -> Result<Self::Page, Self::Error>;

    /// Returns whether another process may have the page, such as by a handle that was exported: its memory cannot be
    /// taken away and put back without that process. It calls no driver. The default is for devices whose pages cannot
    /// be shared.
    fn is_shared(&self, page: &Self::Page) -> bool {
        let _ = page;
        false
    }

    /// Gives physical memory back. It cannot fail.
    ///
    /// # Safety
    ///
    /// The page is mapped nowhere, and no work uses its bytes.
    unsafe fn release_page(&self, page: Self::Page);

    /// Maps the whole page at `offset` of the range and opens it for reading and writing by work that is recorded on
    /// `stream` from now on. Where mapping is itself queued work, `stream` is where it is ordered.
    ///
    /// # Errors
    ///
    /// Returns the driver's error. Nothing is mapped then.
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

    /// Unmaps the page that [`map`](VirtualMemory::map) put at `offset`. It does not wait for running work. It cannot
    /// fail, like `release`.
    ///
    /// # Safety
    ///
    /// The page is mapped there, and no recorded or submitted work uses it through these addresses.
    unsafe fn unmap(&self, range: &Self::Segment, offset: u64, page: &Self::Page, stream: StreamId);
}

/// Makes one stream wait for a point of another, on the device, without the host waiting.
pub trait StreamWait {
    /// The driver's error.
    type Error: BackendError;

    /// Makes work that is recorded on `stream` from now on begin only after `point` is reached.
    ///
    /// # Errors
    ///
    /// Returns the driver's error, and then no wait is recorded. The error has [`Fault::NotNow`](crate::Fault::NotNow)
    /// if one of the streams cannot take part in a wait at this moment.
    fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), Self::Error>;
}

/// Access of the host to segments.
pub trait HostMemory {
    /// The backend's segment.
    type Segment;

    /// Returns the address at which the host can access the segment, or `None` if it cannot. The pointer is valid for
    /// the whole segment and until its release. The caller is responsible for the order with device work.
    fn host_address(&self, segment: &Self::Segment) -> Option<NonNull<u8>>;
}

/// Fills and copies of bytes, each queued on a stream in order.
///
/// Offsets and lengths are in bytes and lie inside the segment. Where the device needs a coarser alignment (4 bytes on
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
    /// Returns the driver's error, and an error for a range that leaves the segment or includes unmapped addresses.
    fn fill(
        &self,
        stream: StreamId,
        segment: &Self::Segment,
        offset: u64,
        bytes: u64,
        value: u8,
    ) -> Result<(), Self::Error>;

    /// Sets bytes to 0 permanently, as [`fill`](Transfer::fill) does, but refuses where what is queued on the stream
    /// does not run yet, because it is being recorded into a graph (CUDA's captures): the bytes would stay as they are
    /// until the graph is launched, and be overwritten at every launch.
    ///
    /// # Errors
    ///
    /// Returns an error as [`fill`](Transfer::fill) does.
    fn overwrite(&self, stream: StreamId, segment: &Self::Segment, offset: u64, bytes: u64) -> Result<(), Self::Error> {
        self.fill(stream, segment, offset, bytes, 0)
    }

    /// Returns whether [`copy`](Transfer::copy) accepts the segment as one of its ends: any segment of this device, and
    /// where bytes can be copied from device to device, those of another. Callers that cannot know which device a
    /// segment belongs to call this first. It calls no driver.
    fn can_copy(&self, segment: &Self::Segment) -> bool;

    /// Copies between two places of this device, or between it and another device of the same backend: the segments say
    /// where they are. The ranges must not overlap. The stream belongs to this device and orders the copy here. The
    /// caller orders what the other device does with the bytes.
    ///
    /// # Errors
    ///
    /// Returns an error as [`fill`](Transfer::fill) does.
    fn copy(
        &self,
        stream: StreamId,
        from: (&Self::Segment, u64),
        to: (&Self::Segment, u64),
        bytes: u64,
    ) -> Result<(), Self::Error>;

    /// Copies host bytes to the device. They are read before the call returns, and the device sees them in stream
    /// order.
    ///
    /// # Errors
    ///
    /// Returns an error as [`fill`](Transfer::fill) does.
    fn upload(&self, stream: StreamId, from: &[u8], segment: &Self::Segment, offset: u64) -> Result<(), Self::Error>;

    /// Copies device bytes to the host, after all earlier work of the stream. It blocks until they have arrived, and
    /// submits what it needs for that.
    ///
    /// # Errors
    ///
    /// Returns an error as [`fill`](Transfer::fill) does.
    fn download(
        &self,
        stream: StreamId,
        segment: &Self::Segment,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), Self::Error>;

    /// Begins a download and submits it, without waiting. Returns the tick that covers it, and what the bytes are taken
    /// from once that tick is reached. A backend has this if the host cannot reach memory of the device's: where it can
    /// ([`HostMemory`]), a download is a copy to such memory, and `None` is returned.
    ///
    /// # Errors
    ///
    /// Returns an error as [`fill`](Transfer::fill) does.
    #[expect(clippy::type_complexity, reason = "a tick and what arrives then, or nothing")]
    fn begin_download(
        &self,
        _stream: StreamId,
        _segment: &Self::Segment,
        _offset: u64,
        _bytes: u64,
    ) -> Result<Option<(Tick, Box<dyn Readback<Error = Self::Error>>)>, Self::Error> {
        Ok(None)
    }
}

/// Bytes that are being copied from the device to the host, from [`Transfer::begin_download`]. Dropping it abandons
/// them, and is allowed at any time.
pub trait Readback: Send {
    /// The driver's error.
    type Error: BackendError;

    /// Copies the bytes, all of them, to `to`. The tick that [`Transfer::begin_download`] has returned is reached, so
    /// it does not wait for the device.
    ///
    /// # Errors
    ///
    /// Returns the driver's error.
    fn read(self: Box<Self>, to: &mut [u8]) -> Result<(), Self::Error>;
}

/// The memory that is left of a class. [`BudgetInfo::new`] creates it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BudgetInfo {
    /// The bytes that can still be taken, as far as the platform reports it.
    pub free_bytes: u64,
    /// All bytes of the class, used or not.
    pub total_bytes: u64,
    /// The bytes that other processes hold, where the platform reports it.
    pub others_bytes: Option<u64>,
    /// The bytes that this process holds, through Millpond or not, including what the driver keeps for it (contexts,
    /// modules), where the platform reports it.
    pub process_bytes: Option<u64>,
}

impl BudgetInfo {
    /// Creates a report of how much of a class is left. By default it does not say who holds the rest.
    pub const fn new(free_bytes: u64, total_bytes: u64) -> Self {
        Self { free_bytes, total_bytes, others_bytes: None, process_bytes: None }
    }

    /// Sets [`others_bytes`](Self::others_bytes).
    #[must_use]
    pub const fn with_others_bytes(mut self, bytes: Option<u64>) -> Self {
        self.others_bytes = bytes;
        self
    }

    /// Sets [`process_bytes`](Self::process_bytes).
    #[must_use]
    pub const fn with_process_bytes(mut self, bytes: Option<u64>) -> Self {
        self.process_bytes = bytes;
        self
    }
}

/// A query for how much memory the device has left.
pub trait Budget {
    /// The driver's error.
    type Error: BackendError;

    /// Asks the driver for the present values. It costs a driver call.
    ///
    /// # Errors
    ///
    /// Returns the driver's error.
    fn budget(&self, class: ClassId) -> Result<BudgetInfo, Self::Error>;
}
