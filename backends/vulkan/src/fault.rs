//! Planned faults: a testing aid that makes driver calls fail that would otherwise succeed.

use std::sync::atomic::Ordering;

use millpond_backend::Fault;

use crate::device::Device;
use crate::{Vulkan, VulkanError};

impl Device {
    /// Returns an error if the device is lost.
    pub(crate) fn alive(&self) -> Result<(), VulkanError> {
        if self.lost.load(Ordering::Relaxed) { Err(VulkanError::Lost) } else { Ok(()) }
    }

    /// Returns an error if the device is lost, or if a test planned one. Runs before each fallible driver call.
    pub(crate) fn enter(&self, call: &'static str) -> Result<(), VulkanError> {
        self.alive()?;
        let Some(fault) = self.faults.strike(&()) else { return Ok(()) };
        if fault == Fault::Lost {
            self.lost.store(true, Ordering::Relaxed);
        }
        Err(VulkanError::Planned { call, fault })
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
}

/// Aids for testing code that is built on this backend.
impl Vulkan {
    /// Plans that the `nth` fallible driver call, counted from 1 and from now, fails with that fault and does nothing.
    /// [`Fault::Lost`] loses the device for good. Calls that cannot fail (releasing, marking) are not counted, nor are
    /// queries of a tick that is known to be reached.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn fail_nth(&self, nth: u64, fault: Fault) {
        self.device.faults.add(None, nth, fault);
    }

    /// Cancels the planned failures that have not happened yet.
    pub fn forget_faults(&self) {
        self.device.faults.forget();
    }

    /// Returns the number of fallible driver calls so far, as [`fail_nth`](Vulkan::fail_nth) counts them.
    pub fn fallible_calls(&self) -> u64 {
        self.device.faults.calls()
    }
}
