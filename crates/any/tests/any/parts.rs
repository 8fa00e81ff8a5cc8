//! Private pools, captures and groups: on a device that is chosen at run time they do what they do on its
//! typed form, and they work on every device that there is.

use millpond_any::millpond::backend::Backend;
use millpond_any::millpond::conf::ConfError;
use millpond_any::millpond::{Allocator, Error, Keep};
use millpond_any::millpond_sim::Sim;
use millpond_any::{AnyAllocator, AnyCapture, AnyDevice, AnyError, AnyGroup, AnyPeakScope, AnyPool, ErrorKind};

use crate::devices::open;
use crate::on;

const MIB: u64 = 1 << 20;

/// Uses pools, a capture, a checkpoint, a buffer that grows and a group, and returns what each step left.
fn every_part<B: Backend + Clone>(sim: &Sim, backend: B, conf: &str) -> String {
    let allocator = Allocator::builder(backend).conf(conf).build().unwrap();
    let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
    let mut left = Vec::new();
    let mut note = |what: &str| {
        allocator.check();
        let pools: Vec<_> = allocator.pools().into_iter().map(|id| allocator.pool_stats(id)).collect();
        let state = (allocator.stats(), pools, allocator.memory_paused(), sim.held_bytes(), sim.calls());
        left.push(format!("{what}: {state:?}"));
    };
    let pool = allocator.create_pool().unwrap();
    let graph = pool.stream(streams[0].id()).unwrap();
    let capture = graph.begin_capture().unwrap();
    capture.join(&streams[1]).unwrap();
    let kept = graph.allocate(3 * MIB).unwrap();
    drop(graph.allocate(5 * MIB).unwrap());
    capture.end();
    let (checkpoint, mut buffers) = (pool.checkpoint(), vec![kept]);
    note("captured");
    buffers.push(graph.allocate(7 * MIB).unwrap());
    buffers.truncate(1);
    pool.restore(&checkpoint, &mut buffers).unwrap();
    note("restored");
    if let Ok(mut growing) = streams[1].allocate_growable(MIB, 64 * MIB) {
        growing.grow(32 * MIB).unwrap();
        note("grown");
    }
    if let Ok(group) = allocator.group("weights") {
        let weights = group.stream(streams[1].id()).unwrap().allocate(6 * MIB).unwrap();
        // Contents would be kept by several threads, whose number of waits for the device depends on the host.
        group.pause(Keep::Discard).unwrap();
        note("paused");
        group.resume().unwrap();
        note("resumed");
        drop(weights);
    }
    drop((buffers, graph, pool));
    allocator.empty_cache().unwrap();
    note("emptied");
    assert_eq!(sim.violations(), []);
    left.join("\n")
}

#[test]
fn every_part_does_what_it_does_on_the_typed_device() {
    for conf in ["policy:paged", "policy:classic", "policy:classic,expandable_segments:True", "policy:direct"] {
        let (typed, chosen) = (Sim::new(), Sim::new());
        let expected = every_part(&typed, typed.clone(), conf);
        assert_eq!(every_part(&chosen, AnyDevice::from(chosen.clone()), conf), expected, "{conf}");
        assert_eq!(expected.contains("paused:"), conf == "policy:paged", "{conf}");
    }
}

/// A part of an engine that keeps a graph, its memory, and a model that sleeps between requests.
struct Engine {
    graphs: AnyPool,
    weights: Option<AnyGroup>,
}

/// Does with all parts what an engine does, on any device: nothing here names it.
fn engine(allocator: &AnyAllocator) -> Result<Engine, AnyError> {
    let scope: AnyPeakScope = allocator.peak_scope();
    let stream = allocator.create_stream()?;
    let graphs = allocator.create_pool()?;
    let graph = graphs.stream(stream.id())?;
    let capture: AnyCapture = graph.begin_capture()?;
    let inner = graph.allocate(4 * MIB)?;
    let place = inner.address();
    drop(inner);
    capture.end();
    // The graph may run again, so its memory stays where it is, and serves its pool only.
    stream.synchronize()?;
    allocator.empty_cache()?;
    assert!(allocator.pool_reserved(graphs.id()).is_some_and(|bytes| bytes.all.current >= 4 * MIB));
    let again = graph.allocate(4 * MIB)?;
    assert_eq!(again.address(), place);
    stream.fill(&again, 0, 4 * MIB, 7)?;
    drop(again);
    assert!(scope.allocated_bytes() >= 4 * MIB);

    let weights = match allocator.group("weights") {
        Ok(group) => Some(group),
        Err(error) => {
            assert_eq!((error.kind(), allocator.backend().caps().pages), (ErrorKind::Unsupported, None), "{error}");
            None
        }
    };
    if let Some(group) = &weights {
        let inside = group.stream(stream.id())?;
        let buffer = inside.allocate(6 * MIB)?;
        stream.upload(&buffer, 1000, b"millpond")?;
        stream.submit()?;
        let (place, before) = (buffer.address(), allocator.memory_reserved());
        group.pause(Keep::Host)?;
        assert!(group.is_paused() && allocator.memory_paused() >= 6 * MIB && allocator.memory_reserved() < before);
        let refused = inside.allocate(1).expect_err("the group is paused");
        assert!(matches!(refused, Error::Paused { .. }), "{refused}");
        group.resume()?;
        let mut bytes = [0; 8];
        stream.download(&buffer, 1000, &mut bytes)?;
        assert_eq!((&bytes, buffer.address()), (b"millpond", place));
    }
    allocator.check();
    stream.synchronize()?;
    Ok(Engine { graphs, weights })
}

fn works_on(backend: &str) {
    let Some(allocator) = open(backend) else { return };
    let engine = engine(&allocator).unwrap_or_else(|error| panic!("{backend}: {error}"));
    if engine.weights.is_none() {
        eprintln!("SKIPPED: groups: {backend} has no virtual memory here");
    }
    let graphs = engine.graphs.id();
    drop(engine);
    allocator.empty_cache_of(graphs).unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.memory_reserved(), 0, "{backend}");
}

#[test]
fn every_part_works_on_the_simulated_device() {
    works_on("sim");
}

#[test]
fn every_part_works_on_vulkan() {
    works_on("vulkan");
}

#[test]
fn every_part_works_on_wgpu() {
    works_on("wgpu");
}

#[test]
fn what_stops_a_group_is_passed_on() {
    let sim = Sim::builder().total_bytes(64 * MIB).build();
    let allocator = on(&sim);
    let stream = allocator.create_stream().unwrap();
    let group = allocator.group("cache").unwrap();
    let inside = group.stream(stream.id()).unwrap();
    let _buffer = inside.allocate(40 * MIB).unwrap();
    let capture = inside.begin_capture().unwrap();
    let refused = AnyError::from(group.pause(Keep::Discard).unwrap_err());
    assert_eq!(refused.kind(), ErrorKind::NotReady, "{refused}");
    assert!(refused.to_string().contains("end the capture first"), "{refused}");
    capture.end();
    group.pause(Keep::Discard).unwrap();
    allocator.set_limit(Some(8 * MIB));
    let refused = AnyError::from(group.resume().unwrap_err());
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory, "{refused}");
    assert!(group.is_paused() && refused.to_string().contains("the limit is 8.00 MiB"), "{refused}");
    allocator.set_limit(None);
    group.resume().unwrap();
}

#[test]
fn a_configuration_that_is_refused_is_an_error_of_any_kind() {
    let allocator = on(&Sim::new());
    let change = || -> Result<bool, AnyError> { Ok(allocator.configure("slack:much").map(|_| true)?) };
    let refused = change().unwrap_err();
    let expected: ConfError = allocator.configure("slack:much").unwrap_err();
    assert_eq!((refused.kind(), refused.to_string()), (ErrorKind::Input, expected.to_string()));
}
