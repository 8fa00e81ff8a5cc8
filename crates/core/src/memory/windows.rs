//! The addresses of windows: ranges whose blocks are windows in use, windows that are kept, and vacant addresses.
//!
//! No block of these ranges is ever free: what is used through a window goes back to the homes of its pages.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use millpond_backend::Point;

use super::Memory;
use crate::block::{LastUse, State};
use crate::books::Points;
use crate::ids::{BlockId, Slot};

/// The blocks of windows.
#[derive(Clone, Default)]
pub(crate) struct Panes {
    /// The blocks that are in use, each with its memory.
    opened: BTreeMap<BlockId, Vec<BlockId>>,
    /// The points up to which each window was used, by its first block: it stays mapped until they are reached. What
    /// was used there may have been handed out at home meanwhile, to a stream that waits on the device.
    used: BTreeMap<BlockId, Points>,
    /// The first block of each window, and the blocks of addresses that a window has lost and that are not yet vacant.
    /// They are not joined with what is in front of them.
    heads: BTreeSet<BlockId>,
}

/// A part that was taken out of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenOut {
    pub(crate) block: BlockId,
    /// What is left of the window behind it.
    pub(crate) behind: Option<BlockId>,
}

/// Claimed addresses for a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vacant {
    pub(crate) block: BlockId,
    pub(crate) slot: Slot,
    pub(crate) offset: u64,
}

impl Panes {
    /// Notes that a block is in use, with its memory.
    pub(crate) fn open(&mut self, id: BlockId, pieces: Vec<BlockId>) {
        self.opened.insert(id, pieces);
    }

    /// Notes that claimed addresses are a new window. What is in front of `front` bytes is not used yet. Returns the
    /// claimed block that begins there.
    pub(crate) fn begin(&mut self, memory: &mut Memory, id: BlockId, front: u64) -> BlockId {
        self.heads.insert(id);
        let mut block = id;
        if front > 0 {
            block = memory.cut(id, front);
            memory.blocks[id].state = State::Kept;
        }
        block
    }

    /// Keeps addresses of a window that nothing uses any more, joined with what is kept beside them.
    pub(crate) fn keep(&self, memory: &mut Memory, id: BlockId) {
        let block = &mut memory.blocks[id];
        // The memory behind it has the last use.
        (block.state, block.last_use) = (State::Kept, LastUse::NEVER);
        let (prev, next) = (block.prev, block.next);
        let joins = |id: BlockId| memory.blocks[id].state == State::Kept;
        let before = prev.some().filter(|&prev| joins(prev) && !self.heads.contains(&id));
        let behind = next.some().filter(|&next| joins(next) && !self.heads.contains(&next));
        if let Some(behind) = behind {
            memory.absorb(id, behind);
        }
        if let Some(before) = before {
            memory.absorb(before, id);
        }
    }

    /// Gives a claimed part of a window back: nothing uses it.
    pub(crate) fn unclaim_run(&self, memory: &mut Memory, id: BlockId) {
        assert_eq!(memory.blocks[id].state, State::Claimed, "block {} is given back", id.0);
        self.keep(memory, id);
    }

    /// Returns whether a block is a part of a window that is in use.
    pub(crate) fn has(&self, id: BlockId) -> bool {
        self.opened.contains_key(&id)
    }

    /// Returns the memory of a part of a window that is in use.
    pub(crate) fn pieces(&self, id: BlockId) -> Option<&[BlockId]> {
        self.opened.get(&id).map(Vec::as_slice)
    }

    /// Returns whether a window begins with the block, or addresses that a window has lost.
    pub(crate) fn begins(&self, id: BlockId) -> bool {
        self.heads.contains(&id)
    }

    /// Returns the parts of windows that are in use.
    pub(crate) fn opened(&self) -> impl Iterator<Item = BlockId> {
        self.opened.keys().copied()
    }

    /// Closes a part of a window that was freed: its addresses are kept, and its memory goes home, for whoever comes
    /// after its user and these points of others. Costs a look at each part of the window in front of it.
    pub(crate) fn close(&mut self, memory: &mut Memory, id: BlockId, points: &Points, clock: u64) {
        let used = memory.blocks[id].last_point();
        let head = core::iter::successors(Some(id), |&id| memory.blocks[id].prev.some());
        let head = head.clone().find(|head| self.heads.contains(head));
        let Some(head) = head else { panic!("block {} is in no window", id.0) };
        let until = self.used.entry(head).or_default();
        points.iter().chain([used]).for_each(|point| until.max(point));
        for piece in self.shut(memory, id) {
            memory.comes_home(piece, used, points, clock);
        }
    }

    /// Keeps a part of a window that was freed. Returns its memory.
    fn shut(&mut self, memory: &mut Memory, id: BlockId) -> Vec<BlockId> {
        let Some(pieces) = self.opened.remove(&id) else { panic!("block {} is not open", id.0) };
        memory.note_window_shut(id, &pieces);
        memory.blocks[id].used_elsewhere = false;
        self.keep(memory, id);
        pieces
    }

    /// Returns the points up to which the window that begins with `head` was used.
    pub(crate) fn points(&self, head: BlockId) -> impl Iterator<Item = Point> {
        self.used.get(&head).into_iter().flat_map(Points::iter)
    }

    /// Takes the addresses of a page out of the window that begins with `head`, of which nothing is used there. Returns
    /// their block and the one behind it, with which the rest of the window begins, if `has_rest`.
    pub(crate) fn take_out(
        &mut self,
        memory: &mut Memory,
        head: BlockId,
        offset: u64,
        bytes: u64,
        has_rest: bool,
    ) -> TakenOut {
        let out = memory.claim_run(head, offset, bytes);
        memory.blocks[out].state = State::Kept;
        let behind = memory.blocks[out].next.some().filter(|_| has_rest);
        let used = self.used.get(&head).cloned().unwrap_or_default();
        for part in [Some(out), behind].into_iter().flatten() {
            self.heads.insert(part);
            self.used.insert(part, used.clone());
        }
        TakenOut { block: out, behind }
    }

    /// Makes addresses vacant that a window has lost: nothing is mapped there any more.
    pub(crate) fn vacate(&mut self, memory: &mut Memory, id: BlockId) {
        assert_eq!(memory.blocks[id].state, State::Kept, "block {} of a window is vacated", id.0);
        assert!(self.heads.remove(&id), "block {} begins no window", id.0);
        self.used.remove(&id);
        memory.unmapped(id);
    }

    /// Verifies that the windows in use are blocks that the program holds.
    pub(crate) fn check(&self, memory: &Memory) {
        for id in self.opened() {
            let block = &memory.blocks[id];
            assert!(block.is_held() && memory.is_for_windows(id), "a window in use: {block:?}");
        }
    }
}

impl Memory {
    /// Claims vacant addresses for a window. Behind the block in front of them as many addresses stay vacant as it has,
    /// if there are as many, so that its window can be lengthened. Returns the block, its slot and its offset.
    pub(crate) fn claim_vacant(&mut self, bytes: u64) -> Option<Vacant> {
        let (id, room) = self.vacancy_for(bytes)?;
        let (slot, offset) = (self.blocks[id].slot, self.blocks[id].offset + room);
        Some(Vacant { block: self.claim_hole(id, offset, offset + bytes), slot, offset })
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
    pub(crate) fn room_behind(&self, head: BlockId, end: u64) -> Option<BlockId> {
        let last = self.pane(head, end - 1);
        let next = self.blocks[last].next.some().filter(|_| self.blocks[last].end() == end)?;
        (self.blocks[next].state == State::Unmapped).then_some(next)
    }

    /// Gives claimed addresses back of which only the first `mapped` bytes have pages. Returns whether there are some.
    pub(crate) fn keep_mapped(&mut self, id: BlockId, mapped: u64) -> bool {
        if mapped == 0 {
            self.unmapped(id);
            return false;
        }
        if mapped < self.blocks[id].size {
            let rest = self.cut(id, mapped);
            self.unmapped(rest);
        }
        true
    }

    /// Returns the block of the window that begins with `head` that has the byte at an offset.
    fn pane(&self, head: BlockId, offset: u64) -> BlockId {
        let id = self.block_at(self.blocks[head].slot, offset, Some(head));
        assert!(
            self.blocks[id].offset <= offset,
            "no block at {offset} in the window that begins with block {}",
            head.0
        );
        id
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

    /// Returns whether nothing of the window is in use that begins with `head` and ends at an offset.
    pub(crate) fn is_idle_window(&self, head: BlockId, end: u64) -> bool {
        self.blocks[head].state == State::Kept && self.blocks[head].end() == end
    }

    /// Returns whether no page is mapped at addresses that a window has lost.
    pub(crate) fn is_bare_window(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        let mut mapped = self.segments[block.slot].mappings.over(block.offset, block.end());
        block.state == State::Kept && mapped.next().is_none()
    }
}

#[cfg(test)]
mod tests;
