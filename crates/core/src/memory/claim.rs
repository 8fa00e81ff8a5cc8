//! Blocks that a plan holds while the driver works: addresses being mapped, pages being unmapped, segments being given
//! back. A claimed block is in no index, so that no other thread can take it meanwhile. Also which cached memory could
//! go back to the driver.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, StreamId};

use super::Memory;
use crate::block::LastUse;
use crate::block::{Block, State};
use crate::ids::{BlockId, SegmentId, Side, Slot};
use crate::size::Want;

impl Memory {
    /// Takes a free block out of the index.
    pub(crate) fn claim(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        assert_eq!(block.state, State::Free, "block {} is claimed and is not free", id.0);
        self.unlist(id);
        self.blocks[id].state = State::Claimed;
    }

    /// Claims the first `bytes` of an unmapped block. The rest stays unmapped.
    pub(crate) fn claim_addresses(&mut self, id: BlockId, bytes: u64) {
        let block = &self.blocks[id];
        assert_eq!(block.state, State::Unmapped, "block {} is mapped already", id.0);
        assert!(bytes <= block.size, "{bytes} bytes of pages claimed in {} bytes of addresses", block.size);
        self.unlist_unmapped(id);
        if bytes < self.blocks[id].size {
            let rest = self.cut(id, bytes);
            self.list_unmapped(rest);
        }
        self.blocks[id].state = State::Claimed;
    }

    /// Claims a part of an unmapped block. What is left on both sides stays unmapped. Returns the claimed block.
    pub(crate) fn claim_hole(&mut self, id: BlockId, begin: u64, end: u64) -> BlockId {
        let front = begin - self.blocks[id].offset;
        let mut part = id;
        if front > 0 {
            // The block in front keeps its beginning, which is its key.
            part = self.cut(id, front);
            self.list_unmapped(part);
        }
        self.claim_addresses(part, end - begin);
        part
    }

    /// Notes that there is memory behind a claimed block now. Joins it with the block in front, if that is `before`
    /// (which the same plan has claimed) or free, and with a free one behind. Returns the claimed whole.
    pub(crate) fn mapped(&mut self, id: BlockId, before: Option<BlockId>) -> BlockId {
        let mut whole = id;
        if let Some(prev) = self.blocks[id].prev.some() {
            if Some(prev) == before {
                whole = self.absorb(prev, id);
            } else if self.blocks[prev].state == State::Free {
                self.unlist(prev);
                whole = self.absorb(prev, id);
            }
        }
        self.absorb_behind(whole);
        self.blocks[whole].state = State::Claimed;
        whole
    }

    /// Joins a claimed block with the one behind it if that is free on the same side. A free does not join with a
    /// claimed block, so a block that was freed there meanwhile is still separate.
    pub(crate) fn absorb_behind(&mut self, id: BlockId) {
        if let Some(next) = self.blocks[id].next.some()
            && (self.blocks[next].state, self.blocks[next].side) == (State::Free, self.blocks[id].side)
        {
            self.unlist(next);
            self.absorb(id, next);
        }
    }

    /// Notes that there is no memory behind a claimed block (any more): it is unmapped and joined with unmapped
    /// neighbours. Returns whether the whole range is unmapped now.
    pub(crate) fn unmapped(&mut self, id: BlockId) -> bool {
        let block = &mut self.blocks[id];
        debug_assert!(!block.used_elsewhere, "what is unmapped is guarded: {block:?}");
        (block.state, block.last_use) = (State::Unmapped, LastUse::NEVER);
        let (prev, next) = (block.prev, block.next);
        let mut whole = id;
        for (neighbour, is_before) in [(prev, true), (next, false)] {
            if let Some(neighbour) = neighbour.some()
                && self.blocks[neighbour].state == State::Unmapped
            {
                self.unlist_unmapped(neighbour);
                whole = if is_before { self.absorb(neighbour, whole) } else { self.absorb(whole, neighbour) };
            }
        }
        self.list_unmapped(whole);
        !self.blocks[whole].is_split()
    }

    /// Returns the list of addresses without memory that those of a block are in: for windows, or of its side.
    fn unmapped_of(&mut self, id: BlockId) -> &mut BTreeSet<(u64, BlockId)> {
        let Block { slot, side, .. } = self.blocks[id];
        if self.segments[slot].has_windows { &mut self.vacant } else { &mut self.pools[side.index()].unmapped }
    }

    pub(crate) fn list_unmapped(&mut self, id: BlockId) {
        let key = self.unmapped_key(id);
        self.blocks[id].state = State::Unmapped;
        self.unmapped_of(id).insert(key);
    }

    pub(crate) fn unlist_unmapped(&mut self, id: BlockId) {
        let key = self.unmapped_key(id);
        assert!(self.unmapped_of(id).remove(&key), "block {} is not listed as unmapped", id.0);
    }

    /// Cuts a claimed block down to the pages inside it; what is left before and behind becomes free. Returns the
    /// claimed block of exactly those pages.
    pub(crate) fn carve(&mut self, id: BlockId, offset: u64, bytes: u64, clocks: [u64; 2]) -> BlockId {
        let mut pages = id;
        let block = &self.blocks[id];
        let clock = clocks[block.side.index()];
        if block.offset < offset {
            let before = offset - block.offset;
            pages = self.cut(id, before);
            self.blocks[pages].state = State::Claimed;
            self.join(id, clock);
        }
        if self.blocks[pages].size > bytes {
            let behind = self.cut(pages, bytes);
            self.blocks[behind].state = State::Claimed;
            self.join(behind, clock);
        }
        pages
    }

    /// Cuts a block that is in no index behind its first `bytes`. The rest is a copy with its own offset and size, and
    /// is in no index either. Returns the rest.
    pub(crate) fn cut(&mut self, id: BlockId, bytes: u64) -> BlockId {
        let front = &mut self.blocks[id];
        debug_assert!(bytes > 0 && bytes < front.size);
        let rest =
            Block { offset: front.offset + bytes, size: front.size - bytes, requested: 0, prev: id, ..front.clone() };
        front.size = bytes;
        let behind = rest.next;
        let rest = self.blocks.insert(rest);
        self.blocks[id].next = rest;
        if let Some(behind) = behind.some() {
            self.blocks[behind].prev = rest;
        }
        rest
    }

    /// Returns whether the shard has a free block.
    pub(crate) fn has_free(&self) -> bool {
        self.pools.iter().any(|pool| !pool.free.is_empty()) || !self.slabs.is_empty()
    }

    /// Returns the free blocks of a side in order.
    pub(crate) fn free_blocks(&self, side: Side) -> impl Iterator<Item = (BlockId, &Block)> {
        let in_slabs = (side == Side::Small).then(|| self.slabs.iter()).into_iter().flatten();
        self.pools[side.index()].free.iter().chain(in_slabs).map(|id| (id, &self.blocks[id]))
    }

    /// Returns whether the block is free, fills a plain segment, and so may go back to the driver as it is.
    pub(crate) fn is_whole_segment(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        block.state == State::Free && !block.is_split() && !self.segments[block.slot].is_expandable()
    }

    /// Claims every free block of a side that is a whole segment or has whole pages inside it.
    pub(crate) fn claim_releasable(&mut self, side: Side) -> Vec<BlockId> {
        let goes = |block: &BlockId| self.is_whole_segment(*block) || self.whole_pages(*block).is_some();
        let blocks: Vec<_> = self.free_blocks(side).map(|(block, _)| block).filter(goes).collect();
        blocks.iter().for_each(|&block| self.claim(block));
        blocks
    }

    /// Claims what PyTorch's `release_available_cached_blocks` releases for a request: the smallest oversize block that
    /// is large enough, or else the largest ones until their sum is. Returns them, and whether they suffice.
    pub(crate) fn claim_oversize(&mut self, want: &Want, max_split: u64) -> (Vec<BlockId>, bool) {
        let needed = want.rounded.max(max_split);
        let (free, size_of) = (&self.pools[want.side.index()].free, |block| self.blocks[block].size);
        let plain = |block: &BlockId| self.is_whole_segment(*block);
        let (mut blocks, mut sum) = (Vec::new(), 0);
        if let Some(block) = free.best_fit(needed, size_of).filter(plain) {
            blocks.push(block);
            sum = size_of(block);
        } else {
            let oversize = |block: &BlockId| (max_split..needed).contains(&size_of(*block)) && plain(block);
            let mut smaller: Vec<_> = free.iter_from(max_split).filter(oversize).collect();
            while sum < needed
                && let Some(block) = smaller.pop()
            {
                blocks.push(block);
                sum += size_of(block);
            }
        }
        blocks.iter().for_each(|&block| self.claim(block));
        (blocks, sum >= needed)
    }

    /// Returns what garbage collection would give back of a free block: a whole segment, or the whole pages inside a
    /// block under `paged`. `None` if nothing.
    pub(crate) fn garbage_bytes(&self, id: BlockId) -> Option<u64> {
        if self.is_whole_segment(id) {
            return Some(self.blocks[id].size);
        }
        let is_paged = self.rules.moves_pages && self.blocks[id].state == State::Free;
        is_paged.then(|| self.whole_pages(id)).flatten().map(|(_, bytes)| bytes)
    }

    /// Returns the garbage of the large side: for each block its age at `now`, and its bytes.
    pub(crate) fn garbage(&self, now: u64) -> impl Iterator<Item = (u64, u64, BlockId)> {
        let garbage =
            self.free_blocks(Side::Large).filter_map(|(id, block)| Some((id, block, self.garbage_bytes(id)?)));
        // Other threads may have freed blocks since the plan began: those are of age 0.
        garbage.map(move |(id, block, bytes)| (now.saturating_sub(block.age), bytes, id))
    }

    /// Claims a block if it is still garbage, and returns whether it was: another thread may have taken it.
    pub(crate) fn claim_garbage(&mut self, id: BlockId) -> bool {
        let stays_free = self.garbage_bytes(id).is_some();
        if stays_free {
            self.claim(id);
        }
        stays_free
    }

    /// Forgets the segment that a claimed block fills, and what guarded it, which is over. Returns its place, its bytes
    /// and its side.
    pub(crate) fn forget_whole(&mut self, id: BlockId) -> (Slot, u64, Side) {
        self.guards.take(&mut self.blocks[id]);
        let Block { slot, size, side, .. } = self.blocks[id];
        self.forget(slot);
        (slot, size, side)
    }

    /// Notes that a claimed block has no memory any more. Returns its side, and the range that is left without any
    /// mapping by that.
    pub(crate) fn unmapped_pages(&mut self, id: BlockId) -> (Side, Option<(Slot, SegmentId)>) {
        let Block { side, slot, .. } = self.blocks[id];
        let is_bare = self.unmapped(id);
        let segment = &self.segments[slot];
        (side, (is_bare && segment.mappings.is_empty()).then_some((slot, segment.id)))
    }

    /// Returns the freed blocks that wait for points, with their bytes, and the point of the home stream where they
    /// wait for that as well.
    pub(crate) fn pending_blocks(&self) -> impl Iterator<Item = (BlockId, u64, Option<Point>)> {
        let pending = self.blocks.iter().filter(|(_, block)| block.state == State::Pending);
        let waits_for_home = self.rules.reuse != Reuse::InOrder;
        pending.map(move |(id, block)| (id, block.size, waits_for_home.then(|| self.blocks[id].last_point())))
    }

    /// Returns the free blocks with one user for whose last use `is_ahead` holds: their bytes and that stream.
    pub(crate) fn used_last(&self, is_ahead: impl Fn(Point) -> bool) -> impl Iterator<Item = (u64, StreamId)> {
        let free = Side::BOTH.into_iter().flat_map(|side| self.free_blocks(side));
        let ahead = free.filter(move |&(id, block)| !block.used_elsewhere && is_ahead(self.blocks[id].last_point()));
        ahead.map(|(_, block)| (block.size, block.user))
    }

    /// Returns the bytes in free pages and in free segments whose last use, on any stream, is not known to be over.
    pub(crate) fn unreached_bytes(&self, is_reached: impl Fn(Point) -> bool) -> u64 {
        let free = Side::BOTH.into_iter().flat_map(|side| self.free_blocks(side).map(|(id, _)| id));
        let unreached = free.filter(|&id| {
            let guards = self.guards.points_of(&self.blocks[id]);
            !guards.iter().chain([self.blocks[id].last_point()]).all(&is_reached)
        });
        let releasable = |id| {
            if self.is_whole_segment(id) {
                self.blocks[id].size
            } else {
                self.pages_in(id).map(|(_, page)| page.bytes).sum()
            }
        };
        unreached.map(releasable).sum()
    }
}
