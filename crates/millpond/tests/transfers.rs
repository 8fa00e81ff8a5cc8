//! Moving bytes through streams: what arrives, and what is refused.

use millpond::backend::ClassId;
use millpond::settings::Policy;
use millpond::{Allocator, Error, Stream};
use millpond_sim::{Completion, Sim, SimError};

fn stream_on(sim: Sim) -> Stream<Sim> {
    Allocator::new(sim).create_stream().unwrap()
}

fn with_bytes() -> Stream<Sim> {
    stream_on(Sim::builder().bytes(true).build())
}

#[test]
fn offsets_count_from_the_start_of_the_buffer() {
    let stream = with_bytes();
    // The second block begins in the middle of the segment.
    let (first, second) = (stream.allocate(512).unwrap(), stream.allocate(512).unwrap());
    assert!(second.offset() > 0);
    stream.fill(&first, 0, first.capacity(), 1).unwrap();
    stream.fill(&second, 0, second.capacity(), 2).unwrap();
    stream.fill(&second, 510, 2, 3).unwrap();
    stream.upload(&second, 5, &[7, 8, 9]).unwrap();
    stream.copy((&second, 6), (&first, 500), 2).unwrap();
    let mut bytes = [0; 6];
    stream.download(&second, 4, &mut bytes).unwrap();
    assert_eq!(bytes, [2, 7, 8, 9, 2, 2]);
    stream.download(&second, 506, &mut bytes).unwrap();
    assert_eq!(bytes, [2, 2, 2, 2, 3, 3]);
    stream.download(&first, 498, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 1, 8, 9, 1, 1]);
}

#[test]
fn all_of_the_capacity_may_be_used_and_nothing_beyond() {
    let stream = with_bytes();
    let buffer = stream.allocate(1000).unwrap();
    assert_eq!(buffer.capacity(), 1024);
    stream.fill(&buffer, 1000, 24, 4).unwrap();
    let refused = [
        (stream.fill(&buffer, 1000, 25, 4), (1000, 25)),
        (stream.fill(&buffer, u64::MAX, 2, 4), (u64::MAX, 2)),
        (stream.upload(&buffer, 1024, &[0]), (1024, 1)),
        (stream.download(&buffer, 1, &mut [0; 1024]), (1, 1024)),
        (stream.copy((&buffer, 1020), (&buffer, 0), 5), (1020, 5)),
        (stream.copy((&buffer, 0), (&buffer, 1023), 2), (1023, 2)),
        (stream.fill(&buffer, 1025, 0, 4), (1025, 0)),
    ];
    for (answer, expected) in refused {
        match answer.unwrap_err() {
            Error::OutOfRange { offset, bytes, capacity } => assert_eq!(((offset, bytes), capacity), (expected, 1024)),
            other => panic!("{other}"),
        }
    }
    let text = stream.upload(&buffer, 1024, &[0]).unwrap_err().to_string();
    assert!(text.starts_with("1 bytes at offset 1024 leave a buffer of 1024 bytes"), "{text}");
}

#[test]
fn no_bytes_are_moved_without_a_call_of_the_driver() {
    let sim = Sim::builder().bytes(true).build();
    let stream = stream_on(sim.clone());
    let (buffer, empty) = (stream.allocate(64).unwrap(), stream.allocate(0).unwrap());
    let before = sim.calls().transfer;
    stream.fill(&empty, 0, 0, 1).unwrap();
    stream.upload(&empty, 0, &[]).unwrap();
    stream.download(&empty, 0, &mut []).unwrap();
    stream.copy((&empty, 0), (&buffer, 512), 0).unwrap();
    assert_eq!(sim.calls().transfer, before);
    stream.fill(&buffer, 0, 1, 1).unwrap();
    assert_eq!(sim.calls().transfer, before + 1);
    let error = stream.fill(&empty, 0, 1, 1).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { offset: 0, bytes: 1, capacity: 0 }), "{error}");
}

#[test]
fn a_buffer_of_another_allocator_is_refused_wherever_it_is_not_one_end_of_a_copy() {
    let (stream, other) = two_devices();
    let (theirs, empty) = (other.allocate(64).unwrap(), other.allocate(0).unwrap());
    let refused = [
        stream.fill(&theirs, 0, 8, 1),
        stream.fill(&empty, 0, 0, 1),
        stream.upload(&theirs, 0, &[1]),
        stream.download(&theirs, 0, &mut [1]),
        stream.copy((&theirs, 0), (&theirs, 32), 8),
        stream.copy((&theirs, 0), (&theirs, 32), 0),
    ];
    for answer in refused {
        let error = answer.unwrap_err();
        assert!(matches!(error, Error::WrongDevice { what: "buffer", belongs_to: 1, given_to: 0 }), "{error}");
    }
}

fn two_devices() -> (Stream<Sim>, Stream<Sim>) {
    let allocator = |number| Allocator::builder(Sim::builder().bytes(true).build()).device(number).build().unwrap();
    (allocator(0).create_stream().unwrap(), allocator(1).create_stream().unwrap())
}

#[test]
fn bytes_go_to_another_allocators_buffer_and_back() {
    let (stream, other) = two_devices();
    let (ours, theirs) = (stream.allocate(512).unwrap(), other.allocate(512).unwrap());
    let beside = other.allocate(512).unwrap();
    other.fill(&beside, 0, 512, 4).unwrap();
    other.fill(&theirs, 0, 512, 5).unwrap();
    other.synchronize().unwrap();
    stream.copy((&theirs, 0), (&ours, 0), 512).unwrap();
    stream.fill(&ours, 1, 1, 6).unwrap();
    stream.copy((&ours, 0), (&theirs, 2), 3).unwrap();
    stream.synchronize().unwrap();
    let mut bytes = [0; 6];
    other.download(&theirs, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [5, 5, 5, 6, 5, 5]);
    let error = stream.copy((&ours, 0), (&theirs, 510), 3).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { offset: 510, bytes: 3, capacity: 512 }), "{error}");
    let error = stream.copy((&theirs, 511), (&ours, 0), 2).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { offset: 511, bytes: 2, capacity: 512 }), "{error}");
    stream.copy((&theirs, 512), (&ours, 0), 0).unwrap();
    let mut bytes = [0; 512];
    other.download(&beside, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [4; 512]);
}

#[test]
fn two_allocators_of_one_device_share_its_streams() {
    let sim = Sim::builder().bytes(true).build();
    let (device, pinned) =
        (Allocator::new(sim.clone()), Allocator::builder(sim.clone()).class(ClassId(1)).build().unwrap());
    let stream = device.create_stream().unwrap();
    let same = pinned.stream(stream.id()).unwrap();
    assert_eq!(pinned.settings().policy, Policy::Classic, "only the device's own memory comes in pages");
    let (ours, staged) = (stream.allocate(64).unwrap(), same.allocate(64).unwrap());
    stream.upload(&ours, 0, &[9; 64]).unwrap();
    stream.copy((&ours, 0), (&staged, 0), 64).unwrap();
    let mut bytes = [0; 64];
    same.download(&staged, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 64]);
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn a_device_that_cannot_move_bytes_is_named() {
    let stream = stream_on(Sim::builder().transfer(false).build());
    let buffer = stream.allocate(64).unwrap();
    let error = stream.fill(&buffer, 0, 8, 1).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what: "transfers", device, .. } if !device.is_empty()), "{error}");
    assert!(matches!(stream.download(&buffer, 0, &mut []).unwrap_err(), Error::Unsupported { .. }));
}

#[test]
fn what_the_driver_refuses_comes_with_its_own_error() {
    let stream = with_bytes();
    let buffer = stream.allocate(64).unwrap();
    let error = stream.copy((&buffer, 0), (&buffer, 4), 8).unwrap_err();
    assert!(matches!(error, Error::Driver { call: "copy", source: SimError::Overlap { .. }, .. }), "{error}");
}

#[test]
fn bytes_move_in_the_order_of_the_stream() {
    let sim = Sim::builder().bytes(true).completion(Completion::Manual).build();
    let allocator = Allocator::new(sim.clone());
    let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let buffer = stream.allocate(64).unwrap();
    stream.fill(&buffer, 0, 64, 5).unwrap();
    // The other stream's copy waits, on the device, for the fill.
    let result = other.allocate(64).unwrap();
    other.wait_for(stream.submit().unwrap()).unwrap();
    other.copy((&buffer, 0), (&result, 0), 64).unwrap();
    buffer.record_stream(&other).unwrap();
    drop(buffer);
    let mut bytes = [0; 64];
    other.download(&result, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [5; 64]);
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}
