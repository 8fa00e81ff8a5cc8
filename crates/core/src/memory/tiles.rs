//! Free blocks at home: as a plan sees them, and as it claims parts of them, when another thread may have had them in
//! between.

use millpond_backend::{Point, StreamId};

use super::Memory;
use crate::block::LastUse;
use crate::block::{Block, State};
use crate::books::Points;
use crate::ids::{BlockId, Side, Slot};
use crate::index::FreeIndex;

/// A free block at home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tile {
    pub(crate) block: BlockId,
    pub(crate) side: Side,
    /// Whether a part of it may be guarded.
    pub(crate) is_marked: bool,
    pub(crate) slot: Slot,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Up to which point it was used, unless it is marked.
    pub(crate) point: Point,
    /// Its number in the [list by place](Memory::list_by_place) that it comes from, if it does.
    pub(crate) number: Option<u32>,
}

/// Free memory that a plan has claimed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Claimed {
    pub(crate) block: BlockId,
    /// The points up to which it was used. The plan has its stream come after them.
    pub(crate) points: Points,
    /// Whether it was never used.
    pub(crate) is_fresh: bool,
}

impl Memory {
    /// Returns the free blocks of the large side, by slot and offset, as they were when they were
    /// [listed](Self::list_by_place) last.
    pub(crate) fn tiles_by_place(&self) -> impl Iterator<Item = Tile> {
        (0..).zip(self.by_place.blocks()).map(|(number, block)| Tile { number: Some(number), ..self.tile(block) })
    }

    pub(crate) fn tile(&self, id: BlockId) -> Tile {
        let block = &self.blocks[id];
        let is_marked = block.used_elsewhere;
        let Block { side, slot, offset: begin, .. } = *block;
        let (end, point) = (block.end(), self.blocks[id].last_point());
        Tile { block: id, side, is_marked, slot, begin, end, point, number: None }
    }

    /// Returns the free blocks of the large side with at least `bytes` bytes, the smallest first.
    pub(crate) fn tiles_at_least(&self, bytes: u64) -> impl Iterator<Item = Tile> {
        self.tiles_in(&self.pools[Side::Large.index()].free, bytes)
    }

    /// Returns the free blocks in slabs of a stream with at least `bytes` bytes, the smallest first.
    pub(crate) fn small_tiles_at_least(&self, bytes: u64, stream: StreamId) -> impl Iterator<Item = Tile> {
        self.slabs.of(stream).into_iter().flat_map(move |index| self.tiles_in(index, bytes))
    }

    /// Returns the free blocks in slabs of any stream with at least `bytes` bytes.
    pub(crate) fn any_small_tiles_at_least(&self, bytes: u64) -> impl Iterator<Item = Tile> {
        self.slabs.each().flat_map(move |index| self.tiles_in(index, bytes))
    }

    /// Returns the free blocks of an index that have pages. What is free in a segment is not claimed in part.
    fn tiles_in(&self, index: &FreeIndex, bytes: u64) -> impl Iterator<Item = Tile> {
        let free = index.iter_from(bytes);
        let fits = move |id: &BlockId| self.blocks[*id].size >= bytes && self.blocks[*id].expandable;
        free.filter(fits).map(|id| self.tile(id))
    }

    /// Returns the free blocks of the large side that have a whole slab, the smallest first.
    pub(crate) fn slabs(&self) -> impl Iterator<Item = Tile> {
        self.tiles_at_least(self.rules.slab).filter(|tile| self.slab_in((tile.begin, tile.end)).is_some())
    }

    /// Returns whether a block is free on a side.
    #[inline(always)]
    pub(crate) fn is_free_on(&self, id: BlockId, side: Side) -> bool {
        (self.blocks[id].state, self.blocks[id].side) == (State::Free, side)
    }

    /// Claims a part of a free block for a small one: of the small side, or of the large side in one slab, all of which
    /// becomes the stream's. Returns what [`claim_part`](Self::claim_part) does.
    pub(crate) fn claim_small(&mut self, tile: &Tile, stream: StreamId) -> Option<Claimed> {
        let (slab, part) = (self.rules.slab, (tile.begin, tile.end));
        if tile.side == Side::Small {
            return self.cut_out(tile, part).map(|block| self.claimed(block));
        }
        let begin = tile.begin / slab * slab;
        let whole = self.cut_out(tile, (begin, begin + slab))?;
        self.becomes_slab(whole, stream);
        let age = self.blocks[whole].age;
        let block = self.carve(whole, part.0, part.1 - part.0, [age; 2]);
        Some(self.claimed(block))
    }

    /// Claims a part of a free block; what is left of the block stays free. Takes the guards off that part alone: who
    /// gets the rest waits for the rest's own. Returns `None` if another thread has taken it meanwhile.
    pub(crate) fn claim_part(&mut self, tile: &Tile, begin: u64, end: u64) -> Option<Claimed> {
        self.cut_out(tile, (begin, end)).map(|block| self.claimed(block))
    }

    /// Claims a part of a free block, if that is as it was seen. Another thread may have taken and freed it in between:
    /// whoever claims it learns of that use.
    fn cut_out(&mut self, tile: &Tile, (begin, end): (u64, u64)) -> Option<BlockId> {
        let block = &self.blocks[tile.block];
        let (is_inside, age) = (block.offset <= begin && end <= block.end(), block.age);
        if !self.is_free_on(tile.block, tile.side) || block.slot != tile.slot || !is_inside {
            return None;
        }
        self.claim(tile.block);
        Some(self.carve(tile.block, begin, end - begin, [age; 2]))
    }

    /// Takes the guards off a claimed block, and returns it with them.
    pub(crate) fn claimed(&mut self, block: BlockId) -> Claimed {
        let points = self.guards.take(&mut self.blocks[block]);
        let is_fresh = points.is_empty() && self.blocks[block].last_use.is_never();
        Claimed { block, points, is_fresh }
    }

    /// Gives a claim back: the memory is free again, for whoever comes after its uses.
    pub(crate) fn give_back(&mut self, claimed: Claimed, clocks: [u64; 2]) {
        let (id, points) = (claimed.block, claimed.points);
        match points.only() {
            Some(Point { stream, tick }) => {
                let block = &mut self.blocks[id];
                (block.user, block.last_use) = (stream, LastUse::at(tick));
            }
            None => self.guards.put(&mut self.blocks[id], points),
        }
        self.unclaim(id, clocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::home::tests::{OWN, SMALL, free, want, with_gaps};
    use crate::units::MIB;

    #[test]
    fn a_part_is_claimed_only_of_free_memory_of_the_large_side() {
        let (mut shard, _, ids) = with_gaps(&[4, 4, 8]);
        for (block, begin, end) in [(ids[0], 2, 5), (ids[1], 4, 8), (ids[2], 6, 10), (ids[2], 8, 18)] {
            let tile = shard.memory.tile(block);
            assert_eq!(shard.memory.claim_part(&tile, begin * MIB, end * MIB), None, "{begin} to {end}");
        }
        let elsewhere = Tile { slot: Slot(9), ..shard.memory.tile(ids[2]) };
        assert_eq!(shard.memory.claim_part(&elsewhere, 8 * MIB, 10 * MIB), None, "another range");
        let block = shard.take_slab(&want(SMALL), 0, OWN).expect("a slab").block;
        free(&mut shard, block, 4);
        let slab = shard.take_slab(&want(SMALL), 0, OWN).expect("a slab");
        let rest = shard.memory.slabs.iter().next().expect("the rest of the slab");
        let rest = Tile { side: Side::Large, ..shard.memory.tile(rest) };
        assert_eq!(shard.memory.claim_part(&rest, rest.begin, rest.end), None, "{slab:?}");
    }
}
