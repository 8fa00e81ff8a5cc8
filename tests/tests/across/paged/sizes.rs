//! The sizes of pages, by how much a program has reserved.

use millpond::settings::Growth;
use millpond_sim::Completion;

use super::device::{self, GIB, MIB, device, streams};

#[test]
fn pages_grow_with_what_is_reserved() {
    let sim = device(140 * GIB, Completion::Immediate).build();
    let allocator = device::allocator(&sim, Growth::Balanced);
    let stream = &streams(&allocator, 1)[0];
    let mut kept = Vec::new();
    for (reserved, pages) in [(128, 32), (256, 16), (512, 8), (1024, 4), (2048, 2), (4096, 1), (8192, 1)] {
        while allocator.memory_reserved() < (reserved - 64) * MIB {
            kept.push(stream.allocate(64 * MIB).unwrap_or_else(|error| panic!("{error}")));
        }
        let before = allocator.page_stats().created;
        kept.push(stream.allocate(64 * MIB).unwrap_or_else(|error| panic!("{error}")));
        assert_eq!(allocator.memory_reserved(), reserved * MIB);
        assert_eq!(allocator.page_stats().created - before, pages, "{reserved} MiB are reserved");
    }
    allocator.check();
}
