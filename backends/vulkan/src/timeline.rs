//! Time: querying what was reached, and waiting for it.

use std::sync::atomic::Ordering;

use ash::vk;
use millpond_backend::{Point, StreamId, Tick};

use crate::VulkanError;
use crate::device::Device;
use crate::lane::Lane;

impl Device {
    /// Returns the newest complete tick of a lane. Makes no driver call while everything submitted is known to be
    /// complete.
    #[inline]
    pub(crate) fn reached(&self, stream: StreamId) -> Result<Tick, VulkanError> {
        self.alive()?;
        let lane = self.lane(stream);
        let reached = lane.reached();
        if reached >= lane.submitted() {
            return Ok(Tick(reached));
        }
        self.enter("vkGetSemaphoreCounterValue")?;
        self.query(lane).map(Tick)
    }

    /// Queries the driver for the newest complete tick of a lane.
    pub(crate) fn query(&self, lane: &Lane) -> Result<u64, VulkanError> {
        // SAFETY: the semaphore is a timeline of this device, alive as long as the lane.
        let value = unsafe { self.raw.get_semaphore_counter_value(lane.semaphore) }
            .map_err(self.failed("vkGetSemaphoreCounterValue"))?;
        // Some drivers report a lost device by the largest possible value.
        if value == u64::MAX {
            self.lost.store(true, Ordering::Relaxed);
            return Err(VulkanError::Lost);
        }
        // A tick that is still open cannot be reached, whatever an engine does with a semaphore of its own.
        let reached = value.min(lane.open() - 1);
        Ok(lane.reached.fetch_max(reached, Ordering::AcqRel).max(reached))
    }

    /// Implements `wait`.
    pub(crate) fn wait(&self, point: Point) -> Result<Tick, VulkanError> {
        self.alive()?;
        let lane = self.lane(point.stream);
        let target = point.tick.0.min(lane.submitted());
        let reached = lane.reached();
        if reached >= target {
            return Ok(Tick(reached));
        }
        self.enter("vkWaitSemaphores")?;
        self.wait_for(lane, target)?;
        self.query(lane).map(Tick)
    }

    /// Blocks until the driver has reached a submitted tick, or the device is lost.
    pub(crate) fn wait_for(&self, lane: &Lane, tick: u64) -> Result<(), VulkanError> {
        let tick = lane.signalled(tick);
        let (semaphores, values) = ([lane.semaphore], [tick]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is a timeline of this device, alive as long as the lane.
        let wait = |nanoseconds| unsafe { self.raw.wait_semaphores(&info, nanoseconds) };
        let mut waited = wait(self.patience());
        while waited == Err(vk::Result::TIMEOUT) {
            self.open_gates();
            waited = wait(self.patience());
        }
        waited.map_err(self.failed("vkWaitSemaphores"))?;
        lane.reached.fetch_max(tick, Ordering::AcqRel);
        Ok(())
    }
}
