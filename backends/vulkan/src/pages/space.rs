//! Virtual memory: ranges of addresses are sparse buffers, pages are allocations.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ash::vk;
use millpond_backend::{ClassId, PageCaps};
use millpond_kit::{Misuse, Named};

use super::binds::{Binds, queue_for_binds};
use super::notes::Note;
use super::page::Page;
use crate::error::VulkanError;
use crate::memory::{ClassFacts, Memory, Segment, buffer_info, reclaiming};
use crate::open::Driver;
use crate::time::Before;

/// Returns how sparse buffers of a class are created. `size` is still to be set.
fn range_info<'a>(families: &'a [u32], facts: &ClassFacts, aliasing: bool) -> vk::BufferCreateInfo<'a> {
    let mut flags = vk::BufferCreateFlags::SPARSE_BINDING | vk::BufferCreateFlags::SPARSE_RESIDENCY;
    if aliasing {
        flags |= vk::BufferCreateFlags::SPARSE_ALIASED;
    }
    buffer_info(families).usage(facts.usage).flags(flags)
}

/// How a device has virtual memory.
pub(crate) struct Sparse {
    /// The queue that binds are queued on: an index into the device's queues.
    queue: usize,
    pub(crate) caps: PageCaps,
}

impl Sparse {
    /// Returns how the device has virtual memory, if it was opened with it and a queue can bind.
    pub(crate) fn find(driver: &Driver, memory: &Memory, granularity: u64) -> Result<Option<Sparse>, VulkanError> {
        let enabled = driver.enabled;
        let Some(queue) = queue_for_binds(&driver.queues) else { return Ok(None) };
        if !enabled.sparse_binding || !enabled.sparse_residency {
            return Ok(None);
        }
        let facts = memory.facts(ClassId::DEVICE);
        let info = range_info(&driver.families, facts, enabled.sparse_aliased).size(granularity);
        // SAFETY: the features that the flags need are enabled, and the families belong to the device.
        let buffer = unsafe { driver.raw.create_buffer(&info, None) }.map_err(driver.failed("vkCreateBuffer"))?;
        // SAFETY: the buffer was just created.
        let requirements = unsafe { driver.raw.get_buffer_memory_requirements(buffer) };
        // SAFETY: no other code has the buffer.
        unsafe { driver.raw.destroy_buffer(buffer, None) };
        // Pages are of the segments' memory type, so that a block's speed does not depend on where it lies.
        if requirements.memory_type_bits & (1 << facts.memory_type) == 0 {
            return Ok(None);
        }
        let caps = PageCaps::new(requirements.alignment.max(granularity))
            .with_aliasing(enabled.sparse_aliased)
            .with_address_bytes(driver.probe.properties.limits.sparse_address_space_size);
        Ok(Some(Sparse { queue, caps }))
    }
}

/// The virtual memory of a device, if it has any.
pub(crate) struct Pages {
    /// The records of sparse memory.
    pub(crate) binds: Option<Binds>,
    memory: Arc<Memory>,
    driver: Arc<Driver>,
}

impl Before for Pages {
    fn flush(&self) -> Result<u64, VulkanError> {
        self.binds.as_ref().map_or(Ok(0), Binds::flush)
    }

    fn wait(&self, bind: u64, waited: u64) -> Option<(vk::Semaphore, u64)> {
        self.binds.as_ref()?.wait(bind, waited)
    }

    fn queue(&self) -> Option<usize> {
        self.binds.as_ref().map(Binds::queue)
    }
}

impl Pages {
    /// Sets up virtual memory as it was found, if it was.
    pub(crate) fn new(driver: Arc<Driver>, memory: Arc<Memory>, found: Option<Sparse>) -> Result<Pages, VulkanError> {
        let binds = match found {
            Some(sparse) => Some(Binds::new(Arc::clone(&driver), Arc::clone(&memory), sparse.queue)?),
            None => None,
        };
        if let (Some(log), Some(_)) = (&driver.instance.log, &binds) {
            log.expect_sparse();
        }
        Ok(Pages { binds, memory, driver })
    }

    /// Destroys everything that was made, leaked or given back. Called when no handle of the device is left.
    pub(crate) fn destroy(&self) {
        if let Some(binds) = &self.binds {
            binds.destroy_all();
        }
    }

    /// Makes all memory that was given back reach the driver, for a request that was refused, as far as that is done in
    /// time. Returns whether anything was destroyed.
    pub(crate) fn reclaim(&self) -> bool {
        self.binds.as_ref().is_some_and(Binds::reclaim)
    }

    /// Checks that the device has pages of that class and of that size, and returns the records.
    fn paging(&self, call: &'static str, class: ClassId, bytes: u64) -> Result<&Binds, VulkanError> {
        let (Some(binds), Some(pages)) = (&self.binds, self.memory.caps.pages) else {
            let missing = "sparse binding with residency for buffers is not there or not enabled";
            return Err(Misuse::Unsupported { call, missing: Some(missing) }.into());
        };
        self.memory.caps.class(class);
        if class != ClassId::DEVICE {
            return Err(Misuse::NoPages { class }.into());
        }
        Misuse::if_empty(call, bytes)?;
        aligned(call, bytes, pages.granularity)?;
        Ok(binds)
    }

    /// Implements `reserve_range`.
    pub(crate) fn reserve_range(&self, class: ClassId, bytes: u64) -> Result<Segment, VulkanError> {
        let binds = self.paging("reserve_range", class, bytes)?;
        let max = self.driver.probe.max_buffer_bytes;
        if bytes > max {
            return Err(VulkanError::TooLarge { asked: bytes, max });
        }
        self.driver.enter("vkCreateBuffer")?;
        let facts = self.memory.facts(class);
        let buffer = reclaiming(|| self.reclaim(), || self.create_range(binds, class, facts, bytes))?;
        Ok(Segment {
            device: self.driver.id,
            id: self.memory.next_id(),
            buffer,
            bytes,
            class,
            memory_type: facts.memory_type,
            memory: None,
            address: self.memory.buffer_address(buffer),
            mapped: None,
            limits: self.memory.limits,
            shown: AtomicBool::new(false),
        })
    }

    /// Creates the sparse buffer of a range. It has no memory: a driver that says there is none left lacks addresses.
    fn create_range(
        &self,
        binds: &Binds,
        class: ClassId,
        facts: &ClassFacts,
        bytes: u64,
    ) -> Result<vk::Buffer, VulkanError> {
        let total = self.driver.probe.properties.limits.sparse_address_space_size;
        let lacking = |free| VulkanError::AddressSpace { asked: bytes, free, total };
        binds.take_addresses(bytes, total).map_err(lacking)?;
        let info = range_info(&self.driver.families, facts, self.driver.enabled.sparse_aliased).size(bytes);
        // SAFETY: the features that the flags need are enabled, and the families belong to the device.
        let buffer = unsafe { self.driver.raw.create_buffer(&info, None) }.map_err(|result| {
            let free = binds.give_addresses(bytes, total);
            match result {
                vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => lacking(free),
                _ => self.memory.allocations.short(class, bytes, "vkCreateBuffer")(result),
            }
        })?;
        binds.add_range(buffer, bytes);
        Ok(buffer)
    }

    /// Implements `create_page`.
    pub(crate) fn create_page(&self, class: ClassId, bytes: u64) -> Result<Page, VulkanError> {
        let binds = self.paging("create_page", class, bytes)?;
        self.driver.enter("vkAllocateMemory")?;
        let facts = *self.memory.facts(class);
        let ask = || self.memory.allocations.allocate(class, facts, bytes, None);
        let memory = reclaiming(|| self.reclaim(), ask)?;
        binds.add_page(memory, bytes);
        Ok(Page { device: self.driver.id, memory, bytes, class })
    }

    /// Checks the place where a page is to be mapped, and returns the records.
    fn checked(&self, range: &Segment, offset: u64, page: &Page) -> Result<&Binds, VulkanError> {
        let binds = self.paging("map", page.class, page.bytes)?;
        aligned("map", offset, self.memory.caps.pages.map_or(1, |pages| pages.granularity))?;
        Misuse::if_outside(offset, page.bytes, range.bytes)?;
        Ok(binds)
    }

    /// Panics if a handle belongs to another device.
    fn of_this(&self, call: &str, device: u64) {
        assert!(
            device == self.driver.id,
            "{call}: the handle is of Vulkan device {device}, not of device {}",
            self.driver.id
        );
    }

    /// Allocates memory and frees it.
    pub(crate) fn allocate_and_free(&self, class: ClassId, bytes: u64) -> Result<(), VulkanError> {
        self.memory.caps.class(class);
        Misuse::if_empty("allocate_and_free", bytes)?;
        self.driver.enter("vkAllocateMemory")?;
        let allocations = &self.memory.allocations;
        let memory = allocations.allocate(class, *self.memory.facts(class), bytes, None)?;
        // SAFETY: the memory was just allocated, and nothing was bound to it.
        unsafe { allocations.free(memory) };
        Ok(())
    }

    /// Implements `release_range`.
    pub(crate) fn release_range(&self, range: Segment) {
        self.of_this("release_range", range.device);
        self.books("release_range").leave_range(range.buffer);
    }

    /// Implements `release_page`.
    pub(crate) fn release_page(&self, page: Page) {
        self.of_this("release_page", page.device);
        self.books("release_page").leave_page(page.memory);
    }

    /// Implements `map`.
    pub(crate) fn map(&self, range: &Segment, offset: u64, page: &Page) -> Result<(), VulkanError> {
        self.of_this("map", range.device);
        self.of_this("map", page.device);
        let binds = self.checked(range, offset, page)?;
        let note = Note { bytes: page.bytes, memory: page.memory, memory_offset: 0 };
        if binds.note(range.buffer, offset, note) {
            Ok(())
        } else {
            Err(Misuse::NotARange { segment: Named::Bytes(range.bytes) }.into())
        }
    }

    /// Implements `unmap`.
    pub(crate) fn unmap(&self, range: &Segment, offset: u64, page: &Page) {
        self.of_this("unmap", range.device);
        self.of_this("unmap", page.device);
        let note = Note { bytes: page.bytes, memory: vk::DeviceMemory::null(), memory_offset: 0 };
        let known = self.checked(range, offset, page).map(|binds| binds.note(range.buffer, offset, note));
        assert!(
            matches!(known, Ok(true)),
            "unmap at offset {offset} of {range:?}: {page:?} cannot be there ({known:?})"
        );
    }

    /// Returns the records of virtual memory, for a handle that cannot exist without them.
    fn books(&self, call: &str) -> &Binds {
        match &self.binds {
            Some(binds) => binds,
            None => panic!("{call} on Vulkan device {}, which has no virtual memory", self.driver.id),
        }
    }
}

fn aligned(call: &'static str, value: u64, granularity: u64) -> Result<(), Misuse> {
    Misuse::if_misaligned(call, value, granularity, Some("granularity"))
}
