//! Buffers that the host maps: they are wgpu's own, also on a lent device.

use wgpu::{BufferDescriptor, BufferUsages, MapMode, PollType};

use crate::common::{ALL, COPIED, Engine, bytes_of, lent};

#[test]
fn a_range_that_is_mapped_for_writes_is_read_as_well() {
    for served in ALL {
        let Some(lent) = lent(served) else { continue };
        let engine = Engine::new(&lent);
        for usage in [BufferUsages::COPY_SRC | BufferUsages::MAP_WRITE, COPIED] {
            let descriptor = BufferDescriptor { label: None, size: 64, usage, mapped_at_creation: true };
            let buffer = engine.device.create_buffer(&descriptor);
            assert_eq!(*buffer.slice(..).get_mapped_range().unwrap(), [0; 64], "{served:?}");
            buffer.slice(8..16).get_mapped_range_mut().unwrap().copy_from_slice(&[5; 8]);
            // A range that is written has no second view while the first one lives.
            let write = buffer.slice(16..32).get_mapped_range_mut().unwrap();
            assert!(buffer.slice(24..40).get_mapped_range().is_err(), "{served:?}");
            drop(write);
            let mut write = buffer.slice(16..32).get_mapped_range_mut().unwrap();
            write.copy_from_slice(&[6; 16]);
            write.slice(8..).copy_from_slice(&[7; 8]);
            assert_eq!(write.len(), 16);
            drop(write);
            let seen = buffer.slice(8..32).get_mapped_range().unwrap().to_vec();
            assert_eq!(seen, [[5; 8], [6; 8], [7; 8]].concat(), "{served:?}");
            buffer.unmap();
            assert_eq!(engine.read(&buffer)[4..32], [&[0; 4][..], &seen].concat(), "{served:?}");
        }
    }
}

#[test]
fn a_buffer_is_mapped_for_either_again_and_again() {
    for served in ALL {
        let Some(lent) = lent(served) else { continue };
        let engine = Engine::new(&lent);
        let write = engine.buffer(16, BufferUsages::COPY_SRC | BufferUsages::MAP_WRITE);
        let storage = engine.words(&[1; 4], COPIED);
        for round in 2..5 {
            write.slice(8..).map_async(MapMode::Write, |mapped| mapped.unwrap());
            engine.device.poll(PollType::wait_indefinitely()).unwrap();
            let words = bytes_of(&[round; 3]);
            write.slice(8..).get_mapped_range_mut().unwrap().copy_from_slice(&words[..8]);
            assert_eq!(write.slice(8..).get_mapped_range().unwrap()[..4], words[..4], "{served:?}");
            write.unmap();
            engine.run(|encoder| encoder.copy_buffer_to_buffer(&write, 0, &storage, 0, None));
            assert_eq!(engine.read_words(&storage)[2..], [round; 2], "{served:?}");
        }
    }
}
