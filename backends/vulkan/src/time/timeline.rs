//! Time: querying what was reached, and waiting for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ash::vk;
use millpond_backend::{Point, StreamId, Tick};

use crate::error::VulkanError;
use crate::open::Driver;
use crate::streams::{Lane, Streams};

/// What has to be with the driver before a submit, and what the submit waits for on the device: binds of pages.
pub(crate) trait Before: Send + Sync {
    /// Passes everything that is noted to the driver, and returns the newest bind, or 0 if there never was one.
    fn flush(&self) -> Result<u64, VulkanError>;

    /// Returns the wait that a submit needs to come after a bind, on a lane whose submits have waited for bind
    /// `waited`.
    fn wait(&self, bind: u64, waited: u64) -> Option<(vk::Semaphore, u64)>;

    /// Returns the queue that binds go to: an index into the device's queues.
    fn queue(&self) -> Option<usize>;
}

/// The time of a device: it submits, and knows what is done.
pub(crate) struct Time {
    pub(super) before: Arc<dyn Before>,
    pub(super) streams: Arc<Streams>,
    pub(super) driver: Arc<Driver>,
}

impl Time {
    /// Creates the time of a device, with what goes before every submit.
    pub(crate) fn new(driver: Arc<Driver>, streams: Arc<Streams>, before: Arc<dyn Before>) -> Time {
        Time { before, streams, driver }
    }

    /// Returns the newest complete tick of a lane. Makes no driver call while everything submitted is known to be
    /// complete.
    #[inline]
    pub(crate) fn reached(&self, stream: StreamId) -> Result<Tick, VulkanError> {
        self.driver.alive()?;
        let lane = self.streams.lane(stream);
        let reached = lane.clock.reached();
        if reached >= lane.clock.submitted() {
            return Ok(reached);
        }
        self.driver.enter("vkGetSemaphoreCounterValue")?;
        self.query(lane)
    }

    /// Queries the driver for the newest complete tick of a lane.
    pub(crate) fn query(&self, lane: &Lane) -> Result<Tick, VulkanError> {
        // SAFETY: the semaphore is a timeline of this device, alive as long as the lane.
        let value = unsafe { self.driver.raw.get_semaphore_counter_value(lane.semaphore) }
            .map_err(self.driver.failed("vkGetSemaphoreCounterValue"))?;
        // Some drivers report a lost device by the largest possible value.
        if value == u64::MAX {
            self.driver.lost.store(true, Ordering::Relaxed);
            return Err(VulkanError::Lost);
        }
        // A tick that is still open cannot be reached, whatever an engine does with a semaphore of its own.
        Ok(lane.clock.complete(Tick(value)))
    }

    /// Implements `wait`.
    pub(crate) fn wait(&self, point: Point) -> Result<Tick, VulkanError> {
        self.driver.alive()?;
        let lane = self.streams.lane(point.stream);
        let target = point.tick.min(lane.clock.submitted());
        let reached = lane.clock.reached();
        if reached >= target {
            return Ok(reached);
        }
        self.driver.enter("vkWaitSemaphores")?;
        self.wait_for(lane, target)?;
        self.query(lane)
    }

    /// Blocks until the driver has reached a submitted tick, or the device is lost.
    pub(crate) fn wait_for(&self, lane: &Lane, tick: Tick) -> Result<(), VulkanError> {
        let tick = lane.signalled(tick);
        self.wait_for_value(lane.semaphore, tick.0)?;
        lane.clock.complete(tick);
        Ok(())
    }

    /// Blocks until a timeline has a value that was submitted, or the device is lost.
    pub(super) fn wait_for_value(&self, semaphore: vk::Semaphore, value: u64) -> Result<(), VulkanError> {
        let (semaphores, values) = ([semaphore], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        // SAFETY: the semaphore is a timeline of this device, and the callers keep it alive.
        let wait = |nanoseconds| unsafe { self.driver.raw.wait_semaphores(&info, nanoseconds) };
        let mut waited = wait(self.streams.gates.patience());
        while waited == Err(vk::Result::TIMEOUT) {
            self.streams.open_gates();
            waited = wait(self.streams.gates.patience());
        }
        waited.map_err(self.driver.failed("vkWaitSemaphores"))
    }

    /// Waits for everything that was submitted. Called when no handle of the device is left.
    pub(crate) fn end(&self) {
        self.streams.open_gates();
        // What came before a stream was registered is complete as far as this device goes, and is not waited for.
        for lane in self.streams.lanes().filter(|lane| !lane.clock.is_drained()) {
            // An error here means that the device is lost, and its work with it.
            let _ = self.wait_for(lane, lane.clock.submitted());
        }
        self.driver.drain_queues(self.before.queue());
    }
}
