//! The kernels on wgpu.

use millpond::{Buffer, Stream};
use millpond_wgpu::Wgpu;
use millpond_wgpu::wgpu::{self, BindingResource, BindingType, BufferBindingType, ShaderStages};

use super::{Bound, Kernel, Kernels, Result, segment, wgsl};

/// A wgpu device with the engine's kernels, on any interface that wgpu supports. Clones share the kernels.
#[derive(Clone, Debug)]
pub struct OnWgpu {
    device: Wgpu,
    layout: wgpu::BindGroupLayout,
    pipelines: [wgpu::ComputePipeline; Kernel::ALL.len()],
    has_f16: bool,
}

impl OnWgpu {
    /// Compiles the kernels, with `shader-f16` if the device was opened with it. wgpu reports mistakes in them as an
    /// uncaptured error of the device.
    pub fn new(device: Wgpu) -> OnWgpu {
        let has_f16 = device.device().features().contains(wgpu::Features::SHADER_F16);
        OnWgpu::compile(device, has_f16)
    }

    /// Compiles the kernels without `shader-f16`.
    pub fn without_f16(device: Wgpu) -> OnWgpu {
        OnWgpu::compile(device, false)
    }

    /// Returns whether kernels compute with `shader-f16`.
    pub fn has_f16(&self) -> bool {
        self.has_f16
    }

    fn compile(device: Wgpu, has_f16: bool) -> OnWgpu {
        let raw = device.device();
        // One layout for all kernels, and one usage for all bindings: blocks of one segment are ranges of one buffer,
        // which has one usage in a dispatch.
        let entry = |binding| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: ShaderStages::COMPUTE,
            ty: BindingType::Buffer {
                ty: BufferBindingType::Storage { read_only: false },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        let entries: Vec<_> = (0..if has_f16 { 7 } else { 4 }).map(entry).collect();
        let descriptor = wgpu::BindGroupLayoutDescriptor { label: Some("four blocks"), entries: &entries };
        let layout = raw.create_bind_group_layout(&descriptor);
        let pipeline_layout = raw.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some("four blocks"),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let source = wgpu::ShaderSource::Wgsl(wgsl::source(has_f16).into());
        let module = raw.create_shader_module(wgpu::ShaderModuleDescriptor { label: Some("kernels"), source });
        let pipelines = Kernel::ALL.map(|kernel| {
            raw.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(kernel.entry_point()),
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some(kernel.entry_point()),
                compilation_options: Default::default(),
                cache: None,
            })
        });
        OnWgpu { device, layout, pipelines, has_f16 }
    }
}

impl Kernels for OnWgpu {
    type Backend = Wgpu;

    fn device(&self) -> Wgpu {
        self.device.clone()
    }

    fn dispatch(&self, stream: &Stream<Wgpu>, kernel: Kernel, bound: &Bound<'_, Wgpu>, groups: [u32; 2]) -> Result<()> {
        let [first, second, result, shape] = bound.in_order();
        // As halves, the matrices are bound a second time.
        let blocks = [first, second, result, shape, first, second, result];
        let bound = if self.has_f16 { &blocks[..] } else { &blocks[..4] };
        let entries = (0..).zip(bound).map(|(index, buffer)| {
            Ok(wgpu::BindGroupEntry { binding: index, resource: BindingResource::Buffer(binding(buffer)?) })
        });
        let entries: Vec<_> = entries.collect::<Result<_>>()?;
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &self.layout, entries: &entries };
        let group = self.device.device().create_bind_group(&descriptor);
        self.device.record(stream.id(), |encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipelines[kernel as usize]);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(groups[0], groups[1], 1);
        })?;
        Ok(())
    }
}

/// Returns the place of a buffer, as a bind group names it.
fn binding(buffer: &Buffer<Wgpu>) -> Result<wgpu::BufferBinding<'_>> {
    Ok(segment(buffer)?.binding(buffer.offset(), buffer.len())?)
}
