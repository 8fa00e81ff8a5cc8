//! Engines that submit without this backend: how their submits close ticks.

use std::fmt;

use ash::vk;
use millpond_backend::{StreamId, Tick};
use parking_lot::MutexGuard;

use super::submit::{Submission, semaphore_info, timeline_at};
use super::timeline::Time;
use crate::error::VulkanError;
use crate::streams::{Lane, LaneState};

/// A submit that an engine is about to make: what it must wait for and what it must signal. The stream is locked until
/// this is finished or abandoned; dropping it abandons it.
///
/// Until then no call on this thread may record, transfer or submit on the stream: it would deadlock. Allocating and
/// freeing is allowed. Memory that is allocated now is for later submits, because this one was announced without the
/// waits for it.
#[must_use = "the engine submits now, and then says so"]
pub struct PendingSubmit<'a> {
    lane: &'a Lane,
    state: MutexGuard<'a, LaneState>,
    tick: Tick,
    waits: Vec<vk::SemaphoreSubmitInfo<'static>>,
    /// The number of the lane's noted points that are among them.
    noted: usize,
}

impl PendingSubmit<'_> {
    /// Returns the tick that the submit closes.
    pub fn tick(&self) -> Tick {
        self.tick
    }

    /// Returns what the first batch must wait for.
    pub fn waits(&self) -> &[vk::SemaphoreSubmitInfo<'static>] {
        &self.waits
    }

    /// Returns what the last batch must signal: the stream's timeline, at the tick, after all commands.
    pub fn signal(&self) -> vk::SemaphoreSubmitInfo<'static> {
        semaphore_info(&timeline_at(self.lane.semaphore, self.tick.0))
    }

    /// Notes that the engine has submitted, and returns the tick.
    pub fn finish(mut self) -> Tick {
        self.state.submitted();
        self.lane.waited(self.noted);
        self.lane.note_submitted(self.tick);
        self.tick
    }

    /// Notes that the engine has not submitted. The tick is closed nevertheless, and is reached with the next submit.
    pub fn abandon(self) {}
}

impl fmt::Debug for PendingSubmit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingSubmit").field("tick", &self.tick.0).field("waits", &self.waits).finish_non_exhaustive()
    }
}

impl Time {
    /// Announces a submit that an engine makes, and closes the open tick: by a value of the engine's choice, or by the
    /// next one.
    pub(crate) fn announce(&self, stream: StreamId, value: Option<u64>) -> Result<PendingSubmit<'_>, VulkanError> {
        self.driver.alive()?;
        let lane = self.streams.lane(stream);
        let mut state = lane.state.lock();
        let own = u64::from(state.has_commands());
        let next = lane.clock.open().0 + own;
        let value = value.unwrap_or(next);
        if value < next {
            return Err(VulkanError::Falls { value, next });
        }
        if own > 0 {
            self.submit(lane, &mut state, &Submission::default())?;
        }
        state.bind = self.before.flush()?;
        let noted = lane.waits();
        let waits = self.waits(lane, &state, &noted, &Submission::default());
        // As in a submit of this backend, everything that is marked from here on belongs to a later tick.
        lane.clock.close_at(Tick(value));
        Ok(PendingSubmit { lane, state, tick: Tick(value), waits, noted: noted.len() })
    }
}
