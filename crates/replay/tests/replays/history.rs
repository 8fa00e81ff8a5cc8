//! Histories become traces: the same as a recorder's, with what is older than the history at its beginning.

use millpond::history::Recording;
use millpond::{Allocator, Error, Keep};
use millpond_replay::{Recorder, trace_of, trace_of_snapshot};
use millpond_sim::Sim;
use millpond_trace::{Event, Place, Random, Trace};

const MIB: u64 = 1 << 20;

/// Runs a program that draws what it does: sizes, frees, uses on another stream, points.
fn program(allocator: &Allocator<Sim>, seed: u64) {
    let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
    let (mut random, mut held) = (Random::new(seed), Vec::new());
    for step in 0..300 {
        let (at, other) = (random.below(2) as usize, random.below(2) as usize);
        held.push(streams[at].allocate(1 + random.below(3 * MIB)).unwrap());
        let newest = held.last().unwrap();
        match random.below(6) {
            0 => newest.record_stream(&streams[other]).unwrap(),
            1 => newest.used_until(streams[other].point()).unwrap(),
            2 => held.extend(streams[at].allocate_growable(1 + random.below(3 * MIB), 16 * MIB)),
            _ => {}
        }
        let grown = random.index(held.len());
        // Where something is in the way, nothing changes.
        let _ = held[grown].grow(1 + random.below(3 * MIB));
        if held.len() > 20 {
            drop(held.swap_remove(random.below(20) as usize));
        }
        if step % 97 == 96 {
            allocator.empty_cache().unwrap();
            allocator.trim(MIB).unwrap();
        }
    }
}

/// Returns the events without marks, whose numbers and places differ: a recorder defines a point where it is taken.
fn without_marks(trace: &Trace) -> Vec<String> {
    let told = |event: &Event| match *event {
        Event::Mark { .. } => None,
        Event::Until { id, .. } => Some(format!("until {id}")),
        other => Some(format!("{other:?}")),
    };
    trace.events.iter().filter_map(told).collect()
}

#[test]
fn the_trace_of_a_history_is_the_one_that_a_recorder_makes() {
    for (seed, conf) in [(1, "policy:classic"), (2, "policy:paged"), (3, "policy:direct")] {
        let allocator = Allocator::builder(Sim::new()).conf(conf).build().unwrap();
        allocator.record_history(Recording::all(10_000));
        Recorder::start(&allocator);
        program(&allocator, seed);
        let (recorded, history) = (Recorder::finish(&allocator).unwrap(), allocator.history());
        assert_eq!(history.lost, 0);
        let trace = trace_of(&history);
        assert_eq!(without_marks(&trace), without_marks(&recorded), "{conf}");
        assert_eq!((trace.streams, trace.live_peak()), (recorded.streams, recorded.live_peak()), "{conf}");
        millpond_trace::TraceWriter::new(Vec::new(), &trace.header).map(drop).unwrap();
    }
}

#[test]
fn blocks_that_are_older_than_the_history_come_first() {
    let allocator = Allocator::new(Sim::new());
    let stream = allocator.create_stream().unwrap();
    allocator.record_history(Recording::all(4));
    let kept = stream.allocate(3000).unwrap();
    let freed = stream.allocate(2 * MIB).unwrap();
    (0..10).for_each(|_| drop(stream.allocate(100).unwrap()));
    drop(freed);
    drop(stream.allocate(700).unwrap());
    let history = allocator.history();
    assert_eq!(history.entries.len(), 4);
    let allocated = |trace: &Trace| -> Vec<u64> {
        let bytes = |event: &Event| if let Event::Allocate { bytes, .. } = *event { Some(bytes) } else { None };
        trace.events.iter().filter_map(bytes).collect()
    };
    // The four entries: the free of the large block is half lost, and three are of the last buffer.
    assert_eq!(allocated(&trace_of(&history)), [700]);
    allocator.record_history(Recording::all(100));
    drop(stream.allocate(700).unwrap());
    assert_eq!(allocated(&trace_of_snapshot(&allocator.snapshot())), [3000, 700], "what is alive is known from it");
    let another = stream.allocate(900).unwrap();
    allocator.record_history(Recording::all(100));
    drop(another);
    assert_eq!(allocated(&trace_of(&allocator.history())), [900]);
    assert_eq!(allocated(&trace_of_snapshot(&allocator.snapshot())), [3000, 900]);
    drop(kept);
}

#[test]
fn a_replay_tells_which_policy_would_have_served_a_refused_request() {
    let allocator = Allocator::builder(Sim::new()).conf("policy:classic").limit(64 * MIB).build().unwrap();
    allocator.record_history(Recording::all(1000));
    let stream = allocator.create_stream().unwrap();
    // Every other block is freed: the holes are too small for the request, and pages of them are not.
    let blocks: Vec<_> = (0..9).map(|_| stream.allocate(6 * MIB).unwrap()).collect();
    let held: Vec<_> = blocks.into_iter().enumerate().filter(|(at, _)| at % 2 == 1).map(|(_, block)| block).collect();
    let refused = stream.allocate(24 * MIB);
    assert!(matches!(&refused, Err(Error::OutOfMemory(error)) if error.explanation().is_recorded), "{refused:?}");
    let trace = trace_of(&allocator.history());
    drop(held);
    let would_serve = |conf: &str| {
        let allocator = Allocator::builder(Sim::new()).conf(conf).limit(64 * MIB).build().unwrap();
        let streams = allocator.create_stream().unwrap();
        let mut blocks: Vec<Option<millpond::Buffer<Sim>>> = Vec::new();
        trace.events.iter().all(|event| match *event {
            Event::Allocate { bytes, .. } => {
                let served = streams.allocate(bytes).ok();
                let is_served = served.is_some();
                blocks.push(served);
                is_served
            }
            Event::Free { id } => {
                blocks[id as usize] = None;
                true
            }
            _ => true,
        })
    };
    assert_eq!(["policy:classic", "policy:paged"].map(would_serve), [false, true]);
}

/// Returns the label, the innermost frame and the time of each event.
fn details(trace: &Trace) -> Vec<(Option<&str>, Option<&str>, Option<u64>)> {
    let told = |at| {
        let Place { stack, label, micros } = trace.details.place(at);
        let frame = stack.and_then(|stack| trace.details.frames_of(stack).next());
        (label.map(|label| trace.details.label_text(label)), frame, micros)
    };
    (0..trace.events.len()).map(told).collect()
}

#[test]
fn a_trace_says_under_which_tag_where_and_when_a_program_allocated() {
    let allocator = Allocator::new(Sim::new());
    let stream = allocator.create_stream().unwrap();
    allocator.record_history(Recording::all(100));
    Recorder::start(&allocator);
    let weights = millpond::with_tag("weights", || stream.allocate(MIB).unwrap());
    std::thread::sleep(std::time::Duration::from_millis(2));
    let line = line!() + 1;
    let plain = stream.allocate(MIB).unwrap();
    drop((weights, plain));
    let (recorded, history) = (Recorder::finish(&allocator).unwrap(), trace_of(&allocator.history()));
    for trace in [&recorded, &history] {
        let told = details(trace);
        assert_eq!((told.len(), told[0].0, told[1].0), (4, Some("weights"), None), "{told:?}");
        assert!(told[1].2.unwrap() >= told[0].2.unwrap() + 2000, "{told:?}");
        // What is written is read again.
        let text = trace.write_to(Vec::new()).unwrap();
        assert_eq!(&Trace::parse(&text).unwrap(), trace);
    }
    let site = details(&history)[1].1.map(str::to_owned);
    assert!(site.as_ref().is_some_and(|site| site.contains(&format!("history.rs:{line}:"))), "{site:?}");
}

/// What happens to the pages of a group says nothing of requests: a trace has those alone, in their order.
#[test]
fn a_trace_goes_on_while_a_group_is_paused() {
    let allocator = Allocator::builder(Sim::new()).conf("policy:paged").build().unwrap();
    let group = allocator.group("kv").unwrap();
    let plain = allocator.create_stream().unwrap();
    let stream = group.stream(plain.id()).unwrap();
    allocator.record_history(Recording::all(1000));
    Recorder::start(&allocator);
    let held = [3 * MIB, 700, 20 * MIB].map(|bytes| stream.allocate(bytes).unwrap());
    for keep in [Keep::Host, Keep::Discard] {
        group.pause(keep).unwrap();
        assert!(matches!(stream.allocate(MIB), Err(Error::Paused { .. })));
        drop(plain.allocate(2 * MIB).unwrap());
        group.resume().unwrap();
        drop(stream.allocate(5 * MIB).unwrap());
    }
    group.pause(Keep::Discard).unwrap();
    drop(held);
    group.resume().unwrap();
    let (recorded, history) = (Recorder::finish(&allocator).unwrap(), trace_of(&allocator.history()));
    assert_eq!(without_marks(&history), without_marks(&recorded));
    assert_eq!(history.live_peak(), recorded.live_peak());
    let text = recorded.write_to(Vec::new()).unwrap();
    assert_eq!(Trace::parse(&text).unwrap(), recorded);
}
