//! The memory of segments, for other APIs and processes.

#[cfg(unix)]
use std::os::fd::{FromRawFd as _, OwnedFd};

use ash::khr::external_memory_fd;
#[cfg(unix)]
use ash::vk;
use millpond_kit::Misuse;

#[cfg(unix)]
use super::classes::ClassFacts;
#[cfg(unix)]
use super::segment::Segment;
use crate::error::VulkanError;
use crate::open::Driver;
use crate::probe::ExportKind;

/// How the memory of segments is exported.
#[cfg_attr(not(unix), expect(dead_code, reason = "file descriptors are of Unix"))]
pub(crate) struct Exports {
    kind: ExportKind,
    calls: external_memory_fd::Device,
}

impl Exports {
    /// Finds the call on a device, which an engine may have created without its extension.
    pub(super) fn find(driver: &Driver, kind: ExportKind) -> Result<Exports, VulkanError> {
        let (instance, device) = (&driver.instance.raw, &driver.raw.raw);
        // SAFETY: the device is alive and of this instance, and the name ends with a zero.
        let found = unsafe { instance.get_device_proc_addr(device.handle(), c"vkGetMemoryFdKHR".as_ptr()) };
        if found.is_none() {
            let missing = "VK_KHR_external_memory_fd: create the device with it";
            return Err(Misuse::Unsupported { call: "vkGetMemoryFdKHR", missing: Some(missing) }.into());
        }
        Ok(Exports { kind, calls: external_memory_fd::Device::new(instance, device) })
    }
}

/// The memory of a segment for another API or process, from [`Vulkan::export`](crate::Vulkan::export), and what its
/// importer has to know.
#[cfg(unix)]
#[derive(Debug)]
#[non_exhaustive]
pub struct ExportedMemory {
    /// The file descriptor, which is the program's. While it is open, or imported somewhere, the memory is not free,
    /// even if the segment was given back. Importers such as Vulkan and CUDA take a descriptor over: duplicate it to
    /// keep one.
    pub descriptor: OwnedFd,
    /// What the descriptor is.
    pub kind: ExportKind,
    /// The size of the memory in bytes, which is that of the allocation to import.
    pub bytes: u64,
    /// The size in bytes of the segment's buffer, which begins at 0.
    pub buffer_bytes: u64,
    /// The usages of the segment's buffer.
    pub usage: vk::BufferUsageFlags,
    /// The index of the memory's type.
    pub memory_type: u32,
}

#[cfg(unix)]
impl Exports {
    /// Exports the memory of a segment of this device, whose class has these facts.
    pub(super) fn export(
        &self,
        driver: &Driver,
        segment: &Segment,
        facts: &ClassFacts,
    ) -> Result<ExportedMemory, VulkanError> {
        let Some(place) = segment.memory() else {
            return Err(VulkanError::NotExported { remedy: "it consists of pages; allocate with policy:classic" });
        };
        if facts.exports.is_none() {
            return Err(VulkanError::NotExported { remedy: "allocate in class 0" });
        }
        driver.enter("vkGetMemoryFdKHR")?;
        let info = vk::MemoryGetFdInfoKHR::default().memory(place.memory).handle_type(self.kind.handle_type());
        // SAFETY: the memory is alive as the segment is, and was allocated to be exported as this handle type.
        let number = unsafe { self.calls.get_memory_fd(&info) }.map_err(driver.failed("vkGetMemoryFdKHR"))?;
        Ok(ExportedMemory {
            // SAFETY: the driver has just opened the descriptor, for the caller alone.
            descriptor: unsafe { OwnedFd::from_raw_fd(number) },
            kind: self.kind,
            bytes: place.requirements.size,
            buffer_bytes: segment.bytes,
            usage: facts.usage,
            memory_type: place.memory_type,
        })
    }
}
