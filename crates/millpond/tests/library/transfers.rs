//! Transfers of bytes through streams: what arrives, and what is refused.

use millpond::backend::ClassId;
use millpond::settings::{Policy, Segments};
use millpond::{Allocator, Error, Keep, Stream};
use millpond_sim::{Completion, Misuse, Sim, SimError};

fn stream_on(sim: Sim) -> Stream<Sim> {
    Allocator::new(sim).create_stream().unwrap()
}

fn with_bytes() -> Stream<Sim> {
    stream_on(Sim::new())
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
fn a_device_that_was_told_nothing_keeps_what_is_written() {
    let stream = stream_on(Sim::new());
    let buffer = stream.allocate(8).unwrap();
    stream.upload(&buffer, 0, b"millpond").unwrap();
    let mut bytes = [0; 8];
    stream.download(&buffer, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"millpond");
}

#[test]
fn transfers_end_with_what_was_asked_for() {
    let stream = with_bytes();
    let past = stream.allocate(512).unwrap();
    stream.fill(&past, 0, 512, 0x5E).unwrap();
    drop(past);
    let (buffer, other) = (stream.allocate(16).unwrap(), stream.allocate(512).unwrap());
    assert_eq!((buffer.len(), buffer.capacity(), buffer.offset()), (16, 512, 0));
    let mut seen = [0; 512];
    let refused = [
        ("download", stream.download(&buffer, 0, &mut seen), (0, 512)),
        ("fill", stream.fill(&buffer, 15, 2, 4), (15, 2)),
        ("far fill", stream.fill(&buffer, u64::MAX, 2, 4), (u64::MAX, 2)),
        ("upload", stream.upload(&buffer, 16, &[0]), (16, 1)),
        ("copy from", stream.copy((&buffer, 8), (&other, 0), 9), (8, 9)),
        ("copy to", stream.copy((&other, 0), (&buffer, 1), 16), (1, 16)),
        ("fill of nothing", stream.fill(&buffer, 17, 0, 4), (17, 0)),
    ];
    assert_eq!(seen, [0; 512], "what the last owner left was read");
    for (call, answer, expected) in refused {
        match answer {
            Err(Error::OutOfRange { offset, bytes, len }) => {
                assert_eq!(((offset, bytes), len), (expected, 16), "{call}")
            }
            other => panic!("{call}: {other:?}"),
        }
    }
    let text = stream.upload(&buffer, 16, &[0]).unwrap_err().to_string();
    let expected = "1 bytes at offset 16 do not fit a buffer of 16 bytes, the requested length; the rounded \
                    block does not count, so allocate as many bytes as you use";
    assert_eq!(text, expected);
    stream.fill(&buffer, 0, 16, 4).unwrap();
    stream.fill(&buffer, 16, 0, 4).unwrap();
}

#[test]
fn no_bytes_are_moved_without_a_call_of_the_driver() {
    let sim = Sim::new();
    let stream = stream_on(sim.clone());
    let (buffer, empty) = (stream.allocate(64).unwrap(), stream.allocate(0).unwrap());
    let before = sim.calls().transfer;
    stream.fill(&empty, 0, 0, 1).unwrap();
    stream.upload(&empty, 0, &[]).unwrap();
    stream.download(&empty, 0, &mut []).unwrap();
    stream.copy((&empty, 0), (&buffer, 64), 0).unwrap();
    assert_eq!(sim.calls().transfer, before);
    stream.fill(&buffer, 0, 1, 1).unwrap();
    assert_eq!(sim.calls().transfer, before + 1);
    let error = stream.fill(&empty, 0, 1, 1).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { offset: 0, bytes: 1, len: 0 }), "{error}");
}

/// Memory that went back to the driver has no bytes: the driver is not asked for them.
#[test]
fn a_buffer_of_a_paused_group_is_refused() {
    let allocator = Allocator::new(Sim::new());
    let stream = allocator.create_stream().unwrap();
    let group = allocator.group("kv").unwrap();
    let (ours, kept) = (group.stream(stream.id()).unwrap().allocate(64).unwrap(), stream.allocate(64).unwrap());
    let pinned = allocator.pinned().unwrap().allocate(64).unwrap();
    let each = || {
        [
            stream.fill(&ours, 0, 8, 1),
            stream.upload(&ours, 0, &[1]),
            stream.download(&ours, 0, &mut [1]),
            stream.copy((&ours, 0), (&kept, 0), 8),
            stream.copy((&kept, 0), (&ours, 0), 8),
            stream.upload_pinned((&pinned, 0), (&ours, 0), 8),
            stream.fill(&kept, 0, 8, 1),
        ]
    };
    assert!(each().iter().all(Result::is_ok));
    group.pause(Keep::Discard).unwrap();
    let [inside @ .., outside] = each();
    for answer in inside {
        assert!(matches!(&answer, Err(Error::Paused { group }) if &**group == "kv"), "{answer:?}");
    }
    assert!(outside.is_ok());
    group.resume().unwrap();
    assert!(each().iter().all(Result::is_ok));
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
        let Error::WrongDevice { what: "buffer", belongs_to, given_to } = error else { panic!("{error}") };
        assert!(belongs_to.starts_with("device 1 ") && given_to.starts_with("device 0 "), "{belongs_to}, {given_to}");
    }
}

fn two_devices() -> (Stream<Sim>, Stream<Sim>) {
    let allocator = |number| Allocator::builder(Sim::new()).device(number).build().unwrap();
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
    assert!(matches!(error, Error::OutOfRange { offset: 510, bytes: 3, len: 512 }), "{error}");
    let error = stream.copy((&theirs, 511), (&ours, 0), 2).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { offset: 511, bytes: 2, len: 512 }), "{error}");
    stream.copy((&theirs, 512), (&ours, 0), 0).unwrap();
    let mut bytes = [0; 512];
    other.download(&beside, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [4; 512]);
}

#[test]
fn two_allocators_of_one_device_share_its_streams() {
    let sim = Sim::new();
    let (device, pinned) =
        (Allocator::new(sim.clone()), Allocator::builder(sim.clone()).class(ClassId(1)).build().unwrap());
    let stream = device.create_stream().unwrap();
    let same = pinned.stream(stream.id()).unwrap();
    assert_eq!(
        pinned.settings().policy,
        Policy::Classic(Segments::Plain),
        "only the device's own memory comes in pages"
    );
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
    assert!(
        matches!(error, Error::Driver { call: "copy", source: SimError::Misuse(Misuse::Overlap { .. }), .. }),
        "{error}"
    );
}

#[test]
fn bytes_move_in_the_order_of_the_stream() {
    let sim = Sim::builder().completion(Completion::Manual).build();
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
