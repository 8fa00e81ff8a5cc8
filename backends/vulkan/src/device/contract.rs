//! The contract, by the rooms.

use std::ptr::NonNull;

use millpond_backend::{
    Backend, Budget, BudgetInfo, Caps, ClassId, HostMemory, Left, Point, StreamId, StreamWait, Tick, Transfer,
    VirtualMemory,
};

use super::Vulkan;
use crate::budget::{HeapBudget, heap_budget};
use crate::error::VulkanError;
use crate::memory::Segment;
use crate::pages::Page;
use crate::time::Submission;

// SAFETY: every segment has a buffer and memory of its own, from the driver, of at least the bytes asked for. The
// results of `reached` and `wait` come from the counter of a timeline semaphore that the queue signals behind all work
// submitted before, and `open` is raised before a submit reaches the driver, so that later work is marked with a later
// tick. Ticks and stream ids only rise: both are counters that nothing lowers.
unsafe impl Backend for Vulkan {
    type Segment = Segment;
    type Page = Page;
    type Error = VulkanError;

    fn caps(&self) -> &Caps {
        &self.device.memory.caps
    }

    fn create_stream(&self) -> Result<StreamId, VulkanError> {
        self.device.streams.create()
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.device.streams.has(stream)
    }

    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, VulkanError> {
        self.with_what_was_left(|| self.device.memory.reserve(class, bytes, || self.device.pages.reclaim()))
    }

    unsafe fn release(&self, segment: Segment) {
        self.device.memory.release(segment);
    }

    fn address(&self, segment: &Segment) -> Option<u64> {
        segment.address
    }

    fn aligns_offsets(&self) -> bool {
        true
    }

    #[inline]
    fn mark(&self, stream: StreamId) -> Tick {
        self.device.streams.lane(stream).clock.open()
    }

    #[inline]
    fn reached(&self, stream: StreamId) -> Result<Tick, VulkanError> {
        let reached = self.device.time.reached(stream);
        self.give_back_of(stream);
        reached
    }

    fn submit(&self, stream: StreamId) -> Result<Tick, VulkanError> {
        let lane = self.device.streams.lane(stream);
        let tick = self.device.time.submit(lane, &mut lane.state.lock(), &Submission::default());
        self.give_back_of(stream);
        tick
    }

    fn wait(&self, point: Point) -> Result<Tick, VulkanError> {
        let reached = self.device.time.wait(point);
        self.give_back_of(point.stream);
        reached
    }

    unsafe fn leave(&self, left: Left<Segment, Page>) {
        self.take_left(left);
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Segment = Segment, Page = Page, Error = VulkanError>> {
        if self.device.pages.binds.is_some() { Some(self) } else { None }
    }

    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = VulkanError>> {
        Some(self)
    }

    fn host_memory(&self) -> Option<&dyn HostMemory<Segment = Segment>> {
        Some(self)
    }

    fn transfer(&self) -> Option<&dyn Transfer<Segment = Segment, Error = VulkanError>> {
        Some(self)
    }

    fn budget(&self) -> Option<&dyn Budget<Error = VulkanError>> {
        if self.device.driver.enabled.memory_budget { Some(self) } else { None }
    }
}

impl StreamWait for Vulkan {
    type Error = VulkanError;

    /// Makes the stream's next submit wait for the point.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotSubmitted`](crate::Misuse::NotSubmitted) if the point's tick was not submitted, because a queue
    /// that waits for work that is never submitted waits for ever. Submit that stream first.
    fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), VulkanError> {
        let device = &*self.device;
        device.driver.alive()?;
        let lane = device.streams.lane(stream);
        device.time.submitted(point)?;
        if stream != point.stream && device.streams.lane(point.stream).clock.reached() < point.tick {
            lane.wait_for(point);
        }
        Ok(())
    }
}

impl HostMemory for Vulkan {
    type Segment = Segment;

    /// Returns the address at which the host sees the segment: for segments of classes 1 and 2, and of class 0 where
    /// all of the device's memory is coherent and visible to the host. The work of a submit sees what the host wrote
    /// before that submit. After waiting for transfers of this device, the host can read what they wrote; other work
    /// whose results the host reads ends with a barrier to the host stage.
    fn host_address(&self, segment: &Segment) -> Option<NonNull<u8>> {
        segment.mapped.map(|pointer| pointer.0)
    }
}

impl Transfer for Vulkan {
    type Segment = Segment;
    type Error = VulkanError;

    fn fill(&self, stream: StreamId, segment: &Segment, offset: u64, bytes: u64, value: u8) -> Result<(), VulkanError> {
        self.device.transfers.fill(stream, segment, offset, bytes, value)
    }

    /// Returns whether the segment belongs to this device: memory of another Vulkan device cannot be used on this one.
    fn can_copy(&self, segment: &Segment) -> bool {
        segment.device == self.device.driver.id
    }

    /// Copies within this device.
    ///
    /// # Errors
    ///
    /// [`Misuse::Foreign`](crate::Misuse::Foreign) if a segment belongs to another device,
    /// [`Misuse::OverlapWithin`](crate::Misuse::OverlapWithin), [`Misuse::OutOfRange`](crate::Misuse::OutOfRange), and
    /// the driver's errors.
    fn copy(
        &self,
        stream: StreamId,
        from: (&Segment, u64),
        to: (&Segment, u64),
        bytes: u64,
    ) -> Result<(), VulkanError> {
        self.device.transfers.copy(stream, from, to, bytes)
    }

    /// Copies host bytes to the device, through the stream's staging ring of 4 MiB. Where more than that is in progress
    /// on the stream, submits it and waits for the oldest piece.
    ///
    /// # Errors
    ///
    /// [`Misuse::Foreign`](crate::Misuse::Foreign), [`Misuse::OutOfRange`](crate::Misuse::OutOfRange), and the driver's
    /// errors.
    fn upload(&self, stream: StreamId, from: &[u8], segment: &Segment, offset: u64) -> Result<(), VulkanError> {
        self.device.transfers.upload(stream, from, segment, offset)
    }

    fn download(&self, stream: StreamId, segment: &Segment, offset: u64, to: &mut [u8]) -> Result<(), VulkanError> {
        self.device.transfers.download(stream, segment, offset, to)
    }
}

impl Vulkan {
    /// Returns the driver's report on the heap of a class: the use of this process, where [`Budget::budget`] returns
    /// how much is left. Costs a driver call.
    ///
    /// # Errors
    ///
    /// [`Misuse::Unsupported`](crate::Misuse::Unsupported) where the driver does not report it.
    ///
    /// # Panics
    ///
    /// If the device has no such class.
    pub fn heap_budget(&self, class: ClassId) -> Result<HeapBudget, VulkanError> {
        heap_budget(&self.device.driver, &self.device.memory, class)
    }
}

impl Budget for Vulkan {
    type Error = VulkanError;

    /// Returns the budget of a class. The bytes of this process are those that the driver reports: some drivers
    /// (lavapipe) count those of all processes. Free is what the driver's budget leaves this process. The bytes of
    /// other processes are not reported: a budget is the driver's policy, and the heap less the budget is not what
    /// others hold.
    fn budget(&self, class: ClassId) -> Result<BudgetInfo, VulkanError> {
        let heap = self.heap_budget(class)?;
        let free_bytes = heap.budget_bytes.saturating_sub(heap.used_bytes);
        Ok(BudgetInfo::new(free_bytes, heap.total_bytes).with_process_bytes(Some(heap.used_bytes)))
    }
}
