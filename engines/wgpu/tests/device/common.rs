//! What the tests share: the ways in which buffers are served, and calls of an engine that knows wgpu and nothing of
//! Millpond.

use millpond::Allocator;
use millpond_lent::{LENT, Lent};
use millpond_wgpu::{Wgpu, WgpuBuilder};
use wgpu::{Buffer, BufferDescriptor, BufferUsages, Device, Features, MapMode, PollType, Queue};

use crate::backend;

/// The usages of storage buffers that are copied.
pub(crate) const COPIED: BufferUsages =
    BufferUsages::STORAGE.union(BufferUsages::COPY_SRC).union(BufferUsages::COPY_DST);

/// How storage buffers are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Served {
    ByWgpu,
    Classic,
    Paged,
    InOrder,
}

pub(crate) const ALL: [Served; 4] = [Served::ByWgpu, Served::Classic, Served::Paged, Served::InOrder];

/// Those whose recorded commands keep the memory that they name.
pub(crate) const HELD: [Served; 2] = [Served::Classic, Served::Paged];

/// Opens a device, or returns `None` where there is none, unless `MILLPOND_REQUIRE` names it.
pub(crate) fn open(paged: bool, set: fn(WgpuBuilder) -> WgpuBuilder) -> Option<Wgpu> {
    backend::watch_validation();
    let builder = || set(Wgpu::builder().usage(LENT).vulkan_segments(paged));
    let wanted = Features::TIMESTAMP_QUERY | Features::IMMEDIATES;
    match builder().features(wanted).build().or_else(|_| builder().build()) {
        Ok(wgpu) => Some(wgpu),
        Err(error) => {
            assert!(!backend::required(if paged { "sparse" } else { "wgpu" }), "{error}");
            println!("SKIPPED: {error}");
            None
        }
    }
}

/// Lends a device, or returns `None` where there is none.
pub(crate) fn lent(served: Served) -> Option<Lent> {
    lent_on(served, |builder| builder)
}

/// Lends a device of a builder with these settings.
pub(crate) fn lent_on(served: Served, set: fn(WgpuBuilder) -> WgpuBuilder) -> Option<Lent> {
    let wgpu = open(matches!(served, Served::Paged | Served::InOrder), set)?;
    Some(match served {
        Served::ByWgpu => Lent::plain(wgpu.device().clone(), wgpu.queue().clone()),
        Served::Classic => Lent::new(Allocator::builder(wgpu).conf("policy:classic").build().unwrap()).unwrap(),
        Served::Paged => Lent::new(Allocator::new(wgpu)).unwrap(),
        Served::InOrder => Lent::in_order(Allocator::new(wgpu)).unwrap(),
    })
}

/// A device and its queue, as an engine has them.
pub(crate) struct Engine {
    pub(crate) device: Device,
    pub(crate) queue: Queue,
}

impl Engine {
    pub(crate) fn new(lent: &Lent) -> Engine {
        Engine { device: lent.device(), queue: lent.queue() }
    }

    pub(crate) fn buffer(&self, size: u64, usage: BufferUsages) -> Buffer {
        self.device.create_buffer(&BufferDescriptor { label: Some("a"), size, usage, mapped_at_creation: false })
    }

    /// Returns a buffer of words that holds these.
    pub(crate) fn words(&self, words: &[u32], usage: BufferUsages) -> Buffer {
        let buffer = self.buffer(words.len() as u64 * 4, usage);
        self.queue.write_buffer(&buffer, 0, &bytes_of(words));
        buffer
    }

    pub(crate) fn encoder(&self) -> wgpu::CommandEncoder {
        self.device.create_command_encoder(&Default::default())
    }

    /// Records commands and submits them.
    pub(crate) fn run(&self, record: impl FnOnce(&mut wgpu::CommandEncoder)) {
        let mut encoder = self.encoder();
        record(&mut encoder);
        self.queue.submit([encoder.finish()]);
    }

    /// Returns the bytes of a buffer, up to its last whole word.
    pub(crate) fn read(&self, buffer: &Buffer) -> Vec<u8> {
        let size = buffer.size() / 4 * 4;
        let staging = self.buffer(size, BufferUsages::MAP_READ | BufferUsages::COPY_DST);
        self.run(|encoder| encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, Some(size)));
        staging.slice(..).map_async(MapMode::Read, |mapped| mapped.unwrap());
        self.device.poll(PollType::wait_indefinitely()).unwrap();
        staging.slice(..).get_mapped_range().unwrap().to_vec()
    }

    pub(crate) fn read_words(&self, buffer: &Buffer) -> Vec<u32> {
        self.read(buffer).as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }

    /// Makes a pipeline of a shader with the entry point `main`.
    pub(crate) fn pipeline(&self, shader: &str, layout: Option<&wgpu::PipelineLayout>) -> wgpu::ComputePipeline {
        let source = wgpu::ShaderSource::Wgsl(shader.into());
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        })
    }

    /// Makes a bind group of ranges, each an offset and a size.
    pub(crate) fn group(
        &self,
        layout: &wgpu::BindGroupLayout,
        ranges: &[(&Buffer, u64, Option<u64>)],
    ) -> wgpu::BindGroup {
        let mut entries = Vec::new();
        for (binding, &(buffer, offset, size)) in (0..).zip(ranges) {
            let size = size.and_then(wgpu::BufferSize::new);
            let resource = wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size });
            entries.push(wgpu::BindGroupEntry { binding, resource });
        }
        self.device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries })
    }

    /// Returns whether a call raises a validation error, in an error scope.
    pub(crate) fn refuses(&self, call: impl FnOnce()) -> Option<String> {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        call();
        pollster::block_on(scope.pop()).map(|error| error.to_string())
    }
}

pub(crate) fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
