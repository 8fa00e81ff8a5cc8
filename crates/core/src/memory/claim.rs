//! What arrives, and what a plan holds while the driver works: addresses being mapped, pages being unmapped, segments
//! being given back, and parts of free blocks, which another thread may have had since the plan saw them. A claimed
//! block is in no free list, so no other thread can take it meanwhile. Also which cached memory could go back.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

use millpond_backend::{Point, StreamId};

use super::Memory;
use crate::block::{Block, LastUse, State};
use crate::books::Points;
use crate::ids::{BlockId, PageId, Place, SegmentId, ShardBlock, Side, Slot};
use crate::index::FreeIndex;
use crate::segment::{Mapping, Mappings, Role, Segment};
use crate::settings::Ties;
use crate::size::Want;
use crate::units::QUANTUM;

/// What is released so that a request of more than the split limit fits.
#[derive(Debug)]
pub(crate) struct Oversize {
    /// The claimed blocks.
    pub(crate) blocks: Vec<ShardBlock>,
    /// Whether they have enough bytes.
    pub(crate) suffice: bool,
}

/// A free block that garbage collection may give back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Garbage {
    /// The number of searches since it became free.
    pub(crate) age: u64,
    /// What would be given back of it.
    pub(crate) bytes: u64,
    pub(crate) block: ShardBlock,
}

impl Memory {
    /// Takes a free block out of the index.
    pub(crate) fn claim(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        assert_eq!(block.state, State::Free, "block {} is claimed and is not free", id.0);
        self.unlist(id);
        self.blocks[id].state = State::Claimed;
    }

    /// Claims the first `bytes` of an unmapped block. The rest stays unmapped.
    pub(crate) fn claim_addresses(&mut self, id: BlockId, bytes: u64) {
        let block = &self.blocks[id];
        assert_eq!(block.state, State::Unmapped, "block {} is mapped already", id.0);
        assert!(bytes <= block.size, "{bytes} bytes of pages claimed in {} bytes of addresses", block.size);
        self.unlist_unmapped(id);
        if bytes < self.blocks[id].size {
            let rest = self.cut(id, bytes);
            self.list_unmapped(rest);
        }
        self.blocks[id].state = State::Claimed;
    }

    /// Claims a part of an unmapped block. What is left on both sides stays unmapped. Returns the claimed block.
    pub(crate) fn claim_hole(&mut self, id: BlockId, begin: u64, end: u64) -> BlockId {
        let front = begin - self.blocks[id].offset;
        let mut part = id;
        if front > 0 {
            // The block in front keeps its beginning, which is its key.
            part = self.cut(id, front);
            self.list_unmapped(part);
        }
        self.claim_addresses(part, end - begin);
        part
    }

    /// Notes that there is memory behind a claimed block now. Joins it with the block in front, if that is `before`
    /// (which the same plan has claimed) or free, and with a free one behind. Returns the claimed whole.
    pub(crate) fn mapped(&mut self, id: BlockId, before: Option<BlockId>) -> BlockId {
        let mut whole = id;
        if let Some(prev) = self.blocks[id].prev.some() {
            if Some(prev) == before {
                whole = self.absorb(prev, id);
            } else if self.blocks[prev].state == State::Free {
                self.unlist(prev);
                whole = self.absorb(prev, id);
            }
        }
        self.absorb_behind(whole);
        self.blocks[whole].state = State::Claimed;
        whole
    }

    /// Joins a claimed block with the one behind it if that is free on the same side. A free does not join with a
    /// claimed block, so a block that was freed there meanwhile is still separate.
    pub(crate) fn absorb_behind(&mut self, id: BlockId) {
        if let Some(next) = self.blocks[id].next.some()
            && (self.blocks[next].state, self.blocks[next].side) == (State::Free, self.blocks[id].side)
        {
            self.unlist(next);
            self.absorb(id, next);
        }
    }

    /// Notes that there is no memory behind a claimed block (any more): it is unmapped and joined with unmapped
    /// neighbours. Returns whether the whole range is unmapped now.
    pub(crate) fn unmapped(&mut self, id: BlockId) -> bool {
        let block = &mut self.blocks[id];
        debug_assert!(!block.used_elsewhere, "what is unmapped is guarded: {block:?}");
        (block.state, block.last_use) = (State::Unmapped, LastUse::NEVER);
        let (prev, next) = (block.prev, block.next);
        let mut whole = id;
        for (neighbour, is_before) in [(prev, true), (next, false)] {
            if let Some(neighbour) = neighbour.some()
                && self.blocks[neighbour].state == State::Unmapped
            {
                self.unlist_unmapped(neighbour);
                whole = if is_before { self.absorb(neighbour, whole) } else { self.absorb(whole, neighbour) };
            }
        }
        self.list_unmapped(whole);
        !self.blocks[whole].is_split()
    }

    /// Returns the list of addresses without memory that those of a block are in: for windows, or of its side.
    fn unmapped_of(&mut self, id: BlockId) -> &mut BTreeSet<(u64, BlockId)> {
        let Block { slot, side, .. } = self.blocks[id];
        if self.segments[slot].has_windows { &mut self.vacant } else { &mut self.pools[side.index()].unmapped }
    }

    pub(crate) fn list_unmapped(&mut self, id: BlockId) {
        let key = self.unmapped_key(id);
        self.blocks[id].state = State::Unmapped;
        self.unmapped_of(id).insert(key);
    }

    pub(crate) fn unlist_unmapped(&mut self, id: BlockId) {
        let key = self.unmapped_key(id);
        assert!(self.unmapped_of(id).remove(&key), "block {} is not listed as unmapped", id.0);
    }

    /// Cuts a claimed block down to the pages inside it; what is left before and behind becomes free. Returns the
    /// claimed block of exactly those pages.
    pub(crate) fn carve(&mut self, id: BlockId, offset: u64, bytes: u64, clocks: [u64; 2]) -> BlockId {
        let mut pages = id;
        let block = &self.blocks[id];
        let clock = clocks[block.side.index()];
        if block.offset < offset {
            let before = offset - block.offset;
            pages = self.cut(id, before);
            self.blocks[pages].state = State::Claimed;
            self.join(id, clock);
        }
        if self.blocks[pages].size > bytes {
            let behind = self.cut(pages, bytes);
            self.blocks[behind].state = State::Claimed;
            self.join(behind, clock);
        }
        pages
    }

    /// Cuts a block that is in no index behind its first `bytes`. The rest is a copy with its own offset and size, and
    /// is in no index either. Returns the rest.
    pub(crate) fn cut(&mut self, id: BlockId, bytes: u64) -> BlockId {
        let front = &mut self.blocks[id];
        debug_assert!(bytes > 0 && bytes < front.size);
        let rest =
            Block { offset: front.offset + bytes, size: front.size - bytes, requested: 0, prev: id, ..front.clone() };
        front.size = bytes;
        let behind = rest.next;
        let rest = self.blocks.insert(rest);
        self.blocks[id].next = rest;
        if let Some(behind) = behind.some() {
            self.blocks[behind].prev = rest;
        }
        rest
    }

    /// Returns the free blocks of a side in order.
    pub(crate) fn free_blocks(&self, side: Side) -> impl Iterator<Item = (BlockId, &Block)> {
        let in_slabs = (side == Side::Small).then(|| self.slabs.iter()).into_iter().flatten();
        self.pools[side.index()].free.iter().chain(in_slabs).map(|id| (id, &self.blocks[id]))
    }

    /// Returns the free blocks of both sides.
    pub(crate) fn all_free(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        Side::BOTH.into_iter().flat_map(|side| self.free_blocks(side))
    }

    /// Returns whether the block is free, fills a plain segment, and so may go back to the driver as it is.
    pub(crate) fn is_whole_segment(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        block.state == State::Free && !block.is_split() && !self.segments[block.slot].is_expandable()
    }

    /// Claims every free block of a side that is a whole segment or has whole pages inside it.
    pub(crate) fn claim_releasable(&mut self, side: Side) -> Vec<ShardBlock> {
        let goes = |block: &BlockId| self.is_whole_segment(*block) || self.has_whole_pages(*block);
        let blocks: Vec<_> = self.free_blocks(side).map(|(block, _)| block).filter(goes).collect();
        self.claim_each(blocks)
    }

    /// Returns the free blocks of a side that are whole segments or have whole pages inside, with the bytes of these.
    pub(crate) fn releasable(&self, side: Side) -> impl Iterator<Item = (ShardBlock, u64)> {
        self.free_blocks(side).filter_map(|(block, free)| {
            let bytes = match self.is_whole_segment(block) {
                true => free.size,
                false => self.pages_in(block).map(|(_, page)| page.bytes).sum(),
            };
            (bytes > 0).then_some((ShardBlock { shard: self.id, block }, bytes))
        })
    }

    /// Claims free blocks.
    fn claim_each(&mut self, blocks: Vec<BlockId>) -> Vec<ShardBlock> {
        blocks.iter().for_each(|&block| self.claim(block));
        blocks.into_iter().map(|block| ShardBlock { shard: self.id, block }).collect()
    }

    /// Claims what PyTorch's `release_available_cached_blocks` releases for a request: the smallest oversize block that
    /// is large enough, or else the largest ones until their sum is.
    pub(crate) fn claim_oversize(&mut self, want: &Want, max_split: u64) -> Oversize {
        let needed = want.rounded.max(max_split);
        let (free, size_of) = (&self.pools[want.side.index()].free, |block| self.blocks[block].size);
        let plain = |block: &BlockId| self.is_whole_segment(*block);
        let (mut blocks, mut sum) = (Vec::new(), 0);
        if let Some(block) = free.best_fit(needed, size_of).filter(plain) {
            blocks.push(block);
            sum = size_of(block);
        } else {
            let oversize = |block: &BlockId| (max_split..needed).contains(&size_of(*block)) && plain(block);
            let mut smaller: Vec<_> = free.iter_from(max_split).filter(oversize).collect();
            while sum < needed
                && let Some(block) = smaller.pop()
            {
                blocks.push(block);
                sum += size_of(block);
            }
        }
        Oversize { blocks: self.claim_each(blocks), suffice: sum >= needed }
    }

    /// Returns what garbage collection would give back of a free block: a whole segment, or the whole pages inside a
    /// block under `paged`. `None` if nothing.
    pub(crate) fn garbage_bytes(&self, id: BlockId) -> Option<u64> {
        if self.is_whole_segment(id) {
            return Some(self.blocks[id].size);
        }
        let is_paged = self.rules.moves_pages && self.blocks[id].state == State::Free;
        (is_paged && self.has_whole_pages(id)).then(|| self.pages_in(id).map(|(_, page)| page.bytes).sum())
    }

    /// Returns the garbage of the large side.
    pub(crate) fn garbage(&self, now: u64) -> impl Iterator<Item = Garbage> {
        self.free_blocks(Side::Large).filter_map(move |(id, block)| {
            let bytes = self.garbage_bytes(id)?;
            // Other threads may have freed blocks since the plan began: those are of age 0.
            let age = now.saturating_sub(block.age);
            Some(Garbage { age, bytes, block: ShardBlock { shard: self.id, block: id } })
        })
    }

    /// Claims a block if it is still garbage, and returns whether it was: another thread may have taken it.
    pub(crate) fn claim_garbage(&mut self, id: BlockId) -> bool {
        let stays_free = self.garbage_bytes(id).is_some();
        if stays_free {
            self.claim(id);
        }
        stays_free
    }

    /// Forgets the segment that a claimed block fills, and what guarded it, which is over. Returns the block as it was.
    pub(crate) fn forget_whole(&mut self, id: BlockId) -> Block {
        self.guards.take(&mut self.blocks[id]);
        let block = self.blocks[id].clone();
        self.forget(block.slot);
        block
    }

    /// Notes that a claimed block has no memory any more. Returns its range if that is left without any mapping.
    pub(crate) fn unmapped_pages(&mut self, id: BlockId) -> Option<SegmentId> {
        let slot = self.blocks[id].slot;
        let is_bare = self.unmapped(id);
        let segment = &self.segments[slot];
        (is_bare && segment.mappings.is_empty()).then_some(segment.id)
    }

    /// Returns the freed blocks that wait for points.
    pub(crate) fn pending_blocks(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.blocks.iter().filter(|(_, block)| block.state == State::Pending)
    }

    /// Returns the free blocks with one user for whose last use `is_ahead` holds.
    pub(crate) fn used_last(&self, is_ahead: impl Fn(Point) -> bool) -> impl Iterator<Item = &Block> {
        let free = self.all_free().map(|(_, block)| block);
        free.filter(move |block| !block.used_elsewhere && is_ahead(block.last_point()))
    }

    /// Returns the bytes in free pages and in free segments whose last use, on any stream, is not known to be over.
    pub(crate) fn unreached_bytes(&self, is_reached: impl Fn(Point) -> bool) -> u64 {
        let unreached = self.all_free().map(|(id, _)| id).filter(|&id| !self.last_points(id).all(&is_reached));
        let releasable = |id| {
            if self.is_whole_segment(id) {
                self.blocks[id].size
            } else {
                self.pages_in(id).map(|(_, page)| page.bytes).sum()
            }
        };
        unreached.map(releasable).sum()
    }
}

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

impl Tile {
    /// Returns its bytes in the segment.
    pub(crate) fn range(&self) -> Range<u64> {
        self.begin..self.end
    }
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
    pub(crate) fn free_blocks_by_place(&self) -> impl Iterator<Item = Tile> {
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
    pub(crate) fn free_blocks_at_least(&self, bytes: u64) -> impl Iterator<Item = Tile> {
        self.free_blocks_in(&self.pools[Side::Large.index()].free, bytes)
    }

    /// Returns the free blocks of an index that have pages. What is free in a segment is not claimed in part.
    pub(crate) fn free_blocks_in(&self, index: &FreeIndex, bytes: u64) -> impl Iterator<Item = Tile> {
        let free = index.iter_from(bytes);
        let fits = move |id: &BlockId| self.blocks[*id].size >= bytes && self.blocks[*id].expandable;
        free.filter(fits).map(|id| self.tile(id))
    }

    /// Returns the free blocks of the large side that have a whole slab, the smallest first.
    pub(crate) fn slabs(&self) -> impl Iterator<Item = Tile> {
        self.free_blocks_at_least(self.rules.slab).filter(|tile| self.slab_in(tile.range()).is_some())
    }

    /// Returns whether a block is free on a side.
    #[inline(always)]
    pub(crate) fn is_free_on(&self, id: BlockId, side: Side) -> bool {
        (self.blocks[id].state, self.blocks[id].side) == (State::Free, side)
    }

    /// Claims a part of a free block for a small one: of the small side, or of the large side in one slab, all of which
    /// becomes the stream's. Returns what [`claim_part`](Self::claim_part) does.
    pub(crate) fn claim_small(&mut self, tile: &Tile, stream: StreamId) -> Option<Claimed> {
        let slab = self.rules.slab;
        if tile.side == Side::Small {
            return self.claim_part(tile, tile.begin, tile.end);
        }
        let begin = tile.begin / slab * slab;
        let whole = self.cut_out(tile, begin..begin + slab)?;
        self.becomes_slab(whole, stream);
        let age = self.blocks[whole].age;
        let block = self.carve(whole, tile.begin, tile.end - tile.begin, [age; 2]);
        Some(self.claimed(block))
    }

    /// Claims a part of a free block; what is left of the block stays free. Takes the guards off that part alone: who
    /// gets the rest waits for the rest's own. Returns `None` if another thread has taken it meanwhile.
    pub(crate) fn claim_part(&mut self, tile: &Tile, begin: u64, end: u64) -> Option<Claimed> {
        self.cut_out(tile, begin..end).map(|block| self.claimed(block))
    }

    /// Claims a part of a free block, if that is as it was seen. Another thread may have taken and freed it in between:
    /// whoever claims it learns of that use.
    fn cut_out(&mut self, tile: &Tile, Range { start: begin, end }: Range<u64>) -> Option<BlockId> {
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

/// A segment as the coordinator hands it to a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) id: SegmentId,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) side: Side,
    /// The page size in bytes, or 0 for a plain segment.
    pub(crate) page_bytes: u64,
    pub(crate) shared: bool,
    /// Whether the addresses are for windows.
    pub(crate) has_windows: bool,
}

impl Memory {
    /// Adds a segment. Its one block is claimed for the plan that asked for it, so that no other plan can take it
    /// first. The block of a range without memory is unmapped instead, and every plan may use it.
    pub(crate) fn adopt(&mut self, slot: Slot, arrival: Arrival) -> BlockId {
        let Arrival { id, base, bytes, side, page_bytes, shared, has_windows } = arrival;
        let rank = match self.rules.ties {
            Ties::Birth => self.next_rank,
            Ties::Address => base / QUANTUM,
        };
        self.next_rank += bytes / QUANTUM;
        let is_range = page_bytes != 0;
        let first = self.blocks.insert(Block {
            size: bytes,
            slot,
            user: self.stream,
            state: if is_range { State::Unmapped } else { State::Claimed },
            side,
            expandable: is_range,
            ..Block::VACANT
        });
        let mappings = Mappings::default();
        let segment = Segment { id, base, rank, bytes, side, first, page_bytes, shared, has_windows, mappings };
        self.segments.fulfil(slot, segment);
        if is_range {
            self.list_unmapped(first);
        } else {
            self.note_foreign(slot, 0, bytes);
        }
        first
    }

    /// Removes a range as [`forget`](Self::forget) does, if it still has this number and no memory. Returns its length
    /// if it did.
    pub(crate) fn forget_empty(&mut self, slot: Slot, id: SegmentId) -> Option<u64> {
        let empty = self.segments.get(slot).filter(|segment| {
            let first = &self.blocks[segment.first];
            let is_bare = first.state == State::Unmapped && !first.is_split();
            segment.id == id && is_bare && segment.mappings.is_empty()
        });
        let bytes = empty?.bytes;
        self.forget(slot);
        Some(bytes)
    }

    /// Removes a segment whose one block is claimed, or a range whose one block is unmapped. Its slot stays reserved
    /// until it is [vacated](crate::segment::Segments::vacate), so that no other segment gets it while the driver call
    /// is under way.
    pub(crate) fn forget(&mut self, slot: Slot) -> SegmentId {
        let &Segment { id, first, .. } = &self.segments[slot];
        let block = &self.blocks[first];
        assert!(!block.is_split(), "{id} is given back in pieces: {block:?}");
        match block.state {
            State::Claimed => {}
            State::Unmapped => self.unlist_unmapped(first),
            other => panic!("{id} is given back while its block is {other:?}"),
        }
        self.blocks.remove(first);
        self.segments.withdraw(slot);
        self.note_foreign(slot, 0, u64::MAX);
        id
    }

    /// Notes that a page is mapped at a place.
    ///
    /// # Panics
    ///
    /// If another page is mapped there.
    pub(crate) fn page_mapped(&mut self, at: Place, mapping: Mapping) {
        if mapping.role == Role::Home {
            self.note_foreign(at.slot, at.offset, mapping.bytes);
        }
        let before = self.segments[at.slot].mappings.insert(at.offset, mapping);
        assert_eq!(before, None, "page {} is mapped over another one at {at:?}", mapping.page.0);
    }

    /// Forgets the mapping of a page.
    ///
    /// # Panics
    ///
    /// If the page is not mapped there.
    pub(crate) fn page_unmapped(&mut self, at: Place, page: PageId) {
        let mapping = self.segments[at.slot].mappings.remove(at.offset);
        assert!(mapping.is_some_and(|m| m.page == page), "page {} is not mapped at {at:?}: {mapping:?}", page.0);
        if mapping.is_some_and(|mapping| mapping.role == Role::Home) {
            self.forget_list();
        }
    }

    /// Returns every mapping with its place, by slot and offset.
    pub(crate) fn mappings(&self) -> Vec<(Place, Mapping)> {
        let in_segment = |(slot, segment): (Slot, &Segment)| {
            let place = |offset| Place { shard: self.id, slot, offset };
            segment.mappings.iter().map(|(offset, &mapping)| (place(offset), mapping)).collect::<Vec<_>>()
        };
        self.segments.iter().flat_map(in_segment).collect()
    }

    /// Returns whether there are pages that lie entirely inside a block of an expandable segment.
    pub(crate) fn has_whole_pages(&self, id: BlockId) -> bool {
        self.pages_in(id).next().is_some()
    }

    /// Returns the pages that lie wholly inside a block, in order.
    pub(crate) fn pages_in(&self, id: BlockId) -> impl Iterator<Item = (u64, Mapping)> {
        let block = &self.blocks[id];
        self.segments[block.slot].mappings.within(block.offset, block.end())
    }
}

#[cfg(test)]
mod tests {
    use millpond_backend::{Reuse, StreamId};

    use super::*;
    use crate::ids::{PageId, PoolId, ShardId};
    use crate::memory::Rules;
    use crate::memory::home::tests::{OWN, SMALL, free, want, with_gaps};
    use crate::segment::{Mapping, Role};
    use crate::settings::{Growth, Policy, Settings};
    use crate::shard::Shard;
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

    const RANGE: SegmentId = SegmentId(7);

    /// Returns a shard with one range, in which nothing is mapped.
    fn with_range() -> (Shard, Slot) {
        let settings = Settings { policy: Policy::paged(Growth::Tight), ..Settings::default() };
        let rules = Rules::new(&settings, Reuse::InOrder, None, 2 * MIB);
        let mut shard = Shard::new(ShardId(0), StreamId(0), PoolId::default(), rules);
        let slot = shard.memory.segments.promise();
        let (side, page_bytes) = (Side::Large, 2 << 20);
        shard.memory.adopt(
            slot,
            Arrival { id: RANGE, base: 0, bytes: 64 << 20, side, page_bytes, shared: true, has_windows: false },
        );
        (shard, slot)
    }

    #[test]
    fn a_range_without_memory_is_forgotten() {
        let (mut shard, slot) = with_range();
        assert_eq!(shard.memory.forget_empty(slot, RANGE), Some(64 << 20));
        assert!(shard.memory.segments.get(slot).is_none());
    }

    /// Another range may have got the slot of the one that was emptied.
    #[test]
    fn a_range_of_another_number_stays() {
        let (mut shard, slot) = with_range();
        assert_eq!(shard.memory.forget_empty(slot, SegmentId(6)), None);
        assert_eq!(shard.memory.segments[slot].id, RANGE);
    }

    /// A page whose work is not over stays mapped at its old place, although the block there is unmapped.
    #[test]
    fn a_range_with_an_old_mapping_stays() {
        let (mut shard, slot) = with_range();
        let old = Mapping { page: PageId(0), birth: 0, bytes: 2 << 20, role: Role::Home };
        shard.memory.segments[slot].mappings.insert(0, old);
        assert_eq!(shard.memory.forget_empty(slot, RANGE), None);
    }
}
