//! Free blocks at home: as a plan sees them, and as it claims parts of them, when another thread may have had them in
//! between.

use super::Shard;
use crate::block::{Block, State};
use crate::books::Points;
use crate::ids::{BlockId, Side, Slot};
use crate::last_use::LastUse;
use crate::size::Want;

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
    pub(crate) last_use: LastUse,
    /// Its number in the [list by place](Shard::list_by_place) that it comes from, if it does.
    pub(crate) number: Option<u32>,
}

impl Shard {
    /// Returns the free blocks of the large side, by slot and offset, as they were when they were
    /// [listed](Self::list_by_place) last.
    pub(crate) fn tiles_by_place(&self) -> impl Iterator<Item = Tile> {
        (0..).zip(self.by_place.blocks()).map(|(number, block)| Tile { number: Some(number), ..self.tile(block) })
    }

    pub(super) fn tile(&self, id: BlockId) -> Tile {
        let block = &self.blocks[id];
        let is_marked = block.used_elsewhere;
        let Block { side, slot, offset: begin, last_use, .. } = *block;
        Tile { block: id, side, is_marked, slot, begin, end: block.end(), last_use, number: None }
    }

    /// Returns the free blocks of the large side with at least `bytes` bytes, the smallest first.
    pub(crate) fn tiles_at_least(&self, bytes: u64) -> impl Iterator<Item = Tile> {
        self.tiles_on(Side::Large, bytes)
    }

    /// Returns the free blocks of the small side with at least `bytes` bytes, the smallest first.
    pub(crate) fn small_tiles_at_least(&self, bytes: u64) -> impl Iterator<Item = Tile> {
        self.tiles_on(Side::Small, bytes)
    }

    /// Returns the free blocks of a side of homes. What is free in a segment serves its own stream alone, at a hit.
    fn tiles_on(&self, side: Side, bytes: u64) -> impl Iterator<Item = Tile> {
        let free = self.pools[side.index()].free.iter_from(bytes);
        let fits = move |id: &BlockId| self.blocks[*id].size >= bytes && self.blocks[*id].expandable;
        free.filter(fits).map(|id| self.tile(id))
    }

    /// Returns the free blocks of the large side that have a whole slab, the smallest first.
    pub(crate) fn slabs(&self) -> impl Iterator<Item = Tile> {
        let slab = self.rules.slab;
        self.tiles_at_least(slab).filter(move |tile| tile.begin.next_multiple_of(slab) + slab <= tile.end)
    }

    /// Returns the free block that fits a request of that many bytes best, if it is at home.
    pub(crate) fn best_tile(&self, want: &Want) -> Option<Tile> {
        self.find(want).filter(|&block| self.blocks[block].expandable).map(|block| self.tile(block))
    }

    /// Returns whether a request could have free memory of the shard, once other streams are done with it.
    pub(crate) fn has_free_for(&self, want: &Want) -> bool {
        match want.side {
            Side::Large => self.tiles_at_least(want.rounded).next().is_some(),
            Side::Small => self.small_tiles_at_least(want.rounded).chain(self.slabs()).next().is_some(),
        }
    }

    /// Returns whether a block lies in a home or a window.
    pub(crate) fn is_paged(&self, id: BlockId) -> bool {
        self.blocks[id].expandable
    }

    /// Returns whether a block is free on a side.
    pub(super) fn is_free_on(&self, id: BlockId, side: Side) -> bool {
        (self.blocks[id].state, self.blocks[id].side) == (State::Free, side)
    }

    /// Returns whether a part of a block is as it was seen: free on that side, and not used since. Another thread may
    /// have taken and freed it in between, and the stream that gets it may be unable to wait for that use.
    fn stands(&self, tile: &Tile, side: Side, (begin, end): (u64, u64)) -> bool {
        let block = &self.blocks[tile.block];
        let is_inside = block.slot == tile.slot && block.offset <= begin && end <= block.end();
        self.is_free_on(tile.block, side) && is_inside && block.last_use <= tile.last_use
    }

    /// Claims a small block: in a free one of the small side, or in a slab of one of the large side. Returns what
    /// [`claim_part`](Self::claim_part) does.
    pub(crate) fn claim_small(&mut self, tile: &Tile, bytes: u64) -> Option<(BlockId, LastUse, Points)> {
        match tile.side {
            Side::Small => self.claim_beside_small(tile, bytes),
            Side::Large => self.claim_in_slab(tile, bytes),
        }
    }

    /// Claims the front of a free block of the small side, or of a part of it; what is left of it stays free.
    fn claim_beside_small(&mut self, tile: &Tile, bytes: u64) -> Option<(BlockId, LastUse, Points)> {
        if !self.stands(tile, Side::Small, (tile.begin, tile.begin + bytes)) {
            return None;
        }
        self.claim(tile.block);
        Some(self.claim_from(tile.block, tile.begin, bytes))
    }

    /// Turns a slab in a free block of the large side into one of the small side, and claims a block there: at the
    /// front of the tile, or where the first slab begins behind that.
    fn claim_in_slab(&mut self, tile: &Tile, bytes: u64) -> Option<(BlockId, LastUse, Points)> {
        let (slab, block) = (self.rules.slab, &self.blocks[tile.block]);
        let below = tile.begin / slab * slab;
        let begin = if below >= block.offset { below } else { tile.begin.next_multiple_of(slab) };
        let at = begin.max(tile.begin);
        if !self.stands(tile, Side::Large, (begin, begin + slab)) || at + bytes > begin + slab {
            return None;
        }
        let age = self.blocks[tile.block].age;
        self.claim(tile.block);
        let part = self.carve(tile.block, begin, slab, [age; 2]);
        self.becomes_slab(part);
        Some(self.claim_from(part, at, bytes))
    }

    /// Claims a part of a free block; what is left of the block stays free. Returns the claimed block, the last use of
    /// its memory and the points that guarded it, or `None` if another thread has taken or used it meanwhile.
    pub(crate) fn claim_part(&mut self, tile: &Tile, begin: u64, end: u64) -> Option<(BlockId, LastUse, Points)> {
        if !self.stands(tile, Side::Large, (begin, end)) {
            return None;
        }
        self.claim(tile.block);
        Some(self.claim_from(tile.block, begin, end - begin))
    }

    /// Cuts a claimed block down to some of its bytes, and takes the guards off those alone: who gets the rest waits
    /// for the rest's own.
    fn claim_from(&mut self, id: BlockId, begin: u64, bytes: u64) -> (BlockId, LastUse, Points) {
        let age = self.blocks[id].age;
        let part = self.carve(id, begin, bytes, [age; 2]);
        let guards = self.take_guards(part);
        (part, self.blocks[part].last_use, guards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::home::tests::{SMALL, free, settle, want, with_gaps};
    use crate::units::MIB;

    #[test]
    fn a_part_is_claimed_only_of_free_memory_of_the_large_side() {
        let (mut shard, _, ids) = with_gaps(&[4, 4, 8]);
        for (block, begin, end) in [(ids[0], 2, 5), (ids[1], 4, 8), (ids[2], 6, 10), (ids[2], 8, 18)] {
            let tile = shard.tile(block);
            assert_eq!(shard.claim_part(&tile, begin * MIB, end * MIB), None, "{begin} to {end}");
        }
        let elsewhere = Tile { slot: Slot(9), ..shard.tile(ids[2]) };
        assert_eq!(shard.claim_part(&elsewhere, 8 * MIB, 10 * MIB), None, "another range");
        let block = shard.take_slab(&want(SMALL), 0).expect("a slab").block;
        free(&mut shard, block, 4);
        let slab = shard.take_slab(&want(SMALL), 0).expect("a slab");
        let rest = shard.pools[Side::Small.index()].free.iter().next().expect("the rest of the slab");
        let rest = shard.tile(rest);
        assert_eq!(shard.claim_part(&rest, rest.begin, rest.end), None, "{slab:?}");
    }

    /// Between the look and the claim another thread has had the memory, and the device is not done with that. Whoever
    /// looked could use it as it was, and may be unable to wait for what came behind.
    #[test]
    fn nothing_is_claimed_that_was_used_since_it_was_seen() {
        let use_again = |shard: &mut Shard, bytes: u64, tick: u64| {
            let block = shard.find_and_take(&want(bytes), 0).expect("it is free").block;
            free(shard, block, tick);
        };
        let (mut shard, _, ids) = with_gaps(&[4, 4]);
        let seen = shard.tile(ids[0]);
        use_again(&mut shard, 4 * MIB, 8);
        let part = (seen.begin, seen.begin + MIB);
        assert_eq!(shard.claim_part(&seen, part.0, part.1), None);
        assert_eq!(shard.claim_in_slab(&seen, SMALL), None);
        let now = shard.tile(ids[0]);
        assert!(shard.claim_in_slab(&now, SMALL).is_some(), "{now:?} is as it was seen");
        settle(&mut shard);
        let rest = shard.pools[Side::Small.index()].free.iter().next().expect("the rest of the slab");
        let seen = shard.tile(rest);
        use_again(&mut shard, SMALL, 9);
        assert_eq!(shard.claim_small(&seen, SMALL), None);
        let now = shard.tile(rest);
        assert!(shard.claim_small(&now, SMALL).is_some(), "{now:?} is as it was seen");
        settle(&mut shard);
    }
}
