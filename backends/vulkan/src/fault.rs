//! Planned faults: a testing aid that makes driver calls fail that would not.

use std::sync::atomic::Ordering;

use millpond_backend::Fault;

use crate::device::Device;
use crate::{Vulkan, VulkanError};

impl Device {
    /// Fails if the device is lost.
    pub(crate) fn alive(&self) -> Result<(), VulkanError> {
        if self.lost.load(Ordering::Relaxed) { Err(VulkanError::Lost) } else { Ok(()) }
    }

    /// Before each fallible driver call: fails if the device is lost, or if a test planned it.
    pub(crate) fn enter(&self, call: &'static str) -> Result<(), VulkanError> {
        self.alive()?;
        let Some(fault) = self.faults.strike(&()) else { return Ok(()) };
        if fault == Fault::Lost {
            self.lost.store(true, Ordering::Relaxed);
        }
        Err(VulkanError::Planned { call, fault })
    }

    /// For `map_err` on a Vulkan call: a lost device stays lost.
    pub(crate) fn failed(&self, call: &'static str) -> impl Fn(ash::vk::Result) -> VulkanError + '_ {
        move |result| {
            if result != ash::vk::Result::ERROR_DEVICE_LOST {
                return VulkanError::Driver { call, result };
            }
            self.lost.store(true, Ordering::Relaxed);
            VulkanError::Lost
        }
    }
}

/// Aids for testing what stands on this backend.
impl Vulkan {
    /// Plans that the `nth` fallible driver call, counted from 1 and from now, fails with that fault and does nothing.
    /// [`Fault::Lost`] loses the device for good. Calls that cannot fail (releasing, marking) are not counted, nor are
    /// looks at a tick that is known to be reached.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn fail_nth(&self, nth: u64, fault: Fault) {
        self.device.faults.add(None, nth, fault);
    }

    /// Forgets the planned failures that have not struck.
    pub fn forget_faults(&self) {
        self.device.faults.forget();
    }

    /// How many fallible driver calls there were so far, as [`fail_nth`](Vulkan::fail_nth) counts them.
    pub fn fallible_calls(&self) -> u64 {
        self.device.faults.calls()
    }
}
