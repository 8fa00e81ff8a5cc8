//! Work on a simulated clock: how long it takes.

use std::time::Duration;

use millpond_backend::{Backend as _, Point, StreamId};
use millpond_sim::Sim;

use super::flight::Held;
use crate::{Flight, Sharing, Timed};

const KERNEL: Duration = Duration::from_micros(10);

/// A device with streams, and work on it.
fn timed(sharing: Sharing) -> (Sim, [StreamId; 3], Timed<'static>) {
    let sim = Sim::new();
    let streams = [(); 3].map(|()| sim.create_stream().expect("a stream"));
    let timed = Timed::new(Box::new(Held(sim.clone())), KERNEL, sharing);
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
