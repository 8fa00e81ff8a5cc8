//! Virtual memory: ranges of addresses are sparse buffers, pages are allocations.

use std::fmt;
use std::sync::atomic::Ordering;

use ash::vk;
use millpond_backend::{ClassId, PageCaps, Reuse, StreamId, VirtualMemory};

use crate::binds::{Binds, queue_for_binds};
use crate::classes::{ClassFacts, buffer_info};
use crate::device::Device;
use crate::notes::Note;
use crate::{Segment, Vulkan, VulkanError};

/// The least granularity of pages in bytes, unless the builder sets another: the size of a large page on most devices.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// A handle of physical memory: one `VkDeviceMemory`. A page that is dropped without `release_page` stays with the
/// device until the device's last handle is dropped.
pub struct Page {
    /// The device's number within the process.
    pub(crate) device: u64,
    pub(crate) memory: vk::DeviceMemory,
    pub(crate) bytes: u64,
    pub(crate) class: ClassId,
}

impl Page {
    /// Returns the memory itself.
    pub fn memory(&self) -> vk::DeviceMemory {
        self.memory
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the class that it was taken from.
    pub fn class(&self) -> ClassId {
        self.class
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("memory", &self.memory).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Returns how sparse buffers of a class are created. `size` is still to be set.
fn range_info<'a>(families: &'a [u32], facts: &ClassFacts, aliasing: bool) -> vk::BufferCreateInfo<'a> {
    let mut flags = vk::BufferCreateFlags::SPARSE_BINDING | vk::BufferCreateFlags::SPARSE_RESIDENCY;
    if aliasing {
        flags |= vk::BufferCreateFlags::SPARSE_ALIASED;
    }
    buffer_info(families).usage(facts.usage).flags(flags)
}

impl Device {
    /// Sets up virtual memory, if the device was opened with it and a queue can bind.
    pub(crate) fn open_pages(&mut self, granularity: u64) -> Result<(), VulkanError> {
        let enabled = self.enabled;
        let Some(queue) = queue_for_binds(&self.queues) else { return Ok(()) };
        if !enabled.sparse_binding || !enabled.sparse_residency {
            return Ok(());
        }
        let facts = &self.classes[usize::from(ClassId::DEVICE.0)];
        let info = range_info(&self.families, facts, enabled.sparse_aliased).size(granularity);
        // SAFETY: the features that the flags need are enabled, and the families belong to the device.
        let buffer = unsafe { self.raw.create_buffer(&info, None) }.map_err(self.failed("vkCreateBuffer"))?;
        // SAFETY: the buffer was just created.
        let requirements = unsafe { self.raw.get_buffer_memory_requirements(buffer) };
        // SAFETY: no other code has the buffer.
        unsafe { self.raw.destroy_buffer(buffer, None) };
        // Pages are of the segments' memory type, so that a block's speed does not depend on where it lies.
        if requirements.memory_type_bits & (1 << facts.memory_type) == 0 {
            return Ok(());
        }
        let granularity = requirements.alignment.max(granularity);
        self.binds = Some(Binds::new(queue, self.create_timeline()?));
        if let Some(log) = &self.instance.log {
            log.expect_sparse();
        }
        let address_bytes = self.probe.properties.limits.sparse_address_space_size;
        self.caps.pages = Some(PageCaps {
            granularity,
            aliasing: enabled.sparse_aliased,
            alias_reuse: Reuse::InOrder,
            address_bytes,
        });
        Ok(())
    }
}

impl Device {
    /// Checks that the device has pages of that class and of that size, and returns the records.
    fn paging(&self, call: &'static str, class: ClassId, bytes: u64) -> Result<&Binds, VulkanError> {
        let (Some(binds), Some(pages)) = (&self.binds, self.caps.pages) else {
            let missing = "sparse binding with residency for buffers is not there or not enabled";
            return Err(VulkanError::Unsupported { call, missing });
        };
        self.caps.class(class);
        if class != ClassId::DEVICE {
            return Err(VulkanError::NoPages { class });
        }
        if bytes == 0 {
            return Err(VulkanError::Empty { call });
        }
        aligned(call, bytes, pages.granularity)?;
        Ok(binds)
    }

    fn reserve_range(&self, class: ClassId, bytes: u64) -> Result<Segment, VulkanError> {
        let binds = self.paging("reserve_range", class, bytes)?;
        let max = self.probe.max_buffer_bytes;
        if bytes > max {
            return Err(VulkanError::TooLarge { asked: bytes, max });
        }
        self.enter("vkCreateBuffer")?;
        let total = self.probe.properties.limits.sparse_address_space_size;
        let mut taken = binds.take_addresses(bytes, total);
        if taken.is_err() && self.reclaim() {
            taken = binds.take_addresses(bytes, total);
        }
        taken.map_err(|free| VulkanError::AddressSpace { asked: bytes, free, total })?;
        let facts = &self.classes[usize::from(class.0)];
        let info = range_info(&self.families, facts, self.enabled.sparse_aliased).size(bytes);
        // SAFETY: the features that the flags need are enabled, and the families belong to the device.
        let buffer = unsafe { self.raw.create_buffer(&info, None) }.map_err(|result| {
            binds.give_addresses(bytes);
            self.failed("vkCreateBuffer")(result)
        })?;
        binds.add_range(buffer, bytes);
        Ok(Segment {
            device: self.id,
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            buffer,
            bytes,
            class,
            memory_type: facts.memory_type,
            address: self.buffer_address(buffer),
            mapped: None,
            limits: self.descriptor_limits(),
        })
    }

    fn create_page(&self, class: ClassId, bytes: u64) -> Result<Page, VulkanError> {
        let binds = self.paging("create_page", class, bytes)?;
        let max = self.probe.max_allocation_bytes;
        if bytes > max {
            return Err(VulkanError::TooLarge { asked: bytes, max });
        }
        self.enter("vkAllocateMemory")?;
        let memory = self.reclaiming(|| self.allocate_page(class, bytes))?;
        binds.add_page(memory, bytes);
        Ok(Page { device: self.id, memory, bytes, class })
    }

    /// Allocates the memory of one page.
    fn allocate_page(&self, class: ClassId, bytes: u64) -> Result<vk::DeviceMemory, VulkanError> {
        self.count_allocation(|| {
            let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
            let mut info = vk::MemoryAllocateInfo::default()
                .allocation_size(bytes)
                .memory_type_index(self.classes[usize::from(class.0)].memory_type);
            if self.enabled.buffer_device_address {
                info = info.push_next(&mut flags);
            }
            // SAFETY: the memory type is one of the device's, and addresses are requested only where they are enabled.
            unsafe { self.raw.allocate_memory(&info, None) }.map_err(|result| match result {
                vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => VulkanError::OutOfMemory { asked: bytes, class },
                _ => self.failed("vkAllocateMemory")(result),
            })
        })
    }

    /// Checks the place where a page is to be mapped, and returns the records.
    fn checked(&self, range: &Segment, offset: u64, page: &Page) -> Result<&Binds, VulkanError> {
        let binds = self.paging("map", page.class, page.bytes)?;
        aligned("map", offset, self.caps.pages.map_or(1, |pages| pages.granularity))?;
        match offset.checked_add(page.bytes) {
            Some(end) if end <= range.bytes => Ok(binds),
            _ => Err(VulkanError::OutOfRange { offset, bytes: page.bytes, segment_bytes: range.bytes }),
        }
    }

    /// Panics if a handle belongs to another device.
    fn of_this(&self, call: &str, device: u64) {
        assert!(device == self.id, "{call}: the handle is of Vulkan device {device}, not of device {}", self.id);
    }
}

fn aligned(call: &'static str, value: u64, granularity: u64) -> Result<(), VulkanError> {
    if value.is_multiple_of(granularity) { Ok(()) } else { Err(VulkanError::Misaligned { call, value, granularity }) }
}

impl Vulkan {
    /// Allocates and frees memory through the driver, without a buffer or any bookkeeping: the least that memory costs
    /// here, for measurements. Makes two driver calls.
    ///
    /// # Errors
    ///
    /// [`VulkanError::OutOfMemory`], [`VulkanError::TooLarge`] (for 0 bytes, too), [`VulkanError::TooMany`], and the
    /// driver's errors.
    ///
    /// # Panics
    ///
    /// If the device has no such class.
    pub fn allocate_and_free(&self, class: ClassId, bytes: u64) -> Result<(), VulkanError> {
        let device = &*self.device;
        device.caps.class(class);
        let max = device.probe.max_allocation_bytes;
        if bytes == 0 || bytes > max {
            return Err(VulkanError::TooLarge { asked: bytes, max });
        }
        device.enter("vkAllocateMemory")?;
        let memory = device.allocate_page(class, bytes)?;
        // SAFETY: the memory was just allocated, and nothing was bound to it.
        unsafe { device.raw.free_memory(memory, None) };
        device.allocations.fetch_sub(1, Ordering::Relaxed);
        Ok(())
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
        self.device.reserve_range(class, bytes)
    }

    /// Gives a range back. The buffer is destroyed once the binds noted before are made.
    unsafe fn release_range(&self, range: Segment) {
        let device = &*self.device;
        device.of_this("release_range", range.device);
        device.leave_range(device.page_books("release_range"), range.buffer);
    }

    /// Creates a page with one driver call. If the driver refuses, all memory that was given back is freed first, which
    /// may take until the binds before it are made, a second at most, and the call is made once more.
    fn create_page(&self, class: ClassId, bytes: u64) -> Result<Page, VulkanError> {
        self.device.create_page(class, bytes)
    }

    /// Gives a page back. The memory is freed once the binds noted before are made.
    unsafe fn release_page(&self, page: Page) {
        let device = &*self.device;
        device.of_this("release_page", page.device);
        device.leave_page(device.page_books("release_page"), page.memory);
    }

    unsafe fn map(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) -> Result<(), VulkanError> {
        let device = &*self.device;
        device.of_this("map", range.device);
        device.of_this("map", page.device);
        device.lane(stream);
        let binds = device.checked(range, offset, page)?;
        let note = Note { bytes: page.bytes, memory: page.memory, memory_offset: 0 };
        if binds.note(range.buffer, offset, note) { Ok(()) } else { Err(VulkanError::NotARange { bytes: range.bytes }) }
    }

    unsafe fn unmap(&self, range: &Segment, offset: u64, page: &Page, stream: StreamId) {
        let device = &*self.device;
        device.of_this("unmap", range.device);
        device.of_this("unmap", page.device);
        device.lane(stream);
        let note = Note { bytes: page.bytes, memory: vk::DeviceMemory::null(), memory_offset: 0 };
        let known = device.checked(range, offset, page).map(|binds| binds.note(range.buffer, offset, note));
        assert!(
            matches!(known, Ok(true)),
            "unmap at offset {offset} of {range:?}: {page:?} cannot be there ({known:?})"
        );
    }
}

impl Device {
    /// Returns the records of virtual memory, for a handle that cannot exist without them.
    fn page_books(&self, call: &str) -> &Binds {
        match &self.binds {
            Some(binds) => binds,
            None => panic!("{call} on Vulkan device {}, which has no virtual memory", self.id),
        }
    }
}
