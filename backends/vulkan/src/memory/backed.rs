//! Buffers with memory of their own, and pages of memory alone.

use std::ptr::NonNull;
use std::sync::Arc;

use ash::vk;
use millpond_backend::ClassId;

use super::classes::{ClassFacts, buffer_info, external};
use super::count::Count;
use crate::error::VulkanError;
use crate::open::{Driver, HostPointer};
use crate::probe::ExportKind;

/// A buffer with memory of its own, and the means to destroy both.
pub(crate) struct Backed {
    pub(crate) buffer: vk::Buffer,
    pub(crate) memory: vk::DeviceMemory,
    /// What the driver requires of the buffer's memory.
    pub(crate) requirements: vk::MemoryRequirements,
    /// The beginning of the memory, where the host sees it.
    pub(crate) mapped: Option<HostPointer>,
    /// The bytes that were asked for; the memory may be larger.
    pub(crate) bytes: u64,
    pub(crate) class: ClassId,
}

/// Allocations of the driver's memory, and their number.
pub(crate) struct Allocations {
    pub(crate) count: Arc<Count>,
    /// `maxMemoryAllocationCount`.
    max: u64,
    driver: Arc<Driver>,
}

/// Requests memory, and if it is refused, once more after `reclaim` has freed some.
pub(crate) fn reclaiming<T>(
    reclaim: impl FnOnce() -> bool,
    ask: impl Fn() -> Result<T, VulkanError>,
) -> Result<T, VulkanError> {
    match ask() {
        Err(error) if error.is_short() && reclaim() => ask(),
        answer => answer,
    }
}

impl Allocations {
    /// Returns the allocations of a device.
    pub(crate) fn new(driver: Arc<Driver>) -> Allocations {
        let max = u64::from(driver.probe.properties.limits.max_memory_allocation_count);
        Allocations { count: Count::of(driver.raw.handle()), max, driver }
    }

    /// Allocates memory, if the device allows one more allocation: for a buffer alone, or for pages.
    pub(crate) fn allocate(
        &self,
        class: ClassId,
        facts: ClassFacts,
        bytes: u64,
        buffer: Option<vk::Buffer>,
    ) -> Result<vk::DeviceMemory, VulkanError> {
        if bytes > facts.max_memory_bytes {
            return Err(VulkanError::TooLarge { asked: bytes, max: facts.max_memory_bytes });
        }
        self.count.add(self.max)?;
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let exports = facts.exports.filter(|_| buffer.is_some());
        let types = exports.map(ExportKind::handle_type).unwrap_or_default();
        let mut exported = vk::ExportMemoryAllocateInfo::default().handle_types(types);
        let mut alone = vk::MemoryDedicatedAllocateInfo::default();
        let mut info = vk::MemoryAllocateInfo::default().allocation_size(bytes).memory_type_index(facts.memory_type);
        if self.driver.enabled.buffer_device_address {
            info = info.push_next(&mut flags);
        }
        if let Some(buffer) = buffer.filter(|_| facts.is_dedicated) {
            alone = alone.buffer(buffer);
            info = info.push_next(&mut alone);
        }
        if exports.is_some() {
            info = info.push_next(&mut exported);
        }
        // SAFETY: the memory type is one of the device's, the bytes are no more than its heap has, and addresses are
        // requested only where they are enabled. The callers pass a new buffer that needs as many bytes.
        unsafe { self.driver.raw.allocate_memory(&info, None) }.map_err(|result| {
            self.count.freed();
            self.short(class, bytes, "vkAllocateMemory")(result)
        })
    }

    /// Frees memory that was [allocated](Allocations::allocate) here.
    ///
    /// # Safety
    ///
    /// Nothing uses the memory, and it is bound to nothing that is used.
    pub(crate) unsafe fn free(&self, memory: vk::DeviceMemory) {
        // SAFETY: the caller guarantees it.
        unsafe { self.driver.raw.free_memory(memory, None) };
        self.count.freed();
    }

    /// Returns a function for `map_err` on a call that takes memory or addresses: what the driver is short of is out of
    /// memory, and a release of some may help.
    pub(crate) fn short(
        &self,
        class: ClassId,
        asked: u64,
        call: &'static str,
    ) -> impl Fn(vk::Result) -> VulkanError + '_ {
        move |result| match result {
            vk::Result::ERROR_TOO_MANY_OBJECTS => self.count.too_many(self.max),
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
            | vk::Result::ERROR_OUT_OF_HOST_MEMORY
            | vk::Result::ERROR_MEMORY_MAP_FAILED => VulkanError::OutOfMemory { asked, class },
            _ => self.driver.failed(call)(result),
        }
    }

    /// Returns the error of a call that takes no memory of the device, and gives a buffer its addresses.
    fn without_addresses(&self, class: ClassId, asked: u64, call: &'static str, result: vk::Result) -> VulkanError {
        match result {
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS => {
                VulkanError::BufferAddresses { call, asked }
            }
            _ => self.short(class, asked, call)(result),
        }
    }

    /// Creates a buffer of a class with memory of its own, if the device allows one more allocation.
    pub(crate) fn create(&self, class: ClassId, facts: ClassFacts, bytes: u64) -> Result<Backed, VulkanError> {
        let mut external = external(facts.exports);
        let info = buffer_info(&self.driver.families).size(bytes).usage(facts.usage).push_next(&mut external);
        // SAFETY: the families belong to the device, each once, and `classes` has made a buffer of these usages before.
        let buffer = unsafe { self.driver.raw.create_buffer(&info, None) }
            .map_err(|result| self.without_addresses(class, bytes, "vkCreateBuffer", result))?;
        let backed = self.back(class, facts, bytes, buffer);
        if backed.is_err() {
            // SAFETY: no other code has the buffer.
            unsafe { self.driver.raw.destroy_buffer(buffer, None) };
        }
        backed
    }

    /// Gives a new buffer memory of its own.
    fn back(&self, class: ClassId, facts: ClassFacts, bytes: u64, buffer: vk::Buffer) -> Result<Backed, VulkanError> {
        // SAFETY: the buffer was just created.
        let needed = unsafe { self.driver.raw.get_buffer_memory_requirements(buffer) };
        let memory = self.allocate(class, facts, needed.size, Some(buffer))?;
        let mapped = self.bind_and_map(class, facts, bytes, (buffer, memory)).inspect_err(|_| {
            // SAFETY: the memory is new, and the buffer, which is destroyed next, is used by nothing.
            unsafe { self.free(memory) };
        })?;
        Ok(Backed { buffer, memory, requirements: needed, mapped, bytes, class })
    }

    fn bind_and_map(
        &self,
        class: ClassId,
        facts: ClassFacts,
        bytes: u64,
        (buffer, memory): (vk::Buffer, vk::DeviceMemory),
    ) -> Result<Option<HostPointer>, VulkanError> {
        // SAFETY: the memory is of a type and a size that the buffer requires, and nothing else is in it.
        unsafe { self.driver.raw.bind_buffer_memory(buffer, memory, 0) }
            .map_err(|result| self.without_addresses(class, bytes, "vkBindBufferMemory", result))?;
        if !facts.is_mapped {
            return Ok(None);
        }
        let flags = vk::MemoryMapFlags::empty();
        // SAFETY: the memory is of a type that the host sees, and is not mapped yet.
        let address = unsafe { self.driver.raw.map_memory(memory, 0, vk::WHOLE_SIZE, flags) }.map_err(self.short(
            class,
            bytes,
            "vkMapMemory",
        ))?;
        Ok(NonNull::new(address.cast()).map(HostPointer))
    }

    /// Destroys a buffer and its memory. No work may touch it.
    pub(crate) fn destroy(&self, backed: Backed) {
        // SAFETY: the callers own the buffer and know that no work touches it any more.
        unsafe { self.driver.raw.destroy_buffer(backed.buffer, None) };
        // SAFETY: as above; the buffer that it was bound to is gone. What is mapped is unmapped with it.
        unsafe { self.free(backed.memory) };
    }
}
