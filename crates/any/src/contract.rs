//! The contract of backends, carried out by the device that was chosen.

#![allow(unsafe_code)] // The contract's unsafe trait and methods.

use std::ptr::NonNull;

use millpond_backend::{
    Backend, BackendError, Budget, BudgetInfo, Caps, ClassId, HostMemory, Left, Point, Readback, StreamId, StreamWait,
    Tick, Transfer, VirtualMemory,
};

use crate::device::AnyDevice;
use crate::error::DriverError;
use crate::macros::{erase, on};
use crate::memory::{AnyPage, AnySegment, Known};

// SAFETY: each method is the method of the same name of one device, always the same one, which upholds the contract.
// What it returned is only wrapped, and `Known` gives it back to a device of the same backend or panics.
unsafe impl Backend for AnyDevice {
    type Segment = AnySegment;
    type Page = AnyPage;
    type Error = DriverError;

    #[inline]
    fn caps(&self) -> &Caps {
        on!(self, AnyDevice(device) => device.caps())
    }

    fn create_stream(&self) -> Result<StreamId, DriverError> {
        on!(self, AnyDevice(device) => Ok(device.create_stream()?))
    }

    #[inline]
    fn has_stream(&self, stream: StreamId) -> bool {
        on!(self, AnyDevice(device) => device.has_stream(stream))
    }

    fn takes_work(&self, stream: StreamId) -> bool {
        on!(self, AnyDevice(device) => device.takes_work(stream))
    }

    fn reserve(&self, class: ClassId, bytes: u64) -> Result<AnySegment, DriverError> {
        Ok(erase!(self, AnyDevice(device) => AnySegment(device.reserve(class, bytes)?)))
    }

    unsafe fn release(&self, segment: AnySegment) {
        // SAFETY: the caller guarantees what the device's own method asks for.
        on!(self, AnyDevice(device) => unsafe { device.release(device.take_segment(segment)) })
    }

    fn address(&self, segment: &AnySegment) -> Option<u64> {
        on!(self, AnyDevice(device) => device.address(device.segment(segment)))
    }

    #[inline]
    fn mark(&self, stream: StreamId) -> Tick {
        on!(self, AnyDevice(device) => device.mark(stream))
    }

    #[inline]
    fn reached(&self, stream: StreamId) -> Result<Tick, DriverError> {
        on!(self, AnyDevice(device) => Ok(device.reached(stream)?))
    }

    fn submit(&self, stream: StreamId) -> Result<Tick, DriverError> {
        on!(self, AnyDevice(device) => Ok(device.submit(stream)?))
    }

    fn wait(&self, point: Point) -> Result<Tick, DriverError> {
        on!(self, AnyDevice(device) => Ok(device.wait(point)?))
    }

    fn wait_asleep(&self, point: Point) -> Result<Tick, DriverError> {
        on!(self, AnyDevice(device) => Ok(device.wait_asleep(point)?))
    }

    unsafe fn leave(&self, left: Left<AnySegment, AnyPage>) {
        // SAFETY: the caller guarantees what the device's own method asks for.
        on!(self, AnyDevice(device) => unsafe { device.leave(own_left(device, left)) })
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Segment = AnySegment, Page = AnyPage, Error = DriverError>> {
        if on!(self, AnyDevice(device) => device.virtual_memory().is_some()) { Some(self) } else { None }
    }

    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = DriverError>> {
        if on!(self, AnyDevice(device) => device.stream_wait().is_some()) { Some(self) } else { None }
    }

    fn host_memory(&self) -> Option<&dyn HostMemory<Segment = AnySegment>> {
        if on!(self, AnyDevice(device) => device.host_memory().is_some()) { Some(self) } else { None }
    }

    fn transfer(&self) -> Option<&dyn Transfer<Segment = AnySegment, Error = DriverError>> {
        if on!(self, AnyDevice(device) => device.transfer().is_some()) { Some(self) } else { None }
    }

    fn budget(&self) -> Option<&dyn Budget<Error = DriverError>> {
        if on!(self, AnyDevice(device) => Backend::budget(device).is_some()) { Some(self) } else { None }
    }

    fn driver_clock(&self) -> Option<u64> {
        on!(self, AnyDevice(device) => device.driver_clock())
    }

    #[inline]
    fn aligns_offsets(&self) -> bool {
        on!(self, AnyDevice(device) => device.aligns_offsets())
    }

    fn open_tick(&self, stream: StreamId) -> Option<Tick> {
        on!(self, AnyDevice(device) => device.open_tick(stream))
    }

    #[inline]
    fn work_clock(&self) -> Option<u64> {
        on!(self, AnyDevice(device) => device.work_clock())
    }
}

/// Unwraps what a dropped allocator leaves.
fn own_left<B: Known>(device: &B, left: Left<AnySegment, AnyPage>) -> Left<B::Segment, B::Page> {
    left.map(|segment| device.take_segment(segment), |page| device.take_page(page))
}

/// Returns an ability that the device announced, for the method of it that is called.
fn having<T>(ability: Option<T>) -> T {
    ability.expect("a device keeps the abilities that it announced")
}

#[allow(clippy::unit_arg, reason = "wgpu may have no pages, which are `()` then")]
impl VirtualMemory for AnyDevice {
    type Segment = AnySegment;
    type Page = AnyPage;
    type Error = DriverError;

    fn reserve_range(&self, class: ClassId, bytes: u64) -> Result<AnySegment, DriverError> {
        Ok(erase!(self, AnyDevice(device) => AnySegment(having(device.virtual_memory()).reserve_range(class, bytes)?)))
    }

    unsafe fn release_range(&self, range: AnySegment) {
        on!(self, AnyDevice(device) => {
            // SAFETY: the caller guarantees what the device's own method asks for.
            unsafe { having(device.virtual_memory()).release_range(device.take_segment(range)) }
        })
    }

    fn create_page(&self, class: ClassId, bytes: u64) -> Result<AnyPage, DriverError> {
        Ok(erase!(self, AnyDevice(device) => AnyPage(having(device.virtual_memory()).create_page(class, bytes)?)))
    }

    fn is_shared(&self, page: &AnyPage) -> bool {
        on!(self, AnyDevice(device) => having(device.virtual_memory()).is_shared(device.page(page)))
    }

    unsafe fn release_page(&self, page: AnyPage) {
        on!(self, AnyDevice(device) => {
            // SAFETY: the caller guarantees what the device's own method asks for.
            unsafe { having(device.virtual_memory()).release_page(device.take_page(page)) }
        })
    }

    unsafe fn map(&self, range: &AnySegment, offset: u64, page: &AnyPage, stream: StreamId) -> Result<(), DriverError> {
        on!(self, AnyDevice(device) => {
            let (range, page) = (device.segment(range), device.page(page));
            // SAFETY: the caller guarantees what the device's own method asks for.
            Ok(unsafe { having(device.virtual_memory()).map(range, offset, page, stream) }?)
        })
    }

    unsafe fn unmap(&self, range: &AnySegment, offset: u64, page: &AnyPage, stream: StreamId) {
        on!(self, AnyDevice(device) => {
            let (range, page) = (device.segment(range), device.page(page));
            // SAFETY: the caller guarantees what the device's own method asks for.
            unsafe { having(device.virtual_memory()).unmap(range, offset, page, stream) }
        })
    }
}

impl StreamWait for AnyDevice {
    type Error = DriverError;

    fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), DriverError> {
        on!(self, AnyDevice(device) => Ok(having(device.stream_wait()).wait_for(stream, point)?))
    }
}

impl HostMemory for AnyDevice {
    type Segment = AnySegment;

    fn host_address(&self, segment: &AnySegment) -> Option<NonNull<u8>> {
        on!(self, AnyDevice(device) => device.host_memory()?.host_address(device.segment(segment)))
    }
}

impl Transfer for AnyDevice {
    type Segment = AnySegment;
    type Error = DriverError;

    fn fill(
        &self,
        stream: StreamId,
        segment: &AnySegment,
        offset: u64,
        bytes: u64,
        value: u8,
    ) -> Result<(), DriverError> {
        on!(self, AnyDevice(device) => {
            Ok(having(device.transfer()).fill(stream, device.segment(segment), offset, bytes, value)?)
        })
    }

    fn overwrite(&self, stream: StreamId, segment: &AnySegment, offset: u64, bytes: u64) -> Result<(), DriverError> {
        on!(self, AnyDevice(device) => {
            Ok(having(device.transfer()).overwrite(stream, device.segment(segment), offset, bytes)?)
        })
    }

    fn can_copy(&self, segment: &AnySegment) -> bool {
        on!(self, AnyDevice(device) => {
            device.try_segment(segment).is_some_and(|segment| having(device.transfer()).can_copy(segment))
        })
    }

    fn copy(
        &self,
        stream: StreamId,
        from: (&AnySegment, u64),
        to: (&AnySegment, u64),
        bytes: u64,
    ) -> Result<(), DriverError> {
        on!(self, AnyDevice(device) => {
            let (from, to) = ((device.segment(from.0), from.1), (device.segment(to.0), to.1));
            Ok(having(device.transfer()).copy(stream, from, to, bytes)?)
        })
    }

    fn upload(&self, stream: StreamId, from: &[u8], segment: &AnySegment, offset: u64) -> Result<(), DriverError> {
        on!(self, AnyDevice(device) => {
            Ok(having(device.transfer()).upload(stream, from, device.segment(segment), offset)?)
        })
    }

    fn download(&self, stream: StreamId, segment: &AnySegment, offset: u64, to: &mut [u8]) -> Result<(), DriverError> {
        on!(self, AnyDevice(device) => {
            Ok(having(device.transfer()).download(stream, device.segment(segment), offset, to)?)
        })
    }

    fn begin_download(
        &self,
        stream: StreamId,
        segment: &AnySegment,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<(Tick, Box<dyn Readback<Error = DriverError>>)>, DriverError> {
        on!(self, AnyDevice(device) => {
            let begun = having(device.transfer()).begin_download(stream, device.segment(segment), offset, bytes)?;
            Ok(begun.map(|(tick, bytes)| (tick, Box::new(Arriving(bytes)) as Box<dyn Readback<Error = DriverError>>)))
        })
    }
}

/// Bytes that are on their way from a device of one backend.
struct Arriving<E>(Box<dyn Readback<Error = E>>);

impl<E: BackendError> Readback for Arriving<E>
where
    DriverError: From<E>,
{
    type Error = DriverError;

    fn read(self: Box<Self>, to: &mut [u8]) -> Result<(), DriverError> {
        Ok(self.0.read(to)?)
    }
}

impl Budget for AnyDevice {
    type Error = DriverError;

    fn budget(&self, class: ClassId) -> Result<BudgetInfo, DriverError> {
        on!(self, AnyDevice(device) => Ok(having(Backend::budget(device)).budget(class)?))
    }
}
