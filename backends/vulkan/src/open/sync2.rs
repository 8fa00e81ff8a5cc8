//! The two calls of synchronization2, whose names differ between Vulkan 1.3 and the extension.

use ash::prelude::VkResult;
use ash::{khr, vk};
use millpond_kit::Misuse;

use crate::error::VulkanError;

/// The source of the calls.
pub(crate) enum Sync2 {
    Core,
    Extension(khr::synchronization2::Device),
}

impl Sync2 {
    /// Finds the calls on a device that may have them under either name.
    pub(crate) fn find(instance: &ash::Instance, device: &ash::Device) -> Result<Sync2, VulkanError> {
        let has = |name: &std::ffi::CStr| {
            // SAFETY: the device is alive and of this instance, and the name ends with a zero.
            unsafe { instance.get_device_proc_addr(device.handle(), name.as_ptr()) }.is_some()
        };
        if has(c"vkQueueSubmit2") {
            Ok(Sync2::Core)
        } else if has(c"vkQueueSubmit2KHR") {
            Ok(Sync2::Extension(khr::synchronization2::Device::new(instance, device)))
        } else {
            let missing = "synchronization2: enable the feature, and the extension below Vulkan 1.3";
            Err(Misuse::Unsupported { call: "vkQueueSubmit2", missing: Some(missing) }.into())
        }
    }

    /// Makes the call `vkQueueSubmit2` without a fence.
    ///
    /// # Safety
    ///
    /// As for the call: no other thread uses the queue, and all handles are valid.
    pub(crate) unsafe fn submit(
        &self,
        device: &ash::Device,
        queue: vk::Queue,
        batch: vk::SubmitInfo2<'_>,
    ) -> VkResult<()> {
        match self {
            // SAFETY: the caller guarantees it.
            Sync2::Core => unsafe { device.queue_submit2(queue, &[batch], vk::Fence::null()) },
            // SAFETY: the caller guarantees it.
            Sync2::Extension(calls) => unsafe { calls.queue_submit2(queue, &[batch], vk::Fence::null()) },
        }
    }

    /// Makes the call `vkCmdPipelineBarrier2` with one memory barrier.
    ///
    /// # Safety
    ///
    /// As for the call: the command buffer is recording, outside a render pass, and no other thread records into it.
    pub(crate) unsafe fn barrier(
        &self,
        device: &ash::Device,
        commands: vk::CommandBuffer,
        barrier: vk::MemoryBarrier2<'_>,
    ) {
        let barriers = [barrier];
        let info = vk::DependencyInfo::default().memory_barriers(&barriers);
        match self {
            // SAFETY: the caller guarantees it.
            Sync2::Core => unsafe { device.cmd_pipeline_barrier2(commands, &info) },
            // SAFETY: the caller guarantees it.
            Sync2::Extension(calls) => unsafe { calls.cmd_pipeline_barrier2(commands, &info) },
        }
    }
}
