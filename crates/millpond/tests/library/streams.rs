//! Submitting streams, waiting for them, and waits of one stream for another.

use millpond::backend::{Backend, Closing, Point, Tick};
use millpond::text::with_causes;
use millpond::{Allocator, Error, ErrorKind, Stream};
use millpond_sim::{CallKind, Completion, Sim, SimBuilder, SimError};

fn pair(builder: SimBuilder) -> (Sim, Stream<Sim>, Stream<Sim>) {
    let sim = builder.completion(Completion::Manual).build();
    let allocator = Allocator::new(sim.clone());
    (sim, allocator.create_stream().unwrap(), allocator.create_stream().unwrap())
}

#[test]
fn a_submit_answers_the_point_that_covers_the_work() {
    for (closing, next) in [(Closing::Submit, Tick(2)), (Closing::Backend, Tick(1))] {
        let (sim, stream, _) = pair(Sim::builder().closing(closing));
        sim.busy(stream.id());
        let point = stream.submit().unwrap();
        assert_eq!((point.stream, point.tick, sim.mark(stream.id())), (stream.id(), Tick(1), next), "{closing:?}");
    }
}

#[test]
fn to_synchronize_is_to_submit_and_to_wait_for_all_of_it() {
    for closing in [Closing::Submit, Closing::Backend] {
        let (sim, stream, _) = pair(Sim::builder().closing(closing));
        sim.busy(stream.id());
        let point = stream.point();
        assert_eq!(sim.reached(stream.id()).unwrap(), Tick::ZERO, "{closing:?}");
        stream.synchronize().unwrap();
        assert!(sim.reached(stream.id()).unwrap() >= point.tick, "{closing:?}");
    }
}

#[test]
fn work_behind_a_wait_begins_only_after_the_point() {
    let (sim, stream, other) = pair(Sim::builder());
    sim.busy(other.id());
    stream.wait_for(other.submit().unwrap()).unwrap();
    sim.busy(stream.id());
    let covered = stream.submit().unwrap();
    sim.complete(stream.id());
    assert!(sim.reached(stream.id()).unwrap() < covered.tick, "the other stream still works");
    sim.complete(other.id());
    sim.complete(stream.id());
    assert!(sim.reached(stream.id()).unwrap() >= covered.tick);
}

#[test]
fn a_device_without_waits_is_named() {
    let (_, stream, other) = pair(Sim::builder().stream_wait(false));
    let error = stream.wait_for(other.point()).unwrap_err();
    assert!(matches!(&error, Error::Unsupported { what: "device-side waits", .. }), "{error}");
    assert!(error.to_string().contains("synchronize"), "{error}");
}

#[test]
fn a_point_of_an_unknown_stream_is_refused() {
    let (sim, stream, _) = pair(Sim::builder());
    let id = sim.create_stream().unwrap();
    let point = millpond::backend::Point { stream: id, tick: sim.mark(id) };
    let error = stream.wait_for(point).unwrap_err();
    assert!(matches!(error, Error::UnknownStream { stream } if stream == id), "{error}");
}

/// Memory that waited for such a point would be lost, because the work may never be recorded.
#[test]
fn a_point_in_the_future_is_refused() {
    for closing in [Closing::Submit, Closing::Backend] {
        let sim = Sim::builder().closing(closing).completion(Completion::Manual).build();
        let allocator = Allocator::new(sim.clone());
        let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
        let buffer = stream.allocate(1000).unwrap();
        sim.busy(other.id());
        let now = other.point();
        let future = Point { tick: Tick(now.tick.0 + 1), ..now };
        for answer in [buffer.used_until(future), stream.wait_for(future)] {
            let error = answer.unwrap_err();
            let Error::NotMarked { point, marked } = &error else { panic!("{closing:?}: {error}") };
            assert_eq!((*point, *marked), (future, now.tick), "{closing:?}");
            let text = error.to_string();
            let both = [future.to_string(), format!("newest tick of the stream is {}", now.tick)];
            assert!(both.iter().all(|tick| text.contains(tick)), "{text}");
        }
        buffer.used_until(now).unwrap();
        drop(buffer);
        // Under `paged`, the default where there are pages, the block is free for whoever comes after the point.
        assert_eq!(allocator.ledger().guarded_bytes, 1024, "{closing:?}: {now} is not over");
        other.submit().unwrap();
        sim.complete(other.id());
        allocator.poll().unwrap();
        assert_eq!(allocator.ledger().guarded_bytes, 0, "{closing:?}: all that was recorded is over");
    }
}

#[test]
fn streams_that_wait_for_each_other_end_in_an_error() {
    let (sim, stream, other) = pair(Sim::builder().closing(Closing::Submit));
    // The other stream's open tick covers a wait for this stream's open tick.
    stream.wait_for(other.point()).unwrap();
    other.wait_for(stream.point()).unwrap();
    sim.busy(stream.id());
    let error = stream.synchronize().unwrap_err();
    assert!(matches!(error, Error::NotReached { reached: Tick::ZERO, .. }), "{error}");
}

/// What to do about a failure is in the driver's own text, so the error has it.
#[test]
fn a_failed_call_is_told_in_the_drivers_words_and_once() {
    let (sim, stream, _) = pair(Sim::builder());
    sim.kill();
    let error = stream.submit().unwrap_err();
    let text = format!("the driver failed in `submit`: {}; drop the allocator and start anew", SimError::Lost);
    assert_eq!((error.to_string(), with_causes(&error)), (text.clone(), text));
}

#[test]
fn a_lost_device_is_an_error_of_the_driver() {
    let (sim, stream, other) = pair(Sim::builder());
    sim.busy(other.id());
    sim.kill();
    for (call, answer) in [("wait_for", stream.wait_for(other.point())), ("submit", stream.submit().map(drop))] {
        match answer {
            Err(Error::Driver { call: named, lost: true, source: SimError::Lost }) => assert_eq!(named, call),
            other => panic!("{call}: {other:?}"),
        }
    }
}

/// A stream ends with its last handle, whatever its buffers do. The next one is the same queue, so its buffers come
/// after the work of the old ones.
#[test]
fn a_stream_whose_handles_are_gone_is_created_again() {
    for conf in ["policy:classic", "policy:paged", "policy:direct"] {
        let sim = Sim::new();
        let allocator = Allocator::builder(sim.clone()).conf(conf).build().unwrap();
        let (first, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
        let id = first.id();
        assert_ne!(id, other.id());
        let buffer = first.allocate(4 << 20).unwrap();
        let pool = allocator.create_pool().unwrap();
        let (clone, by_number, inside) = (first.clone(), allocator.stream(id).unwrap(), pool.stream(id).unwrap());
        for handle in [inside, by_number, clone, first] {
            let third = allocator.create_stream().unwrap();
            assert!(third.id() != id && third.id() != other.id(), "{conf}: a stream has a handle and is created");
            drop(third);
            drop(handle);
        }
        let again = allocator.create_stream().unwrap();
        assert_eq!(again.id(), id, "{conf}");
        let second = again.allocate(4 << 20).unwrap();
        drop((buffer, second));
        drop((again, other, pool));
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(), 0, "{conf}");
        assert_eq!(sim.calls().of(CallKind::CreateStream), 3, "{conf}");
    }
}

/// What is queued on a stream that is being captured goes into a graph: nobody gets that stream.
#[test]
fn a_stream_that_is_being_captured_is_not_created_again() {
    let allocator = Allocator::new(Sim::new());
    let stream = allocator.create_stream().unwrap();
    let id = stream.id();
    let capture = stream.begin_capture().unwrap();
    drop(stream);
    let other = allocator.create_stream().unwrap();
    assert_ne!(other.id(), id);
    drop(capture);
    assert_eq!(allocator.create_stream().unwrap().id(), id);
}

/// Threads create and drop streams, and no two have the same one at the same time.
#[test]
fn threads_never_have_the_same_stream() {
    let allocator = Allocator::new(Sim::new());
    let held = std::sync::Mutex::new(std::collections::BTreeSet::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for turn in 0..2_000 {
                    let stream = allocator.create_stream().unwrap();
                    assert!(held.lock().unwrap().insert(stream.id()), "{stream:?} is held twice");
                    let by_number = (turn % 2 == 0).then(|| allocator.stream(stream.id()).unwrap());
                    held.lock().unwrap().remove(&stream.id());
                    // Not before this may anybody get it.
                    drop((stream, by_number));
                }
            });
        }
    });
    let most = allocator.create_stream().unwrap().id().0;
    assert!(most < 8, "{most} streams were created for 8 threads");
}

#[test]
fn an_allocator_says_whether_a_point_is_reached_and_waits_for_it() {
    let sim = Sim::builder().completion(Completion::Manual).build();
    let allocator = Allocator::new(sim.clone());
    let stream = allocator.create_stream().unwrap();
    sim.busy(stream.id());
    let point = stream.point();
    assert!(!allocator.reached(point).unwrap(), "a kernel is on the stream");
    allocator.wait(point).unwrap();
    assert!(allocator.reached(point).unwrap());
    let nowhere = Point { stream: millpond::backend::StreamId(9), ..point };
    for answer in [allocator.wait(nowhere), allocator.reached(nowhere).map(drop)] {
        let error = answer.unwrap_err();
        assert!(matches!(error, Error::UnknownStream { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Input);
    }
}

#[test]
fn a_wait_for_work_that_was_not_submitted_ends_with_an_error() {
    let sim = Sim::builder().closing(Closing::Submit).build();
    let allocator = Allocator::new(sim.clone());
    let stream = allocator.create_stream().unwrap();
    let buffer = stream.allocate(8).unwrap();
    stream.fill(&buffer, 0, 8, 1).unwrap();
    let point = stream.point();
    let error = allocator.wait(point).unwrap_err();
    assert!(matches!(error, Error::NotReached { .. }) && error.kind() == ErrorKind::NotReady, "{error}");
    assert!(error.out_of_memory().is_none() && error.driver().is_none());
    assert_eq!(stream.submit().unwrap(), point);
    allocator.wait(point).unwrap();
    assert!(allocator.reached(point).unwrap());
    sim.kill();
    let error = allocator.reached(point).unwrap_err();
    assert!(error.kind() == ErrorKind::Lost && error.driver().is_some(), "{error}");
}
