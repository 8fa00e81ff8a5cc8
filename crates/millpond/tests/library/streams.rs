//! Submitting streams, waiting for them, and waits of one stream for another.

use millpond::backend::{Backend, Closing, Point, Tick};
use millpond::{Allocator, Error, Stream};
use millpond_sim::{Completion, Sim, SimBuilder, SimError};

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
