//! Command buffers of a stream, and the barriers that order them.

use ash::vk;

use super::lane::LaneState;
use crate::error::VulkanError;
use crate::open::Driver;

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

/// Allocates a command buffer from the pool of a lane.
pub(crate) fn allocate_commands(driver: &Driver, pool: vk::CommandPool) -> Result<vk::CommandBuffer, VulkanError> {
    let info = vk::CommandBufferAllocateInfo::default()
        .command_pool(pool)
        .level(vk::CommandBufferLevel::PRIMARY)
        .command_buffer_count(1);
    // SAFETY: the pool is used only under the lane's lock, or no other code has it yet.
    let made = unsafe { driver.raw.allocate_command_buffers(&info) };
    made.map(|made| made[0]).map_err(driver.failed("vkAllocateCommandBuffers"))
}

/// Creates a pool, and in it the barrier that is submitted before command buffers of other code.
pub(crate) fn create_lane_state(driver: &Driver, family: u32) -> Result<LaneState, VulkanError> {
    let info = vk::CommandPoolCreateInfo::default()
        .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
        .queue_family_index(family);
    // SAFETY: the family is one of the device's.
    let pool = unsafe { driver.raw.create_command_pool(&info, None) }.map_err(driver.failed("vkCreateCommandPool"))?;
    match record_barrier(driver, pool) {
        Ok(barrier) => Ok(LaneState::new(pool, barrier)),
        Err(error) => {
            // SAFETY: nothing from the pool was ever submitted.
            unsafe { driver.raw.destroy_command_pool(pool, None) };
            Err(error)
        }
    }
}

fn record_barrier(driver: &Driver, pool: vk::CommandPool) -> Result<vk::CommandBuffer, VulkanError> {
    let commands = allocate_commands(driver, pool)?;
    let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::SIMULTANEOUS_USE);
    // SAFETY: the command buffer is new and no other code has it.
    unsafe {
        driver.raw.begin_command_buffer(commands, &info).map_err(driver.failed("vkBeginCommandBuffer"))?;
        driver.sync2.barrier(&driver.raw, commands, full_barrier());
        driver.raw.end_command_buffer(commands).map_err(driver.failed("vkEndCommandBuffer"))?;
    }
    Ok(commands)
}
