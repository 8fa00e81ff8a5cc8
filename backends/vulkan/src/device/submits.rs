//! Recording, submitting, and submits of engines.

use ash::vk;
use millpond_backend::{StreamId, Tick};

use super::Vulkan;
use crate::error::VulkanError;
use crate::streams::full_barrier;
use crate::time::{PendingSubmit, Submission};

impl Vulkan {
    /// Submits, as one batch: the commands that were recorded through the device, a full barrier, then the given
    /// command buffers. The batch waits for the given points and semaphores and for the points that
    /// [`wait_for`](millpond_backend::StreamWait::wait_for) added, and closes the open tick. Returns that tick.
    ///
    /// **Between the given command buffers there are only the barriers that they record.** Where one uses memory that
    /// was allocated after another was recorded, begin it with [`reuse_barrier`](Vulkan::reuse_barrier).
    ///
    /// # Errors
    ///
    /// The driver's errors, and [`Misuse::NotSubmitted`](crate::Misuse::NotSubmitted) for a point whose work was not
    /// submitted. Nothing was submitted then; the commands that were recorded through the device go with the next
    /// submit, unless the error is [`VulkanError::NotRecorded`].
    ///
    /// # Panics
    ///
    /// If a stream is not this device's.
    ///
    /// # Safety
    ///
    /// The command buffers are ended, for the stream's queue family, and stay as they are until the tick is reached.
    /// The allocators whose memory they use have not been dropped, unless the device was opened with
    /// [`engine_submits`](crate::VulkanBuilder::engine_submits). The semaphores belong to this device and live as long.
    /// Values that are signalled rise.
    pub unsafe fn submit_with(&self, stream: StreamId, submission: &Submission<'_>) -> Result<Tick, VulkanError> {
        let lane = self.device.streams.lane(stream);
        for &point in submission.after {
            self.device.time.submitted(point)?;
        }
        let tick = self.device.time.submit(lane, &mut lane.state.lock(), submission);
        self.give_back_of(stream);
        tick
    }

    /// Announces a submit that the engine makes without this backend, and closes the open tick. Commands that were
    /// recorded through the device are submitted first, as a submit of their own. Then make the submit, with the waits
    /// and the signal, to the stream's queue and under its lock; then call [`finish`](PendingSubmit::finish).
    ///
    /// # Errors
    ///
    /// The driver's errors, from submitting the commands that were recorded through the device.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn begin_submit(&self, stream: StreamId) -> Result<PendingSubmit<'_>, VulkanError> {
        self.device.time.announce(stream, None)
    }

    /// Works like [`begin_submit`](Vulkan::begin_submit), where the engine's own timeline continues with a value
    /// of the engine's choice.
    ///
    /// # Errors
    ///
    /// The errors of [`begin_submit`](Vulkan::begin_submit), and [`VulkanError::Falls`] if the value was passed
    /// already.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn begin_submit_at(&self, stream: StreamId, value: u64) -> Result<PendingSubmit<'_>, VulkanError> {
        self.device.time.announce(stream, Some(value))
    }

    /// Returns the barrier that an engine records before the first use of memory that it got from this device, if it
    /// submits without this backend: on a stream that reuses in order, the last use of those bytes may still run. The
    /// barrier belongs on the stream that the memory is for, at the beginning of the submit that uses it, or before the
    /// first command that does. One barrier serves all memory that was handed out before it was recorded. Costs
    /// nothing.
    ///
    /// It is a global barrier, because a barrier for the buffer alone would not be enough: where memory has pages, the
    /// last use may have been through another buffer, or at another place of this one.
    pub fn reuse_barrier() -> vk::MemoryBarrier2<'static> {
        full_barrier()
    }

    /// Records commands into the stream's own command buffer, which the next submit of the stream passes to the driver.
    /// The commands that `work` records come after all work that was submitted or recorded on the stream before: a full
    /// barrier is placed in front of them. Returns the tick that covers them.
    ///
    /// **Within `work` there are only the barriers that it records.** Several dispatches or copies in one call may run
    /// at the same time, so where one reads or writes what another wrote, place a barrier between them, or record each
    /// in a call of its own. Commands that write memory that the host reads afterwards end with a barrier to the host
    /// stage.
    ///
    /// `work` runs under the stream's lock. It must not end or reset the command buffer, nor call this device with the
    /// same stream.
    ///
    /// # Errors
    ///
    /// The driver's errors; `work` was not run then.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn record(&self, stream: StreamId, work: impl FnOnce(vk::CommandBuffer)) -> Result<Tick, VulkanError> {
        let device = &*self.device;
        device.driver.enter("vkBeginCommandBuffer")?;
        let lane = device.streams.lane(stream);
        let mut state = lane.state.lock();
        device.transfers.record(lane, &mut state, work)?;
        Ok(lane.clock.open())
    }
}
