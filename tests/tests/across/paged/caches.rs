//! Giving memory back: whole pages inside ranges that are partly in use, while no byte of a live block changes.

use std::collections::BTreeSet;

use millpond::settings::{Growth, Settings};
use millpond::{Allocator, BlockState, Buffer, Side};
use millpond_sim::{Completion, Sim};
use millpond_trace::Random;

use super::device::{GIB, GROWTHS, MIB, allocator, builder, device, settings, streams, written};
use super::held::Hands;

const HANDS: usize = 48;

/// Returns a program with blocks of all sizes on two streams, every other of which was freed again.
fn half_empty(growth: Growth, settings: Settings, limit: u64) -> Hands {
    let sim = device(GIB, Completion::Immediate).build();
    let allocator = builder(&sim, growth).settings(settings).limit(limit).build();
    let mut hands = Hands::new(sim, allocator.unwrap_or_else(|error| panic!("{error}")), 2, HANDS);
    let mut random = Random::new(9);
    for hand in 0..HANDS {
        let most = random.pick(&[4096, MIB, 9 * MIB, 24 * MIB]);
        let taken = hands.take(hand, hand / 3 % 2, random.between(1, most));
        taken.unwrap_or_else(|error| panic!("hand {hand}: {error}"));
    }
    (0..HANDS).step_by(2).for_each(|hand| hands.free(hand));
    hands
}

/// Returns by side the bytes of the pages that some live block touches: they must stay.
fn pinned(allocator: &Allocator<Sim>) -> [u64; 2] {
    let mut sums = [0; 2];
    for view in allocator.layout() {
        let live: Vec<_> = view.blocks.iter().filter(|block| block.state == BlockState::ActiveAllocated).collect();
        let touched =
            view.pages.iter().filter(|page| page.is_home).filter(|page| {
                live.iter().any(|b| b.offset < page.offset + page.bytes && page.offset < b.offset + b.size)
            });
        sums[usize::from(view.side == Side::Large)] += touched.map(|page| page.bytes).sum::<u64>();
    }
    sums
}

/// Checks that every counter agrees with every other, and that every live byte is unchanged.
fn adds_up(hands: &Hands) {
    let allocator = &hands.allocator;
    allocator.check();
    hands.read_all();
    let (stats, pages, ledger) = (allocator.stats(), allocator.page_stats(), allocator.ledger());
    let reserved = stats.reserved_bytes;
    assert_eq!(ledger.total(), reserved.all.current, "{ledger:?}");
    assert_eq!(ledger.live_bytes, stats.requested_bytes.all.current, "{ledger:?}");
    assert_eq!(reserved.small_pool.current + reserved.large_pool.current, reserved.all.current, "{reserved:?}");
    assert!(reserved.all.peak <= reserved.small_pool.peak + reserved.large_pool.peak, "{reserved:?}");
    for stat in [reserved.all, reserved.small_pool, reserved.large_pool] {
        assert!(stat.peak >= stat.current && stat.allocated - stat.freed == stat.current, "{reserved:?}");
    }
    assert_eq!(pages.created - pages.released, pages.pages, "{pages:?}");
    assert_eq!(pages.moved, pages.unmapped + pages.shadows, "{pages:?}");
    let calls = hands.sim.calls();
    assert_eq!((pages.created, pages.released), (calls.create_page, calls.release_page), "{pages:?}, {calls:?}");
    let homes: BTreeSet<_> = allocator.layout().iter().flat_map(|view| view.pages.clone()).map(|p| p.page).collect();
    assert_eq!(homes.len() as u64, pages.pages, "{pages:?}");
    assert_eq!(stats.num_device_alloc, pages.created, "{pages:?}");
    assert_eq!(hands.sim.violations(), []);
}

#[test]
fn empty_cache_gives_back_every_whole_page() {
    for growth in GROWTHS {
        let mut hands = half_empty(growth, settings(growth), GIB);
        adds_up(&hands);
        let (before, stays) = (hands.allocator.memory_reserved(), pinned(&hands.allocator));
        assert!(stays.iter().sum::<u64>() < before, "{growth:?}: nothing can go");
        assert_eq!(hands.allocator.ledger().ready_bytes, before - stays.iter().sum::<u64>(), "{growth:?}");
        hands.allocator.empty_cache().unwrap_or_else(|error| panic!("{error}"));
        let stats = hands.allocator.stats().reserved_bytes;
        assert_eq!(stats.all.current, stays.iter().sum::<u64>(), "{growth:?}");
        assert_eq!(hands.allocator.ledger().ready_bytes, 0, "{growth:?}");
        adds_up(&hands);
        // Memory that was given back is created again where it is needed.
        for hand in (0..HANDS).step_by(2) {
            hands.take(hand, hand % 2, 5 * MIB).unwrap_or_else(|error| panic!("{growth:?}: {error}"));
        }
        adds_up(&hands);
        hands.free_all();
        hands.allocator.empty_cache().unwrap_or_else(|error| panic!("{error}"));
        adds_up(&hands);
        assert_eq!((hands.allocator.memory_reserved(), hands.allocator.page_stats().shadows), (0, 0), "{growth:?}");
    }
}

#[test]
fn trim_stops_where_it_is_told_to() {
    for growth in GROWTHS {
        let hands = half_empty(growth, settings(growth), GIB);
        let (before, stays) = (hands.allocator.memory_reserved(), pinned(&hands.allocator).iter().sum::<u64>());
        let layout = hands.allocator.layout();
        let largest = layout.iter().flat_map(|view| &view.pages).map(|page| page.bytes).max().unwrap_or(0);
        for part in [4, 3, 2, 1] {
            let goal = stays + (before - stays) * part / 5;
            let now = hands.allocator.trim(goal).unwrap_or_else(|error| panic!("{growth:?}: {error}"));
            assert!(now <= goal && goal < now + largest, "{growth:?}: {now} after a trim to {goal}");
            adds_up(&hands);
        }
        assert_eq!(hands.allocator.trim(0).ok(), Some(stays), "{growth:?}");
        adds_up(&hands);
    }
}

#[test]
fn garbage_is_collected_beyond_the_threshold() {
    for growth in GROWTHS {
        let collecting = Settings { gc_threshold: 0.25, ..settings(growth) };
        let mut hands = half_empty(growth, collecting, GIB);
        let (before, stays) = (hands.allocator.memory_reserved(), pinned(&hands.allocator).iter().sum::<u64>());
        assert_eq!(hands.allocator.page_stats().released, 0, "{growth:?}: collected too early");
        // A request that nothing cached serves, while more than a quarter of the limit is reserved, collects first.
        let (threshold, next) = (256 * MIB, 300 * MIB);
        assert!(before <= threshold, "{growth:?}: {before} bytes reserved");
        hands.take(0, 0, threshold).unwrap_or_else(|error| panic!("{growth:?}: {error}"));
        hands.free(0);
        let reserved = hands.allocator.memory_reserved();
        hands.take(2, 1, next).unwrap_or_else(|error| panic!("{growth:?}: {error}"));
        adds_up(&hands);
        let pages = hands.allocator.page_stats();
        assert!(pages.released > 0, "{growth:?}: {pages:?}");
        let now = hands.allocator.memory_reserved();
        assert!(
            reserved > threshold && now <= stays + next + threshold / 8,
            "{growth:?}: {reserved}, then {now} bytes"
        );
    }
}

/// A phase of small blocks leaves few blocks live: each of these keeps one page from the large side, and no more.
#[test]
fn survivors_among_small_blocks_keep_a_page_each() {
    const BLOCKS: u64 = 200_000;
    const SURVIVORS: u64 = 40;
    for growth in GROWTHS {
        let sim = device(8 * GIB, Completion::Immediate).build();
        let allocator = allocator(&sim, growth);
        let stream = &streams(&allocator, 1)[0];
        let mut random = Random::new(2);
        let mut live: Vec<Buffer<Sim>> = Vec::new();
        for at in 0..BLOCKS {
            let bytes = random.between(1, 8 << 10);
            live.push(stream.allocate(bytes).unwrap_or_else(|error| panic!("block {at}: {error}")));
        }
        let reserved = allocator.memory_reserved();
        assert!(reserved > 700 * MIB, "{growth:?}: only {reserved} bytes reserved");
        let mut at = 0;
        live.retain(|_| {
            at += 1;
            at % (BLOCKS / SURVIVORS) == 0
        });
        assert_eq!(live.len() as u64, SURVIVORS);
        // All but the survivors' pages serves the large side, in one piece, and nothing is created.
        allocator.set_limit(Some(reserved));
        let large = written(&sim, stream, reserved - SURVIVORS * 2 * MIB);
        assert_eq!(allocator.memory_reserved(), reserved, "{growth:?}");
        allocator.check();
        drop(large);
        allocator.empty_cache().unwrap_or_else(|error| panic!("{growth:?}: {error}"));
        let left = allocator.memory_reserved();
        assert!(left <= SURVIVORS * 2 * MIB, "{growth:?}: {left} bytes stay for {SURVIVORS} blocks");
        allocator.check();
    }
}
