//! Work on a simulated clock: how long it takes.

use std::time::Duration;

use millpond::Allocator;
use millpond_backend::{Backend as _, Point, StreamId};
use millpond_sim::{CostModel, Sim};

use crate::{Flight, Sharing, Timed};

const KERNEL: Duration = Duration::from_micros(10);

/// A device with streams, and work on it.
fn timed(sharing: Sharing) -> (Sim, [StreamId; 3], Timed<'static>) {
    let sim = Sim::new();
    let streams = [(); 3].map(|()| sim.create_stream().expect("a stream"));
    let timed = Timed::new(Box::new(sim.clone()), KERNEL, sharing);
    (sim, streams, timed)
}

/// Ends the work and returns what it has taken, in microseconds.
fn land(sim: &Sim, flight: &mut dyn Flight<Sim>) -> u128 {
    flight.land();
    assert_eq!(sim.queued(), 0, "all of it is complete");
    flight.clock().expect("it has a clock").as_micros()
}

fn begin(flight: &mut dyn Flight<Sim>, stream: StreamId) {
    flight.begin(stream).expect("no driver fails");
}

/// Three streams with 20 kernels each: the last is queued after 120 us.
#[test]
fn kernels_of_several_streams_share_the_device_or_do_not() {
    for (sharing, micros) in [(Sharing::SideBySide, 206), (Sharing::OneAtATime, 602)] {
        let (sim, streams, mut timed) = timed(sharing);
        (0..20).flat_map(|_| streams).for_each(|stream| begin(&mut timed, stream));
        assert_eq!(land(&sim, &mut timed), micros, "{sharing:?}");
    }
}

/// A stream that waits for another begins when that is done, and the time until then is lost only side by side.
#[test]
fn a_wait_costs_time_where_streams_run_side_by_side() {
    for (sharing, micros) in [(Sharing::SideBySide, 102 + 102), (Sharing::OneAtATime, 202)] {
        let (sim, [first, second, _], mut timed) = timed(sharing);
        (0..10).for_each(|_| begin(&mut timed, first));
        let point = Point { stream: first, tick: sim.mark(first) };
        sim.stream_wait().expect("waits").wait_for(second, point).expect("a wait");
        (0..10).for_each(|_| begin(&mut timed, second));
        let took = land(&sim, &mut timed);
        assert!(took.abs_diff(micros) <= 2, "{sharing:?}: {took}");
    }
}

/// The host is the limit where kernels take less than it needs to queue them, and waits where a queue is full.
#[test]
fn the_host_takes_time_and_waits_for_room() {
    let (sim, [first, ..], mut timed) = timed(Sharing::SideBySide);
    for _ in 0..5 {
        Flight::<Sim>::event(&mut timed);
    }
    assert_eq!(Flight::<Sim>::clock(&timed), Some(Duration::from_nanos(500)));
    (0..1024).for_each(|_| begin(&mut timed, first));
    let before = Flight::<Sim>::clock(&timed).expect("it has a clock");
    assert_eq!(before, Duration::from_nanos(500 + 1024 * 2000), "there was room");
    (0..2000).for_each(|_| begin(&mut timed, first));
    let after = Flight::<Sim>::clock(&timed).expect("it has a clock");
    let device = (2000 + 1024 - 1024) * 10_000;
    assert!(after.as_nanos().abs_diff(device) < 20_000, "the host goes as fast as the device: {after:?}");
    land(&sim, &mut timed);
}

/// Kernels of random lengths take as long as others on average, and equal seeds give equal times.
#[test]
fn kernels_may_differ_in_length() {
    let took = |percent, seed| {
        let (sim, [first, ..], timed) = timed(Sharing::OneAtATime);
        let mut timed = timed.varied(percent, seed);
        (0..1000).for_each(|_| begin(&mut timed, first));
        assert_eq!(sim.work_clock(), Flight::<Sim>::clock(&timed).map(|time| time.as_nanos() as u64));
        land(&sim, &mut timed)
    };
    let (even, one, other) = (took(0, 1), took(50, 1), took(50, 2));
    assert!(one != even && one != other && one.abs_diff(even) < 500, "{even} {one} {other}");
    assert_eq!(took(50, 1), one);
}

/// The first stream queues two kernels before the second queues one. When the first kernel ends, the second stream has
/// waited longer: the kernel behind it could not begin before.
#[test]
fn the_kernel_begins_that_could_begin_first() {
    let (sim, [first, second, _], mut timed) = timed(Sharing::OneAtATime);
    [first, first, second].into_iter().for_each(|stream| begin(&mut timed, stream));
    let [of_first, of_second] = [first, second].map(|stream| sim.mark(stream));
    // The kernels end 12, 22 and 32 us after the start.
    while Flight::<Sim>::clock(&timed) < Some(Duration::from_micros(25)) {
        Flight::<Sim>::event(&mut timed);
    }
    let is_over = |stream, tick| sim.reached(stream).expect("the device is there") >= tick;
    assert_eq!((is_over(first, of_first), is_over(second, of_second)), (false, true));
    land(&sim, &mut timed);
}

#[test]
fn the_host_takes_the_time_of_the_drivers_calls() {
    let sim = Sim::builder().cost(CostModel::h200()).build();
    let mut timed = Timed::new(Box::new(sim.clone()), KERNEL, Sharing::SideBySide);
    let before = sim.driver_clock().expect("a simulated clock");
    let allocator = Allocator::new(sim.clone());
    let block = allocator.create_stream().expect("a stream").allocate(4 << 20).expect("room");
    let spent = sim.driver_clock().expect("a simulated clock") - before;
    Flight::<Sim>::event(&mut timed);
    assert!(spent > 0);
    assert_eq!(Flight::<Sim>::clock(&timed), Some(Duration::from_nanos(100 + spent)), "an event takes 100 ns");
    drop(block);
}
