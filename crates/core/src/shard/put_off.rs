//! The last free of a shard, put off until the next request.
//!
//! Programs free a block and ask for the same size again, over and over. Joining the block with its neighbours,
//! filing the whole, finding it and cutting it up again would end where it began. So a free waits for the next
//! operation on the shard: if that is a request which the joined block would serve with just this block, the block is
//! handed out as it stands, and the counters are moved as if it had gone all the way; else the free is done first.
//! Nobody sees a difference: every look at a shard from outside the hot path finds it [`tidied`](Shard::tidied).

use super::{Grant, Shard};
use crate::block::State;
use crate::ids::BlockId;
use crate::meter::SplitChange;
use crate::size::Want;

impl Shard {
    /// Puts off the free of a block, if no peak would rise by it. Answers whether it did.
    #[inline(always)]
    pub(super) fn puts_off(&mut self, id: BlockId, clock: u64) -> bool {
        let change = self.change_by_join(id);
        let block = &mut self.blocks[id];
        if !self.meter.has_split_room(block.side, change) {
            return false;
        }
        block.state = State::PutOff;
        block.age = clock;
        self.put_off = id;
        self.put_off_change = change;
        true
    }

    /// What joining a block with its free neighbours will change in `inactive_split`.
    #[inline(always)]
    fn change_by_join(&self, id: BlockId) -> SplitChange {
        let block = &self.blocks[id];
        if block.expandable {
            return SplitChange::default();
        }
        let mut change = SplitChange { blocks: 1, bytes: block.size as i64 };
        let (mut prev, mut next) = (block.prev, block.next);
        let mut absorbed = 0;
        if let Some(before) = self.free_at(prev) {
            change.blocks -= 1;
            absorbed += self.blocks[before].size;
            prev = self.blocks[before].prev;
        }
        if let Some(behind) = self.free_at(next) {
            change.blocks -= 1;
            absorbed += self.blocks[behind].size;
            next = self.blocks[behind].next;
        }
        if prev == BlockId::NONE && next == BlockId::NONE {
            // The segment is whole again: the pieces are gone, and the whole is none.
            change.blocks -= 1;
            change.bytes = -(absorbed as i64);
        }
        change
    }

    #[inline(always)]
    fn free_at(&self, id: BlockId) -> Option<BlockId> {
        id.some().filter(|&id| self.blocks[id].state == State::Free)
    }

    /// The shard with nothing put off, for all but the hot path.
    pub fn tidied(&mut self) -> &mut Shard {
        if self.put_off != BlockId::NONE {
            self.tidy();
        }
        self
    }

    #[inline(never)]
    pub(super) fn tidy(&mut self) {
        let id = core::mem::replace(&mut self.put_off, BlockId::NONE);
        let block = &self.blocks[id];
        let (side, size, requested, clock) = (block.side, block.size, block.requested, block.age);
        let change = self.join(id, clock);
        let oversize = size >= self.rules.max_split;
        // There was room when the free was put off. What is short now is so by the grant of another thread, which is on
        // its way to settle it.
        let _ = self.meter.free_and_retire(side, size, requested, oversize, change);
    }

    /// Hands out the block whose free was put off, if the joined block would be the best fit and would be cut at just
    /// this size.
    #[inline(always)]
    pub(super) fn retake(&mut self, want: &Want, clock: u64) -> Option<Grant> {
        let id = self.put_off;
        let block = &self.blocks[id];
        if block.size != want.rounded || block.side != want.side || self.rules.expandable || !self.rules.caches {
            return None;
        }
        if self.free_at(block.prev).is_some() {
            return None;
        }
        let behind = self.free_at(block.next);
        let rest = behind.map_or(0, |behind| self.blocks[behind].size);
        let whole = want.rounded + rest;
        let max_split = self.rules.max_split;
        if whole >= max_split || !self.is_best(want, whole, behind) || (rest != 0 && !self.splits(want, rest)) {
            return None;
        }
        let block = &mut self.blocks[id];
        let before = core::mem::replace(&mut block.requested, want.requested);
        block.state = State::Live;
        let (slot, offset, last_use) = (block.slot, block.offset, block.tick);
        if let Some(behind) = behind {
            // A remainder enters the index anew, with the last use of the whole.
            let behind = &mut self.blocks[behind];
            behind.age = clock;
            behind.tick = behind.tick.max(last_use);
        }
        self.put_off = BlockId::NONE;
        let unsettled = self.meter.swap(want.side, want.rounded, before, want.requested, self.put_off_change);
        Some(Grant { block: id, slot, offset, size: want.rounded, base: self.segments[slot].base, last_use, unsettled })
    }

    /// No other free block would be taken rather than one of `whole` bytes that has swallowed `part`.
    #[inline(always)]
    fn is_best(&self, want: &Want, whole: u64, part: Option<BlockId>) -> bool {
        let index = &self.pools[want.side.index()].free;
        let mut other = index.best_fit(want.rounded, |id| self.blocks[id].size);
        if other.is_some() && other == part {
            other = match part.and_then(|part| index.next_after_alone(part, self.blocks[part].size)) {
                Some(next) => next,
                None => return false,
            };
        }
        // A tie would be decided by rank: leave it to the search.
        other.is_none_or(|other| self.blocks[other].size > whole)
    }
}
