//! The contract, verb by verb, each carried out by its room.

use std::ptr::NonNull;

use millpond_backend::{
    Backend, Budget, BudgetInfo, Caps, ClassId, HostMemory, Point, StreamId, StreamWait, Tick, Transfer, VirtualMemory,
};
#[cfg(doc)]
use millpond_kit::Misuse;

use super::CudaWith;
use crate::budget;
use crate::error::CudaError;
use crate::gear::Gear;
use crate::memory::segment::Segment;
use crate::pages::Page;

// SAFETY: segments are driver allocations, ranges driver reservations of at least the bytes asked for, which the driver
// keeps apart. A tick is reported only when the event recorded behind all its work was complete, and `open` is raised
// before that event is recorded, so that work behind it is marked with a later tick. Ticks rise (`TickClock::complete`
// panics if they fell), and stream ids are indices of a vector that only grows.
unsafe impl<G: Gear> Backend for CudaWith<G> {
    type Segment = Segment;
    type Page = Page;
    type Error = CudaError;

    fn caps(&self) -> &Caps {
        &self.device.caps
    }

    /// Creates a stream that does not wait for the legacy default stream, nor that stream for it
    /// (`CU_STREAM_NON_BLOCKING`).
    fn create_stream(&self) -> Result<StreamId, CudaError> {
        self.device.create_stream()
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.device.lanes.has(stream)
    }

    fn takes_work(&self, stream: StreamId) -> bool {
        self.raw_stream(stream).is_ok()
    }

    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, CudaError> {
        self.device.reserve(class, bytes)
    }

    unsafe fn release(&self, segment: Segment) {
        self.device.release(segment);
    }

    fn address(&self, segment: &Segment) -> Option<u64> {
        Some(segment.address)
    }

    #[inline]
    fn mark(&self, stream: StreamId) -> Tick {
        self.device.lane(stream).clock.mark()
    }

    fn open_tick(&self, stream: StreamId) -> Option<Tick> {
        Some(self.device.lane(stream).clock.open())
    }

    #[inline]
    fn reached(&self, stream: StreamId) -> Result<Tick, CudaError> {
        self.device.reached(stream)
    }

    fn wait(&self, point: Point) -> Result<Tick, CudaError> {
        self.device.wait(point)
    }

    /// Asks from time to time, with sleep between, because the driver's own wait spins, unless the device was opened
    /// with [`blocking_waits`](crate::CudaBuilder::blocking_waits): then it sleeps in the driver, and returns without
    /// delay.
    fn wait_asleep(&self, point: Point) -> Result<Tick, CudaError> {
        self.device.wait_asleep(point)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Segment = Segment, Page = Page, Error = CudaError>> {
        if self.device.has_pages() { Some(self) } else { None }
    }

    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = CudaError>> {
        Some(self)
    }

    fn host_memory(&self) -> Option<&dyn HostMemory<Segment = Segment>> {
        Some(self)
    }

    fn transfer(&self) -> Option<&dyn Transfer<Segment = Segment, Error = CudaError>> {
        Some(self)
    }

    fn budget(&self) -> Option<&dyn Budget<Error = CudaError>> {
        Some(self)
    }
}

impl<G: Gear> StreamWait for CudaWith<G> {
    type Error = CudaError;

    /// Closes the point's tick if it is still open. A point that is reached needs no driver call.
    ///
    /// # Errors
    ///
    /// [`Misuse::NeverMarked`] for a tick beyond the open one, [`CudaError::Capturing`] if either stream is being
    /// captured and the point is not reached, [`CudaError::Unregistered`], [`CudaError::OtherThread`], and the driver's
    /// errors.
    fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), CudaError> {
        self.device.wait_for(stream, &self.device, point)
    }
}

impl<G: Gear> VirtualMemory for CudaWith<G> {
    type Segment = Segment;
    type Page = Page;
    type Error = CudaError;

    fn reserve_range(&self, class: ClassId, bytes: u64) -> Result<Segment, CudaError> {
        self.device.reserve_range(class, bytes)
    }

    unsafe fn release_range(&self, range: Segment) {
        // SAFETY: the caller promises what the contract asks.
        unsafe { self.device.release_range(range) };
    }

    fn create_page(&self, class: ClassId, bytes: u64) -> Result<Page, CudaError> {
        self.device.create_page(class, bytes)
    }

    fn is_shared(&self, page: &Page) -> bool {
        self.device.is_shared(page)
    }

    unsafe fn release_page(&self, page: Page) {
        // SAFETY: the caller promises what the contract asks.
        unsafe { self.device.release_page(page) };
    }

    /// Maps the page immediately, on no stream. If the mapping cannot be opened for access, it is undone.
    unsafe fn map(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) -> Result<(), CudaError> {
        // SAFETY: the caller promises what the contract asks.
        unsafe { self.device.map(range, offset, page, stream) }
    }

    /// Unmaps the page immediately, on no stream, and waits for none.
    unsafe fn unmap(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) {
        // SAFETY: the caller promises what the contract asks.
        unsafe { self.device.unmap(range, offset, page, stream) };
    }
}

impl<G: Gear> HostMemory for CudaWith<G> {
    type Segment = Segment;

    fn host_address(&self, segment: &Segment) -> Option<NonNull<u8>> {
        segment.host.map(|pointer| pointer.0)
    }
}

impl<G: Gear> Budget for CudaWith<G> {
    type Error = CudaError;

    /// Returns what the driver reports for the device's own memory, and what the operating system has available for
    /// page-locked memory. The bytes of this process and of others are known only with the feature `nvml`, which costs
    /// some calls of that library, and only where it reports processes: in a container that numbers them anew it does
    /// not.
    ///
    /// # Errors
    ///
    /// The driver's errors, and [`Misuse::Unsupported`] where the system does not report the host's memory.
    fn budget(&self, class: ClassId) -> Result<BudgetInfo, CudaError> {
        budget::budget(&self.device, class)
    }
}

impl<G: Gear> Transfer for CudaWith<G> {
    type Segment = Segment;
    type Error = CudaError;

    fn fill(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64, value: u8) -> Result<(), CudaError> {
        self.device.fill(stream, segment, offset, bytes, value)
    }

    /// Fills with 0, as `fill` does. Costs one more driver call, which queries whether the stream is being captured.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`], and the errors of `fill`.
    fn overwrite(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64) -> Result<(), CudaError> {
        self.device.overwrite(stream, segment, offset, bytes)
    }

    /// Returns `true` always: the driver copies between all its devices, with peer access or without.
    fn can_copy(&self, _segment: &Segment) -> bool {
        true
    }

    /// Copies within this device, to or from page-locked segments, and between this device and another, with peer
    /// access or without, segments and ranges alike. The stream orders the copy on this device. The caller orders the
    /// other device's streams, with [`Cuda::wait_for_peer`](crate::Cuda::wait_for_peer) on the device or with waits on
    /// the host.
    ///
    /// # Errors
    ///
    /// [`Misuse::Foreign`] if neither segment is this device's, or if one is page-locked and the other is not this
    /// device's, which the other device can copy; [`Misuse::Overlap`], [`Misuse::OutOfRange`],
    /// [`Misuse::Unmapped`], [`CudaError::Copy`] with both ends, [`CudaError::Unregistered`],
    /// [`CudaError::OtherThread`], and the driver's errors.
    fn copy(&self, stream: StreamId, from: (&Segment, u64), to: (&Segment, u64), bytes: u64) -> Result<(), CudaError> {
        self.device.copy(stream, from, to, bytes)
    }

    /// Copies host bytes to the device, through the stream's staging ring of 4 MiB. Where more than that is in progress
    /// on the stream, waits for the oldest piece.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`] if the stream is being captured, because a graph would read the ring; copy from a
    /// page-locked segment instead. The call fails in the same way if another thread begins to capture the stream in
    /// the meantime; some of the bytes may then have been copied, and the graph must not be launched. Further
    /// [`Misuse::Foreign`], [`Misuse::OutOfRange`], [`Misuse::Unmapped`], [`CudaError::Copy`] with both ends,
    /// [`CudaError::Unregistered`], [`CudaError::OtherThread`], and the driver's errors.
    fn upload(&self, stream: StreamId, from: &[u8], segment: &Segment, offset: u64) -> Result<(), CudaError> {
        self.device.upload(stream, from, segment, offset)
    }

    /// Copies device bytes to the host, through the stream's staging ring.
    ///
    /// # Errors
    ///
    /// The errors of [`upload`](Transfer::upload).
    fn download(&self, stream: StreamId, segment: &Segment, offset: u64, to: &mut [u8]) -> Result<(), CudaError> {
        self.device.download(stream, segment, offset, to)
    }
}
