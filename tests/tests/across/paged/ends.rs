//! What is free at the ends of pages: a window has it where memory would be created otherwise, and each byte once.

use millpond::settings::Growth;
use millpond_sim::Completion;

use super::device::{GIB, MIB, builder, device};
use super::held::Hands;

const QUARTER: u64 = MIB / 4;

/// Returns a program with 20 MiB of pages of 2 MiB. Free are 5.5 MiB that end with a page, 1.75 MiB at the end of
/// another one, and 3.5 MiB that begin with a page.
fn with_ends_of_pages(limit: u64) -> Hands {
    let sim = device(GIB, Completion::Immediate).build();
    let allocator = builder(&sim, Growth::Tight).limit(limit).build();
    let mut hands = Hands::new(sim, allocator.unwrap_or_else(|error| panic!("{error}")), 1, 10);
    for (hand, quarters) in [10, 22, 9, 7, 8, 14, 10].into_iter().enumerate() {
        hands.take(hand, 0, quarters * QUARTER).unwrap_or_else(|error| panic!("hand {hand}: {error}"));
    }
    [1, 3, 5].into_iter().for_each(|hand| hands.free(hand));
    hands
}

/// The quarters that are asked for, the limit in MiB, and what is reserved then: within the slack memory is created
/// rather than that more pages are mapped.
#[test]
fn a_window_of_the_ends_of_pages_overlaps_no_other_block() {
    for (quarters, limit, reserved) in [(37, 20, 20), (45, 22, 22), (37, 1024, 22), (36, 20, 20)] {
        let mut hands = with_ends_of_pages(limit * MIB);
        for _ in 0..2 {
            hands.take(7, 0, quarters * QUARTER).unwrap_or_else(|error| panic!("{quarters} quarters: {error}"));
            assert_eq!(hands.allocator.memory_reserved(), reserved * MIB, "{quarters} quarters, up to {limit} MiB");
            hands.read_all();
            hands.allocator.check();
            // What is shorter gets parts of the same window.
            hands.free(7);
            for (hand, part) in [(7, 11), (8, 12), (9, 9)] {
                hands.take(hand, 0, part * QUARTER).unwrap_or_else(|error| panic!("{part} quarters: {error}"));
            }
            hands.read_all();
            hands.allocator.check();
            (7..10).for_each(|hand| hands.free(hand));
        }
        hands.free_all();
    }
}
