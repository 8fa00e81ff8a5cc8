//! The stream's own command buffer.

use ash::vk;
use millpond_backend::{StreamId, Tick};

use crate::device::Device;
use crate::lane::{Lane, LaneState};
use crate::{Vulkan, VulkanError};

/// Returns a barrier that orders all later commands after all earlier ones and makes all writes visible, which
/// submission order alone does not do.
pub(crate) fn full_barrier() -> vk::MemoryBarrier2<'static> {
    vk::MemoryBarrier2::default()
        .src_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
        .src_access_mask(vk::AccessFlags2::MEMORY_WRITE)
        .dst_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
        .dst_access_mask(vk::AccessFlags2::MEMORY_READ | vk::AccessFlags2::MEMORY_WRITE)
}

/// Returns a barrier that makes all writes of the commands before it available to the host, which waiting for a
/// semaphore does not do.
pub(crate) fn host_barrier() -> vk::MemoryBarrier2<'static> {
    vk::MemoryBarrier2::default()
        .src_stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)
        .src_access_mask(vk::AccessFlags2::MEMORY_WRITE)
        .dst_stage_mask(vk::PipelineStageFlags2::HOST)
        .dst_access_mask(vk::AccessFlags2::HOST_READ)
}

impl Vulkan {
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
        device.enter("vkBeginCommandBuffer")?;
        let lane = device.lane(stream);
        let mut state = lane.state.lock();
        device.record(lane, &mut state, work)?;
        Ok(Tick(lane.open()))
    }
}

impl Device {
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
        unsafe { self.sync2.barrier(&self.raw, commands, full_barrier()) };
        Ok(work(commands))
    }

    /// Does the same as [`record`](Device::record), for commands that write memory. `to_host` says whether the host
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
            self.query(lane)?;
        }
        let reached = lane.reached();
        while state.in_flight.front().is_some_and(|(tick, _)| *tick <= reached) {
            state.spare.extend(state.in_flight.pop_front().map(|(_, commands)| commands));
        }
        let commands = match state.spare.pop() {
            Some(commands) => commands,
            None => self.allocate_commands(state.pool)?,
        };
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the command buffer is new, or the tick that covered it is reached; its pool is used only under the
        // lane's lock and allows buffers to be reset one by one, which beginning does.
        let begun = unsafe { self.raw.begin_command_buffer(commands, &info) };
        if let Err(result) = begun {
            state.spare.push(commands);
            return Err(self.failed("vkBeginCommandBuffer")(result));
        }
        Ok(commands)
    }

    fn allocate_commands(&self, pool: vk::CommandPool) -> Result<vk::CommandBuffer, VulkanError> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is used only under the lane's lock, or no other code has it yet.
        let made = unsafe { self.raw.allocate_command_buffers(&info) };
        made.map(|made| made[0]).map_err(self.failed("vkAllocateCommandBuffers"))
    }

    /// Creates a pool, and in it the barrier that is submitted before command buffers of other code.
    pub(crate) fn create_lane_state(&self, family: u32) -> Result<LaneState, VulkanError> {
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(family);
        // SAFETY: the family is one of the device's.
        let pool = unsafe { self.raw.create_command_pool(&info, None) }.map_err(self.failed("vkCreateCommandPool"))?;
        match self.record_barrier(pool) {
            Ok(barrier) => Ok(LaneState::new(pool, barrier)),
            Err(error) => {
                // SAFETY: nothing from the pool was ever submitted.
                unsafe { self.raw.destroy_command_pool(pool, None) };
                Err(error)
            }
        }
    }

    fn record_barrier(&self, pool: vk::CommandPool) -> Result<vk::CommandBuffer, VulkanError> {
        let commands = self.allocate_commands(pool)?;
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
        // SAFETY: the command buffer is new and no other code has it.
        unsafe {
            self.raw.begin_command_buffer(commands, &info).map_err(self.failed("vkBeginCommandBuffer"))?;
            self.sync2.barrier(&self.raw, commands, full_barrier());
            self.raw.end_command_buffer(commands).map_err(self.failed("vkEndCommandBuffer"))?;
        }
        Ok(commands)
    }
}

impl LaneState {
    fn new(pool: vk::CommandPool, barrier: vk::CommandBuffer) -> LaneState {
        LaneState {
            pool,
            barrier,
            recording: None,
            to_host: false,
            ended: Vec::new(),
            in_flight: Default::default(),
            spare: Vec::new(),
            bind: 0,
            bound: 0,
            gate: None,
            ring: None,
        }
    }
}
