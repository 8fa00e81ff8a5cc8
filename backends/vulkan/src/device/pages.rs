//! Virtual memory, and what is held of memory.

use millpond_backend::{ClassId, StreamId, VirtualMemory};

use super::Vulkan;
use crate::error::VulkanError;
use crate::memory::Segment;
use crate::pages::{Binds, Page};

impl Vulkan {
    /// Passes all mappings and unmappings since the last submit to the driver, without submitting anything else. Every
    /// submit does this; call it to return released memory to the driver when no submit will follow. Does not block,
    /// and costs a driver call if anything was mapped or unmapped.
    ///
    /// # Errors
    ///
    /// The driver's errors. The notes are kept, and go with the next submit.
    pub fn flush_binds(&self) -> Result<(), VulkanError> {
        if let Some(binds) = &self.device.pages.binds {
            binds.flush()?;
            binds.settle();
        }
        Ok(())
    }

    /// Returns the bytes in pages that were not given back. Makes no driver call, unless a dropped allocator has left
    /// something, as the other counts here do.
    pub fn page_bytes(&self) -> u64 {
        self.give_back_due();
        self.device.pages.binds.as_ref().map_or(0, Binds::page_bytes)
    }

    /// Returns the number of segments, pages and ranges, in this order, that were handed out and not given back. Makes
    /// no driver call.
    pub fn live(&self) -> (u64, u64, u64) {
        self.give_back_due();
        let (pages, ranges) = self.device.pages.binds.as_ref().map_or((0, 0), Binds::live);
        (self.device.memory.live(), pages, ranges)
    }

    /// Returns the bytes in pages that were given back and are still with the driver, until the binds that take them
    /// out of their ranges are made. Makes no driver call.
    pub fn leaving_bytes(&self) -> u64 {
        self.device.pages.binds.as_ref().map_or(0, Binds::leaving_bytes)
    }

    /// Returns the bytes of addresses in ranges that were not destroyed. Ranges that were given back count until their
    /// last bind is made. Makes no driver call.
    pub fn range_bytes(&self) -> u64 {
        self.device.pages.binds.as_ref().map_or(0, Binds::range_bytes)
    }

    /// Returns the bytes of the device's own memory in segments and pages that were not given back: those of class 0
    /// and of [`Vulkan::IMAGE`]. Makes no driver call, and takes time in proportion to the number of segments.
    pub fn held_bytes(&self) -> u64 {
        let page_bytes = self.page_bytes();
        self.device.memory.held_bytes() + page_bytes
    }

    /// Sets how many allocations the engine that shares the device has, or may have at most. They count against the
    /// driver's limit (`maxMemoryAllocationCount`), as do those of everyone who adopted the same `VkDevice`. The
    /// default is 0; if the driver refuses earlier, its answer counts. Makes no driver call.
    pub fn set_engine_allocations(&self, count: u32) {
        self.device.memory.allocations.count.set_engine(u64::from(count));
    }

    /// Allocates and frees memory through the driver, without a buffer or any bookkeeping: the least that memory costs
    /// here, for measurements. Makes two driver calls.
    ///
    /// # Errors
    ///
    /// [`Misuse::Empty`](crate::Misuse::Empty), [`VulkanError::OutOfMemory`], [`VulkanError::TooLarge`],
    /// [`VulkanError::TooMany`], and the driver's errors.
    ///
    /// # Panics
    ///
    /// If the device has no such class.
    pub fn allocate_and_free(&self, class: ClassId, bytes: u64) -> Result<(), VulkanError> {
        self.device.pages.allocate_and_free(class, bytes)
    }
}

/// Ranges are sparse buffers, which [`Segment::buffer`] returns; their addresses, where devices have them, never
/// change. Mapping and unmapping cost no driver call: they are noted, and go to the driver together with the next
/// submit of any stream, which waits for them on the device. Work that touches mapped memory is therefore submitted
/// through the device, or announced to it.
impl VirtualMemory for Vulkan {
    type Segment = Segment;
    type Page = Page;
    type Error = VulkanError;

    fn reserve_range(&self, class: ClassId, bytes: u64) -> Result<Segment, VulkanError> {
        self.with_what_was_left(|| self.device.pages.reserve_range(class, bytes))
    }

    /// Gives a range back. The buffer is destroyed once the binds noted before are made.
    unsafe fn release_range(&self, range: Segment) {
        self.device.pages.release_range(range);
    }

    /// Creates a page with one driver call. If the driver refuses, all memory that was given back is freed first, which
    /// may take until the binds before it are made, a second at most, and the call is made once more.
    fn create_page(&self, class: ClassId, bytes: u64) -> Result<Page, VulkanError> {
        self.with_what_was_left(|| self.device.pages.create_page(class, bytes))
    }

    /// Gives a page back. The memory is freed once the binds noted before are made.
    unsafe fn release_page(&self, page: Page) {
        self.device.pages.release_page(page);
    }

    unsafe fn map(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) -> Result<(), VulkanError> {
        self.device.streams.lane(stream);
        self.device.pages.map(range, offset, page)
    }

    unsafe fn unmap(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) {
        self.device.streams.lane(stream);
        self.device.pages.unmap(range, offset, page);
    }
}
