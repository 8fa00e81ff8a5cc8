//! Planned faults: a testing aid that makes driver calls fail that would not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millpond_backend::Fault;
use parking_lot::Mutex;

use crate::device::Device;
use crate::{Vulkan, VulkanError};

/// The planned failures, and how many fallible driver calls there were. Costs two atomic operations per driver call
/// while nothing is planned.
#[derive(Default)]
pub(crate) struct FaultPlan {
    calls: AtomicU64,
    armed: AtomicBool,
    /// For each failure, the calls still to come, the failing one included.
    planned: Mutex<Vec<(u64, Fault)>>,
}

impl FaultPlan {
    /// Counts one call, and returns the fault if one was planned for it.
    fn strike(&self) -> Option<Fault> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if !self.armed.load(Ordering::Acquire) {
            return None;
        }
        let mut struck = None;
        let mut planned = self.planned.lock();
        planned.retain_mut(|(left, fault)| {
            *left -= 1;
            if *left == 0 {
                struck = struck.or(Some(*fault));
            }
            *left > 0
        });
        self.armed.store(!planned.is_empty(), Ordering::Release);
        struck
    }
}

impl Device {
    /// Fails if the device is lost.
    pub(crate) fn alive(&self) -> Result<(), VulkanError> {
        if self.lost.load(Ordering::Relaxed) { Err(VulkanError::Lost) } else { Ok(()) }
    }

    /// Before each fallible driver call: fails if the device is lost, or if a test planned it.
    pub(crate) fn enter(&self, call: &'static str) -> Result<(), VulkanError> {
        self.alive()?;
        let Some(fault) = self.faults.strike() else { return Ok(()) };
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
        assert!(nth > 0, "calls are counted from 1: call 0 cannot fail");
        let plan = &self.device.faults;
        plan.planned.lock().push((nth, fault));
        plan.armed.store(true, Ordering::Release);
    }

    /// Forgets the planned failures that have not struck.
    pub fn forget_faults(&self) {
        self.device.faults.planned.lock().clear();
    }

    /// How many fallible driver calls there were so far, as [`fail_nth`](Vulkan::fail_nth) counts them.
    pub fn fallible_calls(&self) -> u64 {
        self.device.faults.calls.load(Ordering::Relaxed)
    }
}
