//! Work in flight: it is complete when it is due, and not before.

use millpond::settings::Settings;
use millpond_backend::{Closing, Point};
use millpond_sim::{Completion, Sim};
use millpond_trace::Pattern;

use super::super::*;
use super::checked::{allocator, beginning, busy_device, open, variants};
use crate::{Fills, HeldFor, Life};

fn held_life(sim: &Sim, events: u64) -> Life<'static, Sim> {
    Life { in_flight: Some(Box::new(HeldFor::new(Box::new(sim.clone()), events))), ..Life::default() }
}

/// Block 0 is used on another stream, so that its memory is free when that stream's work is done, which is queued by
/// event 1. Event 5 asks for as much memory.
#[test]
fn freed_memory_is_free_when_the_work_is_done() {
    let text = "a 0 41943040 0\nu 0 1\nf 0\nm 0 0\nm 1 0\na 1 41943040 0\nf 1\n";
    let replay = Replay::new(&Trace::parse(text.as_bytes()).expect("a trace"));
    for (events, reserved) in [(0, 1), (2, 1), (3, 1), (4, 2), (5, 2), (100, 2)] {
        let sim = Sim::new();
        let classic = allocator(&sim, variants()[1].clone());
        let streams = open(&classic, &replay);
        let replayed =
            replay.run_life(&classic, &streams, 0, held_life(&sim, events), |_| ()).expect("no driver fails");
        assert_eq!(replayed.stats.reserved_bytes.all.peak, reserved * (40 << 20), "{events} events");
        assert_eq!(sim.queued(), 0, "what was in flight has landed");
    }
}

/// The work of one stream waits on the device for that of another, which is due later.
#[test]
fn work_behind_a_wait_is_complete_when_both_are_due() {
    let sim = Sim::new();
    let [first, second] = [(); 2].map(|()| sim.create_stream().expect("a stream"));
    let mut flight = HeldFor::new(Box::new(sim.clone()), 3);
    let flight: &mut dyn crate::Flight<Sim> = &mut flight;
    let reached = |stream| sim.reached(stream).expect("the device is there");
    flight.event();
    flight.begin(second).expect("no driver fails");
    flight.event();
    flight.begin(first).expect("no driver fails");
    let point = Point { stream: first, tick: sim.mark(first) };
    sim.stream_wait().expect("waits").wait_for(second, point).expect("a wait");
    flight.begin(second).expect("no driver fails");
    let last = sim.mark(second);
    let mut seen = Vec::new();
    for _ in 0..4 {
        flight.event();
        seen.push((reached(first) >= point.tick, reached(second) >= last));
    }
    // Events 3 to 6: what was queued behind event 2 is complete before event 6.
    assert_eq!(seen, [(false, false), (false, false), (false, false), (true, true)]);
    assert_eq!(sim.queued(), 0);
}

/// The second stream's last piece waits for the first stream's, and all three are due at the same event.
#[test]
fn all_that_is_due_at_an_event_is_complete_then() {
    let sim = Sim::new();
    let [first, second] = [(); 2].map(|()| sim.create_stream().expect("a stream"));
    let mut flight = HeldFor::new(Box::new(sim.clone()), 2);
    let flight: &mut dyn crate::Flight<Sim> = &mut flight;
    flight.event();
    [second, first].into_iter().for_each(|stream| flight.begin(stream).expect("no driver fails"));
    let point = Point { stream: first, tick: sim.mark(first) };
    sim.stream_wait().expect("waits").wait_for(second, point).expect("a wait");
    flight.begin(second).expect("no driver fails");
    (0..2).for_each(|_| flight.event());
    assert!(sim.queued() >= 3, "none of it is due");
    flight.event();
    assert_eq!(sim.queued(), 0);
}

/// A host that waits does not make later work complete early: every piece is held for its own time.
#[test]
fn a_wait_of_the_host_completes_what_it_waits_for_alone() {
    let sim = Sim::new();
    let stream = sim.create_stream().expect("a stream");
    let mut flight = HeldFor::new(Box::new(sim.clone()), 2);
    let flight: &mut dyn crate::Flight<Sim> = &mut flight;
    flight.event();
    flight.begin(stream).expect("no driver fails");
    let first = Point { stream, tick: sim.mark(stream) };
    flight.event();
    flight.begin(stream).expect("no driver fails");
    assert!(sim.wait(first).expect("a wait") >= first.tick);
    for left in [1, 1, 0] {
        flight.event();
        assert_eq!(sim.queued(), left);
    }
}

#[test]
fn bytes_are_right_while_work_is_in_flight() {
    let replay = beginning(Pattern::ManyStreams, 1500);
    for settings in variants() {
        for closing in [Closing::Backend, Closing::Submit] {
            let sim = busy_device(5, closing, true);
            let allocator = allocator(&sim, settings.clone());
            let life = Life { checked: true, ..held_life(&sim, 40) };
            let replayed = replay.run_life(&allocator, &open(&allocator, &replay), 1, life, |_| ());
            let replayed = replayed.unwrap_or_else(|error| panic!("{closing:?}, {settings:?}: {error}"));
            assert_eq!(replayed.checked_blocks, 2 * replay.allocations as u64);
            assert_eq!(sim.violations(), [], "{closing:?}, {settings:?}");
        }
    }
}

/// With work in flight `tight` waits on the device, or the host does, where nothing in flight costs neither.
#[test]
fn what_is_in_flight_costs_waits_or_memory() {
    let replay = beginning(Pattern::ManyStreams, 3000);
    let tight = millpond::settings::Policy::variant("tight").expect("a variant");
    let cost = |events: Option<u64>| {
        let sim = Sim::new();
        let allocator = allocator(&sim, Settings { policy: tight, ..Settings::default() });
        let life = events.map_or(Life::default(), |events| held_life(&sim, events));
        let replayed = replay.run_life(&allocator, &open(&allocator, &replay), 1, life, |_| ());
        replayed.expect("no driver fails").driver
    };
    let (idle, busy) = (cost(None), cost(Some(200)));
    assert_eq!((idle.stalls, idle.stream_waits), (0, 0));
    assert!(busy.stalls + busy.stream_waits > 0, "{busy:?}");
}

/// Fills of a simulated device take no time, so that they are many; they touch no block.
#[test]
fn fills_keep_to_their_own_memory() {
    let replay = beginning(Pattern::ManyStreams, 300);
    let sim = Sim::builder().completion(Completion::Seeded(2)).build();
    let allocator = allocator(&sim, Settings::default());
    let streams = open(&allocator, &replay);
    let fills = Fills::new(&allocator, &streams, std::time::Duration::from_nanos(1)).expect("a device that fills");
    let life = Life { checked: true, in_flight: Some(Box::new(fills)), ..Life::default() };
    replay.run_life(&allocator, &streams, 0, life, |_| ()).expect("sound bytes");
    assert_eq!(sim.violations(), []);
    assert_eq!(sim.held_bytes(), allocator.memory_reserved(), "all of it is given back");
}
