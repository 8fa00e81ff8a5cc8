//! Fresh buffers: they read as zero until they are written, whatever names them first.

use millpond_lent::Lent;
use wgpu::{Buffer, BufferUsages};

use crate::common::{ALL, COPIED, Engine, HELD, Served, bytes_of, lent};

/// Doubles each word of its first binding into its second.
const DOUBLE: &str = "
@group(0) @binding(0) var<storage, read_write> given: array<u32>;
@group(0) @binding(1) var<storage, read_write> taken: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&taken)) { taken[id.x] = 2u * given[id.x]; }
}";

const WORDS: usize = 128;

/// Leaves bytes of a former owner in the memory of the next buffers.
fn soil(engine: &Engine) {
    let buffers: Vec<_> = (0..8).map(|_| engine.words(&[0x5A5A_5A5A; WORDS], COPIED)).collect();
    engine.queue.submit([]);
    drop(buffers);
}

fn fresh(engine: &Engine) -> Buffer {
    engine.buffer(WORDS as u64 * 4, COPIED | BufferUsages::INDIRECT)
}

fn each(test: impl Fn(Served, &Lent, &Engine)) {
    for served in ALL.into_iter().filter(|served| *served != Served::InOrder) {
        let Some(lent) = lent(served) else { continue };
        let engine = Engine::new(&lent);
        soil(&engine);
        test(served, &lent, &engine);
    }
}

#[test]
fn a_copy_reads_zeros() {
    each(|served, _, engine| assert_eq!(engine.read_words(&fresh(engine)), [0; WORDS], "{served:?}"));
}

#[test]
fn a_shader_reads_zeros_and_what_it_writes_stays() {
    each(|served, _, engine| {
        let (from, to) = (fresh(engine), fresh(engine));
        let double = engine.pipeline(DOUBLE, None);
        let group = engine.group(&double.get_bind_group_layout(0), &[(&from, 0, None), (&to, 0, Some(256))]);
        engine.run(|encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&double);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(2, 1, 1);
        });
        assert_eq!(engine.read_words(&to), [0; WORDS], "{served:?}");
    });
}

/// Fresh arguments dispatch nothing, though the former owner of their memory would have it otherwise.
#[test]
fn a_dispatch_reads_zeros() {
    each(|served, _, engine| {
        drop([0; 8].map(|_| engine.words(&[1; WORDS], COPIED)));
        engine.queue.submit([]);
        let (arguments, words) = (fresh(engine), engine.words(&[3; WORDS], COPIED));
        let double = engine.pipeline(DOUBLE, None);
        let target = engine.words(&[4; WORDS], COPIED);
        let group = engine.group(&double.get_bind_group_layout(0), &[(&words, 0, None), (&target, 0, None)]);
        engine.run(|encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&double);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups_indirect(&arguments, 0);
        });
        assert_eq!(engine.read_words(&target), [4; WORDS], "{served:?}");
    });
}

/// A write of the queue goes ahead of everything that is submitted later, and so ahead of a clear that is not
/// submitted yet.
#[test]
fn a_write_to_a_part_stays_with_zeros_around_it() {
    each(|served, _, engine| {
        let [part, first, last, ends] = [(); 4].map(|()| fresh(engine));
        engine.queue.write_buffer(&part, 16, &[7; 8]);
        engine.queue.write_buffer(&first, 0, &[5; 256]);
        engine.queue.write_buffer(&last, 256, &[6; 256]);
        // Also where commands have named the buffer already.
        let mut encoder = engine.encoder();
        encoder.clear_buffer(&ends, 0, Some(4));
        engine.queue.write_buffer(&ends, 8, &[9; 4]);
        engine.queue.submit([encoder.finish()]);
        assert_eq!(engine.read(&first), [[5; 256], [0; 256]].concat(), "{served:?}");
        assert_eq!(engine.read(&last), [[0; 256], [6; 256]].concat(), "{served:?}");
        let bytes = engine.read(&part);
        assert_eq!((&bytes[..16], &bytes[16..24], bytes[24..] == [0; 488]), (&[0; 16][..], &[7; 8][..], true));
        let words = engine.read_words(&ends);
        assert_eq!((words[2], words.iter().filter(|word| **word == 0).count()), (0x0909_0909, WORDS - 1), "{served:?}");
    });
}

/// A write of as many bytes as a buffer can be written with, which wgpu refuses as it begins within a word.
#[test]
fn a_refused_write_leaves_zeros() {
    each(|served, _, engine| {
        let buffer = engine.buffer(WORDS as u64 * 4 - 1, COPIED);
        let refused = engine.refuses(|| engine.queue.write_buffer(&buffer, 2, &[7; WORDS * 4 - 4]));
        assert!(refused.is_some(), "{served:?}");
        assert_eq!(engine.read_words(&buffer), [0; WORDS - 1], "{served:?}");
    });
}

#[test]
fn a_whole_write_stays_wherever_it_comes() {
    each(|served, _, engine| {
        let all: Vec<u32> = (1..=WORDS as u32).collect();
        let (first, named) = (fresh(engine), fresh(engine));
        engine.queue.write_buffer(&first, 0, &bytes_of(&all));
        let mut encoder = engine.encoder();
        let target = fresh(engine);
        encoder.copy_buffer_to_buffer(&named, 0, &target, 0, None);
        engine.queue.write_buffer(&named, 0, &bytes_of(&all));
        engine.queue.submit([encoder.finish()]);
        for buffer in [&first, &named, &target] {
            assert_eq!(engine.read_words(buffer), all, "{served:?}");
        }
    });
}

/// Of two encoders that name a buffer, the second one is submitted first.
#[test]
fn the_order_of_encoders_does_not_matter() {
    each(|served, _, engine| {
        let (buffer, ones) = (fresh(engine), engine.words(&[1; WORDS], COPIED));
        let (mut late, mut early) = (engine.encoder(), engine.encoder());
        late.copy_buffer_to_buffer(&ones, 0, &buffer, 0, Some(8));
        early.copy_buffer_to_buffer(&ones, 0, &buffer, 256, Some(8));
        engine.queue.submit([early.finish()]);
        engine.queue.submit([late.finish()]);
        let words = engine.read_words(&buffer);
        assert_eq!((words[0], words[1], words[64], words[65]), (1, 1, 1, 1), "{served:?}");
        assert_eq!(words.iter().sum::<u32>(), 4, "{served:?}: the rest is zero");
    });
}

/// Commands that name a buffer are dropped, and the buffer with them. The next owner of the memory keeps what it
/// writes.
#[test]
fn a_clear_reaches_no_later_owner() {
    each(|served, _, engine| {
        let mut encoder = engine.encoder();
        encoder.clear_buffer(&fresh(engine), 0, None);
        drop(encoder);
        let all: Vec<u32> = (1..=WORDS as u32).collect();
        let buffers: Vec<_> = (0..8).map(|_| engine.words(&all, COPIED)).collect();
        for buffer in &buffers {
            assert_eq!(engine.read_words(buffer), all, "{served:?}");
        }
    });
}

/// wgpu refuses commands that are submitted with a clear: the clear is made all the same.
#[test]
fn a_refused_submit_leaves_no_bytes_of_others() {
    each(|served, _, engine| {
        let (buffer, ones) = (fresh(engine), engine.words(&[1; WORDS], COPIED));
        let refused = engine.refuses(|| {
            engine.run(|encoder| {
                encoder.copy_buffer_to_buffer(&ones, 0, &buffer, 0, Some(8));
                encoder.copy_buffer_to_buffer(&ones, 0, &buffer, 508, Some(8));
            });
        });
        assert!(refused.is_some(), "{served:?}");
        assert_eq!(engine.read_words(&buffer), [0; WORDS], "{served:?}");
    });
}

/// Only the first write to a part waits for a clear.
#[test]
fn memory_is_cleared_once() {
    each(|served, lent, engine| {
        let buffer = fresh(engine);
        engine.queue.write_buffer(&buffer, 4, &[1; 4]);
        for at in 2..6 {
            engine.queue.write_buffer(&buffer, at * 4, &[1; 4]);
            engine.run(|encoder| encoder.clear_buffer(&buffer, 256, None));
        }
        let words = engine.read_words(&buffer);
        assert_eq!((words[0], &words[1..6], words[6]), (0, &[0x0101_0101; 5][..], 0), "{served:?}");
        let Some(allocator) = lent.allocator() else { return };
        let submitted = || allocator.backend().submitted(millpond_wgpu::backend::StreamId(0)).0;
        let before = submitted();
        let mut encoder = engine.encoder();
        encoder.clear_buffer(&fresh(engine), 0, None);
        for _ in 0..10 {
            engine.queue.write_buffer(&buffer, 4, &[1; 4]);
        }
        assert_eq!(submitted(), before, "a buffer that has its bytes is written without a submit");
    });
}

/// An engine that writes first pays for no clear, and says so.
#[test]
fn an_engine_that_writes_first_gets_memory_as_it_is() {
    for served in HELD {
        let Some(lent) = lent(served) else { continue };
        let lent = lent.writes_first();
        let engine = Engine::new(&lent);
        soil(&engine);
        assert_eq!(engine.read_words(&fresh(&engine)), [0x5A5A_5A5A; WORDS], "{served:?}");
    }
}
