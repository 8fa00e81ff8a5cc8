//! Engines that submit by themselves: how their submits close ticks, and the barrier that their reuse of memory wants.

use std::fmt;
use std::sync::atomic::Ordering;

use ash::vk;
use millpond_backend::{StreamId, Tick};
use parking_lot::MutexGuard;

use crate::device::Device;
use crate::lane::{Lane, LaneState};
use crate::submit::{Submission, semaphore_info, timeline_at};
use crate::{Segment, Vulkan, VulkanError};

/// A submit that an engine is about to make: what it must wait for and what it must signal. The stream is locked until
/// this is finished or abandoned; dropping it abandons it.
///
/// Meanwhile nothing is recorded, transferred or submitted on the stream: that would wait for itself. Allocating and
/// freeing is fine; what is allocated now is for later submits, as this one was announced without what it waits for.
#[must_use = "the engine submits now, and then says so"]
pub struct PendingSubmit<'a> {
    lane: &'a Lane,
    state: MutexGuard<'a, LaneState>,
    tick: u64,
    waits: Vec<vk::SemaphoreSubmitInfo<'static>>,
    /// How many of the lane's noted points are among them.
    noted: usize,
}

impl PendingSubmit<'_> {
    /// The tick that the submit closes.
    pub fn tick(&self) -> Tick {
        Tick(self.tick)
    }

    /// What the first batch must wait for.
    pub fn waits(&self) -> &[vk::SemaphoreSubmitInfo<'static>] {
        &self.waits
    }

    /// What the last batch must signal: the stream's timeline, at the tick, behind all commands.
    pub fn signal(&self) -> vk::SemaphoreSubmitInfo<'static> {
        semaphore_info(&timeline_at(self.lane.semaphore, self.tick))
    }

    /// The engine has submitted. Answers the tick.
    pub fn finish(mut self) -> Tick {
        self.state.submitted();
        self.lane.waited(self.noted);
        self.lane.note_submitted(self.tick);
        Tick(self.tick)
    }

    /// The engine has not submitted. The tick is closed all the same, and what it covers waits for the next submit.
    pub fn abandon(self) {}
}

impl fmt::Debug for PendingSubmit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingSubmit").field("tick", &self.tick).field("waits", &self.waits).finish_non_exhaustive()
    }
}

impl Vulkan {
    /// Announces a submit that the engine makes by itself, and closes the open tick. What was recorded through the
    /// device goes first, as a submit of its own. Then submit, with the waits and the signal, to the stream's queue and
    /// under its lock; then call [`finish`](PendingSubmit::finish).
    ///
    /// # Errors
    ///
    /// The driver's, from submitting what was recorded through the device.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn begin_submit(&self, stream: StreamId) -> Result<PendingSubmit<'_>, VulkanError> {
        self.announce(stream, None)
    }

    /// As [`begin_submit`](Vulkan::begin_submit), where the engine's own timeline goes on with a value of the engine's
    /// choice.
    ///
    /// # Errors
    ///
    /// As [`begin_submit`](Vulkan::begin_submit), and [`VulkanError::Falls`] if the value was passed already.
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
        // As in a submit of our own: whatever is marked from here on belongs to a later tick.
        lane.open.store(value + 1, Ordering::Release);
        Ok(PendingSubmit { lane, state, tick: value, waits, noted: noted.len() })
    }

    /// The barrier that an engine records before the first use of memory that it got from this device, where it submits
    /// by itself: on a stream that reuses in order, the last use of those bytes may still run. It belongs on the stream
    /// that the memory is for, at the beginning of the submit that uses it.
    ///
    /// # Errors
    ///
    /// [`VulkanError::Foreign`] and [`VulkanError::OutOfRange`].
    pub fn reuse_barrier(
        &self,
        segment: &Segment,
        offset: u64,
        bytes: u64,
    ) -> Result<vk::BufferMemoryBarrier2<'static>, VulkanError> {
        self.device.own(segment, "reuse_barrier")?;
        segment.check(offset, bytes)?;
        Ok(vk::BufferMemoryBarrier2::default()
            .src_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
            .src_access_mask(vk::AccessFlags2::MEMORY_WRITE)
            .dst_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
            .dst_access_mask(vk::AccessFlags2::MEMORY_READ | vk::AccessFlags2::MEMORY_WRITE)
            .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
            .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
            .buffer(segment.buffer)
            .offset(offset)
            .size(bytes))
    }
}
