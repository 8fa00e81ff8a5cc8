//! Indirect dispatches: a lent buffer holds the arguments, next to what the dispatch writes, and the pass goes on as it
//! was.

use millpond_lent::LENT;
use wgpu::{Buffer, ComputePass, Features};

use crate::common::{ALL, COPIED, Engine, bytes_of, lent};

/// Writes the number of its workgroup, and one, to each word. With the next shader it computes arguments and uses them.
const NUMBER: &str = "
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) { words[id.x] = id.x + 1u; }";

/// Writes arguments: `y` and `z` are one.
const ARGUMENTS: &str = "
@group(0) @binding(0) var<storage, read_write> arguments: array<u32>;
@compute @workgroup_size(1) fn main() {
    for (var word = 0u; word < arrayLength(&arguments); word++) { arguments[word] = select(1u, 4u, word == 65u); }
}";

/// Adds an immediate and a word of a second bind group, at a dynamic offset, to each word.
const ADD: &str = "
var<immediate> addend: vec2<u32>;
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@group(1) @binding(0) var<storage, read_write> more: array<u32>;
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) {
    words[id.x] += addend.x + addend.y + more[0];
}";

fn arguments(engine: &Engine, words: &[u32]) -> Buffer {
    engine.words(words, LENT)
}

#[test]
fn arguments_are_taken_from_any_word() {
    for served in ALL {
        let Some(lent) = lent(served) else { continue };
        let engine = Engine::new(&lent);
        let pipeline = engine.pipeline(NUMBER, None);
        for at in [0_u32, 1, 2, 62, 63, 64, 125] {
            let mut words = vec![0; 128];
            words[at as usize..at as usize + 3].copy_from_slice(&[at + 1, 1, 1]);
            let (arguments, taken) = (arguments(&engine, &words), engine.words(&[0; 128], COPIED));
            let group = engine.group(&pipeline.get_bind_group_layout(0), &[(&taken, 0, None)]);
            engine.run(|encoder| {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                pass.set_pipeline(&pipeline);
                pass.set_bind_group(0, &group, &[]);
                pass.dispatch_workgroups_indirect(&arguments, u64::from(at) * 4);
            });
            let expected: Vec<u32> = (1..=128).map(|number| if number <= at + 1 { number } else { 0 }).collect();
            assert_eq!(engine.read_words(&taken), expected, "{served:?}, from word {at}");
        }
    }
}

/// Arguments that an earlier dispatch of the pass computes, in the very buffer that the dispatch then writes to.
#[test]
fn arguments_are_those_of_the_moment() {
    for served in ALL {
        let Some(lent) = lent(served) else { continue };
        let engine = Engine::new(&lent);
        let (compute, number) = (engine.pipeline(ARGUMENTS, None), engine.pipeline(NUMBER, None));
        let (arguments, taken) = (engine.buffer(1024, LENT), engine.words(&[0; 16], COPIED));
        let first = engine.group(&compute.get_bind_group_layout(0), &[(&arguments, 0, None)]);
        let second = engine.group(&number.get_bind_group_layout(0), &[(&taken, 0, None)]);
        engine.run(|encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&compute);
            pass.set_bind_group(0, &first, &[]);
            pass.dispatch_workgroups(1, 1, 1);
            pass.set_pipeline(&number);
            pass.set_bind_group(0, &second, &[]);
            pass.dispatch_workgroups_indirect(&arguments, 65 * 4);
        });
        assert_eq!(engine.read_words(&taken)[..6], [1, 2, 3, 4, 0, 0], "{served:?}");
    }
}

/// The pipeline, the bind groups with their offsets and the immediates are those of the engine after such a dispatch.
#[test]
fn a_pass_goes_on_as_it_was() {
    for served in ALL {
        let Some(lent) = lent(served) else { continue };
        let engine = Engine::new(&lent);
        if !engine.device.features().contains(Features::IMMEDIATES) {
            println!("SKIPPED: {served:?} has no immediates");
            continue;
        }
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
        let layout = wgpu::BindGroupLayoutDescriptor { label: None, entries: &[entry] };
        let group = engine.device.create_bind_group_layout(&layout);
        let layout = engine.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&group), Some(&group)],
            immediate_size: 8,
        });
        let (add, add_again) = (engine.pipeline(ADD, Some(&layout)), engine.pipeline(ADD, Some(&layout)));
        let (words, more) = (engine.words(&[0; 128], COPIED), engine.words(&[1_000; 128], COPIED));
        engine.queue.write_buffer(&more, 256, &bytes_of(&[100]));
        let [words_group, more_group] =
            [&words, &more].map(|buffer| engine.group(&add.get_bind_group_layout(0), &[(buffer, 0, Some(256))]));
        let (arguments, number) = (arguments(&engine, &[2, 1, 1]), engine.pipeline(NUMBER, None));
        let taken = engine.words(&[0; 4], COPIED);
        let taken_group = engine.group(&number.get_bind_group_layout(0), &[(&taken, 0, None)]);
        engine.run(|encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&add);
            pass.set_bind_group(0, &words_group, &[256]);
            pass.set_bind_group(1, &more_group, &[256]);
            pass.set_immediates(0, &bytes_of(&[1, 10]));
            pass.dispatch_workgroups_indirect(&arguments, 0);
            pass.dispatch_workgroups(1, 1, 1);
            pass.set_immediates(4, &bytes_of(&[20]));
            // A pipeline of the same layout leaves immediates as they are.
            pass.set_pipeline(&add_again);
            pass.dispatch_workgroups_indirect(&arguments, 0);
            pass.dispatch_workgroups(3, 1, 1);
            // A pipeline of another layout has no immediates.
            pass.set_pipeline(&number);
            pass.set_bind_group(0, &taken_group, &[]);
            pass.dispatch_workgroups_indirect(&arguments, 0);
        });
        assert_eq!(engine.read_words(&taken), [1, 2, 0, 0], "{served:?}");
        let words = engine.read_words(&words);
        assert_eq!((words[0], &words[64..68]), (0, &[464, 353, 121, 0][..]), "{served:?}");
    }
}

/// What wgpu refuses of the pass around it stays refused.
#[test]
fn a_dispatch_without_a_pipeline_or_its_bind_group_is_refused() {
    for served in ALL {
        let Some(lent) = lent(served) else { continue };
        let engine = Engine::new(&lent);
        let (pipeline, arguments) = (engine.pipeline(NUMBER, None), arguments(&engine, &[1; 4]));
        let taken = engine.words(&[7; 4], COPIED);
        let group = engine.group(&pipeline.get_bind_group_layout(0), &[(&taken, 0, None)]);
        let run = |offset, set: &dyn Fn(&mut ComputePass<'_>)| {
            engine.refuses(|| {
                engine.run(|encoder| {
                    let mut pass = encoder.begin_compute_pass(&Default::default());
                    set(&mut pass);
                    pass.dispatch_workgroups_indirect(&arguments, offset);
                });
            })
        };
        let whole = |pass: &mut ComputePass<'_>| {
            pass.set_bind_group(0, &group, &[]);
            pass.set_pipeline(&pipeline);
        };
        let text = run(0, &|_| ()).expect("no pipeline is set").to_lowercase();
        assert!(text.contains("pipeline must be set"), "{served:?}: {text}");
        let text = run(2, &whole).expect("the arguments begin within a word");
        assert!(text.contains("Indirect buffer offset 2 is not a multiple of 4"), "{served:?}: {text}");
        assert!(run(0, &|pass| pass.set_pipeline(&pipeline)).is_some(), "{served:?}: no bind group");
        assert_eq!(engine.read_words(&taken), [7; 4], "{served:?}");
        assert_eq!(run(0, &whole), None, "{served:?}");
        assert_eq!(engine.read_words(&taken), [1, 7, 7, 7], "{served:?}");
    }
}
