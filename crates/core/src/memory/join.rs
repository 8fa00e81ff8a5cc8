//! How free blocks are coalesced.

use core::mem;

use super::Memory;
use crate::block::{Block, LastUse, State};
use crate::ids::{BlockId, Side};
use crate::meter::SplitChange;
use crate::plant::Plant;

impl Memory {
    /// Merges a block with its free neighbours and puts the whole into the index. Returns the net change of
    /// `inactive_split`, which PyTorch books in one step.
    #[inline(always)]
    pub(crate) fn join(&mut self, id: BlockId, clock: u64) -> SplitChange {
        if self.rules.moves_pages {
            return self.join_at_home(id, clock);
        }
        let Self { blocks, pools, rules, .. } = self;
        let Block { size, side, mut last_use, mut prev, mut next, expandable, mut used_elsewhere, .. } = blocks[id];
        let index = &mut pools[side.index()].free;
        let (mut whole, mut pieces, mut absorbed) = (id, 1, 0);
        if let Some(before) = blocks.get_mut(prev)
            && before.state == State::Free
            && before.side == side
        {
            index.remove(prev, before.size);
            absorbed += before.size;
            used_elsewhere |= before.used_elsewhere;
            last_use = last_use.max(before.last_use);
            pieces -= 1;
            whole = mem::replace(&mut prev, before.prev);
            blocks.remove(id);
        }
        if let Some(behind) = blocks.get_mut(next)
            && behind.state == State::Free
            && behind.side == side
            && !rules.planted.is(Plant::MissedMerge)
        {
            index.remove(next, behind.size);
            absorbed += behind.size;
            used_elsewhere |= behind.used_elsewhere;
            last_use = last_use.max(behind.last_use);
            pieces -= 1;
            let gone = mem::replace(&mut next, behind.next);
            blocks.remove(gone);
        }
        if let Some(behind) = blocks.get_mut(next) {
            behind.prev = whole;
        }
        let block = &mut blocks[whole];
        block.size = size + absorbed;
        block.last_use = last_use;
        block.used_elsewhere = used_elsewhere;
        block.next = next;
        block.state = State::Free;
        block.age = clock;
        self.list(whole, size + absorbed, side);
        if expandable {
            SplitChange::default()
        } else if prev == BlockId::NONE && next == BlockId::NONE {
            // The segment is whole again: the pieces are gone, and the whole is not counted as one.
            SplitChange { blocks: pieces - 1, bytes: -(absorbed as i64) }
        } else {
            SplitChange { blocks: pieces, bytes: size as i64 }
        }
    }

    /// Does the work of [`join`](Self::join) in a home, where blocks have users.
    pub(crate) fn join_at_home(&mut self, id: BlockId, clock: u64) -> SplitChange {
        let change = self.change_by_join(id);
        let (before, behind) = (self.free_before(id), self.free_behind(id));
        let behind = behind.filter(|_| !self.rules.planted.is(Plant::MissedMerge));
        before.into_iter().chain(behind).for_each(|neighbour| self.unlist(neighbour));
        self.guards.part_users(&mut self.blocks, [before, Some(id), behind]);
        let whole = before.map_or(id, |before| self.absorb(before, id));
        if let Some(behind) = behind {
            self.absorb(whole, behind);
        }
        let block = &mut self.blocks[whole];
        block.state = State::Free;
        block.age = clock;
        let Block { size, side, expandable, .. } = *block;
        let may_give = expandable && side == Side::Small && size >= self.gives_from;
        if !may_give || !self.gives_slabs(whole) {
            self.list(whole, size, side);
        }
        change
    }

    /// Joins two neighbours, neither of which is in an index. The lower one remains.
    #[inline(always)]
    pub(crate) fn absorb(&mut self, low: BlockId, high: BlockId) -> BlockId {
        let gone = &self.blocks[high];
        debug_assert_eq!(gone.prev, low, "blocks that are no neighbours are joined");
        let (size, last_use, behind, used_elsewhere) = (gone.size, gone.last_use, gone.next, gone.used_elsewhere);
        let block = &mut self.blocks[low];
        block.used_elsewhere |= used_elsewhere;
        block.size += size;
        block.last_use = block.last_use.max(last_use);
        block.next = behind;
        if let Some(behind) = behind.some() {
            self.blocks[behind].prev = low;
        }
        self.blocks.remove(high);
        low
    }

    /// Puts a claimed block back into the index, joined with its free neighbours. Without any effect on counters:
    /// only expandable blocks are claimed in part, and those are not counted as split.
    pub(crate) fn unclaim(&mut self, id: BlockId, clocks: [u64; 2]) {
        debug_assert_eq!(self.blocks[id].state, State::Claimed);
        let clock = clocks[self.blocks[id].side.index()];
        self.join(id, clock);
    }

    /// Returns the change in `inactive_split` that joining a block with its free neighbours will make.
    #[inline(never)]
    pub(crate) fn change_by_join(&self, id: BlockId) -> SplitChange {
        let block = &self.blocks[id];
        if block.expandable {
            return SplitChange::default();
        }
        let before = self.free_before(id).map(|before| &self.blocks[before]);
        let behind = self.free_behind(id).map(|behind| &self.blocks[behind]);
        let joined = || before.into_iter().chain(behind);
        let pieces = 1 - joined().count() as i64;
        if before.unwrap_or(block).prev == BlockId::NONE && behind.unwrap_or(block).next == BlockId::NONE {
            // The segment is whole again: the pieces are gone, and the whole is not counted as one.
            let absorbed: u64 = joined().map(|neighbour| neighbour.size).sum();
            return SplitChange { blocks: pieces - 1, bytes: -(absorbed as i64) };
        }
        SplitChange { blocks: pieces, bytes: block.size as i64 }
    }

    /// Returns the free block that a block would be joined with in front, if it were free.
    #[inline(always)]
    pub(crate) fn free_before(&self, id: BlockId) -> Option<BlockId> {
        let block = &self.blocks[id];
        block.prev.some().filter(|&before| self.is_free_on(before, block.side) && self.is_within_slab(id))
    }

    /// Returns the free block that a block would be joined with behind, if it were free.
    #[inline(always)]
    pub(crate) fn free_behind(&self, id: BlockId) -> Option<BlockId> {
        let block = &self.blocks[id];
        block.next.some().filter(|&behind| self.is_free_on(behind, block.side) && self.is_within_slab(behind))
    }

    /// Leaves the free block behind a put-off one as it is once the two were joined and cut again: it is the stream's,
    /// and where others have used it, the record has that by place.
    pub(crate) fn cut_off(&mut self, id: BlockId, behind: BlockId) {
        let is_common =
            !self.rules.moves_pages || self.guards.common_user(&self.blocks, [None, Some(id), Some(behind)]).is_some();
        if !is_common {
            self.guards.record_user(&mut self.blocks[behind]);
        }
        let is_guarded = !is_common && self.guards.points_over(&self.blocks[behind]).next().is_some();
        let Block { last_use, user, .. } = self.blocks[id];
        let block = &mut self.blocks[behind];
        block.last_use = if is_common { block.last_use.max(last_use) } else { LastUse::OVER };
        (block.user, block.used_elsewhere) = (user, is_guarded);
    }
}
