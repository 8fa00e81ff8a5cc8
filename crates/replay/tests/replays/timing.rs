//! How far the device was is recorded, and a replay has its work in flight as long.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use millpond::history::Recording;
use millpond::{Allocator, Buffer, Stream};
use millpond_backend::{Backend, Closing, Point};
use millpond_replay::{AsRecorded, Life, Recorder, Replay, Sharing, Timed, trace_of};
use millpond_sim::{Completion, Sim};
use millpond_trace::{Details, Event, Random, Trace};

const MIB: u64 = 1 << 20;

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
    let work = AsRecorded::new(Box::new(sim), told);
    let life = Life { in_flight: Some(Box::new(work)), ..Life::default() };
    replay.run_life(&allocator, &streams, 0, life, |_| ()).unwrap().life_reserved_peak
}

/// The file of a recording says enough for a replay to reserve what the program did, although its device was late, its
/// work not submitted, or both.
#[test]
fn a_replay_of_the_file_reserves_what_the_program_did() {
    for (closing, every) in [(Closing::Backend, 1), (Closing::Backend, 8), (Closing::Submit, 1), (Closing::Submit, 8)] {
        for conf in ["policy:classic", "policy:paged,growth:tight", "policy:paged"] {
            for seed in 0..60 {
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
                    assert_eq!(again, reserved, "{closing:?} {every} {conf} seed {seed}");
                }
            }
        }
    }
}

/// Runs a program of two streams that wait for each other, and that the allocator never has to wait for. Returns what
/// it has reserved.
fn easy(allocator: &Allocator<Sim>) -> u64 {
    let [compute, copies] = [(); 2].map(|()| allocator.create_stream().unwrap());
    for layer in 0..200 {
        let weights = compute.allocate((4 + layer % 3 * 7) * MIB).unwrap();
        copies.wait_for(compute.submit().unwrap()).unwrap();
        copies.fill(&weights, 0, weights.len(), 1).unwrap();
        compute.wait_for(copies.submit().unwrap()).unwrap();
        let results = compute.allocate(MIB).unwrap();
        compute.fill(&results, 0, MIB, 1).unwrap();
    }
    allocator.max_memory_reserved()
}

/// An allocator that never has to wait asks nothing. The recording still says how far the device was: a policy that
/// would have asked reserves little more in a replay than in a run.
#[test]
fn a_program_that_waits_for_nothing_is_not_in_flight_until_its_end() {
    let opened = |conf: &str| {
        let sim = Sim::builder().keep_contents(false).build();
        Allocator::builder(sim).conf(conf).build().unwrap()
    };
    for recorded in ["policy:paged", "policy:classic"] {
        let allocator = opened(recorded);
        Recorder::start(&allocator);
        easy(&allocator);
        let trace = Recorder::finish(&allocator).unwrap();
        for conf in ["policy:direct", "policy:classic", "policy:paged,growth:tight", "policy:paged"] {
            let (reserved, again) = (easy(&opened(conf)), replayed(&trace, conf));
            // A stream is looked at when another has waited for it, so the work of two layers may seem to be in flight.
            let most = reserved + 2 * 19 * MIB;
            assert!(again <= most, "{recorded}: {conf} reserves {reserved}, and {again} in a replay");
        }
    }
}

/// Returns a program of two streams that use memory of each other by turns, sometimes one of them alone.
fn two_streams() -> Trace {
    let mut random = Random::new(7);
    let (mut text, mut live) = (String::new(), VecDeque::new());
    for id in 0..3000 {
        let stream = if id / 100 % 2 == 0 { 0 } else { random.below(2) };
        text += &format!("a {id} {} {stream}\n", random.between(2 * MIB, 8 * MIB));
        live.push_back(id);
        if live.len() > 12 {
            text += &format!("f {}\n", live.remove(random.index(live.len())).unwrap());
        }
    }
    Trace::parse(text.as_bytes()).unwrap()
}

/// Whether streams run side by side is found out from the times at which the device is asked, and decides how much is
/// created: so a recording has them.
#[test]
fn a_replay_knows_when_the_device_was_asked() {
    let program = Replay::new(&two_streams());
    let mut found = BTreeSet::new();
    let (mut exact, mut misled) = (0, 0);
    for sharing in [Sharing::SideBySide, Sharing::OneAtATime] {
        for (seed, micros) in (0..8).zip([3, 10, 30, 100].into_iter().cycle()) {
            let sim = Sim::new();
            let allocator = Allocator::builder(sim.clone()).conf("policy:paged").build().unwrap();
            let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
            let work = Timed::new(Box::new(sim), Duration::from_micros(micros), sharing).varied(80, seed);
            let life = Life { in_flight: Some(Box::new(work)), ..Life::default() };
            Recorder::start(&allocator);
            let reserved = program.run_life(&allocator, &streams, 0, life, |_| ()).unwrap().life_reserved_peak;
            let file = Recorder::finish(&allocator).unwrap().write_to(Vec::new()).unwrap();
            let mut trace = Trace::parse(&file).unwrap();
            let again = replayed(&trace, "policy:paged");
            trace.details = Details::default();
            trace.events.retain(|event| !matches!(event, Event::Look { .. }));
            let without = replayed(&trace, "policy:paged");
            let off = |bytes: u64| bytes.abs_diff(reserved) as f64 / reserved as f64;
            assert!(off(again) < 0.02, "{sharing:?} seed {seed} {micros} us: {reserved} {again}");
            exact += u32::from(again == reserved);
            misled += u32::from(off(without) > 0.1);
            found.insert(format!("{:?}", allocator.slack_stats().sharing));
        }
    }
    assert!(exact >= 15 && misled >= 8, "{exact} of 16 are exact, and {misled} are far off without the times");
    assert_eq!(found.len(), 3, "whatever is found out: {found:?}");
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
        let third = compute.allocate(512).unwrap();
        compute.fill(&third, 0, 512, 3).unwrap();
        compute.synchronize().unwrap();
        compute.download(&buffer, 0, &mut [0]).unwrap();
        // A submit that the allocator is not told of is known when it looks.
        let fourth = compute.allocate(512).unwrap();
        compute.fill(&fourth, 0, 512, 4).unwrap();
        let alone = Point { stream: compute.id(), tick: sim.submit(compute.id()).unwrap() };
        sim.synchronize();
        assert!(allocator.reached(alone).unwrap());
        drop((buffer, third, fourth));
        let recorded = Recorder::finish(&allocator).unwrap();
        (events(&recorded), events(&trace_of(&allocator.history())))
    };
    let (told, noted) = recorded(Closing::Submit);
    // The second `h 2` is the download: nothing that the allocator knows of was queued before it.
    let expected = "a 0 1048576 0; m 0 0; q 0; d 1 0; m 1 1; q 1; h 1; r 0; a 1 512 1; m 2 1; q 1; r 1; h 2; q 1; h 2; \
                    a 2 512 1; m 3 1; q 1; r 3; f 0; f 1; f 2";
    assert_eq!(told, expected);
    assert_eq!(noted, told);
    let (told, noted) = recorded(Closing::Backend);
    // Work needs no submit there.
    let expected = "a 0 1048576 0; m 0 0; d 1 0; m 1 1; h 1; r 0; a 1 512 1; m 2 1; h 2; h 2; a 2 512 1; m 3 1; r 3; \
                    f 0; f 1; f 2";
    assert_eq!((told.as_str(), noted.as_str()), (expected, expected));
}
