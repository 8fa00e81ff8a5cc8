//! The growth of a block that is handed out, at its place: at once in free memory, or with what a plan has claimed.

use millpond_backend::Tick;

use super::{Grant, NewUser, Requester, Shard};
use crate::block::{LastUse, State};
use crate::ids::{BlockId, Side};
use crate::memory::{NoRoom, Room};
use crate::meter::SplitChange;
use crate::size::Want;
use crate::units::QUANTUM;

/// What came of the growth of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grown {
    /// The block is longer. The grant is that of the whole block, with the last use of what was added.
    Done(Grant),
    /// A plan has to get this from the device first: see [`Plan::after`](crate::Plan::after).
    Missed(Want),
    /// There is no room at its place. Nothing has changed.
    NoRoom(NoRoom),
}

/// What a block becomes longer by: claimed memory that follows it, and whether it is free memory of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Longer {
    /// The claimed block directly after it.
    pub(crate) part: BlockId,
    /// The bytes of it that the block gets. The rest becomes free memory.
    pub(crate) bytes: u64,
    /// The bytes that the program has asked for then, in all.
    pub(crate) requested: u64,
}

impl Shard {
    /// Makes a block that is handed out longer at its place, so that it serves a request like `to`, from the free
    /// memory after it that its stream may have at once. `usable` is the tick up to which memory that the stream itself
    /// freed may be handed out to it again. Costs a look at the next two blocks.
    ///
    /// # Panics
    ///
    /// If the block is not handed out.
    pub fn grow(&mut self, id: BlockId, to: &Want, clock: u64, usable: Tick) -> Grown {
        self.tidied();
        let block = &self.memory.blocks[id];
        assert!(block.state == State::Live, "block {} grows after it was freed", id.0);
        let (by, side, requested) = (Requester { stream: block.user, usable }, block.side, block.requested);
        let missing = self.memory.missing_for(id, to.rounded);
        if missing == 0 {
            let user = NewUser { stream: by.stream, last_use: LastUse::NEVER };
            return Grown::Done(self.lengthened(id, user, 0, to.requested, SplitChange::default()));
        }
        let tile = match self.memory.room_after(id, missing) {
            Err(why) => return Grown::NoRoom(why),
            Ok(Room::Free(tile)) => tile,
            Ok(Room::Pages(_)) => return self.missed(to, missing, side, requested),
        };
        let next = &self.memory.blocks[tile.block];
        let Some(last_use) = self.memory.guards.ready_use(next, tile.range(), by) else {
            return self.missed(to, missing, side, requested);
        };
        let Some(claimed) = self.memory.claim_part(&tile, tile.begin, tile.end) else {
            return Grown::NoRoom(NoRoom::Busy);
        };
        let longer = Longer { part: claimed.block, bytes: missing, requested: to.requested };
        Grown::Done(self.lengthen(id, &longer, clock, NewUser { stream: by.stream, last_use }))
    }

    fn missed(&self, to: &Want, missing: u64, side: Side, requested: u64) -> Grown {
        Grown::Missed(Want { requested: to.requested.saturating_sub(requested), rounded: missing, side })
    }

    /// Joins claimed memory to the block in front of it, which is handed out.
    pub(crate) fn lengthen(&mut self, id: BlockId, longer: &Longer, clock: u64, user: NewUser) -> Grant {
        let &Longer { part, bytes, requested } = longer;
        debug_assert_eq!(self.memory.blocks[id].next, part, "a block grows by what does not follow it");
        let rest = self.memory.blocks[part].size - bytes;
        if rest >= QUANTUM {
            let rest = self.memory.cut(part, bytes);
            self.memory.join(rest, clock);
        }
        let bytes = self.memory.blocks[part].size;
        let is_plain = !self.memory.blocks[id].expandable;
        self.memory.absorb(id, part);
        let (next, side) = (self.memory.blocks[id].next, self.memory.blocks[id].side);
        let leaves_rest = next.some().is_some_and(|next| self.memory.is_free_on(next, side));
        let change = match is_plain {
            true => SplitChange { blocks: if leaves_rest { 0 } else { -1 }, bytes: -(bytes as i64) },
            false => SplitChange::default(),
        };
        self.lengthened(id, user, bytes, requested, change)
    }

    /// Counts that a block has become longer by `bytes`.
    fn lengthened(&mut self, id: BlockId, user: NewUser, bytes: u64, requested: u64, change: SplitChange) -> Grant {
        let max_split = self.memory.rules.max_split;
        let block = &mut self.memory.blocks[id];
        let (before, size) = (core::mem::replace(&mut block.requested, requested), block.size);
        let (slot, offset, side) = (block.slot, block.offset, block.side);
        self.snug_gives(size - bytes, before);
        self.snug_takes(size, requested);
        self.mark_used_elsewhere(id);
        let becomes_oversize = size >= max_split && size - bytes < max_split;
        let unsettled = self.meter.grow(side, bytes, requested - before, becomes_oversize, change);
        let base = self.memory.segments[slot].base;
        Grant { block: id, slot, offset, size, base, last_use: user.last_use, unsettled }
    }

    /// Has the free of a block that was handed out take the long way if there is a reason: it was used on other
    /// streams, it lies in a window, the shard is closed, or addresses are reserved for the block, which become
    /// ordinary ones then.
    pub(crate) fn mark_used_elsewhere(&mut self, id: BlockId) {
        let is_used = self.uses.contains_key(&id) || self.panes.has(id) || self.is_closed();
        self.memory.blocks[id].used_elsewhere = is_used || self.memory.is_growable(id);
    }
}
