//! The sizes of pages, by what a program asks for.

use millpond::settings::Growth;
use millpond::{Allocator, Stream};
use millpond_sim::{Completion, Sim};

use super::device::{self, GIB, MIB, device, streams};

/// Returns the number of pages that are created for a block of 64 MiB, where 13 blocks of 30 MiB and one of `large` MiB
/// are live. All is free again behind it.
fn created_behind(large: u64, allocator: &Allocator<Sim>, stream: &Stream<Sim>) -> u64 {
    let granted = |mebibytes: u64| stream.allocate(mebibytes * MIB).unwrap_or_else(|error| panic!("{error}"));
    let _kept: Vec<_> = [30; 13].map(granted).into_iter().chain([granted(large)]).collect();
    let before = allocator.page_stats().created;
    let _last = granted(64);
    allocator.page_stats().created - before
}

#[test]
fn pages_are_smaller_behind_a_request_for_a_fifth_of_what_is_live() {
    let sim = device(140 * GIB, Completion::Immediate).build();
    let allocator = device::allocator(&sim, Growth::Balanced);
    let stream = &streams(&allocator, 1)[0];
    for (large, pages) in [(96, 4), (98, 8), (96, 4)] {
        assert_eq!(created_behind(large, &allocator, stream), pages, "{large} MiB beside 390");
        // The next program begins with nothing, and is known by its own requests.
        allocator.empty_cache().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(allocator.memory_reserved(), 0);
    }
    allocator.check();
}
