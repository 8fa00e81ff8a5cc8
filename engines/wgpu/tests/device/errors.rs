//! Where errors arrive: in the error scope that is open on the thread, or else at the engine's handler.

use std::sync::{Arc, Mutex};

use millpond::Allocator;
use millpond_lent::{LENT, Lent, LentError};
use millpond_wgpu::Wgpu;
use wgpu::{BufferUsages, CommandBuffer, ErrorFilter};

use crate::common::{ALL, COPIED, Engine, lent};

/// Records a copy that leaves its buffer, and returns the commands: `finish` raises the error, and a submit another.
fn refused(engine: &Engine) -> CommandBuffer {
    let (a, b) = (engine.buffer(64, COPIED), engine.buffer(64, COPIED));
    let mut encoder = engine.encoder();
    encoder.copy_buffer_to_buffer(&a, 32, &b, 0, Some(64));
    encoder.finish()
}

fn submit(engine: &Engine, commands: impl IntoIterator<Item = CommandBuffer>) {
    engine.queue.submit(commands);
}

/// Notes what reaches the engine's handler.
fn handler(engine: &Engine) -> Arc<Mutex<Vec<String>>> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&told);
    engine
        .device
        .on_uncaptured_error(Arc::new(move |error: wgpu::Error| noted.lock().unwrap().push(error.to_string())));
    told
}

#[test]
fn each_error_arrives_in_the_scope_where_it_is_raised() {
    for served in ALL {
        let Some(lent) = lent(served) else { continue };
        let engine = Engine::new(&lent);
        let told = handler(&engine);
        let outer = engine.device.push_error_scope(ErrorFilter::Validation);
        let mut commands = None;
        let finished = engine.refuses(|| commands = Some(refused(&engine)));
        let text = finished.expect("finish raises it");
        assert!(text.contains("at offset 32 for 64 bytes") && text.contains("buffer of size 64"), "{served:?}: {text}");
        let submitted = engine.refuses(|| submit(&engine, commands));
        assert!(submitted.is_some(), "{served:?}: no refused commands are submitted");
        let memory = engine.device.push_error_scope(ErrorFilter::OutOfMemory);
        let commands = refused(&engine);
        engine.queue.submit([commands]);
        assert!(pollster::block_on(memory.pop()).is_none(), "{served:?}: it is no matter of memory");
        assert!(pollster::block_on(outer.pop()).is_some(), "{served:?}: the outer scope takes it");
        assert_eq!(*told.lock().unwrap(), [""; 0], "{served:?}");
    }
}

/// Scopes are of a thread and of a device.
#[test]
fn errors_of_other_threads_and_devices_pass_by() {
    for served in ALL {
        let (Some(lent), Some(other)) = (lent(served), lent(served)) else { continue };
        let (engine, other) = (Engine::new(&lent), Engine::new(&other));
        let (told, told_other) = (handler(&engine), handler(&other));
        let missed = engine.refuses(|| {
            std::thread::scope(|scope| drop(scope.spawn(|| submit(&engine, [refused(&engine)])).join()));
            other.queue.submit([refused(&other)]);
        });
        assert_eq!(missed, None, "{served:?}");
        let counts = [&told, &told_other].map(|told| told.lock().unwrap().len());
        assert_eq!(counts, [2, 2], "{served:?}: finish and submit, of each device");
    }
}

/// What wgpu refuses at the submit alone, such as a buffer that was destroyed, arrives as well.
#[test]
fn a_refused_submit_runs_nothing_and_the_next_one_runs() {
    for served in ALL {
        let Some(lent) = lent(served) else { continue };
        let engine = Engine::new(&lent);
        let (ones, target) = (engine.words(&[1; 16], COPIED), engine.words(&[2; 16], COPIED));
        let gone = engine.buffer(64, BufferUsages::COPY_SRC | BufferUsages::COPY_DST);
        let mut encoder = engine.encoder();
        encoder.copy_buffer_to_buffer(&ones, 0, &target, 0, None);
        encoder.copy_buffer_to_buffer(&gone, 0, &target, 0, None);
        let commands = encoder.finish();
        gone.destroy();
        assert!(engine.refuses(|| submit(&engine, [commands])).is_some(), "{served:?}");
        assert_eq!(engine.read_words(&target), [2; 16], "{served:?}");
        engine.run(|encoder| encoder.copy_buffer_to_buffer(&ones, 0, &target, 0, None));
        assert_eq!(engine.read_words(&target), [1; 16], "{served:?}");
    }
}

#[test]
fn segments_of_other_usages_are_refused() {
    for (usage, is_taken) in [
        (LENT, true),
        (BufferUsages::STORAGE, true),
        (BufferUsages::INDIRECT, false),
        (LENT | BufferUsages::UNIFORM, false),
    ] {
        let Ok(wgpu) = Wgpu::builder().usage(usage).build() else { return };
        for made in [Lent::new(Allocator::new(wgpu.clone())), Lent::in_order(Allocator::new(wgpu))] {
            match made {
                Ok(lent) => assert!(is_taken && lent.counts().created == 0, "{usage:?}"),
                Err(LentError::Usage { usage: told }) => assert!(!is_taken && told.contains(usage), "{usage:?}"),
                Err(other) => panic!("{usage:?}: {other}"),
            }
        }
    }
}
