//! The number of allocations on a `VkDevice`, which Vulkan limits (`maxMemoryAllocationCount`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ash::vk;
use parking_lot::Mutex;

use crate::error::VulkanError;

/// The counts of the devices that are alive. A device that was adopted several times has one.
static COUNTS: Mutex<Vec<(vk::Device, Weak<Count>)>> = Mutex::new(Vec::new());

/// The allocations on one `VkDevice`, of all that adopted it and of the engine that has made it.
pub(crate) struct Count {
    /// Allocations of this backend.
    own: AtomicU64,
    /// Allocations that the engine has said to have.
    engine: AtomicU64,
}

impl Count {
    /// Returns the count of a device, whose handle is unique while it is alive. Goes over all devices that are alive.
    pub(crate) fn of(device: vk::Device) -> Arc<Count> {
        let mut counts = COUNTS.lock();
        counts.retain(|(_, count)| count.strong_count() > 0);
        if let Some(count) = counts.iter().find(|(other, _)| *other == device).and_then(|(_, count)| count.upgrade()) {
            return count;
        }
        let count = Arc::new(Count { own: AtomicU64::new(0), engine: AtomicU64::new(0) });
        counts.push((device, Arc::downgrade(&count)));
        count
    }

    /// Counts one more allocation, if there are fewer than `max`. It is counted before the driver is called, so that
    /// threads cannot exceed the limit together.
    pub(crate) fn add(&self, max: u64) -> Result<(), VulkanError> {
        let own = self.own.fetch_add(1, Ordering::Relaxed);
        if own + self.engine.load(Ordering::Relaxed) < max {
            return Ok(());
        }
        self.freed();
        Err(self.too_many(max))
    }

    /// Notes that an allocation was freed, or was not made.
    pub(crate) fn freed(&self) {
        self.own.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sets the number of the engine's own allocations.
    pub(crate) fn set_engine(&self, count: u64) {
        self.engine.store(count, Ordering::Relaxed);
    }

    /// Returns the number of this backend's allocations.
    pub(crate) fn own(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    /// Returns the error that the device allows no more than `max`.
    pub(crate) fn too_many(&self, max: u64) -> VulkanError {
        VulkanError::TooMany { max, own: self.own(), engine: self.engine.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use ash::vk::Handle as _;

    use super::*;

    #[test]
    fn all_that_share_a_device_count_together() {
        let device = vk::Device::from_raw(0xC0);
        let [first, second] = [(); 2].map(|()| Count::of(device));
        let other = Count::of(vk::Device::from_raw(0xC1));
        first.add(3).unwrap();
        second.add(3).unwrap();
        first.set_engine(1);
        let full = second.add(3).unwrap_err();
        assert!(matches!(full, VulkanError::TooMany { max: 3, own: 2, engine: 1 }), "{full}");
        other.add(3).unwrap();
        first.freed();
        second.add(3).unwrap();
        assert_eq!((first.own(), other.own()), (2, 1));
        drop((first, second));
        assert_eq!(Count::of(device).own(), 0, "a later device has the same handle");
    }
}
