//! A stream number that the device does not have is refused and has no effect, under any policy.

use millpond::backend::{Point, StreamId, Tick};
use millpond::{Allocator, Error};
use millpond_sim::{Completion, Sim};

const POLICIES: [&str; 5] = [
    "policy:paged",
    "policy:paged,growth:tight",
    "policy:classic",
    "policy:classic,expandable_segments:True",
    "policy:direct",
];

/// Returns the resident memory of this process, in bytes, where the system reports it.
fn resident() -> u64 {
    let told = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    told.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() * 4096
}

#[test]
fn unknown_streams_are_refused_under_every_policy() {
    for conf in POLICIES {
        let sim = Sim::builder().completion(Completion::Manual).build();
        let allocator = Allocator::builder(sim.clone()).conf(conf).build().unwrap();
        let streams = [(); 2].map(|()| allocator.create_stream().unwrap());
        let before = resident();
        for unknown in [2, 7, 20_000_000, u32::MAX].map(StreamId) {
            let error = allocator.stream(unknown).unwrap_err();
            assert!(matches!(error, Error::UnknownStream { stream } if stream == unknown), "{conf}: {error}");
            assert!(error.to_string().contains("create_stream"), "{error}");
            let block = streams[0].allocate(3 << 20).unwrap();
            let error = block.used_until(Point { stream: unknown, tick: Tick(1) }).unwrap_err();
            assert!(matches!(error, Error::UnknownStream { stream } if stream == unknown), "{conf}: {error}");
            // The block waits for the other stream, and both requests are misses, so every stream is asked for its
            // progress.
            sim.busy(streams[1].id());
            block.record_stream(&streams[1]).unwrap();
            drop(block);
            for stream in &streams {
                drop(stream.allocate(30 << 20).unwrap());
            }
            allocator.check();
        }
        let grown = resident().saturating_sub(before);
        assert!(grown < 64 << 20, "{conf}: {grown} bytes of host memory for streams that are not there");
        sim.complete(streams[1].id());
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.memory_reserved(), 0, "{conf}");
        drop((streams, allocator));
        assert_eq!(sim.held_bytes(), 0, "{conf}");
    }
}

#[test]
fn streams_that_the_backend_opens_are_known_from_then_on() {
    let sim = Sim::new();
    let allocator = Allocator::new(sim.clone());
    assert!(allocator.stream(StreamId(0)).is_err());
    let ids = sim.open_streams(1);
    let stream = allocator.stream(ids[0]).unwrap();
    assert_eq!(stream.id(), ids[0]);
    drop(stream.allocate(1000).unwrap());
}
