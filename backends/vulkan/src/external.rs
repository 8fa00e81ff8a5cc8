//! Engines that submit without this backend: how their submits close ticks, and the barrier that they need before they
//! reuse memory.

use std::fmt;
use std::sync::atomic::Ordering;

use ash::vk;
use millpond_backend::{StreamId, Tick};
use parking_lot::MutexGuard;

use crate::device::Device;
use crate::lane::{Lane, LaneState};
use crate::record::full_barrier;
use crate::submit::{Submission, semaphore_info, timeline_at};
use crate::{Vulkan, VulkanError};

/// A submit that an engine is about to make: what it must wait for and what it must signal. The stream is locked until
/// this is finished or abandoned; dropping it abandons it.
///
/// In the meantime no call on this thread may record, transfer or submit on the stream: it would wait for itself.
/// Allocating and freeing is allowed. Memory that is allocated now is for later submits, because this one was announced
/// without the waits for it.
#[must_use = "the engine submits now, and then says so"]
pub struct PendingSubmit<'a> {
    lane: &'a Lane,
    state: MutexGuard<'a, LaneState>,
    tick: u64,
    waits: Vec<vk::SemaphoreSubmitInfo<'static>>,
    /// The number of the lane's noted points that are among them.
    noted: usize,
}

impl PendingSubmit<'_> {
    /// Returns the tick that the submit closes.
    pub fn tick(&self) -> Tick {
        Tick(self.tick)
    }

    /// Returns what the first batch must wait for.
    pub fn waits(&self) -> &[vk::SemaphoreSubmitInfo<'static>] {
        &self.waits
    }

    /// Returns what the last batch must signal: the stream's timeline, at the tick, behind all commands.
    pub fn signal(&self) -> vk::SemaphoreSubmitInfo<'static> {
        semaphore_info(&timeline_at(self.lane.semaphore, self.tick))
    }

    /// Notes that the engine has submitted, and returns the tick.
    pub fn finish(mut self) -> Tick {
        self.state.submitted();
        self.lane.waited(self.noted);
        self.lane.note_submitted(self.tick);
        Tick(self.tick)
    }

    /// Notes that the engine has not submitted. The tick is closed all the same, and is reached with the next submit.
    pub fn abandon(self) {}
}

impl fmt::Debug for PendingSubmit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingSubmit").field("tick", &self.tick).field("waits", &self.waits).finish_non_exhaustive()
    }
}

impl Vulkan {
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
        self.announce(stream, None)
    }

    /// Does the same as [`begin_submit`](Vulkan::begin_submit), where the engine's own timeline continues with a value
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
        self.announce(stream, Some(value))
    }

    fn announce(&self, stream: StreamId, value: Option<u64>) -> Result<PendingSubmit<'_>, VulkanError> {
        let device: &Device = &self.device;
        device.alive()?;
        let lane = device.lane(stream);
        let mut state = lane.state.lock();
        let own = u64::from(state.has_commands());
        let (next, value) = (lane.open() + own, value.unwrap_or(lane.open() + own));
        if value < next {
            return Err(VulkanError::Falls { value, next });
        }
        if own > 0 {
            device.submit(lane, &mut state, &Submission::default())?;
        }
        state.bind = device.flush_binds()?;
        let noted = lane.waits();
        let waits = device.waits(lane, &state, &noted, &Submission::default());
        // As in a submit of this backend, everything that is marked from here on belongs to a later tick.
        lane.open.store(value + 1, Ordering::Release);
        Ok(PendingSubmit { lane, state, tick: value, waits, noted: noted.len() })
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
}
