//! The search for a free block, and its grant.

use millpond_backend::Tick;

use super::{Grant, Shard};
use crate::block::{Block, State};
use crate::ids::{BlockId, Side};
use crate::index::bin_of;
use crate::meter::SplitChange;
use crate::plant::Plant;
use crate::size::Want;
use crate::units::{QUANTUM, SMALL_BYTES};

impl Shard {
    /// Hands out a free block of this shard. Returns `None` after a miss.
    ///
    /// `usable` is the tick of the home stream up to which freed memory may be handed out again. `clock` is the count
    /// of searches on that side (0 unless garbage collection counts them).
    #[inline(always)]
    pub fn allocate(&mut self, want: &Want, clock: u64, usable: Tick) -> Option<Grant> {
        match self.swap_in(want, clock) {
            Some(grant) => Some(grant),
            None => self.allocate_anew(want, clock, usable),
        }
    }

    #[inline(never)]
    fn allocate_anew(&mut self, want: &Want, clock: u64, usable: Tick) -> Option<Grant> {
        if self.put_off != BlockId::NONE {
            if self.is_retaken(want) {
                return self.swap_in(want, clock);
            }
            self.tidy();
        } else {
            self.swap.end();
        }
        if !self.settling.is_empty() && self.settle_home(usable, clock) {
            // A peak has to be settled first. The path of a miss does that and searches again.
            return None;
        }
        let Some((found, bin)) = self.find_in(want) else { return self.find_apart(want, clock) };
        if self.blocks[found].used_elsewhere && self.is_guarded(found, want.rounded) {
            return self.find_past_guards(want, clock);
        }
        self.pools[want.side.index()].free.remove_from(bin, found);
        Some(self.hand_out(found, want, clock))
    }

    /// PyTorch's `get_free_block`: best fit, with the rules for expandable and for oversize blocks. Only one candidate
    /// is tested; there is no look further along.
    pub(super) fn find(&self, want: &Want) -> Option<BlockId> {
        self.find_in(want).map(|(found, _)| found)
    }

    /// Does the search of [`find`](Self::find), and returns also the bin that the block is in.
    #[inline(always)]
    fn find_in(&self, want: &Want) -> Option<(BlockId, usize)> {
        if !self.rules.caches {
            return None;
        }
        let index = &self.pools[want.side.index()].free;
        let (mut found, mut bin) = index.best_fit_in(want.rounded, |id| self.blocks[id].size)?;
        if self.rules.expandable {
            found = self.least_reach(found, want.side);
            bin = bin_of(self.blocks[found].size);
        }
        let (size, max_split) = (self.blocks[found].size, self.rules.max_split);
        let fits = if want.rounded < max_split {
            // Oversize blocks are kept for oversize requests.
            size < max_split
        } else {
            size < want.rounded.saturating_add(self.rules.non_split_rounding)
        };
        (fits && self.is_snug(found, want)).then_some((found, bin))
    }

    /// Returns the best fit in expandable segments, where a block counts with the size that it could grow to. The
    /// search goes on from `found` as long as that size shrinks.
    #[inline(never)]
    fn least_reach(&self, mut found: BlockId, side: Side) -> BlockId {
        let index = &self.pools[side.index()].free;
        while let Some(next) = index.next_after(&self.entry(found)) {
            if self.reach(next) >= self.reach(found) {
                break;
            }
            found = next;
        }
        found
    }

    pub(super) fn reach(&self, id: BlockId) -> u64 {
        self.blocks[id].size + self.unmapped_behind(id)
    }

    /// Returns the number of bytes of addresses without memory directly behind a block.
    pub(super) fn unmapped_behind(&self, id: BlockId) -> u64 {
        let behind = self.blocks[id].next.some().map(|next| &self.blocks[next]);
        behind.filter(|next| next.state == State::Unmapped).map_or(0, |next| next.size)
    }

    /// Hands out a free block of the shard, if one serves the request.
    pub(crate) fn find_and_take(&mut self, want: &Want, clock: u64) -> Option<Grant> {
        match self.find(want) {
            Some(found) if self.blocks[found].used_elsewhere && self.is_guarded(found, want.rounded) => {
                self.find_past_guards(want, clock)
            }
            Some(found) => Some(self.take(found, want, clock)),
            None => self.find_apart(want, clock),
        }
    }

    /// Hands out the free block of a segment that fits best. No other stream uses it, so it serves where the best fit
    /// of all is guarded in a home. Costs a look at each free block of a home that is long enough.
    pub(crate) fn take_in_segment(&mut self, want: &Want, clock: u64) -> Option<Grant> {
        let fits = |id: &BlockId| self.blocks[*id].size >= want.rounded && !self.blocks[*id].expandable;
        let found = self.pools[want.side.index()].free.iter_from(want.rounded).find(fits)?;
        Some(self.take(found, want, clock))
    }

    /// Serves a small request whose best fit is guarded from a part of a free block that is not, or from a slab. A
    /// large request gets nothing: its place does not depend on how far the device is. Nor does a small one where the
    /// streams are to be asked first. Costs a look at each free block that is too short or not ready, and at each run
    /// of guarded bytes there. What was freed with work in flight bounds both.
    #[cold]
    #[inline(never)]
    fn find_past_guards(&mut self, want: &Want, clock: u64) -> Option<Grant> {
        if want.side == Side::Large || !self.goes_past {
            return None;
        }
        let fits = |id: &BlockId| self.blocks[*id].size >= want.rounded;
        let place = |begin: u64, end: u64| (begin + want.rounded <= end).then_some(begin);
        let mut next = self.pools[Side::Small.index()].free.iter_from(want.rounded).filter(fits);
        let found = next.find_map(|id| Some((id, self.unguarded_place(id, place)?)));
        drop(next);
        match found {
            Some((found, at)) => {
                self.claim(found);
                let part = self.behind_front(found, at, clock);
                Some(self.hand_out(part, want, clock))
            }
            None => self.find_apart(want, clock),
        }
    }

    /// Serves a request that found nothing from a whole block of just its size, where a private pool keeps such blocks
    /// and no others. Serves a small one from free memory of the large side, where homes have both.
    #[cold]
    #[inline(never)]
    fn find_apart(&mut self, want: &Want, clock: u64) -> Option<Grant> {
        if self.rules.keeps_whole && !self.rules.caches {
            let free = &self.pools[want.side.index()].free;
            let found = free.best_fit(want.rounded, |id| self.blocks[id].size)?;
            return (self.blocks[found].size == want.rounded).then(|| self.take(found, want, clock));
        }
        if want.side == Side::Large || !self.rules.moves_pages { None } else { self.take_slab(want, clock) }
    }

    /// Hands out the front of a free block.
    pub(super) fn take(&mut self, id: BlockId, want: &Want, clock: u64) -> Grant {
        let size = self.blocks[id].size;
        self.pools[want.side.index()].free.remove(id, size);
        self.hand_out(id, want, clock)
    }

    /// Hands out the front of a block that is in no index, and puts the rest into the index.
    #[inline(always)]
    pub(super) fn hand_out(&mut self, id: BlockId, want: &Want, clock: u64) -> Grant {
        let block = &mut self.blocks[id];
        debug_assert!(block.size >= want.rounded, "block of {} bytes taken for {}", block.size, want.rounded);
        block.state = State::Live;
        block.requested = want.requested;
        let Block { offset, size: whole, last_use, prev, next, slot, expandable, used_elsewhere, .. } = *block;
        let was_split = prev != BlockId::NONE || next != BlockId::NONE;
        let rest = whole - want.rounded;
        let (mut size, mut change) = (whole, SplitChange::default());
        if self.splits(want, rest) && self.cuts(slot) {
            size = want.rounded;
            self.split(id, size, clock);
            change = if was_split {
                SplitChange { blocks: 0, bytes: -(size as i64) }
            } else {
                SplitChange { blocks: 1, bytes: rest as i64 }
            };
        } else if was_split {
            change = SplitChange { blocks: -1, bytes: -(size as i64) };
        }
        if expandable {
            change = SplitChange::default();
        }
        if used_elsewhere {
            self.mark_rest(id);
        }
        let oversize = size >= self.rules.max_split;
        let requested = if self.rules.planted.is(Plant::WrongCounter) { size } else { want.requested };
        self.snug_takes(size, want.requested);
        let unsettled = self.meter.grant(want.side, size, requested, oversize, change);
        Grant { block: id, slot, offset, size, base: self.segments[slot].base, last_use, unsettled }
    }

    /// Returns whether a rest of this size is cut off, as PyTorch's `should_split` does.
    #[inline(always)]
    pub(super) fn splits(&self, want: &Want, rest: u64) -> bool {
        if !self.rules.splits {
            return false;
        }
        match want.side {
            Side::Small => rest >= QUANTUM,
            Side::Large if self.rules.expandable || self.rules.moves_pages || self.snug.is_some() => rest >= QUANTUM,
            Side::Large => want.rounded < self.rules.max_split && rest > SMALL_BYTES,
        }
    }

    /// Cuts a block behind its first `size` bytes. The rest becomes a free block.
    #[inline(always)]
    fn split(&mut self, id: BlockId, size: u64, clock: u64) {
        let rest = self.blocks.vacancy();
        let table = self.blocks.table();
        let front = &mut table[id.0 as usize];
        let Block { offset, size: whole, last_use, next, slot, side, expandable, used_elsewhere, .. } = *front;
        front.size = size;
        front.next = rest;
        table[rest.0 as usize] = Block {
            offset: offset + size,
            size: whole - size,
            requested: 0,
            last_use,
            age: clock,
            prev: id,
            next,
            slot,
            waits: 0,
            state: State::Free,
            side,
            expandable,
            used_elsewhere,
        };
        if let Some(behind) = table.get_mut(next.0 as usize) {
            behind.prev = rest;
        }
        self.list(rest, whole - size, side);
    }
}
