//! Tests of what keeps an allocator alive: its handles and its buffers, including those of 0 bytes.

use std::sync::Barrier;
use std::thread;

use millpond::backend::{Backend, Budget, ClassId, Closing, Transfer};
use millpond::{Allocator, Readiness};
use millpond_sim::Sim;

/// Returns the bytes that the device's allocators hold: none once the allocators are dropped.
fn reserved(sim: &Sim) -> u64 {
    let total = sim.caps().class(ClassId::DEVICE).total_bytes;
    total - Budget::budget(sim, ClassId::DEVICE).unwrap().free_bytes
}

#[test]
fn a_buffer_of_nothing_keeps_what_it_refers_to() {
    let sim = Sim::new();
    let allocator = Allocator::new(sim.clone());
    let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    drop(stream.allocate(100).unwrap());
    let (one, two) = (stream.allocate(0).unwrap(), stream.allocate(0).unwrap());
    let point = other.point();
    assert_eq!(allocator.memory_allocated(), 0);
    drop((stream, other, allocator));
    assert_ne!(reserved(&sim), 0, "the allocator has gone while a buffer refers to it");
    drop(one);
    assert_eq!(two.readiness(), Readiness::Fresh);
    two.used_until(point).unwrap();
    assert_eq!((two.len(), two.segment_id()), (0, None));
    drop(two);
    assert_eq!(reserved(&sim), 0, "the last buffer has taken the allocator with it");
}

#[test]
fn buffers_of_nothing_and_of_something_go_in_any_order() {
    for something_first in [true, false] {
        let sim = Sim::new();
        let allocator = Allocator::new(sim.clone());
        let stream = allocator.create_stream().unwrap();
        let (nothing, something) = (stream.allocate(0).unwrap(), stream.allocate(100).unwrap());
        drop((stream, allocator));
        let last: Box<dyn Send> = if something_first {
            drop(something);
            Box::new(nothing)
        } else {
            drop(nothing);
            Box::new(something)
        };
        assert_ne!(reserved(&sim), 0);
        drop(last);
        assert_eq!(reserved(&sim), 0);
    }
}

/// Buffers of two streams and the handles are dropped on four threads at once, in any order. The last one drops the
/// allocator, while other threads are still returning from their drops. This is mostly for address sanitizers.
#[test]
fn the_last_of_everything_goes_on_some_thread() {
    const ROUNDS: u64 = 300;
    for round in 0..ROUNDS {
        let sim = Sim::new();
        let allocator = Allocator::new(sim.clone());
        let (one, two) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
        let [a, b, c] = [&one, &one, &two].map(|stream| stream.allocate(1000).unwrap());
        if round % 2 == 0 {
            b.record_stream(&two).unwrap();
        }
        let nothing = two.allocate(0).unwrap();
        let start = Barrier::new(4);
        let parts: [Box<dyn Send>; 4] =
            [Box::new(a), Box::new((b, nothing)), Box::new(c), Box::new((one, two, allocator))];
        thread::scope(|scope| {
            for part in parts {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    drop(part);
                });
            }
        });
        assert_eq!((reserved(&sim), sim.violations().len()), (0, 0), "round {round}");
    }
}

#[test]
fn a_pinned_buffer_of_nothing_outlives_its_cache() {
    let sim = Sim::builder().build();
    let allocator = Allocator::new(sim.clone());
    let (stream, cache) = (allocator.create_stream().unwrap(), allocator.pinned().unwrap());
    let mut nothing = cache.allocate(0).unwrap();
    nothing.record_use(&stream).unwrap();
    drop((stream, cache, allocator));
    nothing.wait().unwrap();
    assert!(nothing.bytes_mut().unwrap().is_empty());
}

/// The stream of the buffer is done. Work of another stream, which may touch the buffer, is recorded and not submitted.
#[test]
fn memory_that_recorded_work_of_another_stream_may_touch_is_left() {
    let sim = Sim::builder().closing(Closing::Submit).build();
    let allocator = Allocator::builder(sim.clone()).conf("policy:classic").build().unwrap();
    let (home, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let (home_id, other_id) = (home.id(), other.id());
    let buffer = home.allocate(1 << 20).unwrap();
    buffer.record_stream(&other).unwrap();
    sim.fill(other_id, buffer.segment().unwrap(), buffer.offset(), 64, 1).unwrap();
    drop(buffer);
    sim.submit(home_id).unwrap();
    drop((home, other, allocator));
    assert_ne!(reserved(&sim), 0, "the fill is to come");
    sim.submit(other_id).unwrap();
    sim.reached(other_id).unwrap();
    assert_eq!((reserved(&sim), sim.violations().len()), (0, 0));
}
