//! The addresses of windows: ranges whose blocks are windows in use, windows that are kept, and vacant addresses.
//!
//! No block of these ranges is ever free: what is used through a window goes back to the homes of its pages.

use alloc::collections::{BTreeMap, BTreeSet};
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

/// The blocks of windows.
#[derive(Default)]
pub(super) struct Panes {
    /// The blocks that are in use, each with its memory.
    opened: BTreeMap<BlockId, Vec<Piece>>,
    /// The first block of each window, and the blocks of addresses that a window has lost and that are not yet vacant.
    /// They are not joined with what is in front of them.
    heads: BTreeSet<BlockId>,
}

impl Shard {
    /// Claims vacant addresses for a window. Behind the block in front of them as many addresses stay vacant as it has,
    /// if there are as many, so that its window can be lengthened. Returns the block, its slot and its offset.
    pub(crate) fn claim_vacant(&mut self, bytes: u64) -> Option<(BlockId, Slot, u64)> {
        let (id, room) = self.vacancy_for(bytes)?;
        let key = self.unmapped_key(id);
        self.vacant.remove(&key);
        let mut block = id;
        if room > 0 {
            block = self.cut(id, room);
            self.blocks[id].state = State::Unmapped;
            self.vacant.insert(key);
        }
        self.claim_vacancy(block, bytes);
        Some((block, self.blocks[block].slot, self.blocks[block].offset))
    }

    /// Claims the first `bytes` of addresses that are no longer listed as vacant; what is left of them is.
    fn claim_vacancy(&mut self, id: BlockId, bytes: u64) {
        if self.blocks[id].size > bytes {
            let rest = self.cut(id, bytes);
            self.blocks[rest].state = State::Unmapped;
            let key = self.unmapped_key(rest);
            self.vacant.insert(key);
        }
        self.blocks[id].state = State::Claimed;
    }

    /// Returns vacant addresses that are long enough, with the number of bytes to leave in front: the first that have
    /// all the room that the window in front of them should have, or else the longest.
    fn vacancy_for(&self, bytes: u64) -> Option<(BlockId, u64)> {
        let mut longest: Option<(u64, BlockId)> = None;
        for &(_, id) in &self.vacant {
            let block = &self.blocks[id];
            let Some(left) = block.size.checked_sub(bytes) else { continue };
            let wished = block.prev.some().map_or(0, |prev| self.blocks[prev].size);
            let page = self.segments[block.slot].page_bytes;
            let wished = wished.div_ceil(page) * page;
            if wished <= left {
                return Some((id, wished));
            }
            let half = left / 2 / page * page;
            if longest.is_none_or(|(most, _)| half > most) {
                longest = Some((half, id));
            }
        }
        longest.map(|(half, id)| (id, half))
    }

    /// Returns whether there are vacant addresses for a window.
    pub(crate) fn has_vacant(&self, bytes: u64) -> bool {
        self.vacant.iter().any(|&(_, id)| self.blocks[id].size >= bytes)
    }

    /// Returns the vacant addresses directly behind a place in a range for windows, with their length.
    ///
    /// # Panics
    ///
    /// If no block of the window that begins with `head` ends there.
    pub(crate) fn room_behind(&self, head: BlockId, end: u64) -> Option<(BlockId, u64)> {
        let last = self.pane(head, end - 1);
        let next = self.blocks[last].next.some().filter(|_| self.blocks[last].end() == end)?;
        let block = &self.blocks[next];
        (block.state == State::Unmapped).then_some((next, block.size))
    }

    /// Claims the first `bytes` of vacant addresses behind a window.
    pub(crate) fn claim_behind(&mut self, id: BlockId, bytes: u64) {
        let key = self.unmapped_key(id);
        assert!(self.vacant.remove(&key), "block {} is not listed as vacant", id.0);
        self.claim_vacancy(id, bytes);
    }

    /// Gives claimed addresses back of which only the first `mapped` bytes have pages. Returns whether there are some.
    pub(crate) fn keep_mapped(&mut self, id: BlockId, mapped: u64) -> bool {
        if mapped == 0 {
            self.list_vacant(id);
            return false;
        }
        if mapped < self.blocks[id].size {
            let rest = self.cut(id, mapped);
            self.list_vacant(rest);
        }
        true
    }

    /// Notes that claimed addresses are a new window. What is in front of `front` bytes is not used yet. Returns the
    /// claimed block that begins there.
    pub(crate) fn begin_window(&mut self, id: BlockId, front: u64) -> BlockId {
        self.panes.heads.insert(id);
        let mut block = id;
        if front > 0 {
            block = self.cut(id, front);
            self.blocks[id].state = State::Kept;
        }
        block
    }

    /// Joins claimed addresses behind a claimed part of a window with it.
    pub(crate) fn join_claimed(&mut self, run: BlockId, behind: BlockId) {
        self.absorb(run, behind);
    }

    /// Returns the block of the window that begins with `head` that has the byte at an offset.
    fn pane(&self, head: BlockId, offset: u64) -> BlockId {
        let mut blocks = core::iter::successors(Some(head), |&id| self.blocks[id].next.some());
        let found = blocks.find(|&id| self.blocks[id].end() > offset);
        match found {
            Some(id) if self.blocks[id].offset <= offset => id,
            _ => panic!("no block at {offset} in the window that begins with block {}", head.0),
        }
    }

    /// Claims a part of the window that begins with `head`. Nothing uses the memory behind it.
    ///
    /// # Panics
    ///
    /// If these addresses are in use.
    pub(crate) fn claim_run(&mut self, head: BlockId, offset: u64, bytes: u64) -> BlockId {
        let id = self.pane(head, offset);
        let block = &self.blocks[id];
        let inside = block.state == State::Kept && offset + bytes <= block.end();
        assert!(inside, "{bytes} bytes at {offset} of a window are claimed: {block:?}");
        let mut run = id;
        if offset > block.offset {
            run = self.cut(id, offset - block.offset);
        }
        if self.blocks[run].size > bytes {
            self.cut(run, bytes);
        }
        self.blocks[run].state = State::Claimed;
        run
    }

    /// Gives a claimed part of a window back: nothing uses it.
    pub(crate) fn unclaim_run(&mut self, id: BlockId) {
        assert_eq!(self.blocks[id].state, State::Claimed, "block {} is given back", id.0);
        self.keep(id);
    }

    /// Keeps addresses of a window that nothing uses any more, joined with what is kept beside them.
    fn keep(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        block.state = State::Kept;
        let (prev, next) = (block.prev, block.next);
        let joins = |id: BlockId| self.blocks[id].state == State::Kept;
        let before = prev.some().filter(|&prev| joins(prev) && !self.panes.heads.contains(&id));
        let behind = next.some().filter(|&next| joins(next) && !self.panes.heads.contains(&next));
        if let Some(behind) = behind {
            self.absorb(id, behind);
        }
        if let Some(before) = before {
            self.absorb(before, id);
        }
    }

    /// Hands a claimed part of a window out whose memory is `pieces`, all of which are away. `last_use` is that of the
    /// memory.
    pub(crate) fn open_window(&mut self, id: BlockId, pieces: Vec<Piece>, last_use: LastUse, want: &Want) -> Grant {
        debug_assert!(self.blocks[id].size >= want.rounded && want.side == Side::Large);
        if self.blocks[id].size > want.rounded {
            let rest = self.cut(id, want.rounded);
            self.keep(rest);
        }
        let block = &mut self.blocks[id];
        block.state = State::Live;
        block.requested = want.requested;
        // The free of a block that is used elsewhere does not take the short way.
        block.used_elsewhere = true;
        let (slot, offset) = (block.slot, block.offset);
        self.note_window(slot, offset, want.rounded, &pieces);
        self.panes.opened.insert(id, pieces);
        let oversize = want.rounded >= self.rules.max_split;
        let unsettled = self.meter.grant(Side::Large, want.rounded, want.requested, oversize, SplitChange::default());
        Grant { block: id, slot, offset, size: want.rounded, base: self.segments[slot].base, last_use, unsettled }
    }

    /// Returns whether a block is a part of a window that is in use.
    pub(super) fn is_opened(&self, id: BlockId) -> bool {
        self.panes.opened.contains_key(&id)
    }

    /// Returns the memory of a part of a window that is in use.
    pub(super) fn pieces_if_opened(&self, id: BlockId) -> Option<&[Piece]> {
        self.panes.opened.get(&id).map(Vec::as_slice)
    }

    /// Returns whether a window begins with the block, or addresses that a window has lost.
    pub(super) fn begins_window(&self, id: BlockId) -> bool {
        self.panes.heads.contains(&id)
    }

    /// Returns the parts of windows that are in use.
    pub(super) fn opened(&self) -> impl Iterator<Item = BlockId> {
        self.panes.opened.keys().copied()
    }

    /// Returns the shards that have memory in use through windows of this one.
    pub(crate) fn lenders(&self) -> Vec<ShardId> {
        self.panes.opened.values().flatten().map(|piece| piece.shard).collect()
    }

    /// Returns whether the free of a part of a window has to wait for the stream's own work: where its memory is that
    /// of other streams, or the device does not keep a stream's order at other addresses.
    pub(super) fn waits_for_itself(&self, id: BlockId) -> bool {
        let is_foreign = |pieces: &Vec<Piece>| pieces.iter().any(|piece| piece.shard != self.id);
        self.rules.alias_reuse != Reuse::InOrder || self.panes.opened.get(&id).is_some_and(is_foreign)
    }

    /// Closes a part of a window that was freed, and nothing uses any more: its addresses are kept, and its memory goes
    /// home. What belongs to other shards is left to the coordinator.
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

    /// Keeps a part of a window that was freed. Returns its last use, whether it may hold the data of another user, and
    /// its memory.
    pub(super) fn shut_window(&mut self, id: BlockId) -> (LastUse, bool, Vec<Piece>) {
        let Some(pieces) = self.panes.opened.remove(&id) else { panic!("block {} is not open", id.0) };
        let Block { last_use, slot, offset, size, .. } = self.blocks[id];
        // What was not overwritten at the grant may hold the data of another user still.
        let is_foreign = self.is_foreign(slot, offset, size);
        self.blocks[id].used_elsewhere = false;
        self.keep(id);
        (last_use, is_foreign, pieces)
    }

    /// Takes the memory of other shards that came back with windows.
    pub(crate) fn take_returns(&mut self) -> Vec<Return> {
        core::mem::take(&mut self.returns)
    }

    /// Returns the point up to which the byte at an offset of the window that begins with `head` was used there.
    pub(crate) fn window_point(&self, head: BlockId, offset: u64) -> Point {
        self.last_point(self.pane(head, offset))
    }

    /// Returns whether nothing of the window is in use that begins with `head` and ends at an offset.
    pub(crate) fn is_idle_window(&self, head: BlockId, end: u64) -> bool {
        self.blocks[head].state == State::Kept && self.blocks[head].end() == end
    }

    /// Takes the addresses of a page out of the window that begins with `head`, of which nothing is used there. Returns
    /// their block and the one behind it, with which the rest of the window begins, if `has_rest`.
    pub(crate) fn take_out(
        &mut self,
        head: BlockId,
        (offset, bytes): (u64, u64),
        has_rest: bool,
    ) -> (BlockId, Option<BlockId>) {
        let out = self.claim_run(head, offset, bytes);
        self.blocks[out].state = State::Kept;
        self.panes.heads.insert(out);
        let behind = self.blocks[out].next.some().filter(|_| has_rest);
        self.panes.heads.extend(behind);
        (out, behind)
    }

    /// Returns whether no page is mapped at addresses that a window has lost.
    pub(crate) fn is_bare_window(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        let mut mapped = self.segments[block.slot].mappings.over(block.offset, block.end());
        block.state == State::Kept && mapped.next().is_none()
    }

    /// Makes addresses vacant that a window has lost: nothing is mapped there any more.
    pub(crate) fn vacate_window(&mut self, id: BlockId) {
        assert_eq!(self.blocks[id].state, State::Kept, "block {} of a window is vacated", id.0);
        assert!(self.panes.heads.remove(&id), "block {} begins no window", id.0);
        self.list_vacant(id);
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
    fn scene() -> (Shard, Vec<BlockId>, Slot) {
        let (mut shard, _, ids) = with_gaps(&[4, 2, 6]);
        let slot = add_range(&mut shard, true);
        (shard, ids, slot)
    }

    /// Keeps a window of 10 MiB, or of 11 behind `front` bytes that are 1 MiB. Returns its first block.
    fn keep(shard: &mut Shard, slot: Slot, front: u64) -> BlockId {
        let bytes = (10 * MIB + front).next_multiple_of(2 * MIB);
        let (block, at, offset) = shard.claim_vacant(bytes).expect("there are addresses");
        assert_eq!(at, slot);
        map(shard, slot, (offset, offset + bytes), Role::Window);
        let run = shard.begin_window(block, front);
        shard.unclaim_run(run);
        settle(shard);
        block
    }

    /// Claims a part of a free block, from one MiB to another.
    fn claim(shard: &mut Shard, block: BlockId, begin: u64, end: u64) -> (BlockId, LastUse, Points) {
        shard.claim_part(&shard.tile(block), begin * MIB, end * MIB).expect("it is free")
    }

    /// Hands the part of a window that begins at an offset out over these parts of free blocks.
    fn open(shard: &mut Shard, head: BlockId, offset: u64, parts: &[(BlockId, u64, u64)]) -> Grant {
        let bytes: u64 = parts.iter().map(|(_, begin, end)| end - begin).sum();
        let run = shard.claim_run(head, offset * MIB, bytes * MIB);
        let mut pieces = Vec::new();
        let mut last_use = LastUse::NEVER;
        for &(block, begin, end) in parts {
            let (block, used, _) = claim(shard, block, begin, end);
            shard.goes_away(block);
            last_use = last_use.max(used);
            pieces.push(Piece { shard: shard.id, block });
        }
        let grant = shard.open_window(run, pieces, last_use, &want(bytes * MIB));
        settle(shard);
        grant
    }

    fn free_places(shard: &Shard) -> Vec<(u64, u64)> {
        shard.tiles_now().iter().map(|tile| (tile.begin / MIB, tile.end / MIB)).collect()
    }

    /// Returns the vacant addresses, as offset and length in MiB.
    fn vacant(shard: &Shard) -> Vec<(u64, u64)> {
        shard.vacant.iter().map(|&(_, id)| (shard.blocks[id].offset / MIB, shard.blocks[id].size / MIB)).collect()
    }

    /// Returns the blocks of a window in order, each with its length in MiB and its state.
    fn panes(shard: &Shard, head: BlockId) -> Vec<(u64, State)> {
        let blocks = core::iter::successors(Some(head), |&id| shard.blocks[id].next.some());
        let panes = blocks.map(|id| (shard.blocks[id].size / MIB, shard.blocks[id].state));
        panes.take_while(|pane| pane.1 != State::Unmapped).collect()
    }

    /// Behind a window in one block as many addresses stay vacant as it has, as long as there are as many.
    #[test]
    fn windows_have_room_behind_them() {
        let (mut shard, _, slot) = scene();
        let [first, second, third] = [8, 4, 6].map(|mib| shard.claim_vacant(mib * MIB).expect("there are addresses"));
        assert_eq!((first.2, second.2, third.2), (0, 16 * MIB, 24 * MIB));
        assert_eq!((vacant(&shard), third.1), (vec![(8, 8), (20, 4), (30, 34)], slot));
        assert!(shard.has_vacant(34 * MIB) && !shard.has_vacant(36 * MIB));
        let fourth = shard.claim_vacant(30 * MIB).expect("there are addresses");
        assert_eq!(
            (fourth.2, vacant(&shard)),
            (32 * MIB, vec![(8, 8), (20, 4), (30, 2), (62, 2)]),
            "half of what is left"
        );
        assert_eq!(shard.claim_vacant(10 * MIB), None);
        assert_eq!(shard.room_behind(first.0, 8 * MIB).map(|room| room.1), Some(8 * MIB));
        let (room, _) = shard.room_behind(third.0, 30 * MIB).expect("there is room");
        shard.claim_behind(room, 2 * MIB);
        assert_eq!((shard.room_behind(third.0, 30 * MIB), vacant(&shard)), (None, vec![(8, 8), (20, 4), (62, 2)]));
        shard.list_vacant(second.0);
        assert_eq!(vacant(&shard), [(8, 16), (62, 2)], "neighbours are one");
    }

    /// The memory of a window is away while its block is in use, and home as soon as that is freed. Its last use is
    /// that of the window.
    #[test]
    fn the_memory_of_a_window_is_home_once_it_is_freed() {
        let (mut shard, ids, slot) = scene();
        let window = keep(&mut shard, slot, 0);
        for tick in [5, 6] {
            let grant = open(&mut shard, window, 0, &[(ids[2], 6, 12), (ids[0], 0, 4)]);
            assert_eq!((grant.slot, grant.offset, grant.size), (slot, 0, 10 * MIB));
            assert_eq!(grant.last_use.tick(), Tick(if tick == 5 { 3 } else { 5 }));
            assert_eq!(free_places(&shard), []);
            free(&mut shard, grant.block, tick);
            let uses: Vec<_> = shard.tiles_now().iter().map(|tile| tile.last_use.tick()).collect();
            assert_eq!((free_places(&shard), uses), (vec![(0, 4), (6, 12)], vec![Tick(tick); 2]));
            assert!(shard.is_idle_window(window, 10 * MIB));
        }
    }

    /// Two blocks have parts of one window at once. Its addresses are one block again when both are freed, in whatever
    /// order.
    #[test]
    fn a_window_that_is_used_in_parts_is_whole_again() {
        for order in [[0, 1], [1, 0]] {
            let (mut shard, ids, slot) = scene();
            let window = keep(&mut shard, slot, MIB);
            let blocks = [(3, (ids[2], 7, 10)), (8, (ids[0], 1, 3))].map(|(at, (block, begin, end))| {
                let grant = open(&mut shard, window, at, &[(block, begin, end)]);
                assert_eq!((grant.offset, grant.size), (at * MIB, (end - begin) * MIB));
                grant.block
            });
            let [kept, live] = [State::Kept, State::Live];
            assert_eq!(panes(&shard, window), [(3, kept), (3, live), (2, kept), (2, live), (2, kept)]);
            assert_eq!(free_places(&shard), [(0, 1), (3, 4), (6, 7), (10, 12)]);
            assert!(!shard.is_idle_window(window, 12 * MIB));
            order.into_iter().zip(8..).for_each(|(at, tick)| free(&mut shard, blocks[at], tick));
            assert_eq!((panes(&shard, window), free_places(&shard)), (vec![(12, kept)], vec![(0, 4), (6, 12)]));
            assert_eq!(shard.window_point(window, 0).tick, Tick(9), "the last use of all its addresses");
        }
    }

    /// A window that is lengthened is one with what is behind it, and the next window is not.
    #[test]
    fn a_longer_window_does_not_join_with_the_next_one() {
        let (mut shard, ids, slot) = scene();
        let [window, next] = [0; 2].map(|front| keep(&mut shard, slot, front));
        assert_eq!(shard.blocks[next].offset, 20 * MIB);
        let (room, bytes) = shard.room_behind(window, 10 * MIB).expect("there is room");
        assert_eq!(bytes, 10 * MIB);
        shard.claim_behind(room, bytes);
        map(&mut shard, slot, (10 * MIB, 20 * MIB), Role::Window);
        let run = shard.claim_run(window, 8 * MIB, 2 * MIB);
        shard.join_claimed(run, room);
        let pieces = [(ids[0], 0, 4)].map(|(block, begin, end)| {
            let (block, ..) = claim(&mut shard, block, begin, end);
            shard.goes_away(block);
            Piece { shard: shard.id, block }
        });
        let grant = shard.open_window(run, pieces.to_vec(), LastUse::NEVER, &want(4 * MIB));
        settle(&mut shard);
        let [kept, live] = [State::Kept, State::Live];
        assert_eq!(panes(&shard, window), [(8, kept), (4, live), (8, kept), (10, kept)]);
        free(&mut shard, grant.block, 8);
        assert_eq!(panes(&shard, window), [(20, kept), (10, kept)]);
        let front = open(&mut shard, next, 20, &[(ids[2], 6, 10)]);
        free(&mut shard, front.block, 9);
        assert_eq!(panes(&shard, window), [(20, kept), (10, kept)], "nor does the next one join with it");
    }

    /// Addresses that a window has lost are vacant once no page is mapped there, and what is left on both sides of them
    /// stays.
    #[test]
    fn a_page_leaves_a_window() {
        let (mut shard, ids, slot) = scene();
        let window = keep(&mut shard, slot, 0);
        let live = open(&mut shard, window, 7, &[(ids[2], 7, 9)]);
        let at = crate::ids::Place { shard: ShardId(0), slot, offset: 2 * MIB };
        shard.page_leaves(at);
        let (out, behind) = shard.take_out(window, (at.offset, 2 * MIB), true);
        assert!(!shard.is_bare_window(out), "the driver is still unmapping");
        let rest = behind.expect("there is a rest");
        shard.page_unmapped(at, crate::ids::PageId(1));
        assert!(shard.is_bare_window(out) && !shard.is_bare_window(window));
        shard.vacate_window(out);
        settle(&mut shard);
        assert_eq!(vacant(&shard), [(2, 2), (10, 54)]);
        free(&mut shard, live.block, 8);
        assert_eq!((panes(&shard, window), panes(&shard, rest)), (vec![(2, State::Kept)], vec![(6, State::Kept)]));
        let (out, behind) = shard.take_out(rest, (8 * MIB, 2 * MIB), false);
        assert_eq!((shard.blocks[out].size, behind), (2 * MIB, None));
    }

    /// What is behind addresses that a window has lost is a window of its own, also if it is freed before these are
    /// vacant.
    #[test]
    fn what_is_behind_lost_addresses_does_not_join_with_them() {
        let (mut shard, ids, slot) = scene();
        let window = keep(&mut shard, slot, 0);
        let live = open(&mut shard, window, 4, &[(ids[2], 7, 9)]);
        let at = crate::ids::Place { shard: ShardId(0), slot, offset: 2 * MIB };
        shard.page_leaves(at);
        let (out, rest) = shard.take_out(window, (at.offset, 2 * MIB), true);
        assert_eq!(rest, Some(live.block));
        free(&mut shard, live.block, 8);
        shard.page_unmapped(at, crate::ids::PageId(1));
        shard.vacate_window(out);
        settle(&mut shard);
        assert_eq!((vacant(&shard), panes(&shard, live.block)), (vec![(2, 2), (10, 54)], vec![(6, State::Kept)]));
    }

    /// A page is being unmapped for one plan. Another one would unmap it a second time.
    #[test]
    #[should_panic(expected = "no page of a window to unmap")]
    fn a_page_leaves_a_window_once() {
        let (mut shard, _, slot) = scene();
        keep(&mut shard, slot, 0);
        let at = crate::ids::Place { shard: ShardId(0), slot, offset: 2 * MIB };
        (0..2).for_each(|_| shard.page_leaves(at));
    }

    /// What is not mapped of claimed addresses is vacant again.
    #[test]
    fn addresses_that_were_claimed_in_vain_are_vacant() {
        let (mut shard, _, slot) = scene();
        let (block, _, offset) = shard.claim_vacant(10 * MIB).expect("there are addresses");
        map(&mut shard, slot, (offset, offset + 4 * MIB), Role::Window);
        assert!(shard.keep_mapped(block, 4 * MIB));
        let run = shard.begin_window(block, MIB);
        shard.unclaim_run(run);
        settle(&mut shard);
        assert_eq!((panes(&shard, block), vacant(&shard)), (vec![(4, State::Kept)], vec![(4, 60)]));
        let (block, ..) = shard.claim_vacant(10 * MIB).expect("there are addresses");
        assert!(!shard.keep_mapped(block, 0));
        assert_eq!(vacant(&shard), [(4, 60)]);
    }

    /// A window with another shard's memory waits for its own stream, and hands that memory to the coordinator.
    #[test]
    fn memory_of_another_shard_is_left_to_the_coordinator() {
        let (mut shard, ids, slot) = scene();
        let window = keep(&mut shard, slot, 0);
        let run = shard.claim_run(window, 0, 10 * MIB);
        let (own, last_use, _) = claim(&mut shard, ids[2], 6, 12);
        shard.goes_away(own);
        let foreign = Piece { shard: ShardId(1), block: BlockId(77) };
        let pieces = vec![Piece { shard: ShardId(0), block: own }, foreign];
        let grant = shard.open_window(run, pieces, last_use, &want(10 * MIB));
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
    #[should_panic(expected = "of a window are claimed")]
    fn addresses_in_use_are_not_claimed() {
        let (mut shard, ids, slot) = scene();
        let window = keep(&mut shard, slot, 0);
        open(&mut shard, window, 0, &[(ids[2], 6, 12)]);
        shard.claim_run(window, 2 * MIB, 2 * MIB);
    }

    #[test]
    #[should_panic(expected = "of a window are claimed")]
    fn addresses_behind_what_is_kept_are_not_claimed() {
        let (mut shard, ids, slot) = scene();
        let window = keep(&mut shard, slot, 0);
        open(&mut shard, window, 4, &[(ids[2], 6, 12)]);
        shard.claim_run(window, 2 * MIB, 4 * MIB);
    }

    /// Where no vacant addresses have all the room, a window is made in the longest ones.
    #[test]
    fn room_is_left_in_the_longest_addresses() {
        let (mut shard, ..) = scene();
        let offsets = [40, 14].map(|mib| shard.claim_vacant(mib * MIB).expect("there are addresses").2 / MIB);
        assert_eq!((offsets, vacant(&shard)), ([0, 44], vec![(40, 4), (58, 6)]));
        assert_eq!(shard.claim_vacant(2 * MIB).map(|(.., offset)| offset), Some(60 * MIB));
    }
}
