//! The stream's own command buffer.

use std::sync::Arc;

use ash::vk;

use crate::error::VulkanError;
use crate::memory::Memory;
use crate::open::Driver;
use crate::pages::Pages;
use crate::streams::{Lane, LaneState, Streams, allocate_commands, full_barrier};
use crate::time::Time;

/// The transfers of a device, and all other recording into its own command buffers.
pub(crate) struct Transfers {
    pub(super) pages: Arc<Pages>,
    pub(super) memory: Arc<Memory>,
    pub(super) time: Arc<Time>,
    pub(super) streams: Arc<Streams>,
    pub(super) driver: Arc<Driver>,
}

impl Transfers {
    /// Creates the transfers of a device.
    pub(crate) fn new(
        driver: Arc<Driver>,
        streams: Arc<Streams>,
        time: Arc<Time>,
        memory: Arc<Memory>,
        pages: Arc<Pages>,
    ) -> Transfers {
        Transfers { pages, memory, time, streams, driver }
    }

    /// Records into the lane's open command buffer, behind a full barrier.
    pub(crate) fn record<T>(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        work: impl FnOnce(vk::CommandBuffer) -> T,
    ) -> Result<T, VulkanError> {
        let commands = match state.recording {
            Some(commands) => commands,
            None => {
                let commands = self.begin(lane, state)?;
                *state.recording.insert(commands)
            }
        };
        // SAFETY: the command buffer is recording, outside a render pass, under the lane's lock.
        unsafe { self.driver.sync2.barrier(&self.driver.raw, commands, full_barrier()) };
        Ok(work(commands))
    }

    /// Works like [`record`](Transfers::record), for commands that write memory. `to_host` says whether the host
    /// sees that memory: the command buffer then ends with a barrier to the host.
    pub(crate) fn record_write(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        to_host: bool,
        work: impl FnOnce(vk::CommandBuffer),
    ) -> Result<(), VulkanError> {
        self.record(lane, state, work)?;
        state.to_host |= to_host;
        Ok(())
    }

    /// Returns a command buffer that is recording: one that has completed before, or a new one.
    fn begin(&self, lane: &Lane, state: &mut LaneState) -> Result<vk::CommandBuffer, VulkanError> {
        if state.spare.is_empty() && !state.in_flight.is_empty() {
            self.time.query(lane)?;
        }
        let reached = lane.clock.reached();
        while state.in_flight.front().is_some_and(|(tick, _)| *tick <= reached) {
            state.spare.extend(state.in_flight.pop_front().map(|(_, commands)| commands));
        }
        let commands = match state.spare.pop() {
            Some(commands) => commands,
            None => allocate_commands(&self.driver, state.pool)?,
        };
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the command buffer is new, or the tick that covered it is reached; its pool is used only under the
        // lane's lock and allows buffers to be reset one by one, which beginning does.
        let begun = unsafe { self.driver.raw.begin_command_buffer(commands, &info) };
        if let Err(result) = begun {
            state.spare.push(commands);
            return Err(self.driver.failed("vkBeginCommandBuffer")(result));
        }
        Ok(commands)
    }
}
