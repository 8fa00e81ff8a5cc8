//! Adopting a device that an engine has made.

use std::any::Any;
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
use crate::{EnabledFeatures, ValidationLog, Vulkan, VulkanError};

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
    /// Whether the engine submits work that touches the memory without going through [`Vulkan`], so that it must place
    /// barriers before it reuses memory.
    pub engine_submits: bool,
    /// The log that the validation layer's messages go to, if the engine's instance sends them to one of ours
    /// ([`ValidationLog::messenger`]). [`Vulkan::validation`] returns it.
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
    /// The lock that serialises access to the queue. `None` if no other code uses the queue while [`Vulkan`] does.
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
    /// Creates a [`Vulkan`] on an engine's device. It never destroys anything of the engine's. What is made from the
    /// device is destroyed with the last handle, which waits for the work that was submitted through it. Queues are
    /// numbered within their family in the order given. If this fails, nothing was made, and [`keep`](Adopted::keep) is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`VulkanError::Lacks`] and [`VulkanError::Unsupported`] for a device that lacks something that this backend
    /// needs, [`VulkanError::NoQueue`] for a family that the device does not have; else the driver's errors.
    ///
    /// # Safety
    ///
    /// The handles are valid, belong together, and outlive the last handle of the result. Allocators and buffers hold
    /// such handles too: the drop of [`keep`](Adopted::keep) shows that the last one is gone. The device was created
    /// with timeline semaphores, synchronization2, and the features in `enabled`. No other code uses a queue without a
    /// lock at the same time as the result does.
    pub unsafe fn adopt(adopted: Adopted) -> Result<Vulkan, VulkanError> {
        let instance = Instance::adopted(adopted.entry, adopted.instance, adopted.validation);
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
            keep: adopted.keep,
        })
    }
}
