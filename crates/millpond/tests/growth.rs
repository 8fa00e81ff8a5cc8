//! What streams, pools and caches that come and go cost the host: memory, and calls of the driver. A program of its
//! own, as it measures the memory of its process.

use millpond::Allocator;
use millpond_sim::{CallKind, Sim};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Returns the resident memory of this process, in bytes, where the system reports it.
fn resident() -> u64 {
    let told = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    told.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() * 4096
}

/// Returns the number of driver calls so far that can fail, which are those that take long.
fn calls(sim: &Sim) -> u64 {
    let calls = sim.calls();
    CallKind::ALL.iter().filter(|kind| kind.fallible()).map(|&kind| calls.of(kind)).sum()
}

/// Does something over and over. Returns the host memory in bytes, and the calls of the driver, that each time of the
/// second half took.
fn grown(sim: &Sim, times: u64, mut again: impl FnMut(u64)) -> (u64, u64) {
    (0..times / 2).for_each(&mut again);
    let before = (resident(), calls(sim));
    (times / 2..times).for_each(again);
    let later = times - times / 2;
    (resident().saturating_sub(before.0) / later, (calls(sim) - before.1) / later)
}

/// All in one test, as each measures the same process.
#[test]
fn what_comes_and_goes_costs_the_host_no_more_than_its_bound() {
    // A cache of page-locked memory leaves nothing behind.
    let sim = Sim::new();
    let allocator = Allocator::new(sim.clone());
    let (bytes, calls) = grown(&sim, 2000, |_| drop(allocator.pinned().unwrap().allocate(4 * MIB).unwrap()));
    assert!(bytes <= KIB, "{bytes} bytes of host memory for each cache of page-locked memory");
    assert_eq!(sim.calls().of(CallKind::CreateStream), 1, "one stream is set aside for all caches");
    assert!(calls <= 2, "{calls} driver calls for each: a segment that comes and goes");

    // A pool whose memory went back leaves its shard to the next one.
    let stream = allocator.create_stream().unwrap();
    let (bytes, calls) = grown(&sim, 2000, |_| {
        let pool = allocator.create_pool().unwrap();
        drop(pool.stream(stream.id()).unwrap().allocate(4 * MIB).unwrap());
        drop(pool);
        allocator.empty_cache().unwrap();
    });
    assert!(bytes <= KIB, "{bytes} bytes of host memory for each pool");
    assert!(calls <= 16, "{calls} driver calls for each pool");

    // The books of a stream stay for the life of the allocator: two indexes of 64 KiB, and the rest of a shard.
    let (bytes, calls) = grown(&sim, 1000, |_| drop(allocator.create_stream().unwrap().allocate(4 * MIB).unwrap()));
    assert!(bytes <= 160 * KIB, "{bytes} bytes of host memory for each stream that ever was");
    assert!(calls <= 8, "{calls} driver calls for each stream");
}
