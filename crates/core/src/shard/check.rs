//! The invariants of a shard. Each check panics with the numbers.
//!
//! Cost: every block is visited. The checks are meant for tests and for the search for a fault.

use alloc::collections::BTreeMap;

use super::Shard;
use crate::block::State;
use crate::ids::{BlockId, Side, Slot};
use crate::index::Entry;
use crate::meter::{Counter, EVERY_COUNTER};
use crate::segment::{Role, Segment};
use crate::units::QUANTUM;

impl Shard {
    /// Verifies every invariant of the shard.
    ///
    /// # Panics
    ///
    /// Panics at the first invariant that does not hold.
    pub fn check(&self) {
        self.blocks.check();
        let mut tiled = 0;
        for (slot, _) in self.segments.iter() {
            tiled += self.check_tiling(slot);
        }
        assert_eq!(tiled, self.blocks.iter().count(), "blocks that tile segments against blocks that exist");
        for side in Side::BOTH {
            self.check_indexes(side);
            self.check_meter(side);
        }
        self.meter.check_credit();
        self.check_waits();
        self.check_snug();
        self.check_mappings();
        self.check_backing();
    }

    /// G1: the mappings of a segment do not overlap, and end within it.
    fn check_mappings(&self) {
        for (_, segment) in self.segments.iter() {
            let mut end = 0;
            for (&at, mapping) in &segment.mappings {
                assert!(at >= end, "{}: the mapping at {at} begins before {end}, where another ends", segment.id);
                end = at + mapping.bytes;
            }
            assert!(end <= segment.bytes, "{}: mapped up to {end} of {}", segment.id, segment.bytes);
        }
    }

    /// G2: blocks in use and free ones have the memory of pages at home behind every byte, unmapped ones behind none.
    /// What a plan has claimed may be either.
    fn check_backing(&self) {
        for (_, block) in self.blocks.iter().filter(|(_, block)| block.expandable) {
            let segment = &self.segments[block.slot];
            let home = home_bytes(segment, block.offset, block.end());
            match block.state {
                State::Claimed | State::Vacant => {}
                State::Unmapped => assert_eq!(home, 0, "{}: unmapped and backed: {block:?}", segment.id),
                State::Live | State::Pending | State::Free | State::PutOff => {
                    assert_eq!(home, block.size, "{}: backed bytes of {block:?}", segment.id);
                }
            }
        }
    }

    /// Verifies T1, blocks tile their segment; T2, no two neighbours could be joined; and T3, everything is a multiple
    /// of the quantum, and unmapped ranges of the page.
    fn check_tiling(&self, slot: Slot) -> usize {
        let segment = &self.segments[slot];
        let (mut end, mut prev, mut count) = (0, BlockId::NONE, 0);
        for id in self.tiles(slot) {
            let block = &self.blocks[id];
            assert_eq!(
                (block.offset, block.prev, block.slot),
                (end, prev, slot),
                "{}: tiling at {block:?}",
                segment.id
            );
            assert!(block.size > 0 && block.size.is_multiple_of(QUANTUM), "{}: size of {block:?}", segment.id);
            assert_eq!(block.side, segment.side, "{}: side of {block:?}", segment.id);
            if let Some(before) = prev.some() {
                let before = &self.blocks[before];
                let joinable = before.state == block.state && matches!(block.state, State::Free | State::Unmapped);
                assert!(!joinable, "{}: {before:?} and {block:?} are not joined", segment.id);
            }
            if block.state == State::Unmapped {
                let page = segment.page_bytes;
                assert!(
                    page != 0 && block.offset.is_multiple_of(page) && block.size.is_multiple_of(page),
                    "unmapped part pages: {block:?}"
                );
            }
            end = block.end();
            prev = id;
            count += 1;
        }
        assert_eq!(end, segment.bytes, "{}: where its tiling ends", segment.id);
        count
    }

    /// Verifies X1: the indexes hold exactly the free and the unmapped blocks.
    fn check_indexes(&self, side: Side) {
        let pool = &self.pools[side.index()];
        pool.free.check(|id| self.entry(id));
        let mut free: alloc::vec::Vec<Entry> = self
            .blocks
            .iter()
            .filter(|(_, block)| block.side == side && block.state == State::Free)
            .map(|(id, _)| self.entry(id))
            .collect();
        free.sort_unstable();
        assert!(
            pool.free.iter().eq(free.iter().map(|entry| entry.block)),
            "{side:?}: the index against the {} free blocks",
            free.len()
        );
        let unmapped = self.blocks.iter().filter(|(_, b)| b.side == side && b.state == State::Unmapped);
        let unmapped: alloc::collections::BTreeSet<_> = unmapped.map(|(id, _)| self.unmapped_key(id)).collect();
        assert_eq!(pool.unmapped, unmapped, "{side:?}: listed as unmapped against unmapped");
    }

    /// Verifies A1: the counters are the sums over the blocks.
    fn check_meter(&self, side: Side) {
        let mut sums: BTreeMap<u8, i64> = BTreeMap::new();
        let mut add = |counter: Counter, bytes: u64| *sums.entry(counter as u8).or_default() += bytes as i64;
        for (_, block) in self.blocks.iter().filter(|(_, block)| block.side == side) {
            if block.state == State::Live {
                add(Counter::Allocation, 1);
                add(Counter::AllocatedBytes, block.size);
                add(Counter::Oversize, u64::from(block.size >= self.rules.max_split));
            }
            if matches!(block.state, State::Live | State::Pending) {
                add(Counter::Active, 1);
                add(Counter::ActiveBytes, block.size);
                add(Counter::RequestedBytes, block.requested);
            }
            let expandable = self.segments[block.slot].is_expandable();
            assert_eq!(block.expandable, expandable, "{block:?} against its segment");
            if block.state == State::Free && block.is_split() && !expandable {
                add(Counter::InactiveSplit, 1);
                add(Counter::InactiveSplitBytes, block.size);
            }
        }
        for counter in EVERY_COUNTER {
            let counted = self.meter.current(side, counter);
            assert_eq!(
                counted,
                sums.get(&(counter as u8)).copied().unwrap_or(0),
                "{side:?} {counter:?}: counted against summed"
            );
        }
    }

    /// Verifies W1: settling blocks are pending, in order of their ticks, and uses are kept for live blocks only.
    fn check_waits(&self) {
        assert!(self.settling.iter().is_sorted_by_key(|(tick, _)| *tick), "settling blocks out of order");
        for &(tick, id) in &self.settling {
            let block = &self.blocks[id];
            assert_eq!(
                (block.state, block.last_use.tick(), block.waits),
                (State::Pending, tick, 0),
                "settling block {}",
                id.0
            );
        }
        for id in self.uses_recorded() {
            assert_eq!(self.blocks[id].state, State::Live, "uses are kept for block {}", id.0);
        }
    }
}

fn home_bytes(segment: &Segment, begin: u64, end: u64) -> u64 {
    let home = segment.mapped_in(begin, end).filter(|(_, mapping)| mapping.role == Role::Home);
    home.map(|(at, mapping)| (at + mapping.bytes).min(end) - at.max(begin)).sum()
}
