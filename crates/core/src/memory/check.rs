//! The invariants of memory. Each check panics with the numbers.
//!
//! Cost: every block is visited. The checks are meant for tests and for the search for a fault.

use alloc::collections::BTreeSet;

use super::Memory;
use crate::block::State;
use crate::ids::{BlockId, Side, Slot};
use crate::index::Key;
use crate::segment::{Role, Segment};
use crate::units::QUANTUM;

impl Memory {
    /// Verifies every invariant of the memory.
    ///
    /// # Panics
    ///
    /// Panics at the first invariant that does not hold.
    pub(crate) fn check(&self) {
        self.blocks.check();
        let mut tiled = 0;
        for (slot, _) in self.segments.iter() {
            tiled += self.check_tiling(slot);
        }
        assert_eq!(tiled, self.blocks.iter().count(), "blocks that tile segments against blocks that exist");
        Side::BOTH.into_iter().for_each(|side| self.check_indexes(side));
        self.check_homes();
        self.check_guards();
        self.check_mappings();
        self.check_by_place();
        self.check_backing();
    }

    /// G1: the mappings of a segment do not overlap, and end within it.
    fn check_mappings(&self) {
        for (_, segment) in self.segments.iter() {
            let mut end = 0;
            for (at, mapping) in segment.mappings.iter() {
                assert!(at >= end, "{}: the mapping at {at} begins before {end}, where another ends", segment.id);
                end = at + mapping.bytes;
            }
            assert!(end <= segment.bytes, "{}: mapped up to {end} of {}", segment.id, segment.bytes);
        }
    }

    /// G2: blocks in use and free ones have the memory of pages behind every byte, unmapped ones behind none. What a
    /// plan has claimed may be either. Nothing is free in ranges for windows.
    fn check_backing(&self) {
        for (_, block) in self.blocks.iter().filter(|(_, block)| block.expandable) {
            let segment = &self.segments[block.slot];
            let mapped = mapped_bytes(segment, block.offset, block.end());
            match block.state {
                State::Claimed | State::Vacant => {}
                State::Kept => assert!(block.last_use.is_never(), "{}: kept and used: {block:?}", segment.id),
                State::Unmapped | State::Reserved => {
                    assert_eq!(mapped, 0, "{}: unmapped and backed: {block:?}", segment.id);
                }
                State::Live | State::Pending | State::Free | State::PutOff | State::Away => {
                    assert_eq!(mapped, block.size, "{}: backed bytes of {block:?}", segment.id);
                }
            }
            let in_window = matches!(block.state, State::Live | State::Pending | State::Kept | State::Unmapped);
            let at_home = block.state != State::Kept;
            let belongs = block.state == State::Claimed || if segment.has_windows { in_window } else { at_home };
            assert!(belongs, "{}: a block of its kind is {block:?}", segment.id);
        }
    }

    /// Verifies T1, blocks tile their segment; T2, no two neighbours could be joined; and T3, everything is a multiple
    /// of the quantum, and unmapped ranges of the page.
    fn check_tiling(&self, slot: Slot) -> usize {
        let segment = &self.segments[slot];
        let (mut end, mut prev, mut count) = (0, BlockId::NONE, 0);
        for id in self.blocks_in(slot) {
            let block = &self.blocks[id];
            assert_eq!(
                (block.offset, block.prev, block.slot),
                (end, prev, slot),
                "{}: tiling at {block:?}",
                segment.id
            );
            assert!(block.size > 0 && block.size.is_multiple_of(QUANTUM), "{}: size of {block:?}", segment.id);
            let is_mixed = self.rules.moves_pages && segment.is_expandable();
            assert!(is_mixed || block.side == segment.side, "{}: side of {block:?}", segment.id);
            if let Some(before) = prev.some() {
                let before = &self.blocks[before];
                let alike = (before.state, before.side) == (block.state, block.side);
                let joinable = alike && matches!(block.state, State::Free | State::Unmapped | State::Reserved);
                let joinable = joinable && (block.state != State::Free || self.is_within_slab(id));
                assert!(!joinable, "{}: {before:?} and {block:?} are not joined", segment.id);
            }
            if block.state == State::Reserved {
                self.check_reserved(id);
            }
            if matches!(block.state, State::Unmapped | State::Reserved) {
                let page = self.segments[block.slot].mappings.over(block.offset, block.end()).next();
                assert!(segment.is_expandable() && page.is_none(), "unmapped, with {page:?}: {block:?}");
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
        let free = self.blocks.iter().filter(|(id, _)| self.is_free_on(*id, side) && !self.is_in_slabs(side));
        let mut free: alloc::vec::Vec<(Key, BlockId)> = free.map(|(id, _)| (self.entry(id), id)).collect();
        free.sort_unstable();
        assert!(
            pool.free.iter().eq(free.iter().map(|&(_, block)| block)),
            "{side:?}: the index against the {} free blocks",
            free.len()
        );
        let unmapped = self.blocks.iter().filter(|(_, b)| b.side == side && b.state == State::Unmapped);
        let (vacant, unmapped): (BTreeSet<_>, BTreeSet<_>) =
            unmapped.map(|(id, _)| self.unmapped_key(id)).partition(|&(_, id)| self.is_for_windows(id));
        assert_eq!(pool.unmapped, unmapped, "{side:?}: listed as unmapped against unmapped");
        if side == Side::Large {
            assert_eq!(self.vacant, vacant, "listed as vacant against vacant");
        }
    }

    pub(crate) fn is_for_windows(&self, id: BlockId) -> bool {
        self.segments[self.blocks[id].slot].has_windows
    }

    /// Verifies H1: the count of what is small is that of the blocks. And H2: what small blocks no longer need is on
    /// the large side. So no byte of a home is on the small side, from which no page goes back, once all is free.
    fn check_homes(&self) {
        self.check_slabs();
        let small = self.blocks.iter().filter(|(_, block)| block.expandable && block.side == Side::Small);
        let small: u64 = small.map(|(_, block)| block.size).sum();
        if self.rules.moves_pages {
            assert_eq!(self.small_bytes, small, "bytes of homes on the small side");
            let free = self.free_blocks(Side::Small).filter(|(_, block)| block.expandable);
            for (id, block) in free {
                assert_eq!(self.returnable(id), None, "free on the small side, and no small block needs it: {block:?}");
            }
        }
    }

    /// Verifies that guarded parts lie in marked free or claimed blocks.
    fn check_guards(&self) {
        self.guards.check();
        for (slot, part) in self.guards.all() {
            for id in self.blocks_in(slot) {
                let block = &self.blocks[id];
                if block.offset < part.end && block.end() > part.begin {
                    let is_marked = block.state == State::Free && block.used_elsewhere;
                    assert!(is_marked || block.state == State::Claimed, "{part:?} is guarded in {block:?}");
                }
            }
        }
        for (_, block) in self.blocks.iter().filter(|(_, block)| block.state == State::Free && block.used_elsewhere) {
            assert!(block.last_use <= crate::block::LastUse::OVER, "the record has what {block:?} says");
        }
    }
}

fn mapped_bytes(segment: &Segment, begin: u64, end: u64) -> u64 {
    let mapped = segment.mappings.over(begin, end).filter(|(_, mapping)| mapping.role != Role::Leaving);
    mapped.map(|(at, mapping)| (at + mapping.bytes).min(end) - at.max(begin)).sum()
}
