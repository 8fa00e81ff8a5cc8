//! The contract, verb by verb, each carried out by its room.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use millpond_backend::{
    Backend, Budget, BudgetInfo, Caps, ClassId, HostMemory, Left, Point, StreamId, StreamWait, Tick, Transfer,
    VirtualMemory,
};

use super::Sim;
use crate::error::SimError;
use crate::error::calls::CallKind;
use crate::space::segment::{Page, Segment};
use crate::streams::lane::{Lane, Queue};
use crate::{budget, memory, pages, transfer};

// SAFETY: `Space::place` panics rather than let live segments overlap, and gives each the bytes that were asked for. A
// lane's `reached` is always the tick before that of its first unfinished task, so it is never ahead of work that
// `mark` covered, and `TickClock::complete` panics if it fell. Stream ids are indices of a vector that only grows.
unsafe impl Backend for Sim {
    type Segment = Segment;
    type Page = Page;
    type Error = SimError;

    fn caps(&self) -> &Caps {
        &self.device.caps
    }

    fn create_stream(&self) -> Result<StreamId, SimError> {
        self.device.enter(CallKind::CreateStream)?;
        let mut state = self.device.state();
        state.queues.push(Queue::new());
        Ok(self.device.lanes.push(Lane::new()))
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.device.lanes.has(stream)
    }

    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, SimError> {
        self.give_back_due();
        memory::reserve(&self.device, class, bytes)
    }

    unsafe fn release(&self, segment: Segment) {
        memory::release(&self.device, segment);
    }

    fn address(&self, segment: &Segment) -> Option<u64> {
        Some(segment.address)
    }

    #[inline]
    fn mark(&self, stream: StreamId) -> Tick {
        self.device.lane(stream).clock.mark()
    }

    #[inline]
    fn reached(&self, stream: StreamId) -> Result<Tick, SimError> {
        self.device.reached(stream)
    }

    fn submit(&self, stream: StreamId) -> Result<Tick, SimError> {
        self.device.alive()?;
        let tick = self.device.submit(stream);
        self.give_back_of(stream);
        Ok(tick)
    }

    fn wait(&self, point: Point) -> Result<Tick, SimError> {
        let reached = self.device.wait(point);
        self.give_back_of(point.stream);
        reached
    }

    unsafe fn leave(&self, left: Left<Segment, Page>) {
        self.take_left(left);
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Segment = Segment, Page = Page, Error = SimError>> {
        match self.device.caps.pages {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = SimError>> {
        if self.device.caps.stream_wait { Some(self) } else { None }
    }

    fn host_memory(&self) -> Option<&dyn HostMemory<Segment = Segment>> {
        Some(self)
    }

    fn transfer(&self) -> Option<&dyn Transfer<Segment = Segment, Error = SimError>> {
        if self.device.caps.transfer { Some(self) } else { None }
    }

    fn budget(&self) -> Option<&dyn Budget<Error = SimError>> {
        if self.device.caps.budget { Some(self) } else { None }
    }

    fn driver_clock(&self) -> Option<u64> {
        Some(self.device.clock.load(Ordering::Relaxed))
    }

    fn open_tick(&self, stream: StreamId) -> Option<Tick> {
        Some(self.device.lane(stream).clock.open())
    }

    fn work_clock(&self) -> Option<u64> {
        Some(self.device.work_clock.load(Ordering::Relaxed))
    }
}

impl StreamWait for Sim {
    type Error = SimError;

    fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), SimError> {
        self.device.wait_for(stream, point)
    }
}

impl HostMemory for Sim {
    type Segment = Segment;

    fn host_address(&self, segment: &Segment) -> Option<NonNull<u8>> {
        memory::host_address(segment)
    }
}

impl VirtualMemory for Sim {
    type Segment = Segment;
    type Page = Page;
    type Error = SimError;

    fn reserve_range(&self, class: ClassId, bytes: u64) -> Result<Segment, SimError> {
        self.give_back_due();
        pages::reserve_range(&self.device, class, bytes)
    }

    unsafe fn release_range(&self, range: Segment) {
        pages::release_range(&self.device, range);
    }

    fn create_page(&self, class: ClassId, bytes: u64) -> Result<Page, SimError> {
        self.give_back_due();
        pages::create_page(&self.device, class, bytes)
    }

    unsafe fn release_page(&self, page: Page) {
        pages::release_page(&self.device, page);
    }

    unsafe fn map(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) -> Result<(), SimError> {
        pages::map(&self.device, range, offset, page, stream)
    }

    unsafe fn unmap(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) {
        pages::unmap(&self.device, range, offset, page, stream);
    }
}

impl Transfer for Sim {
    type Segment = Segment;
    type Error = SimError;

    fn fill(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64, value: u8) -> Result<(), SimError> {
        transfer::fill(&self.device, stream, segment, offset, bytes, value)
    }

    fn overwrite(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64) -> Result<(), SimError> {
        let how = *self.device.overwriting.lock();
        transfer::overwrite(&self.device, how, stream, segment, offset, bytes)
    }

    /// Returns `true` always: simulated devices reach each other's memory.
    fn can_copy(&self, _segment: &Segment) -> bool {
        true
    }

    fn copy(&self, stream: StreamId, from: (&Segment, u64), to: (&Segment, u64), bytes: u64) -> Result<(), SimError> {
        transfer::copy(&self.device, stream, from, to, bytes)
    }

    fn upload(&self, stream: StreamId, from: &[u8], segment: &Segment, offset: u64) -> Result<(), SimError> {
        transfer::upload(&self.device, stream, from, segment, offset)
    }

    fn download(&self, stream: StreamId, segment: &Segment, offset: u64, to: &mut [u8]) -> Result<(), SimError> {
        transfer::download(&self.device, stream, segment, offset, to)
    }
}

impl Budget for Sim {
    type Error = SimError;

    fn budget(&self, class: ClassId) -> Result<BudgetInfo, SimError> {
        budget::budget(&self.device, class)
    }
}
