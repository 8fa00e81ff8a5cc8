//! Standing on a device that an engine has made.

use std::fmt;
use std::sync::Arc;

use ash::vk;

use crate::assemble::{Parts, assemble};
use crate::classes::{COUNT, USAGE};
use crate::device::RawDevice;
use crate::instance::Instance;
use crate::pages::GRANULARITY;
use crate::probe::Probe;
use crate::queue::{Queue, QueueLock, describe_families};
use crate::{EnabledFeatures, Vulkan, VulkanError};

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
    /// What the device was created with.
    pub enabled: EnabledFeatures,
    /// The engine submits work that touches the memory without going through [`Vulkan`], so that it must place barriers
    /// before it reuses memory.
    pub engine_submits: bool,
}

/// One queue of an engine's device.
#[derive(Clone)]
pub struct AdoptedQueue {
    /// Its family.
    pub family: u32,
    /// The queue.
    pub queue: vk::Queue,
    /// How access to it is serialised. `None`: nobody but [`Vulkan`] uses the queue while it does.
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

impl Vulkan {
    /// Stands on an engine's device. Nothing of it is ever destroyed here; what is made from it is, with the last
    /// handle, which waits for what was submitted through it. Queues are numbered within their family in the order
    /// given.
    ///
    /// # Errors
    ///
    /// [`VulkanError::Lacks`] and [`VulkanError::Unsupported`] for a device that cannot serve, [`VulkanError::NoQueue`]
    /// for a family that it has not; else the driver's.
    ///
    /// # Safety
    ///
    /// The handles are valid, belong together, and outlive the last handle of the result. The device was created with
    /// timeline semaphores, synchronization2, and what `enabled` says. Queues without a lock are used by nobody else at
    /// the same time.
    pub unsafe fn adopt(adopted: Adopted) -> Result<Vulkan, VulkanError> {
        let instance = Instance::adopted(adopted.entry, adopted.instance);
        let probe = Probe::new(&instance, adopted.physical_device)?;
        probe.usable()?;
        if adopted.queues.is_empty() {
            let available = describe_families(&probe.families);
            return Err(VulkanError::NoQueue { family: 0, index: 0, available });
        }
        let mut queues: Vec<Queue> = Vec::new();
        for adopted in adopted.queues {
            let family = adopted.family;
            let index = queues.iter().filter(|queue| queue.family == family).count() as u32;
            let Some(facts) = probe.families.get(family as usize).filter(|facts| index < facts.queue_count) else {
                let available = describe_families(&probe.families);
                return Err(VulkanError::NoQueue { family, index, available });
            };
            queues.push(Queue::new(adopted.queue, (family, index), facts.queue_flags, adopted.lock));
        }
        assemble(Parts {
            raw: RawDevice { raw: adopted.device, owned: false },
            instance,
            probe,
            enabled: adopted.enabled,
            queues,
            usages: [USAGE; COUNT],
            engine_submits: adopted.engine_submits,
            page_granularity: GRANULARITY,
        })
    }
}
