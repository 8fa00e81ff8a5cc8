//! Adopting a device that an engine has made.

use std::any::Any;
use std::ffi::CStr;
use std::fmt;
use std::sync::Arc;

use ash::vk;

use super::driver::{Driver, EnabledFeatures, Parts, RawDevice};
use super::instance::Instance;
use super::queue::{Queue, QueueLock, describe_families};
use super::settings::Settings;
use super::validation::ValidationLog;
use crate::error::VulkanError;
use crate::probe::{ExportKind, Probe};

/// An engine's device.
pub struct Adopted {
    /// The loader that the instance is from.
    pub entry: ash::Entry,
    /// The instance.
    pub instance: ash::Instance,
    /// The device's physical device.
    pub physical_device: vk::PhysicalDevice,
    /// The device.
    pub device: ash::Device,
    /// The queues that streams may be on. Segments are shared among their families.
    pub queues: Vec<AdoptedQueue>,
    /// The features that the device was created with.
    pub enabled: EnabledFeatures,
    /// Whether the engine submits work that touches the memory without going through [`Vulkan`](crate::Vulkan), so that
    /// it must place barriers before it reuses memory.
    pub engine_submits: bool,
    /// How memory of class 0 can be exported, if it is to be; see
    /// [`VulkanBuilder::exports`](crate::VulkanBuilder::exports).
    /// The device was created with `VK_KHR_external_memory_fd`, and with `VK_EXT_external_memory_dma_buf` for DMA
    /// buffers.
    pub exports: Option<ExportKind>,
    /// The log that the validation layer's messages go to, if the engine's instance sends them to one of ours
    /// ([`ValidationLog::messenger`]). [`Vulkan::validation`](crate::Vulkan::validation) returns it.
    pub validation: Option<ValidationLog>,
    /// A value that is dropped after everything that was made from the device is destroyed and the locks of the queues
    /// are released, on the thread that drops the last handle. It holds what the adopted handles and semaphores need,
    /// or a value whose drop notifies the engine that it may destroy them.
    pub keep: Option<Arc<dyn Any + Send + Sync>>,
}

/// One queue of an engine's device.
#[derive(Clone)]
pub struct AdoptedQueue {
    /// Its family.
    pub family: u32,
    /// The queue.
    pub queue: vk::Queue,
    /// The lock that serialises access to the queue. `None` if no other code uses the queue while
    /// [`Vulkan`](crate::Vulkan) does.
    pub lock: Option<Arc<dyn QueueLock>>,
}

impl fmt::Debug for AdoptedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdoptedQueue")
            .field("family", &self.family)
            .field("queue", &self.queue)
            .field("shared", &self.lock.is_some())
            .finish()
    }
}

impl Adopted {
    /// Takes the device.
    ///
    /// # Safety
    ///
    /// As for [`Vulkan::adopt`](crate::Vulkan::adopt).
    pub(crate) unsafe fn open(self) -> Result<(Driver, Settings), VulkanError> {
        let adopted = self;
        let instance = Instance::adopted(adopted.entry, adopted.instance, adopted.validation);
        functions_of_1_2(&instance, &adopted.device, adopted.enabled)?;
        let probe = Probe::new(&instance.raw, adopted.physical_device)?;
        if probe.hides_features() {
            return Err(VulkanError::OldInstance { missing: "timelineSemaphore" });
        }
        probe.usable()?;
        adopted.exports.map_or(Ok(()), |kind| probe.expect_export(kind))?;
        if adopted.queues.is_empty() {
            return Err(VulkanError::NoQueues { available: describe_families(&probe.families) });
        }
        let mut queues: Vec<Queue> = Vec::new();
        for adopted in adopted.queues {
            let family = adopted.family;
            let index = queues.iter().filter(|queue| queue.family == family).count() as u32;
            let Some(facts) = probe.families.get(family as usize).filter(|facts| index < facts.queue_count) else {
                let available = describe_families(&probe.families);
                return Err(VulkanError::NoQueue { family, index, available });
            };
            if let Some(twice) = queues.iter().find(|queue| queue.raw == adopted.queue) {
                return Err(VulkanError::QueueTwice { family: twice.family, index: twice.index });
            }
            queues.push(Queue::new(adopted.queue, (family, index), facts.queue_flags, adopted.lock));
        }
        let raw = RawDevice { raw: adopted.device, owned: false };
        let driver = Driver::new(Parts { raw, instance, probe, enabled: adopted.enabled, queues, keep: adopted.keep })?;
        let (engine_submits, exports) = (adopted.engine_submits, adopted.exports);
        Ok((driver, Settings { engine_submits, exports, ..Settings::default() }))
    }
}

/// Returns an error if the instance or the device lacks a function of Vulkan 1.2 that is called, as one of an instance
/// that was created for an older version may, whatever the device itself could do.
fn functions_of_1_2(instance: &Instance, device: &ash::Device, enabled: EnabledFeatures) -> Result<(), VulkanError> {
    const OF_INSTANCE: [&CStr; 2] = [c"vkGetPhysicalDeviceProperties2", c"vkGetPhysicalDeviceFeatures2"];
    const NAMES: [&CStr; 4] =
        [c"vkWaitSemaphores", c"vkGetSemaphoreCounterValue", c"vkSignalSemaphore", c"vkGetBufferDeviceAddress"];
    let needed = if enabled.buffer_device_address { &NAMES[..] } else { &NAMES[..3] };
    let instance_lacks = |name: &&&CStr| {
        // SAFETY: the instance is alive and of this loader, and the name ends with a zero.
        unsafe { instance.entry.get_instance_proc_addr(instance.raw.handle(), name.as_ptr()) }.is_none()
    };
    let lacks = |name: &&&CStr| {
        // SAFETY: the device is alive and of this instance, and the name ends with a zero.
        unsafe { instance.raw.get_device_proc_addr(device.handle(), name.as_ptr()) }.is_none()
    };
    match OF_INSTANCE.iter().find(instance_lacks).or_else(|| needed.iter().find(lacks)) {
        Some(name) => Err(VulkanError::OldInstance { missing: name.to_str().unwrap_or_default() }),
        None => Ok(()),
    }
}
