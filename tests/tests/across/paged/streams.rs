//! Memory that one stream after the other needs is reserved once, whatever work the device has not finished.

use millpond::backend::Fault;
use millpond::settings::Growth;
use millpond::{Allocator, Stream};
use millpond_sim::{CallKind, Calls, Completion, Sim};

use super::device::{GIB, GROWTHS, MIB, allocator, builder, changes, device, streams, written};

const STREAMS: usize = 32;
const BYTES: u64 = 2 * GIB;
/// The number of bytes that may be reserved beyond that.
const MORE: u64 = BYTES / 20;

/// Allocates on one stream after the other, freeing each block before the next stream allocates. Returns the driver
/// calls that were made.
fn round(sim: &Sim, streams: &[Stream<Sim>], sizes: &[u64]) -> Calls {
    let before = sim.calls();
    for stream in streams {
        let blocks: Vec<_> = sizes.iter().map(|&bytes| written(sim, stream, bytes)).collect();
        drop(blocks);
    }
    sim.calls().since(&before)
}

fn made(completion: Completion, growth: Growth) -> (Sim, Allocator<Sim>, Vec<Stream<Sim>>) {
    let sim = device(140 * GIB, completion).build();
    let allocator = allocator(&sim, growth);
    let streams = streams(&allocator, STREAMS);
    (sim, allocator, streams)
}

/// Checks that with all work done and all blocks free the invariants hold, the device has detected no violation, and
/// all memory can be released.
fn ends(sim: &Sim, allocator: &Allocator<Sim>) {
    sim.synchronize();
    allocator.check();
    allocator.empty_cache().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((allocator.memory_reserved(), sim.violations()), (0, vec![]));
}

#[test]
fn idle_memory_goes_from_stream_to_stream() {
    let shares = [700 * MIB, 500 * MIB, 400 * MIB, 300 * MIB, 100 * MIB, 48 * MIB];
    assert_eq!(shares.iter().sum::<u64>(), BYTES);
    for growth in GROWTHS {
        for sizes in [&[BYTES][..], &shares] {
            let (sim, allocator, streams) = made(Completion::Immediate, growth);
            round(&sim, &streams, sizes);
            let again = round(&sim, &streams, sizes);
            assert_eq!(again.create_page, 0, "{growth:?}, {sizes:?}: {again:?}");
            let third = round(&sim, &streams, sizes);
            assert_eq!(changes(&third), 0, "{growth:?}, {sizes:?}: {third:?}");
            let peak = allocator.max_memory_reserved();
            assert!(peak <= BYTES + MORE, "{growth:?}, {sizes:?}: {peak} bytes reserved");
            assert_eq!(sim.calls().wait, 0, "{growth:?}, {sizes:?}: the host waited");
            ends(&sim, &allocator);
        }
    }
}

/// Kernels complete late, or only when the test completes them: memory passes to the next stream behind device-side
/// waits, and the host never waits.
#[test]
fn tight_hands_memory_on_while_work_runs() {
    for completion in [Completion::Manual, Completion::Seeded(3), Completion::Seeded(8)] {
        let (sim, allocator, streams) = made(completion, Growth::Tight);
        for pass in 0..3 {
            let calls = round(&sim, &streams, &[BYTES]);
            assert!(pass == 0 || calls.create_page == 0, "{completion:?}, pass {pass}: {calls:?}");
        }
        let peak = allocator.max_memory_reserved();
        assert!(peak <= BYTES + MORE, "{completion:?}: {peak} bytes reserved");
        let calls = sim.calls();
        assert_eq!(calls.wait, 0, "{completion:?}: the host waited");
        // With seeded completion, some kernels are over when the allocator asks.
        let waits = if completion == Completion::Manual { STREAMS as u64 } else { 1 };
        assert!(calls.stream_wait >= waits, "{completion:?}: {calls:?}");
        ends(&sim, &allocator);
    }
}

/// A stream that cannot be made to wait at the moment gets memory of its own, and for the next stream a wait is tried
/// again.
#[test]
fn a_stream_that_cannot_wait_gets_memory_of_its_own() {
    let (sim, allocator, streams) = made(Completion::Manual, Growth::Tight);
    let sizes = [BYTES / 2, BYTES / 2];
    round(&sim, &streams[..1], &sizes);
    sim.fail(CallKind::StreamWait, 1, Fault::NotNow);
    let calls = round(&sim, &streams[1..2], &sizes);
    assert_eq!((calls.wait, allocator.memory_reserved()), (0, BYTES + BYTES / 2), "{calls:?}");
    allocator.check();
    let calls = round(&sim, &streams[2..3], &sizes);
    assert!(calls.stream_wait > 0, "{calls:?}");
    assert_eq!((calls.create_page, allocator.memory_reserved()), (0, BYTES + BYTES / 2), "{calls:?}");
    ends(&sim, &allocator);
}

/// Memory that several streams still use comes behind the work of each of them.
#[test]
fn memory_of_several_streams_comes_behind_all_of_them() {
    let sim = device(140 * GIB, Completion::Manual).build();
    let allocator = builder(&sim, Growth::Tight).limit(BYTES).build().unwrap_or_else(|error| panic!("{error}"));
    let streams = streams(&allocator, 3);
    let blocks: Vec<_> = streams[..2].iter().map(|stream| written(&sim, stream, BYTES / 2)).collect();
    drop(blocks);
    drop(written(&sim, &streams[2], BYTES));
    let calls = sim.calls();
    assert_eq!((calls.wait, calls.stream_wait), (0, 2), "{calls:?}");
    ends(&sim, &allocator);
}

/// Where work still runs on all that is free, streams that are not to wait for each other get memory of their own, up
/// to half as much again as was live, and 8 MiB. After that they wait.
#[test]
fn balanced_creates_while_work_runs() {
    let (sim, allocator, streams) = made(Completion::Manual, Growth::Balanced);
    let first = round(&sim, &streams, &[BYTES / 4; 4]);
    assert_eq!(allocator.memory_reserved(), BYTES + BYTES / 2);
    let again = round(&sim, &streams, &[BYTES / 4; 4]);
    assert_eq!(changes(&again), 0, "{again:?} after {first:?}");
    let calls = sim.calls();
    assert_eq!(calls.wait, 0, "{calls:?}");
    assert!(calls.stream_wait > 0, "{calls:?}");
    ends(&sim, &allocator);
}
