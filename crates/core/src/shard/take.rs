//! The search for a free block and its grant, and the grant of what a plan has claimed.

use alloc::vec::Vec;

use millpond_backend::StreamId;

use super::{Grant, Requester, Shard};
use crate::block::{Block, LastUse, State};
use crate::ids::{BlockId, PoolId, Side};
use crate::index::{Fit, bin_of};
use crate::memory::Ground;
use crate::meter::SplitChange;
use crate::plant::Plant;
use crate::size::Want;
use crate::units::{QUANTUM, SMALL_BYTES};

/// Who gets a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewUser {
    pub(crate) stream: StreamId,
    /// The last use of the memory that the stream comes after.
    pub(crate) last_use: LastUse,
}

impl Shard {
    /// Hands out a free block of this shard. Returns `None` after a miss.
    ///
    /// `clock` is the count of searches on that side (0 unless garbage collection counts them).
    #[inline(always)]
    pub fn allocate(&mut self, want: &Want, clock: u64, by: Requester) -> Option<Grant> {
        // With `or_else` each hit takes two instructions more.
        match self.swap_in(want, clock, by.stream) {
            Some(grant) => Some(grant),
            None => self.allocate_anew(want, clock, by),
        }
    }

    #[inline(never)]
    fn allocate_anew(&mut self, want: &Want, clock: u64, by: Requester) -> Option<Grant> {
        if self.put_off != BlockId::NONE {
            let is_its = !self.memory.rules.moves_pages || self.memory.blocks[self.put_off].user == by.stream;
            if is_its && self.is_retaken(want) {
                return self.swap_in(want, clock, by.stream);
            }
            self.tidy();
        } else {
            self.swap.end();
        }
        if self.memory.rules.moves_pages {
            return self.find_at_home(want, clock, by);
        }
        if !self.settling.is_empty() && self.retire_own(by.usable, clock) {
            // A peak has to be settled first. The path of a miss does that and searches again.
            return None;
        }
        let Some(Fit { block: found, bin }) = self.find_in(want) else { return self.find_apart(want, clock) };
        self.memory.pools[want.side.index()].free.remove_from(bin, found);
        Some(self.hand_out(found, want, clock))
    }

    /// PyTorch's `get_free_block`: best fit, with the rules for expandable and for oversize blocks. Only one candidate
    /// is tested; there is no look further along.
    pub(super) fn find(&self, want: &Want) -> Option<BlockId> {
        self.find_in(want).map(|fit| fit.block)
    }

    /// Does the search of [`find`](Self::find), and returns also the bin that the block is in.
    #[inline(always)]
    fn find_in(&self, want: &Want) -> Option<Fit> {
        if !self.memory.rules.caches {
            return None;
        }
        let index = &self.memory.pools[want.side.index()].free;
        let Fit { block: mut found, mut bin } = index.best_fit_in(want.rounded, |id| self.memory.blocks[id].size)?;
        if self.memory.rules.expandable {
            found = self.memory.least_reach(found, want.side);
            bin = bin_of(self.memory.blocks[found].size);
        }
        let (size, max_split) = (self.memory.blocks[found].size, self.memory.rules.max_split);
        let fits = if want.rounded < max_split {
            // Oversize blocks are kept for oversize requests.
            size < max_split
        } else {
            size < want.rounded.saturating_add(self.memory.rules.non_split_rounding)
        };
        (fits && self.is_snug(found, want)).then_some(Fit { block: found, bin })
    }

    /// Hands out a free block of the shard, if one serves the request.
    pub(crate) fn find_and_take(&mut self, want: &Want, clock: u64, by: Requester) -> Option<Grant> {
        if self.memory.rules.moves_pages {
            return self.find_at_home(want, clock, by);
        }
        match self.find(want) {
            Some(found) => Some(self.take(found, want, clock)),
            None => self.find_apart(want, clock),
        }
    }

    /// Serves a request that found nothing from a whole block of just its size, where a private pool keeps such blocks
    /// and no others.
    #[cold]
    #[inline(never)]
    fn find_apart(&mut self, want: &Want, clock: u64) -> Option<Grant> {
        if self.pool == PoolId::DEFAULT || self.memory.rules.caches {
            return None;
        }
        let free = &self.memory.pools[want.side.index()].free;
        let found = free.best_fit(want.rounded, |id| self.memory.blocks[id].size)?;
        (self.memory.blocks[found].size == want.rounded).then(|| self.take(found, want, clock))
    }

    /// Hands out the free block of a home that fits best, if the stream may have it at once. The place of a large block
    /// depends on what is free alone, and not on how far the device is: so a program that repeats itself finds the same
    /// places again.
    #[inline(never)]
    fn find_at_home(&mut self, want: &Want, clock: u64, by: Requester) -> Option<Grant> {
        if want.side == Side::Small {
            return self.find_small(want, clock, by);
        }
        let (found, to) = self.find_ready(want, by)?;
        Some(self.take_at_home(found, want, clock, to))
    }

    /// Returns the free block of a home that fits a large request best, if the stream may have it at once.
    #[inline(always)]
    fn find_ready(&self, want: &Want, by: Requester) -> Option<(BlockId, NewUser)> {
        let found = self.find(want)?;
        Some((found, self.ready_for(found, want, by)?))
    }

    /// Returns whether a free block serves a request at once: `false` also where that takes more than a look. Changes
    /// nothing but that a free that was put off is [made up for](Self::tidied).
    pub fn would_hit(&mut self, want: &Want, by: Requester) -> bool {
        self.tidied();
        match self.memory.rules.moves_pages {
            true => want.side == Side::Large && self.find_ready(want, by).is_some(),
            false => self.settling.is_empty() && self.find(want).is_some(),
        }
    }

    /// Returns the requester as the user of the front of a free block, if it may have that at once.
    #[inline(always)]
    fn ready_for(&self, id: BlockId, want: &Want, by: Requester) -> Option<NewUser> {
        let block = &self.memory.blocks[id];
        let last_use = self.memory.guards.ready_use(block, block.offset..block.offset + want.rounded, by)?;
        Some(NewUser { stream: by.stream, last_use })
    }

    /// Hands out the first small block in a slab of the stream that this may have at once, or begins a slab. Looks at
    /// few blocks.
    #[inline(never)]
    fn find_small(&mut self, want: &Want, clock: u64, by: Requester) -> Option<Grant> {
        let ready = self.memory.slabs.of(by.stream).filter(|index| !index.is_empty()).and_then(|index| {
            self.memory.fitting(index, want.rounded).find_map(|id| Some((id, self.ready_for(id, want, by)?)))
        });
        match ready {
            Some((found, to)) => Some(self.take_at_home(found, want, clock, to)),
            None => self.take_slab(want, clock, by),
        }
    }

    /// Turns a slab of free memory of the large side into one of the small side, if the stream may have all of it at
    /// once, and hands out a block of it. Looks at few blocks.
    pub(crate) fn take_slab(&mut self, want: &Want, clock: u64, by: Requester) -> Option<Grant> {
        let bytes = self.memory.rules.slab;
        let (found, at, last_use) =
            self.memory.fitting(&self.memory.pools[Side::Large.index()].free, bytes).find_map(|id| {
                let at = self.memory.first_slab(id)?;
                Some((id, at, self.memory.guards.ready_use(&self.memory.blocks[id], at..at + bytes, by)?))
            })?;
        self.memory.claim(found);
        let slab = self.memory.carve(found, at, bytes, [clock; 2]);
        self.memory.guards.take(&mut self.memory.blocks[slab]);
        self.memory.becomes_slab(slab, by.stream);
        self.memory.set_last_use(slab, last_use);
        Some(self.serve(slab, want, clock, NewUser { stream: by.stream, last_use }))
    }

    /// Hands out the first free block of a segment that the stream may have at once. It serves where the best fit of
    /// all is in pages, and not ready. Costs a look at each free block that is long enough.
    pub(crate) fn take_in_segment(&mut self, want: &Want, clock: u64, by: Requester) -> Option<Grant> {
        let mut free = self.memory.index_for(want.side, by.stream)?.iter_from(want.rounded);
        let (found, to) = free.find_map(|id| {
            let block = &self.memory.blocks[id];
            let fits = block.size >= want.rounded && !block.expandable;
            Some((id, fits.then(|| self.ready_for(id, want, by)).flatten()?))
        })?;
        drop(free);
        Some(self.take_at_home(found, want, clock, to))
    }

    /// Hands out the front of a free block of a home to a stream, with the last use that counts there.
    fn take_at_home(&mut self, id: BlockId, want: &Want, clock: u64, to: NewUser) -> Grant {
        let grant = self.take(id, want, clock);
        self.granted(grant, to)
    }

    /// Notes for whom a block of a home was handed out.
    pub(super) fn granted(&mut self, grant: Grant, NewUser { stream, last_use }: NewUser) -> Grant {
        self.memory.blocks[grant.block].user = stream;
        self.memory.guards.seen.note_grant(stream);
        Grant { last_use, ..grant }
    }

    /// Hands out the front of a free block.
    pub(super) fn take(&mut self, id: BlockId, want: &Want, clock: u64) -> Grant {
        self.memory.unlist(id);
        self.hand_out(id, want, clock)
    }

    /// Hands out the front of a block that is in no index, and puts the rest into the index.
    #[inline(always)]
    pub(super) fn hand_out(&mut self, id: BlockId, want: &Want, clock: u64) -> Grant {
        let block = &mut self.memory.blocks[id];
        debug_assert!(block.size >= want.rounded, "block of {} bytes taken for {}", block.size, want.rounded);
        block.state = State::Live;
        block.requested = want.requested;
        let Block { offset, size: whole, last_use, prev, next, slot, expandable, used_elsewhere, .. } = *block;
        let was_split = prev != BlockId::NONE || next != BlockId::NONE;
        let rest = whole - want.rounded;
        let (mut size, mut change) = (whole, SplitChange::default());
        if self.splits(want, rest) && self.cuts(slot) {
            size = want.rounded;
            self.memory.split(id, size, clock);
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
            self.memory.guards.mark_rest(&mut self.memory.blocks, id);
        }
        let oversize = size >= self.memory.rules.max_split;
        let requested = if self.memory.rules.planted.is(Plant::WrongCounter) { size } else { want.requested };
        self.snug_takes(size, want.requested);
        let unsettled = self.meter.grant(want.side, size, requested, oversize, change);
        Grant { block: id, slot, offset, size, base: self.memory.segments[slot].base, last_use, unsettled }
    }

    /// Returns whether a rest of this size is cut off, as PyTorch's `should_split` does.
    #[inline(always)]
    pub(super) fn splits(&self, want: &Want, rest: u64) -> bool {
        if !self.memory.rules.splits {
            return false;
        }
        match want.side {
            Side::Small => rest >= QUANTUM,
            Side::Large if self.memory.rules.expandable || self.memory.rules.moves_pages || self.snug.is_some() => {
                rest >= QUANTUM
            }
            Side::Large => want.rounded < self.memory.rules.max_split && rest > SMALL_BYTES,
        }
    }
}

impl Shard {
    /// Hands out a block that the plan has claimed, whole or in part, to a stream, with the last use that counts there.
    /// What was freed after it meanwhile joins what is left of it.
    pub(crate) fn serve(&mut self, id: BlockId, want: &Want, clock: u64, to: NewUser) -> Grant {
        if !self.memory.rules.moves_pages {
            self.memory.absorb_behind(id);
            return self.hand_out(id, want, clock);
        }
        let grant = self.hand_out(id, want, clock);
        let is_free = |id: &BlockId| self.memory.is_free_on(*id, want.side);
        if let Some(rest) = self.memory.blocks[id].next.some().filter(is_free)
            && self.memory.blocks[rest].next.some().is_some_and(|behind| is_free(&behind))
        {
            self.memory.unlist(rest);
            self.memory.join(rest, clock);
        }
        self.granted(grant, to)
    }

    /// Joins what a plan has claimed and backed, and hands it out on the side of the request.
    pub(crate) fn serve_growth(&mut self, ground: Ground, want: &Want, clock: u64, to: NewUser) -> Grant {
        let whole = match ground.before {
            Some(before) => self.memory.absorb(before.block, ground.gap),
            None => ground.gap,
        };
        if want.side == Side::Small {
            // The rest of the slab is free for other small blocks.
            self.memory.becomes_slab(whole, to.stream);
        }
        // A free block in front that the plan has not claimed stays as it is: the block that is handed out follows it.
        self.serve(whole, want, clock, to)
    }

    /// Hands a claimed part of a window out whose memory is `pieces`, all of which are away. `last_use` is that of the
    /// memory.
    pub(crate) fn open_window(
        &mut self,
        id: BlockId,
        pieces: Vec<BlockId>,
        NewUser { stream, last_use }: NewUser,
        want: &Want,
    ) -> Grant {
        debug_assert!(self.memory.blocks[id].size >= want.rounded && want.side == Side::Large);
        if self.memory.blocks[id].size > want.rounded {
            let rest = self.memory.cut(id, want.rounded);
            self.panes.keep(&mut self.memory, rest);
        }
        let block = &mut self.memory.blocks[id];
        block.state = State::Live;
        (block.requested, block.user) = (want.requested, stream);
        // The free of a block that is used elsewhere does not take the short way.
        block.used_elsewhere = true;
        let (slot, offset) = (block.slot, block.offset);
        self.memory.note_window(id, &pieces);
        self.memory.guards.seen.note_grant(stream);
        self.panes.open(id, pieces);
        let oversize = want.rounded >= self.memory.rules.max_split;
        let unsettled = self.meter.grant(Side::Large, want.rounded, want.requested, oversize, SplitChange::default());
        Grant {
            block: id,
            slot,
            offset,
            size: want.rounded,
            base: self.memory.segments[slot].base,
            last_use,
            unsettled,
        }
    }
}
