//! Captures: streams whose work is recorded into a graph are left alone, and what they use waits for the end.

use millpond::backend::{Closing, Reuse};
use millpond::history::Recording;
use millpond::{Allocator, Buffer, Error, Pool, PoolId, Stream};
use millpond_sim::{Completion, Sim};

const MIB: u64 = 1 << 20;
const CONFS: [&str; 5] = [
    "policy:classic",
    "policy:classic,expandable_segments:True",
    "policy:paged",
    "policy:paged,growth:tight",
    "policy:direct",
];

struct Scene {
    sim: Sim,
    allocator: Allocator<Sim>,
    /// The streams in the default pool.
    streams: [Stream<Sim>; 2],
    pool: Pool<Sim>,
    /// The same streams in the private pool.
    inside: [Stream<Sim>; 2],
}

/// A device whose work is over once it is waited for, or a test says so.
fn scene(conf: &str) -> Scene {
    let sim = Sim::builder().total_bytes(1 << 30).completion(Completion::Manual).build();
    let allocator = Allocator::builder(sim.clone()).conf(conf).build().unwrap();
    let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
    let pool = allocator.create_pool().unwrap();
    let inside = [0, 1].map(|at: usize| pool.stream(streams[at].id()).unwrap());
    Scene { sim, allocator, streams, pool, inside }
}

fn place(buffer: &Buffer<Sim>) -> Option<u64> {
    buffer.address()
}

/// Whatever else happens, no event is recorded on the stream, which would close its tick. A recording, which asks how
/// far streams are, makes no difference.
#[test]
fn nothing_is_asked_of_a_captured_stream() {
    for (conf, recorded) in CONFS.into_iter().flat_map(|conf| [(conf, false), (conf, true)]) {
        let Scene { sim, allocator, streams: [eager, captured], pool, inside: [_, graph] } = scene(conf);
        if recorded {
            allocator.record_history(Recording::all(1000));
        }
        let before = captured.allocate(30 * MIB).unwrap();
        captured.point();
        let capture = graph.begin_capture().unwrap();
        let open = captured.point().tick;
        let inner = graph.allocate(30 * MIB).unwrap();
        let used = eager.allocate(30 * MIB).unwrap();
        used.record_stream(&captured).unwrap();
        let point = captured.point();
        let until = eager.allocate(MIB).unwrap();
        until.used_until(point).unwrap();
        drop((before, inner, used, until));
        (0..20).for_each(|_| drop(captured.allocate(MIB).unwrap()));
        for bytes in [MIB, 30 * MIB, 2000 * MIB] {
            for stream in [&eager, &captured, &graph] {
                drop(stream.allocate(bytes));
            }
        }
        allocator.poll().unwrap();
        allocator.empty_cache().unwrap();
        allocator.trim(0).unwrap();
        allocator.slack_stats();
        allocator.memory_summary(false);
        allocator.check();
        sim.complete_all();
        allocator.empty_cache().unwrap();
        assert_eq!(captured.point().tick, open, "{conf}: an event was recorded on a stream that is captured");
        assert!(allocator.memory_reserved() >= 60 * MIB, "{conf}: what it uses has gone");
        capture.end();
        drop(pool);
        captured.synchronize().unwrap();
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(), 0, "{conf}: nothing is left behind");
        allocator.check();
    }
}

/// The same of the first request after the capture has begun, which would ask what memory there waits for.
#[test]
fn the_first_miss_in_a_capture_asks_nothing_of_its_stream() {
    for conf in CONFS {
        let Scene { streams: [eager, captured], inside: [_, graph], .. } = scene(conf);
        drop(captured.allocate(30 * MIB).unwrap());
        let _capture = graph.begin_capture().unwrap();
        let open = captured.point().tick;
        drop(eager.allocate(20 * MIB).unwrap());
        assert_eq!(captured.point().tick, open, "{conf}: an event was recorded on a stream that is captured");
    }
}

/// Inside of a capture memory is used again in the order of its stream, by that stream alone.
#[test]
fn memory_freed_in_a_capture_is_reused_on_its_stream() {
    for conf in CONFS {
        let Scene { sim, allocator, streams, pool, inside: [graph, other] } = scene(conf);
        let capture = graph.begin_capture().unwrap();
        capture.join(&streams[1]).unwrap();
        assert_eq!((capture.pool_id(), pool.use_count()), (pool.id(), 2));
        let first = graph.allocate(20 * MIB).unwrap();
        let at = place(&first);
        drop(first);
        assert_eq!(place(&graph.allocate(20 * MIB).unwrap()), at, "{conf}");
        sim.complete_all();
        let beside = other.allocate(20 * MIB).unwrap();
        assert_ne!(place(&beside), at, "{conf}: the branches of a graph have no order");
        let activity = allocator.driver_activity();
        assert_eq!(activity.stream_waits, 0, "{conf}: {activity:?}");
        capture.end();
        assert_eq!(pool.use_count(), 1);
        drop(beside);
        allocator.empty_cache().unwrap();
        assert_eq!(place(&graph.allocate(20 * MIB).unwrap()), at, "{conf}: a graph that runs again finds it there");
        allocator.check();
    }
}

/// A block that was used on a captured stream is not granted again before the capture has ended, however far the device
/// is.
#[test]
fn a_free_in_a_capture_waits_for_its_end() {
    for conf in CONFS {
        let Scene { sim, allocator, streams: [eager, captured], inside: [_, graph], .. } = scene(conf);
        let capture = graph.begin_capture().unwrap();
        let used = eager.allocate(20 * MIB).unwrap();
        used.record_stream(&captured).unwrap();
        let at = place(&used);
        drop(used);
        sim.complete_all();
        for _ in 0..3 {
            allocator.poll().unwrap();
            let held = [&eager, &eager, &graph].map(|stream| stream.allocate(20 * MIB).unwrap());
            assert!(held.iter().all(|buffer| place(buffer) != at), "{conf}: while it is captured");
        }
        capture.end();
        sim.complete_all();
        allocator.poll().unwrap();
        let held = [(); 4].map(|()| eager.allocate(20 * MIB).unwrap());
        let again = held.iter().any(|buffer| place(buffer) == at);
        assert!(again || conf.contains("direct"), "{conf}: it is free by now");
        drop(held);
        allocator.check();
    }
}

#[test]
fn a_stream_is_captured_once_at_a_time() {
    let Scene { allocator, streams: [eager, _], pool, inside: [graph, _], .. } = scene("policy:paged");
    let capture = graph.begin_capture().unwrap();
    for again in [graph.begin_capture().map(drop), eager.begin_capture().map(drop), capture.join(&eager)] {
        let error = again.unwrap_err();
        assert!(matches!(error, Error::Capturing { stream } if stream == eager.id()), "{error}");
    }
    assert_eq!(pool.use_count(), 2, "a capture that has not begun holds nothing");
    let foreign = Allocator::new(Sim::new()).create_stream().unwrap();
    assert!(matches!(capture.join(&foreign), Err(Error::WrongDevice { .. })));
    drop(capture);
    let outside = eager.begin_capture().unwrap();
    assert_eq!((outside.pool_id(), pool.use_count()), (PoolId::DEFAULT, 1));
    drop((outside, pool, graph));
    allocator.check();
}

#[test]
fn a_capture_keeps_its_pool() {
    let Scene { allocator, pool, inside: [graph, _], .. } = scene("policy:classic");
    let capture = graph.begin_capture().unwrap();
    drop(graph.allocate(20 * MIB).unwrap());
    let id = pool.id();
    drop(pool);
    allocator.empty_cache_of(id).unwrap();
    assert_eq!(allocator.memory_reserved(), 20 * MIB);
    drop(capture);
    allocator.empty_cache_of(id).unwrap();
    assert_eq!(allocator.memory_reserved(), 0);
}

#[test]
fn a_device_that_does_not_keep_order_has_no_captures() {
    let allocator = Allocator::new(Sim::builder().reuse(Reuse::AfterDone).build());
    let refused = allocator.create_stream().unwrap().begin_capture();
    assert!(matches!(refused, Err(Error::Unsupported { what: "captures", .. })), "{refused:?}");
}

/// Where the application submits there are no graphs, and the rules of a capture hold all the same.
#[test]
fn commands_that_are_submitted_many_times_have_their_memory_to_themselves() {
    let sim = Sim::builder().closing(Closing::Submit).build();
    let allocator = Allocator::new(sim);
    let [recorded, other] = [(); 2].map(|()| allocator.create_stream().unwrap());
    let pool = allocator.create_pool().unwrap();
    let [inside, beside] = [&recorded, &other].map(|stream| pool.stream(stream.id()).unwrap());
    let capture = inside.begin_capture().unwrap();
    let first = inside.allocate(5 * MIB).unwrap();
    let used = place(&first);
    drop(first);
    assert_ne!(place(&beside.allocate(5 * MIB).unwrap()), used, "another stream may run at the same time");
    assert_eq!(place(&inside.allocate(5 * MIB).unwrap()), used, "the commands come one after the other");
    capture.end();
    for stream in [&recorded, &other] {
        stream.submit().unwrap();
    }
    allocator.empty_cache().unwrap();
    assert!(allocator.memory_reserved() >= 5 * MIB, "the commands are submitted again");
    drop((pool, inside, beside));
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.memory_reserved(), 0);
}
