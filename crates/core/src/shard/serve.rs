//! The grant of memory that a plan has claimed, of a part of a window, and of the blocks of a checkpoint at their places.

use alloc::vec::Vec;

use millpond_backend::StreamId;

use super::{Grant, Shard};
use crate::block::LastUse;
use crate::block::{Block, State};
use crate::ids::{BlockId, Side};
use crate::memory::{Ground, Mark, Spot};
use crate::meter::SplitChange;
use crate::size::Want;

impl Shard {
    /// Hands out a block that the plan has claimed, whole or in part, to a stream, with the last use that counts there.
    /// What was freed after it meanwhile joins what is left of it.
    pub(crate) fn serve(&mut self, id: BlockId, want: &Want, clock: u64, to: (StreamId, LastUse)) -> Grant {
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
    pub(crate) fn serve_growth(&mut self, ground: Ground, want: &Want, clock: u64, to: (StreamId, LastUse)) -> Grant {
        let whole = match ground.before {
            Some(before) => self.memory.absorb(before.block, ground.gap),
            None => ground.gap,
        };
        if want.side == Side::Small {
            // The rest of the slab is free for other small blocks.
            self.memory.becomes_slab(whole, to.0);
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
        (stream, last_use): (StreamId, LastUse),
        want: &Want,
    ) -> Grant {
        debug_assert!(self.memory.blocks[id].size >= want.rounded && want.side == Side::Large);
        if self.memory.blocks[id].size > want.rounded {
            let rest = self.memory.cut(id, want.rounded);
            self.memory.keep(rest);
        }
        let block = &mut self.memory.blocks[id];
        block.state = State::Live;
        (block.requested, block.user) = (want.requested, stream);
        // The free of a block that is used elsewhere does not take the short way.
        block.used_elsewhere = true;
        let (slot, offset) = (block.slot, block.offset);
        self.memory.note_window(id, &pieces);
        self.memory.guards.seen.note_grant(stream);
        self.memory.panes.open(id, pieces);
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

    /// Hands out the free memory at a spot.
    ///
    /// # Panics
    ///
    /// If not all of it is free.
    pub(crate) fn grant_at(&mut self, spot: &Spot, want: &Want, user: StreamId) -> Grant {
        let (block, change) = self.memory.claim_spot(spot, user, None);
        let (spot, requested, used_on) = (spot.clone(), want.requested, Vec::new());
        let mark = Mark { spot, requested, user, used_on, pieces: None };
        self.grant_again(block, &mark, change)
    }

    /// Returns the live block as a mark whose pieces, if it is in a window, are these.
    pub(crate) fn mark_of(&self, id: BlockId, pieces: Vec<Spot>) -> Mark {
        let uses = self.uses.get(&id);
        Mark {
            spot: self.memory.spot(id),
            requested: self.memory.blocks[id].requested,
            used_on: uses.map_or_else(Vec::new, |uses| uses.streams.clone()),
            user: self.memory.blocks[id].user,
            pieces: self.memory.is_opened(id).then_some(pieces),
        }
    }

    /// Hands a claimed block out whole, as the block of a mark.
    pub(crate) fn grant_again(&mut self, id: BlockId, mark: &Mark, change: SplitChange) -> Grant {
        let block = &mut self.memory.blocks[id];
        debug_assert_eq!(block.state, State::Claimed);
        (block.state, block.requested, block.used_elsewhere) = (State::Live, mark.requested, false);
        block.user = mark.user;
        let Block { slot, offset, size, last_use, side, .. } = *block;
        let oversize = size >= self.memory.rules.max_split;
        self.snug_takes(size, mark.requested);
        let unsettled = self.meter.grant(side, size, mark.requested, oversize, change);
        self.use_again(id, mark);
        self.memory.was_not_scrubbed(id);
        Grant { block: id, slot, offset, size, base: self.memory.segments[slot].base, last_use, unsettled }
    }

    /// Hands the addresses of a mark out, in a window whose memory is `pieces`, all of which are away.
    pub(crate) fn open_again(&mut self, mark: &Mark, pieces: Vec<BlockId>, last_use: LastUse) -> Grant {
        let Spot { slot, begin, end, side, .. } = mark.spot;
        let run = self.memory.claim_run(self.memory.block_at(slot, begin, None), begin, end - begin);
        let want = Want { requested: mark.requested, rounded: end - begin, side };
        let grant = self.open_window(run, pieces, (mark.user, last_use), &want);
        self.use_again(grant.block, mark);
        self.memory.was_not_scrubbed(grant.block);
        grant
    }

    fn use_again(&mut self, id: BlockId, mark: &Mark) {
        for &stream in &mark.used_on {
            self.record_stream(id, stream);
        }
    }
}
