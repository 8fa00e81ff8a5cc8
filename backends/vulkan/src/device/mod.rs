//! The device: the rooms that it is composed of, and the handle to it.

mod contract;
mod left;
mod open;
mod pages;
mod streams;
mod submits;
#[cfg(feature = "testing")]
mod testing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ash::vk;

use millpond_backend::ClassId;
use millpond_kit::Leavings;

use crate::error::VulkanError;
#[cfg(unix)]
use crate::memory::ExportedMemory;
use crate::memory::{Memory, Segment};
use crate::open::{Driver, EnabledFeatures, ValidationLog};
use crate::pages::{Page, Pages};
use crate::streams::Streams;
use crate::time::Time;
use crate::transfer::Transfers;

/// A Vulkan device, and the handle to it: clones are the same device. What the device owns is destroyed with the last
/// handle, which waits for everything that was submitted through it.
///
/// All methods may be called from any thread. `mark`, and `reached` while nothing is outstanding, take no lock.
#[derive(Clone)]
pub struct Vulkan {
    device: Arc<Device>,
}

/// The state that all handles of a device share: its rooms, from the last to the first.
struct Device {
    leavings: Leavings<Segment, Page>,
    transfers: Transfers,
    time: Arc<Time>,
    pages: Arc<Pages>,
    memory: Arc<Memory>,
    streams: Arc<Streams>,
    driver: Arc<Driver>,
}

impl Drop for Device {
    fn drop(&mut self) {
        self.time.end();
        self.streams.destroy();
        self.pages.destroy();
        self.memory.destroy();
    }
}

impl Vulkan {
    /// The class of device memory that images may be bound to. Its memory is not dedicated to the segment's buffer, and
    /// of a type that serves images where one serves both. An allocator of this class has the policy `classic`.
    pub const IMAGE: ClassId = crate::memory::IMAGE;

    /// Returns the requirements that a block has to meet which an image, or another resource of yours, is bound to:
    /// size and alignment are raised to multiples of `bufferImageGranularity`. So the image shares no such unit of
    /// memory with a neighbour, whatever that is used for. Costs nothing.
    pub fn apart(&self, requirements: vk::MemoryRequirements) -> vk::MemoryRequirements {
        let unit = self.device.driver.probe.properties.limits.buffer_image_granularity.max(1);
        let alignment = requirements.alignment.max(unit);
        vk::MemoryRequirements { size: requirements.size.next_multiple_of(unit), alignment, ..requirements }
    }

    /// Returns a file descriptor of a segment's memory, for CUDA, another Vulkan device or another process. The device
    /// was opened with [`VulkanBuilder::exports`](crate::VulkanBuilder::exports), or adopted with
    /// [`Adopted::exports`](crate::Adopted::exports). The segment is one of class 0: that of a block, from
    /// `Buffer::segment`, under a policy without pages, such as `policy:classic`. The block is at `Buffer::offset`.
    ///
    /// The descriptor gives access to the whole segment, including all other blocks in it. Do not drop the block before
    /// the others are done with it: freed memory is reused while they still see it. The two sides order their work by
    /// themselves, as by semaphores that are exported, or by waiting on the host. The memory is dedicated to its
    /// buffer, so Vulkan imports it for a buffer that is created alike, and CUDA with `CUDA_EXTERNAL_MEMORY_DEDICATED`.
    ///
    /// Costs a driver call. Each call opens another descriptor.
    ///
    /// # Errors
    ///
    /// [`VulkanError::NotExported`](crate::VulkanError::NotExported) says what to change;
    /// [`Misuse::Foreign`](crate::Misuse::Foreign) for a segment of another device; else the driver's errors.
    #[cfg(unix)]
    pub fn export(&self, segment: &Segment) -> Result<ExportedMemory, VulkanError> {
        self.device.memory.export(segment)
    }

    /// Returns the loader.
    pub fn entry(&self) -> &ash::Entry {
        &self.device.driver.instance.entry
    }

    /// Returns the `VkInstance`.
    pub fn raw_instance(&self) -> &ash::Instance {
        &self.device.driver.instance.raw
    }

    /// Returns the `VkDevice`. Submit to its queues only as the device's owner, or through this backend.
    pub fn raw_device(&self) -> &ash::Device {
        &self.device.driver.raw
    }

    /// Returns the `VkPhysicalDevice`.
    pub fn physical_device(&self) -> vk::PhysicalDevice {
        self.device.driver.probe.physical
    }

    /// Returns the features that the device was opened with.
    pub fn enabled(&self) -> EnabledFeatures {
        self.device.driver.enabled
    }

    /// Returns the log of the validation layer, if the device was opened with it.
    pub fn validation(&self) -> Option<&ValidationLog> {
        self.device.driver.instance.log.as_ref()
    }
}

impl fmt::Debug for Vulkan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vulkan")
            .field("name", &self.device.memory.caps.name)
            .field("streams", &self.device.streams.count())
            .field("lost", &self.device.driver.lost.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
