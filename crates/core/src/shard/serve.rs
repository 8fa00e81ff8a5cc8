//! The grant of memory that a plan has claimed, and of a part of a window.

use alloc::vec::Vec;

use millpond_backend::StreamId;

use super::{Grant, Shard};
use crate::block::LastUse;
use crate::block::State;
use crate::ids::{BlockId, Side};
use crate::memory::Ground;
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
