//! The addresses of windows: ranges whose blocks are windows in use, windows that are kept, and vacant addresses.
//!
//! No block of these ranges is ever free: what is used through a window goes back to the homes of its pages.

use alloc::vec::Vec;

use millpond_backend::{Point, Reuse};

use super::{Grant, Return, Shard};
use crate::block::{Block, State};
use crate::books::Points;
use crate::ids::{BlockId, ShardId, Side, Slot};
use crate::last_use::LastUse;
use crate::meter::SplitChange;
use crate::size::Want;

/// Memory in use through a window: a block at home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) shard: ShardId,
    pub(crate) block: BlockId,
}

/// A window in use.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pieces: Vec<Piece>,
    /// The bytes of the window's addresses, of which the block has a part.
    whole: u64,
}

impl Shard {
    /// Claims vacant addresses for a window. Returns the block, its slot and its offset.
    pub(crate) fn claim_vacant(&mut self, bytes: u64) -> Option<(BlockId, Slot, u64)> {
        let found = self.vacant.iter().copied().find(|&(_, id)| self.blocks[id].size >= bytes)?;
        self.vacant.remove(&found);
        let (_, id) = found;
        if self.blocks[id].size > bytes {
            let rest = self.cut(id, bytes);
            self.blocks[rest].state = State::Unmapped;
            let key = self.unmapped_key(rest);
            self.vacant.insert(key);
        }
        self.blocks[id].state = State::Claimed;
        Some((id, self.blocks[id].slot, self.blocks[id].offset))
    }

    /// Returns whether there are vacant addresses for a window.
    pub(crate) fn has_vacant(&self, bytes: u64) -> bool {
        self.vacant.iter().any(|&(_, id)| self.blocks[id].size >= bytes)
    }

    /// Turns claimed addresses into a kept window that begins `front` bytes behind their beginning. Returns its block.
    pub(crate) fn keep_window(&mut self, id: BlockId, front: u64) -> BlockId {
        let mut window = id;
        if front > 0 {
            window = self.cut(id, front);
            self.blocks[id].state = State::Kept;
        }
        let block = &mut self.blocks[window];
        (block.state, block.last_use) = (State::Kept, LastUse::NEVER);
        window
    }

    /// Returns whether a window is kept and not in use.
    pub(crate) fn is_kept(&self, id: BlockId) -> bool {
        self.blocks[id].state == State::Kept
    }

    /// Claims a kept window for a plan.
    pub(crate) fn claim_window(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        assert_eq!(block.state, State::Kept, "window {} is claimed", id.0);
        block.state = State::Claimed;
    }

    /// Gives a claimed window back unused.
    pub(crate) fn unclaim_window(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        assert_eq!(block.state, State::Claimed, "window {} is given back", id.0);
        block.state = State::Kept;
    }

    /// Hands out a claimed window whose memory is `pieces`, all of which are away. `last_use` is that of the memory.
    pub(crate) fn open_window(&mut self, id: BlockId, pieces: Vec<Piece>, last_use: LastUse, want: &Want) -> Grant {
        let whole = self.blocks[id].size;
        debug_assert!(whole >= want.rounded && want.side == Side::Large);
        if whole > want.rounded {
            let rest = self.cut(id, want.rounded);
            self.blocks[rest].state = State::Kept;
        }
        let block = &mut self.blocks[id];
        block.state = State::Live;
        block.requested = want.requested;
        // The free of a block that is used elsewhere does not take the short way.
        block.used_elsewhere = true;
        let (slot, offset) = (block.slot, block.offset);
        self.note_window(slot, offset, want.rounded, &pieces);
        self.opened.insert(id, Opened { pieces, whole });
        let oversize = want.rounded >= self.rules.max_split;
        let unsettled = self.meter.grant(Side::Large, want.rounded, want.requested, oversize, SplitChange::default());
        Grant { block: id, slot, offset, size: want.rounded, base: self.segments[slot].base, last_use, unsettled }
    }

    /// Returns whether a block is a window in use.
    pub(super) fn is_opened(&self, id: BlockId) -> bool {
        self.opened.contains_key(&id)
    }

    /// Returns whether the free of a window has to wait for the stream's own work: where its memory is that of other
    /// streams, or the device does not keep a stream's order at other addresses.
    pub(super) fn waits_for_itself(&self, id: BlockId) -> bool {
        let is_foreign = |opened: &Opened| opened.pieces.iter().any(|piece| piece.shard != self.id);
        self.rules.alias_reuse != Reuse::InOrder || self.opened.get(&id).is_some_and(is_foreign)
    }

    /// Closes a window that was freed, and nothing uses any more: its addresses are kept, and its memory goes home.
    /// What belongs to other shards is left to the coordinator.
    pub(super) fn close_window(&mut self, id: BlockId, clock: u64) {
        let (last_use, is_foreign, pieces) = self.shut_window(id);
        for piece in pieces {
            if piece.shard == self.id {
                self.comes_home(piece.block, last_use, is_foreign, clock);
            } else {
                self.returns.push((piece, Points::default()));
            }
        }
    }

    /// Keeps a window that was freed. Returns its last use, whether it may hold the data of another user, and its
    /// memory.
    pub(super) fn shut_window(&mut self, id: BlockId) -> (LastUse, bool, Vec<Piece>) {
        let Some(Opened { pieces, whole }) = self.opened.remove(&id) else { panic!("window {} is not open", id.0) };
        let Block { last_use, slot, offset, size, .. } = self.blocks[id];
        // What was not overwritten at the grant may hold the data of another user still.
        let is_foreign = self.is_foreign(slot, offset, size);
        if self.blocks[id].size < whole
            && let Some(rest) = self.blocks[id].next.some()
        {
            debug_assert_eq!(self.blocks[rest].state, State::Kept);
            self.absorb(id, rest);
        }
        let block = &mut self.blocks[id];
        (block.state, block.last_use) = (State::Kept, last_use);
        (last_use, is_foreign, pieces)
    }

    /// Takes the memory of other shards that came back with windows.
    pub(crate) fn take_returns(&mut self) -> Vec<Return> {
        core::mem::take(&mut self.returns)
    }

    /// Returns the point up to which a window was used.
    pub(crate) fn window_point(&self, id: BlockId) -> Point {
        self.last_point(id)
    }

    /// Returns whether no page is mapped at the addresses of a window, and it is not in use.
    pub(crate) fn is_bare_window(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        let mut mapped = self.segments[block.slot].mapped_in(block.offset, block.end());
        block.state == State::Kept && mapped.next().is_none()
    }

    /// Makes the addresses of a kept window vacant: nothing is mapped there any more. `front` is the number of bytes
    /// between the beginning of its first page and its own.
    pub(crate) fn vacate_window(&mut self, id: BlockId, front: u64) {
        let block = &self.blocks[id];
        assert_eq!(block.state, State::Kept, "window {} is vacated", id.0);
        let before = block.prev.some().filter(|_| front > 0);
        let whole = before.map_or(id, |before| self.absorb(before, id));
        self.list_vacant(whole);
    }

    /// Lists addresses as vacant, joined with vacant neighbours.
    pub(crate) fn list_vacant(&mut self, id: BlockId) {
        let (prev, next) = (self.blocks[id].prev, self.blocks[id].next);
        let mut whole = id;
        for (neighbour, is_before) in [(prev, true), (next, false)] {
            if let Some(neighbour) = neighbour.some()
                && self.blocks[neighbour].state == State::Unmapped
            {
                let key = self.unmapped_key(neighbour);
                assert!(self.vacant.remove(&key), "block {} is not listed as vacant", neighbour.0);
                whole = if is_before { self.absorb(neighbour, whole) } else { self.absorb(whole, neighbour) };
            }
        }
        let block = &mut self.blocks[whole];
        (block.state, block.last_use) = (State::Unmapped, LastUse::NEVER);
        let key = self.unmapped_key(whole);
        self.vacant.insert(key);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use millpond_backend::Tick;

    use super::*;
    use crate::segment::Role;
    use crate::shard::Freed;
    use crate::shard::home::tests::{add_range, free, map, settle, want, with_gaps};
    use crate::units::MIB;

    /// A shard with 4 MiB free, 2 in use and 6 free at home, and 64 MiB of addresses for windows.
    fn scene() -> (Shard, Slot, Vec<BlockId>, Slot) {
        let (mut shard, home, ids) = with_gaps(&[4, 2, 6]);
        let slot = add_range(&mut shard, true);
        (shard, home, ids, slot)
    }

    /// Keeps a window of 10 MiB, or of 11 behind `front` bytes that are 1 MiB.
    fn keep(shard: &mut Shard, slot: Slot, front: u64) -> BlockId {
        let bytes = (10 * MIB + front).next_multiple_of(2 * MIB);
        let (block, at, offset) = shard.claim_vacant(bytes).expect("there are addresses");
        assert_eq!(at, slot);
        map(shard, slot, (offset, offset + bytes), Role::Window);
        let window = shard.keep_window(block, front);
        settle(shard);
        window
    }

    /// Hands a window out over these parts of free blocks.
    fn open(shard: &mut Shard, window: BlockId, parts: &[(BlockId, Slot, u64, u64)]) -> Grant {
        shard.claim_window(window);
        let mut pieces = Vec::new();
        let mut last_use = LastUse::NEVER;
        for &(block, slot, begin, end) in parts {
            let (block, used, _) = shard.claim_part(block, slot, begin * MIB, end * MIB).expect("it is free");
            shard.goes_away(block);
            last_use = last_use.max(used);
            pieces.push(Piece { shard: shard.id, block });
        }
        let bytes: u64 = parts.iter().map(|(.., begin, end)| end - begin).sum();
        let grant = shard.open_window(window, pieces, last_use, &want(bytes * MIB));
        settle(shard);
        grant
    }

    fn free_places(shard: &Shard) -> Vec<(u64, u64)> {
        shard.tiles_by_place(0).iter().map(|tile| (tile.begin / MIB, tile.end / MIB)).collect()
    }

    /// Returns the vacant addresses, as offset and length in MiB.
    fn vacant(shard: &Shard) -> Vec<(u64, u64)> {
        shard.vacant.iter().map(|&(_, id)| (shard.blocks[id].offset / MIB, shard.blocks[id].size / MIB)).collect()
    }

    #[test]
    fn vacant_addresses_are_taken_from_the_first_place_that_is_long_enough() {
        let (mut shard, _, _, slot) = scene();
        let [first, second, third] = [4, 2, 6].map(|mib| shard.claim_vacant(mib * MIB).expect("there are addresses"));
        assert_eq!((first.2, second.2, third.2, vacant(&shard)), (0, 4 * MIB, 6 * MIB, vec![(12, 52)]));
        shard.list_vacant(first.0);
        assert_eq!(vacant(&shard), [(0, 4), (12, 52)]);
        assert!(shard.has_vacant(52 * MIB) && !shard.has_vacant(54 * MIB));
        assert_eq!(shard.claim_vacant(6 * MIB).map(|(_, at, offset)| (at, offset)), Some((slot, 12 * MIB)));
        shard.list_vacant(second.0);
        assert_eq!(vacant(&shard), [(0, 6), (18, 46)], "neighbours are one");
        assert_eq!(shard.claim_vacant(6 * MIB).map(|(.., offset)| offset), Some(0));
        assert_eq!(shard.claim_vacant(48 * MIB), None);
    }

    /// The memory of a window is away while its block is in use, and home as soon as that is freed. Its last use is
    /// that of the window.
    #[test]
    fn the_memory_of_a_window_is_home_once_it_is_freed() {
        let (mut shard, home, ids, slot) = scene();
        let window = keep(&mut shard, slot, 0);
        for tick in [5, 6] {
            let grant = open(&mut shard, window, &[(ids[2], home, 6, 12), (ids[0], home, 0, 4)]);
            assert_eq!((grant.slot, grant.offset, grant.size), (slot, 0, 10 * MIB));
            assert_eq!(grant.last_use.tick(), Tick(if tick == 5 { 3 } else { 5 }));
            assert_eq!(free_places(&shard), []);
            free(&mut shard, grant.block, tick);
            let uses: Vec<_> = shard.tiles_by_place(0).iter().map(|tile| tile.last_use.tick()).collect();
            assert_eq!((free_places(&shard), uses), (vec![(0, 4), (6, 12)], vec![Tick(tick); 2]));
            assert_eq!(shard.blocks[window].state, State::Kept);
        }
    }

    /// A block of a part of a window has the front of its addresses. They are whole again once it is freed.
    #[test]
    fn a_window_that_is_used_in_part_is_whole_again() {
        let (mut shard, home, ids, slot) = scene();
        let window = keep(&mut shard, slot, MIB);
        let grant = open(&mut shard, window, &[(ids[2], home, 7, 12)]);
        assert_eq!((grant.offset, grant.size), (MIB, 5 * MIB), "the head of the first page is not the window's");
        let rest = shard.blocks[grant.block].next;
        assert_eq!((shard.blocks[rest].state, shard.blocks[rest].size), (State::Kept, 6 * MIB));
        assert_eq!(free_places(&shard), [(0, 4), (6, 7)]);
        free(&mut shard, grant.block, 8);
        assert_eq!((shard.blocks[window].size, shard.window_point(window).tick), (11 * MIB, Tick(8)));
        assert_eq!(free_places(&shard), [(0, 4), (6, 12)]);
    }

    /// A window is vacated with the bytes in front of it, once no page is mapped there.
    #[test]
    fn a_window_is_vacated_once_it_is_bare() {
        for front in [0, MIB] {
            let (mut shard, _, _, slot) = scene();
            let window = keep(&mut shard, slot, front);
            assert!(!shard.is_bare_window(window));
            let bytes = (10 * MIB + front).next_multiple_of(2 * MIB);
            for offset in (0..bytes).step_by(2 << 20) {
                let at = crate::ids::Place { shard: ShardId(0), slot, offset };
                shard.page_leaves(at);
                assert!(!shard.is_bare_window(window), "the driver is still unmapping");
                shard.page_unmapped(at, crate::ids::PageId((offset / (2 * MIB)) as u32));
            }
            assert!(shard.is_bare_window(window));
            shard.vacate_window(window, front);
            assert_eq!(vacant(&shard), [(0, 64)]);
        }
    }

    /// A window with another shard's memory waits for its own stream, and hands that memory to the coordinator.
    #[test]
    fn memory_of_another_shard_is_left_to_the_coordinator() {
        let (mut shard, home, ids, slot) = scene();
        let window = keep(&mut shard, slot, 0);
        shard.claim_window(window);
        let (own, last_use, _) = shard.claim_part(ids[2], home, 6 * MIB, 12 * MIB).expect("it is free");
        shard.goes_away(own);
        let foreign = Piece { shard: ShardId(1), block: BlockId(77) };
        let pieces = vec![Piece { shard: ShardId(0), block: own }, foreign];
        let grant = shard.open_window(window, pieces, last_use, &want(10 * MIB));
        settle(&mut shard);
        let Freed::Pending(uses) = shard.free(grant.block, Tick(9), 0) else { panic!("it waits for its own stream") };
        assert_eq!((uses.streams, free_places(&shard)), (vec![shard.stream], vec![(0, 4)]));
        assert!(shard.take_returns().is_empty());
        shard.point_reached(grant.block, [0; 2]);
        assert_eq!(
            (shard.take_returns(), free_places(&shard)),
            (vec![(foreign, Points::default())], vec![(0, 4), (6, 12)])
        );
        settle(&mut shard);
    }

    #[test]
    #[should_panic(expected = "is claimed")]
    fn a_window_in_use_is_not_claimed() {
        let (mut shard, home, ids, slot) = scene();
        let window = keep(&mut shard, slot, 0);
        open(&mut shard, window, &[(ids[2], home, 6, 12)]);
        shard.claim_window(window);
    }
}
