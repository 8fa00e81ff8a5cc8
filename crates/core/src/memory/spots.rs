//! Live blocks by place: what a checkpoint notes of them, whether they could be handed out there again, and doing so.

use alloc::vec::Vec;

use millpond_backend::{Point, StreamId};

use super::Memory;
use crate::block::LastUse;
use crate::block::{Block, State};
use crate::ids::{BlockId, SegmentId, ShardId, Side, Slot};
use crate::meter::SplitChange;
use crate::segment::{Role, Segment};
use crate::size::Want;
use crate::units::QUANTUM;

/// Memory of a segment or a home, or addresses of a window, that lies where it did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    pub(crate) shard: ShardId,
    pub(crate) slot: Slot,
    /// The segment that was at the slot.
    pub(crate) segment: SegmentId,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) side: Side,
    /// The births of the pages that were mapped there, in order.
    births: Vec<u64>,
}

/// A live block of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mark {
    pub(crate) spot: Spot,
    pub(crate) requested: u64,
    /// The stream that it was handed out for.
    pub(crate) user: StreamId,
    /// The other streams that use it until its free.
    pub(crate) used_on: Vec<StreamId>,
    /// The memory behind it, where it is in a window.
    pub(crate) pieces: Option<Vec<Spot>>,
}

impl Memory {
    /// Returns the spot of a block.
    pub(crate) fn spot(&self, id: BlockId) -> Spot {
        let block = &self.blocks[id];
        let &Block { slot, offset: begin, side, .. } = block;
        let (segment, end) = (self.segments[slot].id, block.end());
        Spot { shard: self.id, slot, segment, begin, end, side, births: self.births(slot, begin, end) }
    }

    /// Returns the spot of a request at an address, if the shard has memory or addresses of its own for it there. A
    /// side of segments serves its own requests alone; a home serves both.
    pub(crate) fn spot_at(&self, address: u64, want: &Want) -> Option<Spot> {
        let holds = |segment: &Segment| {
            let is_inside = address.checked_sub(segment.base).is_some_and(|at| {
                at.is_multiple_of(QUANTUM) && at.checked_add(want.rounded).is_some_and(|end| end <= segment.bytes)
            });
            let serves = segment.side == want.side || (self.rules.moves_pages && segment.is_expandable());
            segment.base != 0 && is_inside && serves && !segment.has_windows
        };
        let (slot, segment) = self.segments.iter().find(|(_, segment)| holds(segment))?;
        let begin = address - segment.base;
        let (end, side) = (begin + want.rounded, want.side);
        let births = self.births(slot, begin, end);
        Some(Spot { shard: self.id, slot, segment: segment.id, begin, end, side, births })
    }

    fn births(&self, slot: Slot, begin: u64, end: u64) -> Vec<u64> {
        let mapped = self.segments[slot].mappings.over(begin, end).filter(|(_, mapping)| mapping.role != Role::Leaving);
        mapped.map(|(_, mapping)| mapping.birth).collect()
    }

    /// Returns the live blocks by place, each with the memory of other places that it has.
    pub(crate) fn live_by_place(&self) -> Vec<(BlockId, Vec<BlockId>)> {
        let slots = self.segments.iter().map(|(slot, _)| slot);
        let live = slots.flat_map(|slot| self.tiles(slot)).filter(|&id| self.blocks[id].state == State::Live);
        live.map(|id| (id, self.pieces_of(id))).collect()
    }

    /// Returns the memory of a block in a window; none for another block.
    pub(crate) fn pieces_of(&self, id: BlockId) -> Vec<BlockId> {
        self.pieces_if_opened(id).map(<[BlockId]>::to_vec).unwrap_or_default()
    }

    /// Returns the memory of the blocks in windows that were freed and wait for points.
    pub(crate) fn pieces_of_pending(&self) -> Vec<BlockId> {
        let pending = self.opened().filter(|&id| self.blocks[id].state == State::Pending);
        pending.flat_map(|id| self.pieces_of(id)).collect()
    }

    /// Returns the block that has the byte at an offset. The search begins with `from`, which lies in front of it.
    pub(crate) fn block_at(&self, slot: Slot, offset: u64, from: Option<BlockId>) -> BlockId {
        let first = Some(from.unwrap_or(self.segments[slot].first));
        let mut blocks = core::iter::successors(first, |&id| self.blocks[id].next.some());
        let found = blocks.find(|&id| self.blocks[id].end() > offset);
        found.unwrap_or_else(|| panic!("no block has the byte at {offset} of slot {}", slot.0))
    }

    /// Returns whether the memory that was at a spot is there still.
    pub(crate) fn has_spot(&self, spot: &Spot) -> bool {
        let segment = self.segments.get(spot.slot).filter(|segment| segment.id == spot.segment);
        segment.is_some_and(|_| self.births(spot.slot, spot.begin, spot.end) == spot.births)
    }

    /// Returns the blocks at a spot that the shard has, with their states, where what is not what was there counts as
    /// vacant; the points that come before the next use of the free
    /// memory there, its guards and the last use by the home's own stream; and the block with which it ends.
    pub(crate) fn standing_at(
        &self,
        spot: &Spot,
        from: Option<BlockId>,
    ) -> (Vec<(BlockId, State)>, Vec<Point>, BlockId) {
        let (mut all, mut points) = (Vec::new(), Vec::new());
        let mut id = self.block_at(spot.slot, spot.begin, from);
        loop {
            let block = &self.blocks[id];
            let begins_within = self.begins_window(id) && block.offset > spot.begin;
            all.push((id, if begins_within { State::Vacant } else { block.state }));
            points.extend(self.guards.points_of(&self.blocks[id]).iter().chain([self.blocks[id].last_point()]));
            match block.next.some().filter(|_| block.end() < spot.end) {
                Some(next) => id = next,
                None => return (all, points, id),
            }
        }
    }

    /// Claims the free memory at a spot. Where the two sides of a home have changed since, it goes to the side of the
    /// spot, for a stream. What is left of the free blocks stays free. Returns the claimed block and the change of
    /// `inactive_split`.
    ///
    /// # Panics
    ///
    /// If not all of it is free.
    pub(crate) fn claim_spot(&mut self, spot: &Spot, user: StreamId, from: Option<BlockId>) -> (BlockId, SplitChange) {
        let mut id = self.block_at(spot.slot, spot.begin, from);
        let (mut whole, mut change) = (None, SplitChange::default());
        loop {
            let block = &self.blocks[id];
            assert_eq!(block.state, State::Free, "{spot:?} is claimed and is not free");
            let range = (block.offset.max(spot.begin), block.end().min(spot.end));
            let part = if block.side == spot.side {
                self.claim_between(id, range, &mut change)
            } else {
                self.claim_across(id, range, spot.side, user)
            };
            // What others did there is over.
            let used = self.guards.take(&mut self.blocks[part]).tick(user).map_or(LastUse::NEVER, LastUse::at);
            self.blocks[part].last_use = self.blocks[part].last_use.max(used);
            let front = whole.map_or(part, |front| self.absorb(front, part));
            if self.blocks[front].end() == spot.end {
                return (front, change);
            }
            whole = Some(front);
            id = self.blocks[front].next;
        }
    }

    /// Claims a part of a free block. Returns it, and adds to the change of `inactive_split`.
    fn claim_between(&mut self, id: BlockId, (begin, end): (u64, u64), change: &mut SplitChange) -> BlockId {
        self.count_split(id, -1, change);
        self.claim(id);
        let (front, mut part, mut rest) = (id, id, BlockId::NONE);
        if self.blocks[id].offset < begin {
            part = self.cut(id, begin - self.blocks[id].offset);
        }
        if self.blocks[part].end() > end {
            rest = self.cut(part, end - begin);
        }
        for left in [front, rest].into_iter().filter(|&left| left != part && left != BlockId::NONE) {
            let Block { size, side, .. } = self.blocks[left];
            self.blocks[left].state = State::Free;
            self.list(left, size, side);
            self.count_split(left, 1, change);
        }
        self.blocks[part].state = State::Claimed;
        part
    }

    /// Adds what a free block counts for in `inactive_split`, or takes it away.
    fn count_split(&self, id: BlockId, sign: i64, change: &mut SplitChange) {
        let block = &self.blocks[id];
        if block.state == State::Free && block.is_split() && !block.expandable {
            change.blocks += sign;
            change.bytes += sign * block.size as i64;
        }
    }

    /// Claims a part of a free block of a home for the other side. The small side gets whole slabs, as far as the block
    /// has them. What either side has of other slabs goes back once no small block is next to it.
    fn claim_across(&mut self, id: BlockId, (begin, end): (u64, u64), side: Side, user: StreamId) -> BlockId {
        // Some slab is in parts now: every free block of the small side is looked at, however short.
        self.gives_from = 0;
        if side == Side::Large {
            let part = self.claim_between(id, (begin, end), &mut SplitChange::default());
            self.leaves_slab(part);
            let Block { prev, next, .. } = self.blocks[part];
            for left in [prev, next].into_iter().filter_map(BlockId::some) {
                if self.is_free_on(left, Side::Small) && self.returnable(left).is_some() {
                    self.claim(left);
                    self.gives_slabs(left);
                }
            }
            return part;
        }
        let (slab, block) = (self.rules.slab, &self.blocks[id]);
        let (low, high) = (begin / slab * slab, end.div_ceil(slab).saturating_mul(slab));
        let (low, high, age) = (low.max(block.offset), high.min(block.end()), block.age);
        let region = self.claim_between(id, (low, high), &mut SplitChange::default());
        self.becomes_slab(region, user);
        self.carve(region, begin, end - begin, [age; 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::home::tests::{add_range, map, with_gaps};
    use crate::shard::Shard;
    use crate::units::MIB;

    /// The pages are those that there were, and the addresses are those of several windows now.
    #[test]
    fn a_place_across_two_windows_is_gone() {
        let (mut shard, _, _) = with_gaps(&[4, 2, 6]);
        let slot = add_range(&mut shard, true);
        let Some((block, _, offset)) = shard.memory.claim_vacant(10 * MIB) else { panic!("there are addresses") };
        map(&mut shard, slot, (offset, offset + 10 * MIB), Role::Window);
        let run = shard.memory.begin_window(block, 0);
        shard.memory.unclaim_run(run);
        let whole = shard.memory.spot(block);
        let states = |shard: &Shard| {
            shard.memory.standing_at(&whole, None).0.iter().map(|(_, state)| *state).collect::<Vec<_>>()
        };
        assert_eq!(states(&shard), [State::Kept]);
        let (_, rest) = shard.memory.take_out(block, (offset + 2 * MIB, 2 * MIB), true);
        assert!(shard.memory.has_spot(&whole) && rest.is_some());
        assert_eq!(states(&shard), [State::Kept, State::Vacant, State::Vacant]);
    }
}
