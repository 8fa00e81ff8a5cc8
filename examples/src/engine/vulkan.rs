//! The kernels on Vulkan.

#![allow(unsafe_code)] // Calls into Vulkan.

use std::fmt;

use millpond::backend::Backend;
use millpond::{Buffer, Stream};
use millpond_vulkan::Vulkan;
use millpond_vulkan::ash::vk;
use parking_lot::Mutex;

use super::{Bound, Kernel, Kernels, Result, segment, wgsl};

mod pipelines;
mod sets;

use pipelines::Pipelines;
use sets::Sets;

/// The number of buffers that each kernel binds.
const BINDINGS: u32 = 4;

/// A Vulkan device with the engine's kernels. It may be Millpond's own, or an engine's that Millpond has adopted.
pub struct OnVulkan {
    device: Vulkan,
    pipelines: Pipelines,
    sets: Mutex<Sets>,
}

impl OnVulkan {
    /// Translates the kernels and creates their pipelines.
    ///
    /// # Errors
    ///
    /// Returns the error of the translation or of the driver.
    pub fn new(device: Vulkan) -> Result<OnVulkan> {
        let mut kernels = OnVulkan { device, pipelines: Pipelines::default(), sets: Mutex::default() };
        // If this fails, what was created so far is destroyed when the value is dropped.
        kernels.pipelines.create(kernels.device.raw_device(), &wgsl::spirv()?)?;
        Ok(kernels)
    }
}

impl Kernels for OnVulkan {
    type Backend = Vulkan;

    fn device(&self) -> Vulkan {
        self.device.clone()
    }

    fn dispatch(
        &self,
        stream: &Stream<Vulkan>,
        kernel: Kernel,
        bound: &Bound<'_, Vulkan>,
        groups: [u32; 2],
    ) -> Result<()> {
        let raw = self.device.raw_device();
        let blocks = bound.in_order();
        let infos = [range(blocks[0])?, range(blocks[1])?, range(blocks[2])?, range(blocks[3])?];
        let set = self.sets.lock().take(&self.device, self.pipelines.set_layout)?;
        let write = vk::WriteDescriptorSet::default()
            .dst_set(set)
            .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
            .buffer_info(&infos);
        // SAFETY: `take` returns a set that no work uses, and no other caller has it. Its layout has as many storage
        // buffers as there are ranges; these lie in live segments of the device.
        unsafe { raw.update_descriptor_sets(&[write], &[]) };
        let recorded = self.device.record(stream.id(), |commands| {
            let (point, layout) = (vk::PipelineBindPoint::COMPUTE, self.pipelines.layout);
            // SAFETY: the command buffer is recording, and this closure alone records into it. Pipeline, layout and set
            // are this device's and outlive the work: `drop` waits for it. The blocks outlive it because the allocator
            // reuses them only behind it.
            unsafe {
                raw.cmd_bind_pipeline(commands, point, self.pipelines.of(kernel));
                raw.cmd_bind_descriptor_sets(commands, point, layout, 0, &[set], &[]);
                raw.cmd_dispatch(commands, groups[0], groups[1], 1);
            }
        });
        match recorded {
            Ok(tick) => self.sets.lock().used(set, stream.id(), tick),
            Err(error) => {
                self.sets.lock().unused(set);
                return Err(error.into());
            }
        }
        Ok(())
    }
}

/// Returns the place of a buffer, as a descriptor names it.
fn range(buffer: &Buffer<Vulkan>) -> Result<vk::DescriptorBufferInfo> {
    Ok(segment(buffer)?.descriptor(buffer.offset(), buffer.len())?)
}

impl Drop for OnVulkan {
    /// Waits for the work that uses the pipelines, then destroys them.
    fn drop(&mut self) {
        let sets = self.sets.get_mut();
        for point in sets.points() {
            // Work that was recorded and never submitted still names the pipelines, so it is submitted now. A failure
            // of either call means that the device is lost, and its work with it.
            if self.device.mark(point.stream) <= point.tick {
                let _ = self.device.submit(point.stream);
            }
            let _ = self.device.wait(point);
        }
        sets.destroy(self.device.raw_device());
        self.pipelines.destroy(self.device.raw_device());
    }
}

impl fmt::Debug for OnVulkan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnVulkan").field("device", &self.device).finish_non_exhaustive()
    }
}
