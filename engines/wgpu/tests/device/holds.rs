//! Recorded commands keep the memory that they name: what is dropped before the submit is not handed out before it,
//! whichever call has named it.

use millpond_lent::LENT;
use wgpu::{Buffer, BufferUsages, CommandEncoder};

use crate::common::{COPIED, Engine, HELD, bytes_of, lent};

const WORDS: usize = 128;

/// Adds one to each word of its binding.
const ADD_ONE: &str = "
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) id: vec3<u32>) { words[id.x] += 1u; }";

/// Records a call that names the first buffer, on whose bytes the second one depends or which it writes.
type Verb = fn(&Engine, &mut CommandEncoder, &Buffer, &Buffer);

const VERBS: [(&str, Verb, [u32; 2]); 5] = [
    ("copy from", |_, encoder, named, kept| encoder.copy_buffer_to_buffer(named, 0, kept, 0, None), [1, 1]),
    ("copy into", |_, encoder, named, kept| encoder.copy_buffer_to_buffer(kept, 0, named, 0, None), [5, 5]),
    ("clear", |_, encoder, named, _| encoder.clear_buffer(named, 0, None), [5, 5]),
    ("bind", |engine, encoder, named, kept| add_one(engine, encoder, named, kept), [5, 5]),
    ("dispatch indirectly", |engine, encoder, named, kept| add_one(engine, encoder, kept, named), [6, 5]),
];

/// Adds one to words of one buffer, as many as the other one says.
fn add_one(engine: &Engine, encoder: &mut CommandEncoder, words: &Buffer, arguments: &Buffer) {
    let pipeline = engine.pipeline(ADD_ONE, None);
    let group = engine.group(&pipeline.get_bind_group_layout(0), &[(words, 0, None)]);
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups_indirect(arguments, 0);
}

#[test]
fn what_each_call_names_is_kept_until_the_submit() {
    for served in HELD {
        let Some(lent) = lent(served) else { continue };
        let engine = Engine::new(&lent);
        for (name, verb, [first, second]) in VERBS {
            let (named, kept) = (engine.words(&[1; WORDS], LENT), engine.words(&[5; WORDS], LENT));
            engine.queue.write_buffer(&kept, 4, &bytes_of(&[1, 1]));
            let mut encoder = engine.encoder();
            verb(&engine, &mut encoder, &named, &kept);
            drop(named);
            assert_eq!(lent.counts().live, 2, "{served:?}, {name}: the commands name it");
            // It is a write, which goes ahead of the commands: in the same memory it would change what they read, or
            // be overwritten.
            let next = engine.words(&[9; WORDS], COPIED);
            let commands = encoder.finish();
            assert_eq!(lent.counts().live, 3, "{served:?}, {name}: finished commands name it");
            engine.queue.submit([commands]);
            assert_eq!(lent.counts().live, 2, "{served:?}, {name}: submitted, it is gone");
            assert_eq!(engine.read_words(&next), [9; WORDS], "{served:?}, {name}");
            let words = engine.read_words(&kept);
            assert_eq!([words[0], words[WORDS - 1]], [first, second], "{served:?}, {name}");
        }
    }
}

/// A bind group keeps what it names, as long as it lives.
#[test]
fn a_bind_group_keeps_its_buffers() {
    for served in HELD {
        let Some(lent) = lent(served) else { continue };
        let engine = Engine::new(&lent);
        let (named, arguments) = (engine.words(&[1; WORDS], COPIED), engine.words(&[3, 1, 1], LENT));
        let pipeline = engine.pipeline(ADD_ONE, None);
        let group = engine.group(&pipeline.get_bind_group_layout(0), &[(&named, 0, None)]);
        let copy = engine.words(&[0; WORDS], COPIED);
        for round in 0..2 {
            let mut encoder = engine.encoder();
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups_indirect(&arguments, 0);
            drop(pass);
            encoder.copy_buffer_to_buffer(&named, 0, &copy, 0, None);
            engine.queue.submit([encoder.finish()]);
            assert_eq!(engine.read_words(&copy)[..4], [2 + round, 2 + round, 2 + round, 1], "{served:?}");
        }
        drop(named);
        assert_eq!(lent.counts().live, 3, "{served:?}: the bind group has it");
        drop(group);
        assert_eq!(lent.counts().live, 2, "{served:?}");
    }
}

/// Commands that are dropped rather than submitted, and encoders that are dropped, give back what they named.
#[test]
fn what_is_never_submitted_goes_back() {
    for served in HELD {
        let Some(lent) = lent(served) else { continue };
        let engine = Engine::new(&lent);
        let record = || {
            let mut encoder = engine.encoder();
            encoder.clear_buffer(&engine.buffer(64, COPIED), 0, None);
            encoder
        };
        let (open, finished) = (record(), record().finish());
        assert_eq!(lent.counts().live, 2, "{served:?}");
        drop((open, finished));
        engine.queue.submit([]);
        assert_eq!(lent.counts().live, 0, "{served:?}");
        let usage = BufferUsages::STORAGE;
        drop(engine.buffer(64, usage));
        assert_eq!(lent.allocator().unwrap().memory_allocated(), 0, "{served:?}");
    }
}
