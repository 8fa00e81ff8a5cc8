//! Cached memory that could go back to the driver: which it is, and claiming it.

use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, StreamId};

use super::Shard;
use crate::block::{Block, State};
use crate::ids::{BlockId, SegmentId, Side, Slot};
use crate::size::Want;

impl Shard {
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
        let entry_of = |block| self.entry(block);
        let (mut blocks, mut sum) = (Vec::new(), 0);
        if let Some(block) = free.best_fit(needed, size_of).filter(plain) {
            blocks.push(block);
            sum = size_of(block);
        } else {
            let mut at = free.last_below(needed, entry_of);
            while let Some(block) = at.filter(|&block| sum < needed && size_of(block) >= max_split) {
                if plain(&block) {
                    blocks.push(block);
                    sum += size_of(block);
                }
                at = free.before(&entry_of(block), entry_of);
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
        self.take_guards(id);
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
        pending.map(move |(id, block)| (id, block.size, waits_for_home.then(|| self.last_point(id))))
    }

    /// Returns the free blocks with one user for whose last use `is_ahead` holds: their bytes and that stream.
    pub(crate) fn used_last(&self, is_ahead: impl Fn(Point) -> bool) -> impl Iterator<Item = (u64, StreamId)> {
        let free = Side::BOTH.into_iter().flat_map(|side| self.free_blocks(side));
        let ahead = free.filter(move |&(id, block)| !block.used_elsewhere && is_ahead(self.last_point(id)));
        ahead.map(|(_, block)| (block.size, block.user))
    }

    /// Returns the bytes in free pages and in free segments whose last use, on any stream, is not known to be over.
    pub(crate) fn unreached_bytes(&self, is_reached: impl Fn(Point) -> bool) -> u64 {
        let free = Side::BOTH.into_iter().flat_map(|side| self.free_blocks(side).map(|(id, _)| id));
        let unreached = free.filter(|&id| {
            let guards = self.guards_of(id);
            !guards.iter().chain([self.last_point(id)]).all(&is_reached)
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
