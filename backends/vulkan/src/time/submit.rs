//! Submitting: closing the open tick.

use ash::vk;
use millpond_backend::{Point, Tick};
use millpond_kit::Misuse;
use parking_lot::MutexGuard;

use super::timeline::Time;
use crate::error::VulkanError;
use crate::streams::{Gate, Lane, LaneState, host_barrier};

/// A semaphore that a submit waits for or signals.
#[derive(Clone, Copy, Debug)]
pub struct SemaphoreAt {
    /// The semaphore; binary or timeline.
    pub semaphore: vk::Semaphore,
    /// The value, for a timeline; ignored for a binary semaphore.
    pub value: u64,
    /// The stages that wait, or that the signal waits for.
    pub stages: vk::PipelineStageFlags2,
}

/// What a submit passes to the driver besides the commands that were recorded through the device itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Submission<'a> {
    /// Command buffers, in order, behind the stream's own.
    pub command_buffers: &'a [vk::CommandBuffer],
    /// Semaphores to wait for.
    pub waits: &'a [SemaphoreAt],
    /// Semaphores to signal, besides the stream's own timeline.
    pub signals: &'a [SemaphoreAt],
    /// Points of other streams to wait for.
    pub after: &'a [Point],
}

impl Time {
    /// Returns an error if the work of a point was not submitted.
    pub(crate) fn submitted(&self, point: Point) -> Result<(), VulkanError> {
        let submitted = self.streams.lane(point.stream).clock.submitted();
        if point.tick > submitted { Err(Misuse::NotSubmitted { point, submitted: submitted.0 }.into()) } else { Ok(()) }
    }

    /// Closes the open tick of a lane by a submit and returns it. If that fails, the tick is closed all the same, but
    /// no stream waits for it: the work that it should have covered goes with the next one.
    pub(crate) fn submit(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        submission: &Submission<'_>,
    ) -> Result<Tick, VulkanError> {
        self.driver.enter("vkQueueSubmit2")?;
        state.bind = self.before.flush()?;
        self.end_recording(state)?;
        // Marks from here on belong to the next tick: their work may be recorded after the driver took this one.
        let tick = lane.clock.close();
        self.hand_over(lane, state, submission, tick, timeline_at(lane.semaphore, tick.0))?;
        lane.note_submitted(tick);
        Ok(tick)
    }

    /// Passes what was recorded through the device on a lane to the driver, and waits until it is done. The open tick
    /// stays open, as other code may have recorded work that it covers. Fails where an engine shares a queue's lock,
    /// which this thread may hold.
    pub(crate) fn finish_recorded(&self, lane: &Lane, mut state: MutexGuard<'_, LaneState>) -> Result<(), VulkanError> {
        const CALL: &str = "vkQueueSubmit2";
        if self.driver.queues.iter().any(|queue| !queue.is_own()) {
            return Err(Misuse::Unsupported { call: CALL, missing: Some("a queue of this device's own") }.into());
        }
        self.driver.enter(CALL)?;
        state.bind = self.before.flush()?;
        self.end_recording(&mut state)?;
        let done = self.driver.create_timeline()?;
        let (open, signal) = (lane.clock.open(), timeline_at(done, 1));
        let handed = self.hand_over(lane, &mut state, &Submission::default(), open, signal);
        // A wait opens gates, for which it locks the lane.
        drop(state);
        if handed.is_ok() {
            // After an error the submit may be in flight, and the semaphore stays.
            self.wait_for_value(done, 1)?;
        }
        // SAFETY: the submit that signals it is done, or was refused.
        unsafe { self.driver.raw.destroy_semaphore(done, None) };
        handed
    }

    /// Passes a batch to the driver, with what was recorded through the device first and with everything that the lane
    /// has to wait for. Its commands are used again once `tick` is reached.
    fn hand_over(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        submission: &Submission<'_>,
        tick: Tick,
        signal: SemaphoreAt,
    ) -> Result<(), VulkanError> {
        let commands = self.batch(state, submission);
        let noted = lane.waits();
        let waits = self.waits(lane, state, &noted, submission);
        let mut signals: Vec<_> = submission.signals.iter().map(semaphore_info).collect();
        signals.push(semaphore_info(&signal));
        let batch = vk::SubmitInfo2::default()
            .wait_semaphore_infos(&waits)
            .command_buffer_infos(&commands)
            .signal_semaphore_infos(&signals);
        // SAFETY: the queue's lock keeps other threads from it. The device's own command buffers are ended, of the
        // queue's family and not in flight, or allow simultaneous use; the lane's lock makes the signalled values rise.
        // The caller of `submit_with` guarantees the same for the others.
        let submitted = self.driver.queues[lane.queue]
            .locked(|queue| unsafe { self.driver.sync2.submit(&self.driver.raw, queue, batch) });
        submitted.map_err(self.driver.failed("vkQueueSubmit2"))?;
        state.in_flight.extend(state.ended.drain(..).map(|commands| (tick, commands)));
        state.submitted();
        lane.waited(noted.len());
        Ok(())
    }

    /// Ends the open command buffer, if there is one.
    fn end_recording(&self, state: &mut LaneState) -> Result<(), VulkanError> {
        let Some(commands) = state.recording.take() else { return Ok(()) };
        if std::mem::take(&mut state.to_host) {
            // SAFETY: the command buffer is recording, outside a render pass, under the lane's lock.
            unsafe { self.driver.sync2.barrier(&self.driver.raw, commands, host_barrier()) };
        }
        // SAFETY: the command buffer is recording, under the lane's lock.
        let ended = unsafe { self.driver.raw.end_command_buffer(commands) };
        let Err(result) = ended else {
            state.ended.push(commands);
            return Ok(());
        };
        // A command buffer that could not be ended is invalid until it is begun again.
        state.spare.push(commands);
        Err(match self.driver.failed("vkEndCommandBuffer")(result) {
            VulkanError::Lost => VulkanError::Lost,
            _ => VulkanError::NotRecorded { result },
        })
    }

    /// Returns the command buffers of a batch. The device's own begin with a barrier; those of other code need one
    /// before them.
    fn batch(&self, state: &LaneState, submission: &Submission<'_>) -> Vec<vk::CommandBufferSubmitInfo<'static>> {
        let barrier = if submission.command_buffers.is_empty() { &[][..] } else { &[state.barrier][..] };
        let all = state.ended.iter().chain(barrier).chain(submission.command_buffers);
        all.map(|&commands| vk::CommandBufferSubmitInfo::default().command_buffer(commands)).collect()
    }

    /// Returns the semaphores that a batch waits for: one value for each timeline, and none that is known to be
    /// reached.
    pub(crate) fn waits(
        &self,
        lane: &Lane,
        state: &LaneState,
        noted: &[Point],
        submission: &Submission<'_>,
    ) -> Vec<vk::SemaphoreSubmitInfo<'static>> {
        let mut newest: Vec<(vk::Semaphore, u64)> = Vec::new();
        for point in noted.iter().chain(submission.after) {
            let other = self.streams.lane(point.stream);
            // The queue and its barriers order the work within a lane.
            if std::ptr::eq(other, lane) || other.clock.reached() >= point.tick {
                continue;
            }
            let tick = other.signalled(point.tick);
            match newest.iter_mut().find(|(semaphore, _)| *semaphore == other.semaphore) {
                Some((_, value)) => *value = tick.0.max(*value),
                None => newest.push((other.semaphore, tick.0)),
            }
        }
        newest.extend(self.before.wait(state.bind, state.bound));
        newest.extend(state.gate.as_ref().and_then(Gate::wait));
        let points = newest.into_iter().map(|(semaphore, value)| timeline_at(semaphore, value));
        points.chain(submission.waits.iter().copied()).map(|at| semaphore_info(&at)).collect()
    }
}

/// Returns a value of a timeline, for all stages.
pub(crate) fn timeline_at(semaphore: vk::Semaphore, value: u64) -> SemaphoreAt {
    SemaphoreAt { semaphore, value, stages: vk::PipelineStageFlags2::ALL_COMMANDS }
}

pub(crate) fn semaphore_info(at: &SemaphoreAt) -> vk::SemaphoreSubmitInfo<'static> {
    vk::SemaphoreSubmitInfo::default().semaphore(at.semaphore).value(at.value).stage_mask(at.stages)
}
