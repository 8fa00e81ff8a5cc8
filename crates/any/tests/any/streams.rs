//! Streams and their order, buffers, and transfers.

use std::cell::Cell;

use millpond_any::millpond::backend::Closing;
use millpond_any::millpond::{Error, Readiness};
use millpond_any::millpond_sim::{Sim, Work};
use millpond_any::{AnyError, ErrorKind, Point, StreamId, Tick};

use crate::{on, read, two_streams};

#[test]
fn a_buffer_tells_what_the_typed_form_tells() {
    let (_, _, [stream, other]) = two_streams();
    let first = stream.allocate(1000).unwrap();
    let second = stream.allocate(500).unwrap();
    let typed = second.as_sim().unwrap();
    assert_eq!((second.len(), second.capacity(), second.offset()), (500, 512, 1024));
    assert_eq!((second.address(), second.segment_id()), (typed.address(), typed.segment_id()));
    assert_eq!(second.address().unwrap() - first.address().unwrap(), 1024);
    assert_eq!(second.stream(), stream.id());
    assert_eq!(second.readiness(), Readiness::Fresh);
    assert!(!second.is_empty() && stream.allocate(0).unwrap().is_empty());
    assert_ne!(stream.id(), other.id());
    assert_eq!(format!("{second:?}"), format!("Sim({typed:?})"));
}

#[test]
fn a_hit_calls_no_driver() {
    let (_, allocator, [stream, _]) = two_streams();
    drop(stream.allocate(1 << 20).unwrap());
    let before = allocator.driver_activity();
    for bytes in [1 << 20, 1000, 1] {
        drop(stream.allocate(bytes).unwrap());
    }
    assert_eq!(allocator.driver_activity().since(before).calls, 0);
}

#[test]
fn memory_is_kept_from_others_while_another_stream_uses_it() {
    let sim = Sim::builder().stream_wait(false).build();
    let allocator = on(&sim);
    let (home, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let mut addresses = Vec::new();
    // Until the free, and up to a point.
    for until_a_point in [false, true] {
        let buffer = home.allocate(1 << 20).unwrap();
        sim.busy(other.id());
        match until_a_point {
            false => buffer.record_stream(&other).unwrap(),
            true => buffer.used_until(other.point()).unwrap(),
        }
        let address = buffer.address();
        drop(buffer);
        let next = home.allocate(1 << 20).unwrap();
        assert_ne!(next.address(), address);
        addresses.push(address);
        sim.complete_all();
    }
    assert!(sim.violations().is_empty());
}

#[test]
fn points_are_marked_waited_for_and_reached() {
    let (sim, allocator, [stream, _]) = two_streams();
    sim.launch(stream.id(), Work::Busy);
    let point = stream.point();
    assert_eq!(point.stream, stream.id());
    assert!(!allocator.reached(point).unwrap(), "a kernel is on the stream");
    allocator.wait(point).unwrap();
    assert!(allocator.reached(point).unwrap());
    sim.launch(stream.id(), Work::Busy);
    let later = stream.submit().unwrap();
    assert!(later.tick > point.tick && !allocator.reached(later).unwrap());
    stream.synchronize().unwrap();
    assert!(allocator.reached(later).unwrap());
}

#[test]
fn where_the_application_submits_nothing_is_reached_before() {
    let sim = Sim::builder().closing(Closing::Submit).build();
    let allocator = on(&sim);
    let stream = allocator.create_stream().unwrap();
    let buffer = stream.allocate(8).unwrap();
    stream.fill(&buffer, 0, 8, 1).unwrap();
    let point = stream.point();
    let error = allocator.wait(point).unwrap_err();
    assert!(matches!(error, AnyError::Allocator(Error::NotReached { .. })), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::NotReady);
    assert_eq!(stream.submit().unwrap(), point);
    allocator.wait(point).unwrap();
    assert!(allocator.reached(point).unwrap());
}

#[test]
fn points_of_strangers_and_of_the_future_are_refused() {
    let (_, allocator, [stream, other]) = two_streams();
    let nowhere = Point { stream: StreamId(9), tick: Tick(1) };
    let future = Point { stream: other.id(), tick: Tick(1000) };
    let buffer = stream.allocate(8).unwrap();
    let unknown = [
        allocator.wait(nowhere),
        allocator.reached(nowhere).map(drop),
        stream.wait_for(nowhere),
        buffer.used_until(nowhere),
    ];
    for error in unknown.map(Result::unwrap_err) {
        assert!(matches!(error, AnyError::Allocator(Error::UnknownStream { .. })), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Input);
    }
    for error in [stream.wait_for(future), buffer.used_until(future)].map(Result::unwrap_err) {
        assert!(matches!(error, AnyError::Allocator(Error::NotMarked { .. })), "{error:?}");
    }
}

#[test]
fn one_stream_waits_for_another_on_the_device() {
    let (sim, _, [first, second]) = two_streams();
    let buffer = first.allocate(8).unwrap();
    sim.launch(first.id(), Work::Busy);
    first.upload(&buffer, 0, b"millpond").unwrap();
    second.wait_for(first.submit().unwrap()).unwrap();
    buffer.record_stream(&second).unwrap();
    assert_eq!(read(&second, &buffer), b"millpond");
    assert!(sim.violations().is_empty());
}

#[test]
fn bytes_are_moved() {
    let (_, _, [stream, _]) = two_streams();
    let (from, to) = (stream.allocate(8).unwrap(), stream.allocate(8).unwrap());
    stream.upload(&from, 1, b"ponds").unwrap();
    stream.fill(&from, 0, 1, b'm').unwrap();
    stream.fill(&to, 0, 8, b'.').unwrap();
    stream.copy((&from, 0), (&to, 2), 5).unwrap();
    assert_eq!(read(&stream, &to), b"..mpond.");
    let mut two = [0; 2];
    stream.download(&to, 3, &mut two).unwrap();
    assert_eq!(&two, b"po");
}

#[test]
fn the_program_prepares_once_and_only_for_a_miss() {
    let (_, _, [stream, _]) = two_streams();
    let calls = Cell::new(0);
    let prepare = || {
        calls.set(calls.get() + 1);
        Ok(())
    };
    drop(stream.allocate_prepared(1000, prepare).unwrap());
    drop(stream.allocate_prepared(1000, prepare).unwrap());
    assert_eq!(calls.get(), 1);
}

#[test]
fn an_error_of_the_preparation_is_returned_as_it_is() {
    let (_, allocator, [stream, _]) = two_streams();
    let why = AnyError::Name { name: "nowhere".into(), why: "it was made up".into() };
    let error = stream.allocate_prepared(1000, || Err(why)).unwrap_err();
    assert!(matches!(&error, AnyError::Name { name, .. } if name == "nowhere"), "{error:?}");
    assert_eq!(allocator.memory_reserved(), 0);
}
