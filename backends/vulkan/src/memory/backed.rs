//! Buffers with memory of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk;
use gpu_allocator::AllocationError;
use gpu_allocator::vulkan::{Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc};
use millpond_backend::{BackendError, ClassId, Fault};
use parking_lot::Mutex;

use super::classes::{ClassFacts, buffer_info};
use crate::error::VulkanError;
use crate::open::Driver;

/// A buffer with memory of its own, and the means to destroy both.
pub(crate) struct Backed {
    pub(crate) buffer: vk::Buffer,
    pub(crate) allocation: Allocation,
    /// The bytes that were asked for; the allocation may be larger.
    pub(crate) bytes: u64,
    pub(crate) class: ClassId,
}

/// Allocations of the driver's memory, and their number.
pub(crate) struct Allocations {
    /// The number of live allocations, which the driver limits.
    live: AtomicU64,
    allocator: Mutex<Allocator>,
    driver: Arc<Driver>,
}

/// Requests memory, and if it is refused, once more after `reclaim` has freed some.
pub(crate) fn reclaiming<T>(
    reclaim: impl FnOnce() -> bool,
    ask: impl Fn() -> Result<T, VulkanError>,
) -> Result<T, VulkanError> {
    match ask() {
        Err(error) if error.fault() == Fault::OutOfMemory && reclaim() => ask(),
        answer => answer,
    }
}

impl Allocations {
    /// Returns the allocations of a device, which has none yet.
    pub(crate) fn new(driver: Arc<Driver>) -> Result<Allocations, VulkanError> {
        let description = AllocatorCreateDesc {
            instance: driver.instance.raw.clone(),
            device: driver.raw.raw.clone(),
            physical_device: driver.probe.physical,
            debug_settings: Default::default(),
            buffer_device_address: driver.enabled.buffer_device_address,
            allocation_sizes: Default::default(),
        };
        let allocator = Allocator::new(&description).map_err(|source| VulkanError::Memory {
            bytes: 0,
            class: ClassId::DEVICE,
            source,
        })?;
        Ok(Allocations { live: AtomicU64::new(0), allocator: Mutex::new(allocator), driver })
    }

    /// Returns the number of live allocations.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Runs `make`, which makes one allocation, if the device allows one more.
    pub(crate) fn counted<T>(&self, make: impl FnOnce() -> Result<T, VulkanError>) -> Result<T, VulkanError> {
        let max = u64::from(self.driver.probe.properties.limits.max_memory_allocation_count);
        // The allocation is counted before the driver is called, so that concurrent threads cannot exceed the limit.
        if self.live.fetch_add(1, Ordering::Relaxed) >= max {
            self.live.fetch_sub(1, Ordering::Relaxed);
            return Err(VulkanError::TooMany { max });
        }
        let made = make();
        if made.is_err() {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
        made
    }

    /// Notes that an allocation that was [counted](Allocations::counted) is freed.
    pub(crate) fn freed(&self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// Creates a buffer of a class with memory of its own, if the device allows one more allocation.
    pub(crate) fn create(&self, class: ClassId, facts: ClassFacts, bytes: u64) -> Result<Backed, VulkanError> {
        self.counted(|| self.try_create(class, facts, bytes))
    }

    fn try_create(&self, class: ClassId, facts: ClassFacts, bytes: u64) -> Result<Backed, VulkanError> {
        let info = buffer_info(&self.driver.families).size(bytes).usage(facts.usage);
        // SAFETY: the families belong to the device, each once, and `classes` has made a buffer of these usages before.
        let buffer =
            unsafe { self.driver.raw.create_buffer(&info, None) }.map_err(self.driver.failed("vkCreateBuffer"))?;
        // SAFETY: the buffer was just created, and is destroyed only here if anything fails.
        let mut requirements = unsafe { self.driver.raw.get_buffer_memory_requirements(buffer) };
        // The library takes the first type that fits, so it is offered only the one that was chosen.
        requirements.memory_type_bits &= 1 << facts.memory_type;
        let description = AllocationCreateDesc {
            name: "millpond segment",
            requirements,
            location: facts.location,
            linear: true,
            allocation_scheme: AllocationScheme::DedicatedBuffer(buffer),
        };
        let allocated = self.allocator.lock().allocate(&description);
        let allocation = match allocated {
            Ok(allocation) => allocation,
            Err(error) => {
                // SAFETY: no other code has the buffer.
                unsafe { self.driver.raw.destroy_buffer(buffer, None) };
                return Err(match error {
                    AllocationError::OutOfMemory => VulkanError::OutOfMemory { asked: bytes, class },
                    source => VulkanError::Memory { bytes, class, source },
                });
            }
        };
        let backed = Backed { buffer, allocation, bytes, class };
        // SAFETY: the memory is of a type, a size and an alignment that the buffer requires, and nothing else is in it.
        let bound = unsafe {
            self.driver.raw.bind_buffer_memory(buffer, backed.allocation.memory(), backed.allocation.offset())
        };
        if let Err(result) = bound {
            self.destroy_memory_of(backed);
            return Err(self.driver.failed("vkBindBufferMemory")(result));
        }
        Ok(backed)
    }

    /// Destroys a buffer and its memory. No work may touch it.
    pub(crate) fn destroy(&self, backed: Backed) {
        self.destroy_memory_of(backed);
        self.freed();
    }

    fn destroy_memory_of(&self, backed: Backed) {
        // SAFETY: the callers own the buffer and know that no work touches it any more.
        unsafe { self.driver.raw.destroy_buffer(backed.buffer, None) };
        let freed = self.allocator.lock().free(backed.allocation);
        assert!(freed.is_ok(), "memory of {} bytes could not be freed: {freed:?}", backed.bytes);
    }
}
