//! Binding blocks in shaders.

use millpond::{Allocator, Buffer};
use millpond_backend::{Backend, ClassId, Transfer};
use millpond_wgpu::{EXCLUSIVE, Misuse, Wgpu, WgpuError, wgpu};

use crate::common;

const WORDS: u64 = 256;

/// Creates a pipeline that adds one to every word of the first binding, into the second one. `access` is how the shader
/// declares the first.
fn add_one(device: &Wgpu, access: &str) -> wgpu::ComputePipeline {
    let source = format!(
        "@group(0) @binding(0) var<storage, {access}> a: array<u32>;
         @group(0) @binding(1) var<storage, read_write> b: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
             b[id.x] = a[id.x] + 1u;
         }}"
    );
    let module = device.device().create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(source.into()),
    });
    device.device().create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    })
}

/// Runs the pipeline on two blocks, on the stream of the first.
fn run(device: &Wgpu, pipeline: &wgpu::ComputePipeline, a: &Buffer<Wgpu>, b: &Buffer<Wgpu>) -> Result<(), WgpuError> {
    let entries = [(0, a), (1, b)].map(|(binding, buffer)| wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(
            buffer.segment().unwrap().binding(buffer.offset(), buffer.capacity()).unwrap(),
        ),
    });
    let group = device.device().create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &entries,
    });
    device.record(a.stream(), |encoder| {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups((WORDS / 64) as u32, 1, 1);
    })?;
    device.submit(a.stream()).map(drop)
}

fn words(device: &Wgpu, buffer: &Buffer<Wgpu>) -> Vec<u32> {
    let mut bytes = vec![0; WORDS as usize * 4];
    device.download(buffer.stream(), buffer.segment().unwrap(), buffer.offset(), &mut bytes).unwrap();
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn allocator(device: &Wgpu, class: ClassId, conf: &str) -> Allocator<Wgpu> {
    Allocator::builder(device.clone()).class(class).conf(conf).build().unwrap()
}

#[test]
fn blocks_of_one_segment_compute_when_all_are_read_write() {
    for device in common::both() {
        let allocator = allocator(&device, ClassId::DEVICE, "policy:classic");
        let stream = allocator.create_stream().unwrap();
        let [a, b, c] = [(); 3].map(|()| stream.allocate(WORDS * 4).unwrap());
        assert_eq!((a.segment_id(), a.segment_id()), (b.segment_id(), c.segment_id()));
        device.fill(stream.id(), a.segment().unwrap(), a.offset(), WORDS * 4, 1).unwrap();
        let pipeline = add_one(&device, "read_write");
        run(&device, &pipeline, &a, &b).unwrap();
        run(&device, &pipeline, &b, &c).unwrap();
        assert_eq!(words(&device, &c), [0x0101_0103; WORDS as usize]);
        assert_eq!(words(&device, &a), [0x0101_0101; WORDS as usize], "the neighbours are as they were");
        assert_eq!(device.errors(), [""; 0]);
    }
}

/// wgpu checks whole buffers. If it ever checks ranges, this test fails, and the rule can be removed from the
/// documentation.
#[test]
fn blocks_of_one_segment_do_not_mix_usages_in_one_dispatch() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let allocator = allocator(&device, ClassId::DEVICE, "policy:classic");
    let stream = allocator.create_stream().unwrap();
    let [a, b] = [(); 2].map(|()| stream.allocate(WORDS * 4).unwrap());
    assert_eq!(a.segment_id(), b.segment_id());
    let refused = run(&device, &add_one(&device, "read"), &a, &b).unwrap_err();
    assert!(matches!(refused, WgpuError::Refused { call: "submit", .. }), "{refused:?}");
    assert!(refused.to_string().contains("STORAGE_READ_WRITE"), "{refused}");
}

#[test]
fn exclusive_blocks_mix_usages_as_they_like() {
    for device in common::both() {
        let allocator = allocator(&device, EXCLUSIVE, "policy:direct");
        let stream = allocator.create_stream().unwrap();
        let [a, b] = [(); 2].map(|()| stream.allocate(WORDS * 4).unwrap());
        assert_ne!(a.segment_id(), b.segment_id(), "each has a buffer of its own");
        device.fill(stream.id(), a.segment().unwrap(), a.offset(), WORDS * 4, 1).unwrap();
        run(&device, &add_one(&device, "read"), &a, &b).unwrap();
        assert_eq!(words(&device, &b), [0x0101_0102; WORDS as usize]);
        assert_eq!(device.errors(), [""; 0]);
    }
}

#[test]
fn bindings_are_checked_before_wgpu_sees_them() {
    let Some(device) = common::open(Wgpu::builder()) else { return };
    let limits = device.device().limits();
    let (step, most) = (u64::from(limits.min_storage_buffer_offset_alignment), limits.max_storage_buffer_binding_size);
    assert!(512_u64.is_multiple_of(step), "blocks start at multiples of 512, and the device wants {step}");
    let segment = device.reserve(ClassId::DEVICE, most + 512).unwrap();
    let binding = segment.binding(512, most).unwrap();
    assert_eq!((binding.offset, binding.size.map(std::num::NonZeroU64::get)), (512, Some(most)));
    let odd = segment.binding(step / 2, 4);
    let half = step / 2;
    assert!(
        matches!(odd, Err(WgpuError::Misuse(Misuse::Misaligned { what: Some("offset"), value, multiple, .. }))
            if (value, multiple) == (half, step)),
        "{odd:?}"
    );
    let odd = segment.binding(0, 6);
    assert!(
        matches!(odd, Err(WgpuError::Misuse(Misuse::Misaligned { what: Some("size"), value: 6, multiple: 4, .. }))),
        "{odd:?}"
    );
    let large = segment.binding(0, most + 4);
    assert!(
        matches!(large, Err(WgpuError::BindingTooLarge { bytes, max }) if (bytes, max) == (most + 4, most)),
        "{large:?}"
    );
    let outside = segment.binding(512, most + 4);
    assert!(matches!(outside, Err(WgpuError::Misuse(Misuse::OutOfRange { offset: 512, .. }))), "{outside:?}");
    let none = segment.binding(0, 0);
    assert!(matches!(none, Err(WgpuError::Misuse(Misuse::Empty { .. }))), "{none:?}");
}

#[test]
fn a_window_covers_what_cannot_be_bound_by_itself() {
    for device in common::both() {
        let allocator = allocator(&device, ClassId::DEVICE, "policy:classic");
        let stream = allocator.create_stream().unwrap();
        let (_before, whole) = (stream.allocate(512).unwrap(), stream.allocate_from(&[1u32; 300]).unwrap());
        let step = u64::from(device.device().limits().min_storage_buffer_offset_alignment);
        // The first element lies behind a multiple of the alignment, and not on one.
        let part = whole.slice(step / 4 + 3..step / 4 + 5).unwrap();
        let (binding, before) = part.segment().unwrap().window(part.offset(), part.byte_len()).unwrap();
        assert_eq!((binding.offset, before), (part.offset() - 12, 12));
        assert_eq!(binding.size.map(std::num::NonZeroU64::get), Some(20));
        // Three halves end in the middle of a word.
        let halves = whole.as_slice().cast::<u16>().unwrap().slice(..3).unwrap();
        let (binding, before) = halves.segment().unwrap().window(halves.offset(), halves.byte_len()).unwrap();
        assert_eq!((binding.offset, before, binding.size.unwrap().get()), (whole.buffer().offset(), 0, 8));
        let segment = whole.buffer().segment().unwrap();
        assert!(matches!(segment.window(0, 0), Err(WgpuError::Misuse(Misuse::Empty { .. }))));
        let outside = segment.window(segment.bytes() - 2, 3);
        assert!(matches!(outside, Err(WgpuError::Misuse(Misuse::OutOfRange { .. }))), "{outside:?}");
        assert!(segment.window(segment.bytes() - 2, 2).is_ok());
    }
}
