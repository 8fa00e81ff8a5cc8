//! Every call that names a buffer, at every offset and with every usage: a lent buffer refuses what wgpu's own refuses,
//! takes what that takes, and its neighbour keeps its bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond_lent::LENT;
use wgpu::{Buffer, BufferUsages, MapMode};

use crate::backend;
use crate::common::{ALL, COPIED, Engine, Served, bytes_of, lent_on, open};

/// The size of most buffers in these tests. A block of it ends where the next one begins.
const SIZE: u64 = 512;

/// Sets each word of its first binding to the number of words there.
const FILL: &str = "
@group(0) @binding(0) var<storage, read_write> taken: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&taken)) { taken[id.x] = arrayLength(&taken); }
}";

/// What is there for the calls: the device, and objects that they need.
struct Bench {
    engine: Engine,
    /// A buffer that copies come from and go to.
    other: Buffer,
    fill: wgpu::ComputePipeline,
    /// The same with a dynamic offset.
    fill_at: wgpu::ComputePipeline,
    queries: Option<wgpu::QuerySet>,
}

impl Bench {
    fn new(engine: Engine) -> Bench {
        let other = engine.words(&[7; 1024], COPIED);
        let entry = wgpu::BindGroupLayoutEntry {
            binding: 0,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: false },
                has_dynamic_offset: true,
                min_binding_size: None,
            },
            count: None,
        };
        let label = None;
        let group = wgpu::BindGroupLayoutDescriptor { label, entries: &[entry] };
        let group = engine.device.create_bind_group_layout(&group);
        let layout = wgpu::PipelineLayoutDescriptor { label, bind_group_layouts: &[Some(&group)], immediate_size: 0 };
        let layout = engine.device.create_pipeline_layout(&layout);
        let (fill, fill_at) = (engine.pipeline(FILL, None), engine.pipeline(FILL, Some(&layout)));
        let queries = engine.device.features().contains(wgpu::Features::TIMESTAMP_QUERY).then(|| {
            let descriptor = wgpu::QuerySetDescriptor { label, ty: wgpu::QueryType::Timestamp, count: 4 };
            engine.device.create_query_set(&descriptor)
        });
        Bench { engine, other, fill, fill_at, queries }
    }

    /// Dispatches a pipeline with one range and dynamic offsets.
    fn dispatch(
        &self,
        pipeline: &wgpu::ComputePipeline,
        range: (&Buffer, u64, Option<u64>),
        offsets: &[u32],
        indirect: Option<(&Buffer, u64)>,
    ) {
        let group = self.engine.group(&pipeline.get_bind_group_layout(0), &[range]);
        self.engine.run(|encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, offsets);
            match indirect {
                Some((arguments, offset)) => pass.dispatch_workgroups_indirect(arguments, offset),
                None => pass.dispatch_workgroups(64, 1, 1),
            }
        });
    }
}

/// A call that names a buffer, with an offset and a size.
#[derive(Clone, Copy)]
struct Verb {
    name: &'static str,
    /// Whether the size matters.
    sized: bool,
    call: fn(&Bench, &Buffer, u64, u64),
}

const fn sized(name: &'static str, call: fn(&Bench, &Buffer, u64, u64)) -> Verb {
    Verb { name, sized: true, call }
}

const fn placed(name: &'static str, call: fn(&Bench, &Buffer, u64, u64)) -> Verb {
    Verb { name, sized: false, call }
}

const VERBS: [Verb; 16] = [
    sized("write_buffer", |bench, a, offset, size| bench.engine.queue.write_buffer(a, offset, &vec![3; size as usize])),
    sized("write_buffer_with", |bench, a, offset, size| {
        let Some(size) = wgpu::BufferSize::new(size) else { return };
        if let Some(mut view) = bench.engine.queue.write_buffer_with(a, offset, size) {
            view.copy_from_slice(&vec![4; size.get() as usize]);
        }
    }),
    sized("clear_buffer", |bench, a, offset, size| {
        bench.engine.run(|encoder| encoder.clear_buffer(a, offset, Some(size)));
    }),
    placed("clear the rest", |bench, a, offset, _| {
        bench.engine.run(|encoder| encoder.clear_buffer(a, offset, None));
    }),
    sized("copy into", |bench, a, offset, size| {
        bench.engine.run(|encoder| encoder.copy_buffer_to_buffer(&bench.other, 0, a, offset, Some(size)));
    }),
    sized("copy from", |bench, a, offset, size| {
        bench.engine.run(|encoder| encoder.copy_buffer_to_buffer(a, offset, &bench.other, 0, Some(size)));
    }),
    placed("copy the rest", |bench, a, offset, _| {
        bench.engine.run(|encoder| encoder.copy_buffer_to_buffer(a, offset, &bench.other, 0, None));
    }),
    sized("copy within", |bench, a, offset, size| {
        bench.engine.run(|encoder| encoder.copy_buffer_to_buffer(a, offset, a, 256, Some(size)));
    }),
    sized("bind", |bench, a, offset, size| bench.dispatch(&bench.fill, (a, offset, Some(size)), &[], None)),
    placed("bind the rest", |bench, a, offset, _| bench.dispatch(&bench.fill, (a, offset, None), &[], None)),
    sized("dynamic offset", |bench, a, offset, size| {
        bench.dispatch(&bench.fill_at, (a, 0, Some(size)), &[offset as u32], None);
    }),
    placed("dynamic offset of the second half", |bench, a, offset, _| {
        bench.dispatch(&bench.fill_at, (a, 256, None), &[offset as u32], None);
    }),
    placed("dispatch indirectly", |bench, a, offset, _| {
        bench.dispatch(&bench.fill, (&bench.other, 0, None), &[], Some((a, offset)));
    }),
    placed("resolve queries", |bench, a, offset, _| {
        let Some(queries) = &bench.queries else { return };
        bench.engine.run(|encoder| encoder.resolve_query_set(queries, 0..2, a, offset));
    }),
    sized("map", |bench, a, offset, size| {
        let (tell, told) = std::sync::mpsc::channel();
        let begin = offset.min(a.size() - 4);
        let slice = a.slice(begin..begin + size.min(4));
        slice.map_async(MapMode::Read, move |answer| tell.send(answer.is_ok()).unwrap());
        bench.engine.device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        assert_eq!(told.recv(), Ok(false), "no storage buffer can be mapped");
        assert!(a.slice(..).get_mapped_range().is_err());
    }),
    placed("unmap", |_, a, _, _| a.unmap()),
];

/// What came of a call.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    /// wgpu's own words.
    error: Option<String>,
    /// The buffer's bytes, if they can be copied, those of the other one, and of the neighbour.
    bytes: [Vec<u8>; 3],
}

/// Makes a call on a fresh buffer with a neighbour, in an error scope.
fn outcome(bench: &Bench, verb: Verb, bytes: u64, usage: BufferUsages, offset: u64, size: u64) -> Outcome {
    let engine = &bench.engine;
    let a = engine.buffer(bytes, usage);
    let neighbour = engine.words(&[2; 128], COPIED);
    engine.queue.write_buffer(&bench.other, 0, &bytes_of(&[7; 1024]));
    if usage.contains(BufferUsages::COPY_DST) {
        // Small enough to be the arguments of a dispatch.
        engine.queue.write_buffer(&a, 0, &bytes_of(&[1; 128])[..(bytes / 4 * 4) as usize]);
    }
    engine.queue.submit([]);
    let error = engine.refuses(|| (verb.call)(bench, &a, offset, size));
    let own = if usage.contains(BufferUsages::COPY_SRC) { engine.read(&a) } else { Vec::new() };
    Outcome { error, bytes: [own, engine.read(&bench.other), engine.read(&neighbour)] }
}

/// Compares a call on a lent buffer with the same on one of wgpu's.
fn compare(benches: &[(String, Bench)], verb: Verb, bytes: u64, usage: BufferUsages, at: (u64, u64)) -> bool {
    let (offset, size) = at;
    let of = |bench: &Bench| outcome(bench, verb, bytes, usage, offset, size);
    let expected = of(&benches[0].1);
    for (served, bench) in &benches[1..] {
        let found = of(bench);
        let case = format!("{served}: {} at {offset}, {size} bytes, of {bytes} with {usage:?}", verb.name);
        assert_eq!(found.error.is_some(), expected.error.is_some(), "{case}: {:?} {:?}", found.error, expected.error);
        assert!(found.bytes == expected.bytes, "{case}: other bytes, after {:?}", found.error);
    }
    expected.error.is_some()
}

/// Returns a device of wgpu's, with which the others are compared, and those that are lent.
fn benches(served: &[Served]) -> Vec<(String, Bench)> {
    let Some(wgpu) = open(false, backend::for_many_calls) else { return Vec::new() };
    let bare = Engine { device: wgpu.device().clone(), queue: wgpu.queue().clone() };
    let lent = |served: &Served| {
        let engine = Engine::new(&lent_on(*served, backend::for_many_calls)?);
        Some((format!("{served:?}"), Bench::new(engine)))
    };
    std::iter::once(("wgpu".to_owned(), Bench::new(bare))).chain(served.iter().filter_map(lent)).collect()
}

#[test]
fn calls_beyond_a_buffer_are_refused_and_all_others_are_not() {
    let benches = benches(&ALL);
    if benches.is_empty() {
        return;
    }
    let (mut refused, mut taken) = (0, 0);
    for verb in VERBS {
        let sizes: &[u64] = if verb.sized { &[0, 2, 8, 256, 504, 512, 516] } else { &[8] };
        for offset in [0, 2, 8, 256, 500, 504, 508, 512, 516] {
            for &size in sizes {
                match compare(&benches, verb, SIZE, LENT, (offset, size)) {
                    true => refused += 1,
                    false => taken += 1,
                }
            }
        }
    }
    assert!(refused > 200 && taken > 100, "{refused} refused, {taken} taken");
}

#[test]
fn buffers_of_any_length_end_where_they_were_asked_to_end() {
    let benches = benches(&ALL);
    if benches.is_empty() {
        return;
    }
    for verb in VERBS {
        for bytes in [4_u64, 12, 257, 510] {
            for at in [(0, bytes / 4 * 4), (0, bytes), (0, bytes.next_multiple_of(4)), (bytes / 4 * 4, 4), (256, 4)] {
                compare(&benches, verb, bytes, LENT, at);
            }
        }
    }
}

#[test]
fn usages_that_were_not_asked_for_are_refused() {
    // What cannot be written reads as zero, except for an engine that promises to write first.
    let benches = benches(&[Served::ByWgpu, Served::Classic, Served::Paged]);
    if benches.is_empty() {
        return;
    }
    for verb in VERBS {
        for left_out in [BufferUsages::COPY_SRC, BufferUsages::COPY_DST, BufferUsages::INDIRECT] {
            compare(&benches, verb, SIZE, LENT.difference(left_out), (0, 256));
        }
        compare(&benches, verb, SIZE, BufferUsages::STORAGE, (0, 256));
    }
}

/// A view for a write is made where wgpu takes the write, and only there.
#[test]
fn a_view_for_a_write_is_made_within_the_buffer_only() {
    for (served, Bench { engine, .. }) in benches(&ALL) {
        let (lent, unwritten) = (engine.words(&[1; 128], LENT), engine.buffer(SIZE, BufferUsages::STORAGE));
        let uniform = engine.buffer(SIZE, BufferUsages::UNIFORM | BufferUsages::COPY_DST);
        let size = |bytes| wgpu::BufferSize::new(bytes).unwrap();
        for (buffer, offset, bytes, is_made) in [
            (&lent, 0, 512, true),
            (&lent, 508, 4, true),
            (&lent, 508, 8, false),
            (&lent, 2, 4, false),
            (&lent, 0, 6, false),
            (&unwritten, 0, 4, false),
            (&uniform, 508, 4, true),
            (&uniform, 508, 8, false),
        ] {
            let mut made = false;
            let error = engine.refuses(|| made = engine.queue.write_buffer_with(buffer, offset, size(bytes)).is_some());
            assert_eq!((made, error.is_none()), (is_made, is_made), "{served}: {bytes} at {offset}");
        }
    }
}

/// Dynamic offsets are those of the bindings in the order of their numbers, in whatever order a layout names them.
#[test]
fn dynamic_offsets_are_in_the_order_of_bindings() {
    for (served, Bench { engine, .. }) in benches(&ALL) {
        let entry = |binding, has_dynamic_offset| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: false },
                has_dynamic_offset,
                min_binding_size: None,
            },
            count: None,
        };
        let (label, entries) = (None, &[entry(2, true), entry(0, false), entry(1, true)]);
        let layout = engine.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries });
        let [short, long] = [512, 1024].map(|size| engine.buffer(size, COPIED));
        let group = engine.group(&layout, &[(&long, 0, None), (&short, 0, Some(256)), (&long, 0, Some(256))]);
        for (offsets, is_taken) in [([256, 768], true), ([768, 256], false), ([0, 1024], false), ([512, 0], false)] {
            let error = engine.refuses(|| {
                engine.run(|encoder| {
                    encoder.begin_compute_pass(&Default::default()).set_bind_group(0, &group, &offsets);
                });
            });
            assert_eq!(error.is_none(), is_taken, "{served}: {offsets:?}");
        }
    }
}

/// Numbers near the end of all numbers, which no sum of offsets may pass. A call ends as wgpu's does: in an error, or
/// in a panic, as some sums of wgpu's do.
#[test]
fn no_sum_of_offsets_wraps() {
    let benches = benches(&ALL);
    let huge = [u64::MAX - 3, u64::MAX / 4 * 4 - 512, 1 << 40, u64::from(u32::MAX) - 255];
    let mut expected = Vec::new();
    for (served, bench) in &benches {
        let mut ends = Vec::new();
        for verb in VERBS {
            for at in huge.into_iter().flat_map(|huge| [(huge, 512), (huge, 0), (0, huge), (256, huge), (huge, huge)]) {
                if at.1 > SIZE && verb.name.starts_with("write") {
                    continue;
                }
                let engine = &bench.engine;
                let (a, neighbour) = (engine.words(&[1; 128], LENT), engine.words(&[2; 128], COPIED));
                engine.queue.submit([]);
                let call = || engine.refuses(|| (verb.call)(bench, &a, at.0, at.1)).is_some();
                let end = catch_unwind(AssertUnwindSafe(call)).map_err(|_| "a panic");
                ends.push((verb.name, at, end));
                assert_eq!(engine.read_words(&neighbour), [2; 128], "{served}: {} at {at:?}", verb.name);
            }
        }
        if expected.is_empty() {
            expected = ends;
        } else {
            assert_eq!(ends, expected, "{served}");
        }
    }
}
