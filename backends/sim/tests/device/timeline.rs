//! Ticks: marking, closing, reaching and waiting, with both ways of closing them.

use millpond_backend::{Backend, Closing, Point, StreamId, StreamWait, Tick};
use millpond_sim::{Misuse, Sim, SimError, Work};

fn submitting() -> Sim {
    Sim::builder().closing(Closing::Submit).build()
}

fn reached(sim: &Sim, stream: StreamId) -> u64 {
    sim.reached(stream).unwrap().0
}

#[test]
fn ticks_begin_at_one_and_marks_close_nothing() {
    let sim = Sim::new();
    let stream = sim.create_stream().unwrap();
    assert_eq!(sim.mark(stream), Tick(1));
    assert_eq!(sim.mark(stream), Tick(1));
    assert_eq!(reached(&sim, stream), 1);
    assert_eq!(sim.mark(stream), Tick(2));
}

#[test]
fn reached_makes_no_driver_call_when_nothing_is_outstanding() {
    let sim = Sim::new();
    let stream = sim.create_stream().unwrap();
    for _ in 0..10 {
        assert_eq!(reached(&sim, stream), 0);
    }
    assert_eq!(sim.calls().reached, 0);
    sim.mark(stream);
    for _ in 0..10 {
        assert_eq!(reached(&sim, stream), 1);
    }
    assert_eq!((sim.calls().reached, sim.calls().record), (1, 1));
}

#[test]
fn a_mark_before_a_busy_kernel_is_reached_and_one_after_it_is_not() {
    let sim = Sim::new();
    let stream = sim.create_stream().unwrap();
    let before = sim.mark(stream);
    assert_eq!(sim.busy(stream), Tick(before.0 + 1), "the marked tick was closed before the kernel");
    assert_eq!(sim.reached(stream).unwrap(), before);
    let after = sim.mark(stream);
    assert_eq!(sim.reached(stream).unwrap(), before);
    assert_eq!(sim.reached(stream).unwrap(), before);
    assert_eq!(sim.calls().reached, 2, "an unreached tick costs a query each time; the first answer needed none");
    sim.synchronize();
    assert_eq!(sim.reached(stream).unwrap(), after);
}

#[test]
fn work_behind_a_busy_kernel_waits_for_it_and_other_streams_do_not() {
    let sim = Sim::new();
    let [a, b] = sim.open_streams(2)[..] else { panic!("two streams") };
    sim.busy(a);
    sim.launch(a, Work::Kernel);
    sim.launch(b, Work::Kernel);
    let (on_a, on_b) = (sim.mark(a), sim.mark(b));
    assert!(sim.reached(a).unwrap() < on_a);
    assert_eq!(sim.reached(b).unwrap(), on_b);
    assert_eq!(sim.wait(Point { stream: a, tick: on_a }).unwrap(), on_a);
    assert_eq!(sim.queued(), 0);
}

#[test]
fn waiting_for_a_point_leaves_later_work_running() {
    let sim = Sim::new();
    let stream = sim.create_stream().unwrap();
    sim.busy(stream);
    let first = sim.mark(stream);
    sim.busy(stream);
    let second = sim.mark(stream);
    assert_eq!(sim.wait(Point { stream, tick: first }).unwrap(), first);
    assert!(sim.reached(stream).unwrap() < second);
    assert_eq!(sim.queued(), 1);
    assert_eq!(sim.wait(Point { stream, tick: first }).unwrap(), first, "a reached point needs no wait");
    assert_eq!(sim.calls().wait, 1);
}

#[test]
fn with_submit_a_tick_is_reached_only_after_its_submit() {
    let sim = submitting();
    let stream = sim.create_stream().unwrap();
    sim.launch(stream, Work::Kernel);
    let tick = sim.mark(stream);
    assert_eq!(reached(&sim, stream), 0);
    assert_eq!(sim.wait(Point { stream, tick }).unwrap(), Tick::ZERO, "unsubmitted work is never waited for");
    assert_eq!(sim.mark(stream), tick, "asking closed nothing");
    assert_eq!(sim.submit(stream).unwrap(), tick);
    assert_eq!(sim.reached(stream).unwrap(), tick);
    assert_eq!(sim.submit(stream).unwrap(), Tick(2), "an empty submit closes a tick");
    assert_eq!(reached(&sim, stream), 2);
    assert_eq!(sim.calls().record, 0);
}

#[test]
fn with_submit_work_queued_after_a_mark_joins_the_marked_tick() {
    let sim = submitting();
    let stream = sim.create_stream().unwrap();
    let tick = sim.mark(stream);
    assert_eq!(sim.busy(stream), tick);
    sim.submit(stream).unwrap();
    assert!(sim.reached(stream).unwrap() < tick);
    assert_eq!(sim.wait(Point { stream, tick }).unwrap(), tick);
}

#[test]
fn a_device_side_wait_holds_a_stream_until_the_point() {
    let sim = Sim::new();
    let [a, b] = sim.open_streams(2)[..] else { panic!("two streams") };
    sim.busy(a);
    let point = Point { stream: a, tick: sim.mark(a) };
    StreamWait::wait_for(&sim, b, point).unwrap();
    let behind = sim.mark(b);
    assert!(sim.reached(b).unwrap() < behind);
    let _ = sim.wait(point).unwrap();
    assert_eq!(sim.reached(b).unwrap(), behind, "the wait on the device ended with the point");
}

#[test]
fn a_host_wait_follows_device_side_waits() {
    let sim = Sim::new();
    let streams = sim.open_streams(3);
    sim.busy(streams[0]);
    for pair in streams.windows(2) {
        StreamWait::wait_for(&sim, pair[1], Point { stream: pair[0], tick: sim.mark(pair[0]) }).unwrap();
        sim.busy(pair[1]);
    }
    let last = Point { stream: streams[2], tick: sim.mark(streams[2]) };
    assert_eq!(sim.wait(last).unwrap(), last.tick);
    assert_eq!(sim.queued(), 0);
}

#[test]
fn waiting_for_an_unmarked_point_is_an_error() {
    let sim = Sim::new();
    let [a, b] = sim.open_streams(2)[..] else { panic!("two streams") };
    let point = Point { stream: a, tick: Tick(1) };
    assert_eq!(StreamWait::wait_for(&sim, b, point), Err(SimError::Misuse(Misuse::NeverMarked { point, open: 1 })));
    sim.mark(a);
    assert_eq!(StreamWait::wait_for(&sim, b, point), Ok(()));
    let later = Point { stream: a, tick: Tick(9) };
    assert_eq!(
        StreamWait::wait_for(&sim, b, later),
        Err(SimError::Misuse(Misuse::NeverMarked { point: later, open: 2 }))
    );
}

#[test]
fn a_circle_of_waits_does_not_hang_the_host() {
    let sim = submitting();
    let [a, b] = sim.open_streams(2)[..] else { panic!("two streams") };
    StreamWait::wait_for(&sim, a, Point { stream: b, tick: Tick(1) }).unwrap();
    StreamWait::wait_for(&sim, b, Point { stream: a, tick: Tick(1) }).unwrap();
    sim.submit(a).unwrap();
    sim.submit(b).unwrap();
    assert_eq!(sim.wait(Point { stream: a, tick: Tick(1) }).unwrap(), Tick::ZERO);
    sim.synchronize();
    assert_eq!(sim.queued(), 2);
}

#[test]
fn marks_and_polls_from_many_threads_never_lose_a_tick() {
    let sim = Sim::new();
    let stream = sim.create_stream().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let tick = sim.mark(stream);
                    // Another thread's close may come before this poll, but then the next poll sees it.
                    while sim.reached(stream).unwrap() < tick {
                        std::hint::spin_loop();
                    }
                }
            });
        }
    });
    assert!(reached(&sim, stream) > 0);
}

#[test]
#[should_panic(expected = "stream 3 asked of a device that has 1 streams")]
fn a_foreign_stream_panics() {
    let sim = Sim::new();
    sim.create_stream().unwrap();
    sim.mark(StreamId(3));
}
