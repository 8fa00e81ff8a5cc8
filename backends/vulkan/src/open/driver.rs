//! The opened device: the handles through which all rooms call the driver, and whether it still works.

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ash::vk;
#[cfg(feature = "testing")]
use millpond_backend::Fault;
#[cfg(feature = "testing")]
use millpond_kit::testing::{FaultPlan, Planned};

use super::instance::Instance;
use super::queue::Queue;
use super::sync2::Sync2;
use crate::error::VulkanError;
use crate::probe::Probe;

/// The optional features that a device was opened with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EnabledFeatures {
    /// `bufferDeviceAddress`: segments have addresses.
    pub buffer_device_address: bool,
    /// `sparseBinding`.
    pub sparse_binding: bool,
    /// `sparseResidencyBuffer`.
    pub sparse_residency: bool,
    /// `sparseResidencyAliased`.
    pub sparse_aliased: bool,
    /// `VK_EXT_memory_budget`.
    pub memory_budget: bool,
}

/// A `VkDevice` that is destroyed with this value if it was created here.
pub(crate) struct RawDevice {
    pub(crate) raw: ash::Device,
    pub(crate) owned: bool,
}

impl Deref for RawDevice {
    type Target = ash::Device;

    fn deref(&self) -> &ash::Device {
        &self.raw
    }
}

impl Drop for RawDevice {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: the device was created here; `Device::drop` has waited for all work and destroyed everything that
            // was made from it.
            unsafe { self.raw.destroy_device(None) };
        }
    }
}

/// The parts of a device. They are dropped in this order if it cannot be used.
pub(crate) struct Parts {
    pub(crate) raw: RawDevice,
    pub(crate) instance: Instance,
    pub(crate) probe: Probe,
    pub(crate) enabled: EnabledFeatures,
    pub(crate) queues: Vec<Queue>,
    /// The value that is dropped last, for an engine.
    pub(crate) keep: Option<Arc<dyn Any + Send + Sync>>,
}

/// A device that was opened or adopted. The last three fields are destroyed in this order.
pub(crate) struct Driver {
    /// Unique within the process.
    pub(crate) id: u64,
    pub(crate) probe: Probe,
    pub(crate) enabled: EnabledFeatures,
    pub(crate) queues: Vec<Queue>,
    /// The families of the queues, each once.
    pub(crate) families: Vec<u32>,
    pub(crate) sync2: Sync2,
    #[cfg(feature = "testing")]
    pub(crate) faults: FaultPlan,
    pub(crate) lost: AtomicBool,
    pub(crate) raw: RawDevice,
    pub(crate) instance: Instance,
    /// The value that is dropped last, for an engine.
    _keep: Option<Arc<dyn Any + Send + Sync>>,
}

static DEVICES: AtomicU64 = AtomicU64::new(0);

impl Driver {
    /// Takes a device that was opened or adopted.
    pub(crate) fn new(parts: Parts) -> Result<Driver, VulkanError> {
        let mut families: Vec<u32> = parts.queues.iter().map(|queue| queue.family).collect();
        families.sort_unstable();
        families.dedup();
        let sync2 = Sync2::find(&parts.instance.raw, &parts.raw)?;
        Ok(Driver {
            id: DEVICES.fetch_add(1, Ordering::Relaxed),
            probe: parts.probe,
            enabled: parts.enabled,
            queues: parts.queues,
            families,
            sync2,
            #[cfg(feature = "testing")]
            faults: FaultPlan::default(),
            lost: AtomicBool::new(false),
            raw: parts.raw,
            instance: parts.instance,
            _keep: parts.keep,
        })
    }

    /// Returns an error if the device is lost.
    pub(crate) fn alive(&self) -> Result<(), VulkanError> {
        if self.lost.load(Ordering::Relaxed) { Err(VulkanError::Lost) } else { Ok(()) }
    }

    /// Returns an error if the device is lost, or if a test planned one. Runs before each fallible driver call.
    #[cfg_attr(not(feature = "testing"), allow(unused_variables))]
    pub(crate) fn enter(&self, call: &'static str) -> Result<(), VulkanError> {
        self.alive()?;
        #[cfg(feature = "testing")]
        if let Some(fault) = self.faults.strike(&()) {
            if fault == Fault::Lost {
                self.lost.store(true, Ordering::Relaxed);
            }
            return Err(Planned { call, fault }.into());
        }
        Ok(())
    }

    /// Returns a function for `map_err` on a Vulkan call. It notes a lost device, which stays lost.
    pub(crate) fn failed(&self, call: &'static str) -> impl Fn(ash::vk::Result) -> VulkanError + '_ {
        move |result| {
            if result != ash::vk::Result::ERROR_DEVICE_LOST {
                return VulkanError::Driver { call, result };
            }
            self.lost.store(true, Ordering::Relaxed);
            VulkanError::Lost
        }
    }

    /// Creates a timeline semaphore at 0.
    pub(crate) fn create_timeline(&self) -> Result<vk::Semaphore, VulkanError> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: timeline semaphores are enabled: the builder enabled them, or the caller of `adopt` promised it.
        unsafe { self.raw.create_semaphore(&info, None) }.map_err(self.failed("vkCreateSemaphore"))
    }

    /// Waits until the queues no longer use what was submitted to them. A semaphore that has its value does not
    /// guarantee this with every driver: Mesa's queue threads access the semaphores of work once more after they have
    /// signalled them.
    ///
    /// Where binds have a queue of their own, an engine's queue that was never used here is left alone: other code may
    /// submit to it without the lock that this backend was given, as users of wgpu do.
    pub(crate) fn drain_queues(&self, binds: Option<usize>) {
        for (at, queue) in self.queues.iter().enumerate() {
            if !queue.is_own() && !queue.is_used() && binds.is_some_and(|binds| binds != at) {
                continue;
            }
            // SAFETY: the queue belongs to the device, and its lock keeps other threads from it.
            let waited = queue.locked(|queue| unsafe { self.raw.queue_wait_idle(queue) });
            // An error means that the device is lost, and its work with it.
            let _ = waited;
        }
    }
}
