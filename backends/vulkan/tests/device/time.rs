//! Ticks: closed by submits, reached when the device reports it, and not waited for without a submit.

use std::time::{Duration, Instant};

use millpond_backend::{Backend, Fault, Point, StreamId, Tick, Transfer};
use millpond_vulkan::{Planned, VulkanError};

use crate::lab::{Lab, Latch};

fn point(stream: StreamId, tick: u64) -> Point {
    Point { stream, tick: Tick(tick) }
}

#[test]
fn a_submit_closes_the_open_tick_whether_anything_was_recorded_or_not() {
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    assert_eq!((lab.mark(stream), lab.reached(stream).unwrap()), (Tick(1), Tick::ZERO));
    assert_eq!(lab.submit(stream).unwrap(), Tick(1));
    lab.record(stream, |_| ()).unwrap();
    assert_eq!(lab.mark(stream), Tick(2));
    assert_eq!(lab.finish(stream), Tick(2));
    assert_eq!((lab.mark(stream), lab.reached(stream).unwrap()), (Tick(3), Tick(2)));
}

#[test]
fn work_is_in_flight_until_its_latch_is_opened() {
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    let latch = Latch::new(&lab);
    let tick = latch.submit(stream);
    let behind = lab.submit(stream).unwrap();
    for _ in 0..100 {
        assert_eq!(lab.reached(stream).unwrap(), Tick::ZERO);
    }
    latch.open();
    assert!(lab.wait(Point { stream, tick }).unwrap() >= tick);
    assert_eq!(lab.wait(Point { stream, tick: behind }).unwrap(), behind);
}

#[test]
fn work_that_was_never_submitted_is_not_waited_for() {
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    lab.record(stream, |_| ()).unwrap();
    let open = Point { stream, tick: lab.mark(stream) };
    let began = Instant::now();
    assert_eq!(lab.wait(open).unwrap(), Tick::ZERO);
    assert_eq!(lab.wait(point(stream, u64::MAX)).unwrap(), Tick::ZERO);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(lab.finish(stream), open.tick);
    assert_eq!(lab.wait(point(stream, u64::MAX)).unwrap(), open.tick);
}

#[test]
fn streams_that_share_a_queue_have_clocks_of_their_own() {
    let Some(lab) = Lab::open() else { return };
    let queue = lab.queues()[0].0;
    let streams: Vec<StreamId> = (0..3).map(|_| lab.stream_on(queue.0, queue.1).unwrap()).collect();
    assert_eq!(streams, [StreamId(0), StreamId(1), StreamId(2)]);
    lab.finish(streams[1]);
    lab.finish(streams[1]);
    lab.finish(streams[2]);
    let reached: Vec<u64> = streams.iter().map(|&stream| lab.reached(stream).unwrap().0).collect();
    assert_eq!(reached, [0, 2, 1]);
    assert!(streams.windows(2).all(|pair| lab.queue_of(pair[0]) == lab.queue_of(pair[1])));
}

#[test]
fn streams_are_spread_over_the_queues_that_compute() {
    let Some(lab) = Lab::open() else { return };
    let compute = millpond_vulkan::ash::vk::QueueFlags::COMPUTE | millpond_vulkan::ash::vk::QueueFlags::GRAPHICS;
    let queues = lab.queues().into_iter().filter(|(_, flags)| flags.intersects(compute)).count();
    let mut used = std::collections::HashSet::new();
    for _ in 0..queues {
        used.insert(lab.queue_of(lab.create_stream().unwrap()).1);
    }
    assert_eq!(used.len(), queues, "each queue has its turn");
    assert!(used.contains(&lab.queue_of(lab.create_stream().unwrap()).1), "then they are shared");
}

#[test]
fn what_a_failed_submit_left_goes_with_the_next() {
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    let segment = lab.segment(4096);
    lab.fill(stream, &segment, 0, 4096, 7).unwrap();
    let covered = Point { stream, tick: lab.mark(stream) };
    lab.fail_nth(1, Fault::OutOfMemory);
    let error = lab.submit(stream).unwrap_err();
    assert!(
        matches!(error, VulkanError::Planned(Planned { call: "vkQueueSubmit2", fault: Fault::OutOfMemory })),
        "{error}"
    );
    assert!(lab.wait(covered).unwrap() < covered.tick, "nothing was submitted, and nothing is waited for");
    assert!(lab.finish(stream) >= covered.tick);
    assert_eq!(lab.read(stream, &segment, 0, 4096), [7; 4096]);
    lab.give_back(segment);
}

#[test]
fn a_held_stream_runs_on_when_it_is_let_go() {
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    for _ in 0..3 {
        lab.hold(stream).unwrap();
        let tick = lab.submit(stream).unwrap();
        assert!(lab.reached(stream).unwrap() < tick);
        lab.unhold(stream);
        assert_eq!(lab.wait(Point { stream, tick }).unwrap(), tick);
    }
    lab.unhold(stream);
    lab.finish(stream);
}

#[test]
fn a_wait_that_a_hold_would_make_endless_ends_it() {
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    lab.hold(stream).unwrap();
    lab.finish(stream);
}

#[test]
fn threads_that_mark_and_look_never_see_a_tick_before_its_work() {
    let Some(lab) = Lab::open() else { return };
    let stream = lab.create_stream().unwrap();
    let lab = &lab;
    std::thread::scope(|scope| {
        scope.spawn(move || (0..500).for_each(|_| assert!(lab.submit(stream).is_ok())));
        for _ in 0..2 {
            scope.spawn(move || {
                let (mut marked, mut reached) = (Tick::ZERO, Tick::ZERO);
                while reached < Tick(500) {
                    let now = lab.reached(stream).unwrap();
                    let open = lab.mark(stream);
                    assert!(now >= reached && open >= marked && now < open, "{now} reached, {open} open");
                    (marked, reached) = (open, now);
                }
            });
        }
    });
}
