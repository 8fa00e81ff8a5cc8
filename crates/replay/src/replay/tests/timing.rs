//! Submits, waits and points that are reached: each changes what a replay reserves.

use millpond::Allocator;
use millpond_backend::{Backend as _, Closing, StreamId};
use millpond_sim::Sim;
use millpond_trace::Trace;

use super::super::*;
use crate::tune::Trial;
use crate::{AsRecorded, Flight, Life};

/// Returns a device with an allocator under `classic`, and the work of a recorded run on it.
fn device(closing: Closing, told: &[u32]) -> (Sim, Allocator<Sim>, AsRecorded<'static>) {
    let sim = Sim::builder().closing(closing).build();
    let allocator = Allocator::builder(sim.clone()).conf("policy:classic").build().expect("settings");
    let work = AsRecorded::new(Box::new(sim.clone()), told.iter().map(|&at| StreamId(at)).collect());
    (sim, allocator, work)
}

/// Replays a program on a device that holds its work, and returns how many blocks of 40 MiB it has reserved. A trial
/// comes to the same.
fn reserved(closing: Closing, text: &str) -> u64 {
    let trace = Trace::parse(text.as_bytes()).expect("a trace");
    let replay = Replay::new(&trace);
    let (sim, allocator, work) = device(closing, &replay.streams_told());
    let streams: Vec<_> = (0..replay.streams()).map(|_| allocator.create_stream().expect("a stream")).collect();
    let life = Life { in_flight: Some(Box::new(work)), ..Life::default() };
    let replayed = replay.run_life(&allocator, &streams, 0, life, |_| ()).expect("no driver fails");
    assert_eq!(sim.queued(), 0, "the work is over when the replay is");

    let trial = Trial::new(&trace);
    let (_, allocator, work) = device(closing, trial.streams_told());
    let ended = trial.run(&allocator, 0, Some(Box::new(work)), &|_, _| false).expect("no driver fails");
    let measured = ended.measured().expect("it fits");
    assert_eq!((measured.reserved_bytes, trial.has_submits()), (replayed.life_reserved_peak, replay.has_submits()));
    replayed.life_reserved_peak / (40 << 20)
}

/// Block 0 is used on stream 1, freed, and followed by a request of the same size.
const FREED: &str = "a 0 41943040 0\nu 0 1\nf 0\n";
const NEXT: &str = "a 1 41943040 0\nf 1\n";
/// Says of both streams how far they are, behind everything.
const END: &str = "m 8 0\nm 9 1\nr 8\nr 9\n";

#[test]
fn memory_is_free_once_the_work_on_it_was_seen_to_be_done() {
    for (between, blocks) in [("", 2), ("m 0 1\n", 2), ("m 0 1\nr 0\n", 1), ("m 0 0\nr 0\n", 2), ("m 0 1\nh 0\n", 1)] {
        let text = format!("{FREED}{between}{NEXT}{END}");
        assert_eq!(reserved(Closing::Backend, &text), blocks, "{between:?}");
    }
    assert_eq!(reserved(Closing::Backend, &format!("{FREED}{NEXT}")), 1, "nothing is known of the work");
}

/// The work that uses a block lasts to its free, so a point before that does not cover it.
#[test]
fn a_point_before_a_free_does_not_cover_the_last_use() {
    let text = format!("a 0 41943040 0\nu 0 1\nm 0 1\nf 0\nr 0\n{NEXT}{END}");
    assert_eq!(reserved(Closing::Backend, &text), 2);
}

/// Stream 0 waits for stream 1: once it is seen behind that, stream 1 is done as well. The allocator sees that the next
/// time it asks, as it may have asked stream 1 before stream 0.
#[test]
fn a_stream_that_waits_is_reached_behind_what_it_waits_for() {
    const OTHER: &str = "a 3 512 0\nf 3\n";
    for (wait, between, blocks) in [("", OTHER, 2), ("d 0 0\n", OTHER, 1), ("d 0 0\n", "", 2)] {
        let text = format!("{FREED}m 0 1\n{wait}a 2 512 0\nf 2\nm 1 0\nr 1\n{between}{NEXT}{END}");
        assert_eq!(reserved(Closing::Backend, &text), blocks, "{wait:?} {between:?}");
    }
}

/// The trace ends before it says that stream 0 is done with its last work.
#[test]
fn what_a_trace_says_nothing_more_of_is_complete_when_the_program_is() {
    let (sim, allocator, mut work) = device(Closing::Backend, &[0]);
    let stream = allocator.create_stream().expect("a stream").id();
    let work: &mut dyn Flight<Sim> = &mut work;
    work.begin(stream).expect("no driver fails");
    let last = sim.mark(stream);
    let is_reached = || sim.reached(stream).expect("the device is there") >= last;
    assert!(!is_reached());
    work.over();
    assert!(is_reached());
}

/// Two frees have one tick unless a point was taken between them: a wait for the one is a wait for the other.
#[test]
fn a_tick_lasts_up_to_the_next_point() {
    for (between, waits) in [("", 1), ("m 0 0\n", 2)] {
        let text = format!(
            "a 0 20971520 0\na 1 2097152 0\na 2 41943040 0\nf 0\n{between}f 2\na 3 20971520 1\na 4 41943040 1\nf 3\n\
             f 4\nf 1\n{END}"
        );
        let trace = Trace::parse(text.as_bytes()).expect("a trace");
        let replay = Replay::new(&trace);
        let (sim, _, work) = device(Closing::Backend, &replay.streams_told());
        let allocator = Allocator::builder(sim).conf("policy:paged,growth:tight").build().expect("settings");
        let streams: Vec<_> = (0..2).map(|_| allocator.create_stream().expect("a stream")).collect();
        let life = Life { in_flight: Some(Box::new(work)), ..Life::default() };
        let replayed = replay.run_life(&allocator, &streams, 0, life, |_| ()).expect("no driver fails");
        assert_eq!(replayed.cold.driver.stream_waits, waits, "{between:?}");
    }
}

/// Where the application submits, work that it does not submit is never done.
#[test]
fn work_is_submitted_where_the_program_submits_it() {
    for (submit, blocks) in [("q 1\n", 1), ("q 0\n", 2)] {
        let text = format!("{FREED}m 0 1\n{submit}h 0\n{NEXT}q 0\nq 1\n{END}");
        assert_eq!(reserved(Closing::Submit, &text), blocks, "{submit:?}");
    }
}
