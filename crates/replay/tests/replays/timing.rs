//! How far the device was is recorded, and a replay has its work in flight as long.

use std::collections::VecDeque;

use millpond::history::Recording;
use millpond::{Allocator, Buffer, Stream};
use millpond_backend::{Backend, Closing, Point, StreamId, Tick};
use millpond_replay::{AsRecorded, Hold, Life, Recorder, Replay, trace_of};
use millpond_sim::{Completion, Sim};
use millpond_trace::Trace;

const MIB: u64 = 1 << 20;

struct Held(Sim);

impl Hold for Held {
    fn begin(&self, stream: StreamId) -> Tick {
        self.0.busy(stream);
        self.0.mark(stream)
    }

    fn driver_clock(&self) -> u64 {
        self.0.driver_clock().unwrap()
    }

    fn set_time(&self, nanos: u64) {
        self.0.set_time(nanos);
    }

    fn finish(&self, point: Point) -> bool {
        while self.0.reached(point.stream).unwrap() < point.tick {
            if !self.0.complete_one(point.stream) {
                return false;
            }
        }
        true
    }
}

/// Stages weights on a stream for copies, has the stream that computes wait for them, and drops them as soon as their
/// use is queued. Submits every `every` layers, and waits for the layers before the last two of these.
fn engine(allocator: &Allocator<Sim>, every: usize) {
    let [copies, compute] = [(); 2].map(|()| allocator.create_stream().unwrap());
    let stays = compute.allocate(48 * MIB).unwrap();
    let stage = || -> (Buffer<Sim>, Point) {
        let weights = copies.allocate(24 * MIB).unwrap();
        copies.fill(&weights, 0, 24 * MIB, 1).unwrap();
        (weights, copies.submit().unwrap())
    };
    let (mut staged, mut last, mut queued) = (stage(), None, VecDeque::new());
    for layer in 1..=40 {
        let (weights, there) = std::mem::replace(&mut staged, stage());
        compute.wait_for(there).unwrap();
        weights.record_stream(&compute).unwrap();
        let results = compute.allocate(12 * MIB).unwrap();
        compute.copy((&weights, 0), (&results, 0), 12 * MIB).unwrap();
        compute.copy((&weights, 0), (&stays, 0), 24 * MIB).unwrap();
        drop(weights);
        last = Some(results);
        if layer % every == 0 {
            queued.push_back(compute.submit().unwrap());
            if queued.len() > 2 {
                allocator.wait(queued.pop_front().unwrap()).unwrap();
            }
        }
    }
    compute.synchronize().unwrap();
    drop(last);
}

/// Replays a trace on a device that is like the recorded one.
fn replayed(trace: &Trace, conf: &str) -> u64 {
    let replay = Replay::new(trace);
    let closing = if replay.has_submits() { Closing::Submit } else { Closing::Backend };
    let sim = Sim::builder().closing(closing).build();
    let allocator = Allocator::builder(sim.clone()).conf(conf).build().unwrap();
    let streams: Vec<Stream<Sim>> = (0..replay.streams()).map(|_| allocator.create_stream().unwrap()).collect();
    let told = replay.streams_told().iter().map(|&at| streams[at as usize].id()).collect();
    let work = AsRecorded::new(Box::new(Held(sim)), told);
    let life = Life { in_flight: Some(Box::new(work)), ..Life::default() };
    replay.run_life(&allocator, &streams, 0, life, |_| ()).unwrap().life_reserved_peak
}

/// The file of a recording says enough for a replay to reserve what the program did, although its device was late, its
/// work not submitted, or both.
#[test]
fn a_replay_of_the_file_reserves_what_the_program_did() {
    for (closing, every) in [(Closing::Backend, 1), (Closing::Backend, 8), (Closing::Submit, 1), (Closing::Submit, 8)] {
        for conf in ["policy:classic", "policy:paged,growth:tight", "policy:paged"] {
            for seed in [3, 4] {
                let sim =
                    Sim::builder().closing(closing).completion(Completion::Seeded(seed)).keep_contents(false).build();
                let allocator = Allocator::builder(sim).conf(conf).build().unwrap();
                Recorder::start(&allocator);
                allocator.record_history(Recording::all(100_000));
                engine(&allocator, every);
                let recorded = Recorder::finish(&allocator).unwrap();
                let reserved = allocator.max_memory_reserved();
                for trace in [recorded, trace_of(&allocator.history())] {
                    let file = trace.write_to(Vec::new()).unwrap();
                    let again = replayed(&Trace::parse(&file).unwrap(), conf);
                    // Whether `paged` creates pages for streams that run side by side depends on what it sees inside of
                    // a request, which is not recorded.
                    let most = if conf == "policy:paged" { 12 * MIB } else { 0 };
                    let off = again.abs_diff(reserved);
                    println!("{closing:?} {every} {conf} {seed}: {reserved} {again}");
                    assert!(off <= most, "{closing:?} {every} {conf} {seed}: {reserved} {again}");
                }
            }
        }
    }
}

/// Returns a trace as text, without times, labels and their like.
fn events(trace: &Trace) -> String {
    let text = String::from_utf8(trace.write_to(Vec::new()).unwrap()).unwrap();
    let is_event = |line: &&str| !line.starts_with(['#', 'i', 'p', 'k', 's', 'n', 'l']);
    text.lines().filter(is_event).collect::<Vec<_>>().join("; ")
}

/// Each call that says how far the device is has its line, in the order of the calls.
#[test]
fn submits_waits_and_points_that_are_reached_are_recorded() {
    let recorded = |closing| {
        let sim = Sim::builder().closing(closing).completion(Completion::Manual).build();
        let allocator = Allocator::builder(sim.clone()).conf("policy:classic").build().unwrap();
        Recorder::start(&allocator);
        allocator.record_history(Recording::all(1000));
        let [copies, compute] = [(); 2].map(|()| allocator.create_stream().unwrap());
        let buffer = copies.allocate(MIB).unwrap();
        copies.fill(&buffer, 0, MIB, 1).unwrap();
        let there = copies.submit().unwrap();
        compute.wait_for(there).unwrap();
        compute.fill(&buffer, 0, MIB, 2).unwrap();
        let done = compute.submit().unwrap();
        assert!(!allocator.reached(done).unwrap());
        allocator.wait(done).unwrap();
        assert!(allocator.reached(there).unwrap());
        compute.fill(&buffer, 0, MIB, 3).unwrap();
        compute.synchronize().unwrap();
        compute.download(&buffer, 0, &mut [0]).unwrap();
        // A submit that the allocator is not told of is known when it looks.
        compute.fill(&buffer, 0, MIB, 4).unwrap();
        let alone = Point { stream: compute.id(), tick: sim.submit(compute.id()).unwrap() };
        sim.synchronize();
        assert!(allocator.reached(alone).unwrap());
        drop(buffer);
        let recorded = Recorder::finish(&allocator).unwrap();
        (events(&recorded), events(&trace_of(&allocator.history())))
    };
    let (told, noted) = recorded(Closing::Submit);
    let expected = "a 0 1048576 0; m 0 0; q 0; d 1 0; m 1 1; q 1; h 1; r 0; m 2 1; q 1; r 1; h 2; m 3 1; q 1; h 3; \
                    m 4 1; q 1; r 4; f 0";
    assert_eq!(told, expected);
    assert_eq!(noted, told);
    let (told, noted) = recorded(Closing::Backend);
    // Work needs no submit there.
    let expected = "a 0 1048576 0; m 0 0; d 1 0; m 1 1; h 1; r 0; m 2 1; h 2; m 3 1; h 3; m 4 1; r 4; f 0";
    assert_eq!((told.as_str(), noted.as_str()), (expected, expected));
}
