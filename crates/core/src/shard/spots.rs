//! Live blocks by place: what a checkpoint notes of them, whether they could be handed out there again, and doing so.

use alloc::vec::Vec;
use core::ops::Range;

use millpond_backend::{Point, StreamId};

use super::{Grant, NewUser, Shard};
use crate::block::{Block, LastUse, State};
use crate::ids::{BlockId, SegmentId, ShardId, Side, Slot};
use crate::memory::Memory;
use crate::meter::SplitChange;
use crate::segment::Segment;
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

/// A claimed spot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtSpot {
    pub(crate) block: BlockId,
    /// The change of `inactive_split` that the claim has made.
    pub(crate) change: SplitChange,
}

/// What is at a spot.
#[derive(Debug)]
pub(crate) struct Standing {
    /// The blocks with their states, where what is not what was there counts as vacant.
    pub(crate) blocks: Vec<(BlockId, State)>,
    /// The points that come before the next use of the free memory: its guards, and the last use by the home's own
    /// stream.
    pub(crate) points: Vec<Point>,
    /// The block with which the spot ends.
    pub(crate) last: BlockId,
}

impl Spot {
    /// Returns the spot of a block.
    pub(crate) fn of(memory: &Memory, id: BlockId) -> Spot {
        let block = &memory.blocks[id];
        let &Block { slot, offset: begin, side, .. } = block;
        let (segment, end) = (memory.segments[slot].id, block.end());
        Spot { shard: memory.id, slot, segment, begin, end, side, births: memory.segments[slot].births(begin, end) }
    }

    /// Returns the spot of a request at an address, if the shard has memory or addresses of its own for it there. A
    /// side of segments serves its own requests alone; a home serves both.
    pub(crate) fn at(memory: &Memory, address: u64, want: &Want) -> Option<Spot> {
        let holds = |segment: &Segment| {
            let is_inside = address.checked_sub(segment.base).is_some_and(|at| {
                at.is_multiple_of(QUANTUM) && at.checked_add(want.rounded).is_some_and(|end| end <= segment.bytes)
            });
            let serves = segment.side == want.side || (memory.rules.moves_pages && segment.is_expandable());
            segment.base != 0 && is_inside && serves && !segment.has_windows
        };
        let (slot, segment) = memory.segments.iter().find(|(_, segment)| holds(segment))?;
        let begin = address - segment.base;
        let (end, side) = (begin + want.rounded, want.side);
        let births = segment.births(begin, end);
        Some(Spot { shard: memory.id, slot, segment: segment.id, begin, end, side, births })
    }

    /// Returns whether the memory that was at the spot is there still.
    pub(crate) fn is_there(&self, memory: &Memory) -> bool {
        let segment = memory.segments.get(self.slot).filter(|segment| segment.id == self.segment);
        segment.is_some_and(|segment| segment.births(self.begin, self.end) == self.births)
    }

    /// Claims the free memory at a self. Where the two sides of a home have changed since, it goes to the side of the
    /// spot, for a stream. What is left of the free blocks stays free.
    ///
    /// # Panics
    ///
    /// If not all of it is free.
    pub(crate) fn claim(&self, memory: &mut Memory, user: StreamId, from: Option<BlockId>) -> AtSpot {
        let mut id = memory.block_at(self.slot, self.begin, from);
        let (mut whole, mut change) = (None, SplitChange::default());
        loop {
            let block = &memory.blocks[id];
            assert_eq!(block.state, State::Free, "{self:?} is claimed and is not free");
            let range = block.offset.max(self.begin)..block.end().min(self.end);
            let part = if block.side == self.side {
                claim_between(memory, id, range, &mut change)
            } else {
                claim_across(memory, id, range, self.side, user)
            };
            // What others did there is over.
            let used = memory.guards.take(&mut memory.blocks[part]).tick(user).map_or(LastUse::NEVER, LastUse::at);
            memory.blocks[part].last_use = memory.blocks[part].last_use.max(used);
            let front = whole.map_or(part, |front| memory.absorb(front, part));
            if memory.blocks[front].end() == self.end {
                return AtSpot { block: front, change };
            }
            whole = Some(front);
            id = memory.blocks[front].next;
        }
    }
}

impl Shard {
    /// Returns the live block as a mark whose pieces, if it is in a window, are these.
    pub(crate) fn mark_of(&self, id: BlockId, pieces: Vec<Spot>) -> Mark {
        let uses = self.uses.get(&id);
        Mark {
            spot: Spot::of(&self.memory, id),
            requested: self.memory.blocks[id].requested,
            used_on: uses.map_or_else(Vec::new, |uses| uses.streams.clone()),
            user: self.memory.blocks[id].user,
            pieces: self.panes.has(id).then_some(pieces),
        }
    }

    /// Hands out the free memory at a spot.
    ///
    /// # Panics
    ///
    /// If not all of it is free.
    pub(crate) fn grant_at(&mut self, spot: &Spot, want: &Want, user: StreamId) -> Grant {
        let at = spot.claim(&mut self.memory, user, None);
        let (spot, requested, used_on) = (spot.clone(), want.requested, Vec::new());
        let mark = Mark { spot, requested, user, used_on, pieces: None };
        self.grant_again(at, &mark)
    }

    /// Hands a claimed block out whole, as the block of a mark.
    pub(crate) fn grant_again(&mut self, AtSpot { block: id, change }: AtSpot, mark: &Mark) -> Grant {
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
        let grant = self.open_window(run, pieces, NewUser { stream: mark.user, last_use }, &want);
        self.use_again(grant.block, mark);
        self.memory.was_not_scrubbed(grant.block);
        grant
    }

    fn use_again(&mut self, id: BlockId, mark: &Mark) {
        for &stream in &mark.used_on {
            self.record_stream(id, stream);
        }
    }

    /// Returns the live blocks by place, each with the memory of other places that it has.
    pub(crate) fn live_by_place(&self) -> Vec<(BlockId, Vec<BlockId>)> {
        let slots = self.memory.segments.iter().map(|(slot, _)| slot);
        let live = slots
            .flat_map(|slot| self.memory.blocks_in(slot))
            .filter(|&id| self.memory.blocks[id].state == State::Live);
        live.map(|id| (id, self.pieces_of(id))).collect()
    }

    /// Returns the memory of a block in a window; none for another block.
    pub(crate) fn pieces_of(&self, id: BlockId) -> Vec<BlockId> {
        self.panes.pieces(id).map(<[BlockId]>::to_vec).unwrap_or_default()
    }

    /// Returns the memory of the blocks in windows that were freed and wait for points.
    pub(crate) fn pieces_of_pending(&self) -> Vec<BlockId> {
        let pending = self.panes.opened().filter(|&id| self.memory.blocks[id].state == State::Pending);
        pending.flat_map(|id| self.pieces_of(id)).collect()
    }

    /// Returns what is at a spot that the shard has.
    pub(crate) fn standing_at(&self, spot: &Spot, from: Option<BlockId>) -> Standing {
        let (mut blocks, mut points) = (Vec::new(), Vec::new());
        let mut id = self.memory.block_at(spot.slot, spot.begin, from);
        loop {
            let block = &self.memory.blocks[id];
            let begins_within = self.panes.begins(id) && block.offset > spot.begin;
            blocks.push((id, if begins_within { State::Vacant } else { block.state }));
            points.extend(self.memory.guards.points_of(block).iter());
            points.push(block.last_point());
            match block.next.some().filter(|_| block.end() < spot.end) {
                Some(next) => id = next,
                None => return Standing { blocks, points, last: id },
            }
        }
    }
}

/// Claims a part of a free block. Returns it, and adds to the change of `inactive_split`.
fn claim_between(
    memory: &mut Memory,
    id: BlockId,
    Range { start: begin, end }: Range<u64>,
    change: &mut SplitChange,
) -> BlockId {
    count_split(memory, id, -1, change);
    memory.claim(id);
    let (front, mut part, mut rest) = (id, id, BlockId::NONE);
    if memory.blocks[id].offset < begin {
        part = memory.cut(id, begin - memory.blocks[id].offset);
    }
    if memory.blocks[part].end() > end {
        rest = memory.cut(part, end - begin);
    }
    for left in [front, rest].into_iter().filter(|&left| left != part && left != BlockId::NONE) {
        let Block { size, side, .. } = memory.blocks[left];
        memory.blocks[left].state = State::Free;
        memory.list(left, size, side);
        count_split(memory, left, 1, change);
    }
    memory.blocks[part].state = State::Claimed;
    part
}

/// Adds what a free block counts for in `inactive_split`, or takes it away.
fn count_split(memory: &Memory, id: BlockId, sign: i64, change: &mut SplitChange) {
    let block = &memory.blocks[id];
    if block.state == State::Free && block.is_split() && !block.expandable {
        change.blocks += sign;
        change.bytes += sign * block.size as i64;
    }
}

/// Claims a part of a free block of a home for the other side. The small side gets whole slabs, as far as the block
/// has them. What either side has of other slabs goes back once no small block is next to it.
fn claim_across(memory: &mut Memory, id: BlockId, range: Range<u64>, side: Side, user: StreamId) -> BlockId {
    // Some slab is in parts now: every free block of the small side is looked at, however short.
    memory.gives_from = 0;
    if side == Side::Large {
        let part = claim_between(memory, id, range, &mut SplitChange::default());
        memory.leaves_slab(part);
        let Block { prev, next, .. } = memory.blocks[part];
        for left in [prev, next].into_iter().filter_map(BlockId::some) {
            if memory.is_free_on(left, Side::Small) && memory.returnable(left).is_some() {
                memory.claim(left);
                memory.gives_slabs(left);
            }
        }
        return part;
    }
    let Range { start: begin, end } = range;
    let (slab, block) = (memory.rules.slab, &memory.blocks[id]);
    let (low, high) = (begin / slab * slab, end.div_ceil(slab).saturating_mul(slab));
    let (low, high, age) = (low.max(block.offset), high.min(block.end()), block.age);
    let region = claim_between(memory, id, low..high, &mut SplitChange::default());
    memory.becomes_slab(region, user);
    memory.carve(region, begin, end - begin, [age; 2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Vacant;
    use crate::memory::home::tests::{add_range, map, with_gaps};
    use crate::segment::Role;
    use crate::units::MIB;

    /// The pages are those that there were, and the addresses are those of several windows now.
    #[test]
    fn a_place_across_two_windows_is_gone() {
        let (mut shard, _, _) = with_gaps(&[4, 2, 6]);
        let slot = add_range(&mut shard, true);
        let Some(Vacant { block, offset, .. }) = shard.memory.claim_vacant(10 * MIB) else {
            panic!("there are addresses")
        };
        map(&mut shard, slot, (offset, offset + 10 * MIB), Role::Window);
        let run = shard.panes.begin(&mut shard.memory, block, 0);
        shard.panes.unclaim_run(&mut shard.memory, run);
        let whole = Spot::of(&shard.memory, block);
        let states =
            |shard: &Shard| shard.standing_at(&whole, None).blocks.iter().map(|(_, state)| *state).collect::<Vec<_>>();
        assert_eq!(states(&shard), [State::Kept]);
        let rest = shard.panes.take_out(&mut shard.memory, block, offset + 2 * MIB, 2 * MIB, true).behind;
        assert!(whole.is_there(&shard.memory) && rest.is_some());
        assert_eq!(states(&shard), [State::Kept, State::Vacant, State::Vacant]);
    }
}
