//! Arguments of dispatches: three words of a block, fetched into a buffer of their own.
//!
//! wgpu allows no buffer to be written by a dispatch that takes its arguments from it, and the arguments and what the
//! dispatch writes may lie in one segment. So a dispatch of one thread copies the arguments first, within the pass.

use wgpu::util::{BufferInitDescriptor, DeviceExt};
use wgpu::{BufferAddress, BufferBinding, BufferSize, BufferUsages};

use crate::buffer::Place;

/// The bytes of the arguments: three words.
pub(crate) const ARGUMENT_BYTES: u64 = 12;

/// The fourth word says where the arguments begin, in words of `given`.
const SHADER: &str = "
@group(0) @binding(0) var<storage, read> given: array<u32>;
@group(0) @binding(1) var<storage, read_write> fetched: array<u32, 4>;
@compute @workgroup_size(1) fn main() {
    let at = fetched[3];
    for (var word = 0u; word < 3u; word++) { fetched[word] = given[at + word]; }
}";

/// The shader that fetches arguments.
#[derive(Debug)]
pub(crate) struct Fetch {
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
    /// The offsets at which a binding may begin are multiples of it.
    alignment: u64,
}

impl Fetch {
    /// Makes the shader.
    pub(crate) fn new(device: &wgpu::Device) -> Fetch {
        let source = wgpu::ShaderSource::Wgsl(SHADER.into());
        let label = Some("millpond arguments");
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let layout = pipeline.get_bind_group_layout(0);
        let alignment = u64::from(device.limits().min_storage_buffer_offset_alignment);
        Fetch { pipeline, layout, alignment }
    }

    /// Records that the arguments at a place are fetched, and returns the buffer that they come to. Changes the
    /// pipeline of the pass and its bind group 0.
    pub(crate) fn record(
        &self,
        device: &wgpu::Device,
        pass: &mut wgpu::ComputePass<'_>,
        place: &Place,
    ) -> wgpu::Buffer {
        let before = place.offset % self.alignment;
        // A block begins where a binding can, so the bytes before the arguments are of the same block.
        let given: (BufferAddress, _) = (place.offset - before, BufferSize::new(before + ARGUMENT_BYTES));
        let contents = [0, 0, 0, (before / 4) as u32].map(u32::to_le_bytes);
        let fetched = device.create_buffer_init(&BufferInitDescriptor {
            label: Some("millpond arguments"),
            contents: contents.as_flattened(),
            usage: BufferUsages::STORAGE | BufferUsages::INDIRECT,
        });
        let given = BufferBinding { buffer: &place.buffer, offset: given.0, size: given.1 };
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("millpond arguments"),
            layout: &self.layout,
            entries: &[
                wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(given) },
                wgpu::BindGroupEntry { binding: 1, resource: fetched.as_entire_binding() },
            ],
        });
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        fetched
    }
}
