//! The pipelines, one for each kernel.

use std::ffi::CString;

use millpond_vulkan::ash::{Device, vk};

use super::super::{Kernel, Result};
use super::BINDINGS;

/// The pipelines and the objects they are created from. Objects not created are null, and destroying null does nothing.
#[derive(Default)]
pub(super) struct Pipelines {
    pub(super) set_layout: vk::DescriptorSetLayout,
    pub(super) layout: vk::PipelineLayout,
    module: vk::ShaderModule,
    pipelines: [vk::Pipeline; Kernel::ALL.len()],
}

impl Pipelines {
    /// Returns the kernel's pipeline.
    pub(super) fn of(&self, kernel: Kernel) -> vk::Pipeline {
        self.pipelines[kernel as usize]
    }

    /// Creates everything. If a step fails, what was created before it is left for [`destroy`](Pipelines::destroy).
    pub(super) fn create(&mut self, device: &Device, spirv: &[u32]) -> Result<()> {
        let binding = |index| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(index)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings: Vec<_> = (0..BINDINGS).map(binding).collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the device is alive, and so is what the structure points to.
        self.set_layout = unsafe { device.create_descriptor_set_layout(&info, None) }?;
        let set_layouts = [self.set_layout];
        let info = vk::PipelineLayoutCreateInfo::default().set_layouts(&set_layouts);
        // SAFETY: as above; the set layout was just made.
        self.layout = unsafe { device.create_pipeline_layout(&info, None) }?;
        let info = vk::ShaderModuleCreateInfo::default().code(spirv);
        // SAFETY: as above; the module was validated and translated for Vulkan by naga.
        self.module = unsafe { device.create_shader_module(&info, None) }?;
        for kernel in Kernel::ALL {
            self.pipelines[kernel as usize] = self.pipeline(device, kernel)?;
        }
        Ok(())
    }

    fn pipeline(&self, device: &Device, kernel: Kernel) -> Result<vk::Pipeline> {
        let name = CString::new(kernel.entry_point())?;
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(self.module)
            .name(&name);
        let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout);
        // SAFETY: module and layout are alive and fit each other: four storage buffers in set 0.
        let made = unsafe { device.create_compute_pipelines(vk::PipelineCache::null(), &[info], None) };
        Ok(made.map_err(|(_, result)| result)?[0])
    }

    /// Destroys everything. No work may still use it.
    pub(super) fn destroy(&mut self, device: &Device) {
        for pipeline in self.pipelines {
            // SAFETY: made from this device, and the caller has waited for all work that uses it.
            unsafe { device.destroy_pipeline(pipeline, None) };
        }
        // SAFETY: as above, and the pipelines are gone.
        unsafe {
            device.destroy_shader_module(self.module, None);
            device.destroy_pipeline_layout(self.layout, None);
            device.destroy_descriptor_set_layout(self.set_layout, None);
        }
        *self = Pipelines::default();
    }
}
