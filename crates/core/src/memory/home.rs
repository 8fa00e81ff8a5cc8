//! The homes of pages: how a home grows, its slabs, and the parts that are in use elsewhere.
//!
//! A small request is served from a slab of its own stream alone. So where a program's small blocks lie depends on its
//! own requests, and not on how far other streams are. A slab belongs to the stream that took it until all of it is
//! free. Only where nothing else is left, a request gets a block in the slab of another stream.

use alloc::vec::Vec;
use core::ops::Range;

use millpond_backend::{Point, StreamId};

use super::{Claimed, Memory, Tile, key_of};
use crate::block::{LastUse, State};
use crate::books::Points;
use crate::ids::{BlockId, Side, Slot};
use crate::index::{FreeIndex, Key};

/// A place where a home can grow so that a request is served there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Growth {
    /// The free block in front of the addresses, if there is one.
    pub(crate) before: Option<Tile>,
    /// The block of addresses without memory.
    pub(super) hole: BlockId,
    pub(crate) slot: Slot,
    /// Where the new pages begin.
    pub(crate) begin: u64,
    /// The bytes of new pages that the request needs.
    pub(crate) missing: u64,
    /// Where the addresses end.
    pub(crate) limit: u64,
    /// The state of the addresses: those of a growable block are reserved.
    pub(super) from: State,
    /// For a new growable block, the bytes of addresses after these that are reserved for it. Its addresses may begin
    /// anywhere in the block of addresses.
    pub(super) keeps: Option<u64>,
}

/// What a plan has claimed to let a home grow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ground {
    pub(crate) before: Option<Claimed>,
    pub(crate) gap: BlockId,
    /// Whether the addresses are reserved for the block in front of them.
    pub(crate) is_reserved: bool,
}

impl Memory {
    /// Moves a claimed block of the large side to the small one, where it is a stream's.
    pub(crate) fn becomes_slab(&mut self, id: BlockId, stream: StreamId) {
        if self.blocks[id].user != stream {
            // The stream may still have to come after whoever used it.
            self.guards.record_user(&mut self.blocks[id]);
        }
        self.blocks[id].user = stream;
        self.blocks[id].side = Side::Small;
        self.small_bytes += self.blocks[id].size;
    }

    /// Moves a claimed block of the small side to the large one.
    pub(crate) fn leaves_slab(&mut self, id: BlockId) {
        self.blocks[id].side = Side::Large;
        self.small_bytes -= self.blocks[id].size;
        if self.small_bytes == 0 {
            self.gives_from = self.rules.slab;
        }
    }

    /// Returns where a home can grow for a request: the first hole that is long enough, together with the free block in
    /// front of it unless the request needs a place at a multiple of a page's size.
    pub(crate) fn growth(&self, bytes: u64, joins: bool) -> Option<Growth> {
        debug_assert!(bytes > 0, "a home grows by nothing");
        self.pools[Side::Large.index()].unmapped.iter().find_map(|&(_, hole)| {
            let block = &self.blocks[hole];
            let before = block.prev.some().filter(|&id| joins && self.is_free_on(id, Side::Large));
            // One that is long enough is not ready, or it would have served.
            let before = before.map(|id| self.tile(id)).filter(|tile| tile.end - tile.begin < bytes);
            let missing = bytes.saturating_sub(before.map_or(0, |tile| tile.end - tile.begin));
            let (slot, begin, limit) = (block.slot, block.offset, block.end());
            let fits = missing.next_multiple_of(self.rules.slab) <= block.size;
            let from = State::Unmapped;
            fits.then_some(Growth { before, hole, slot, begin, missing, limit, from, keeps: None })
        })
    }

    /// Takes a place to grow for a plan, with `bytes` of its addresses, and the free block in front. Returns `None`,
    /// with nothing claimed, if another thread has changed it meanwhile.
    pub(crate) fn claim_growth(&mut self, growth: &Growth, bytes: u64) -> Option<Ground> {
        let hole = &self.blocks[growth.hole];
        let end = growth.begin + bytes + growth.keeps.unwrap_or(0);
        let begins = hole.offset == growth.begin || (growth.keeps.is_some() && hole.offset < growth.begin);
        let stands = (hole.state, hole.slot) == (growth.from, growth.slot)
            && begins
            && end <= hole.end()
            && growth.before.is_none_or(|tile| {
                let block = &self.blocks[tile.block];
                (block.state, block.slot, block.offset, block.end()) == (State::Free, tile.slot, tile.begin, tile.end)
            });
        if !stands {
            return None;
        }
        let before = growth.before.map(|tile| {
            self.claim(tile.block);
            self.claimed(tile.block)
        });
        let gap = match growth.from {
            State::Reserved => self.claim_reserved(growth.hole, bytes),
            _ => self.claim_hole(growth.hole, growth.begin, end),
        };
        self.reserve_after(gap, bytes);
        Some(Ground { before, gap, is_reserved: growth.from == State::Reserved })
    }

    /// Notes that claimed memory is in use through a window from now on.
    pub(crate) fn goes_away(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        assert_eq!(block.state, State::Claimed, "block {} goes away", id.0);
        block.state = State::Away;
    }

    /// Notes that a stream no longer uses memory through a window: it is free again, for whoever comes after that use
    /// and these points of others.
    ///
    /// # Panics
    ///
    /// If it was not away.
    pub(crate) fn comes_home(&mut self, id: BlockId, used: Point, points: &Points, clock: u64) {
        let block = &mut self.blocks[id];
        assert_eq!(block.state, State::Away, "block {} comes home", id.0);
        (block.user, block.last_use) = (used.stream, LastUse::at(used.tick));
        self.guards.used_by_others(&mut self.blocks[id], points.clone(), true);
        self.join(id, clock);
    }

    /// Returns where the first slab of a free block of the large side begins. Segments have no slabs.
    pub(crate) fn first_slab(&self, id: BlockId) -> Option<u64> {
        let block = &self.blocks[id];
        block.expandable.then(|| self.slab_in(block.range())).flatten()
    }

    /// Returns what a small block gets of the slabs of a free block of which a part is usable: all of a slab if that
    /// part has one, and else its own bytes in a slab that others still use.
    pub(crate) fn within_slab(&self, block: Range<u64>, part: Range<u64>, bytes: u64) -> Option<Range<u64>> {
        let slab = self.rules.slab;
        if let Some(at) = self.slab_in(part.clone()) {
            return Some(at..at + slab);
        }
        let first = block.start.next_multiple_of(slab).max(part.start);
        let at = if first % slab + bytes > slab { first.next_multiple_of(slab) } else { first };
        (at + bytes <= part.end && at / slab * slab + slab <= block.end).then_some(at..at + bytes)
    }

    /// Returns where the first slab in a part of a home begins.
    pub(crate) fn slab_in(&self, part: Range<u64>) -> Option<u64> {
        let at = part.start.next_multiple_of(self.rules.slab);
        (at + self.rules.slab <= part.end).then_some(at)
    }

    /// Returns whether a block is the first one of a slab of `whole` bytes that is free but for it, and a small request
    /// would get that slab if the block were freed and the slab given back. Returns `false` also where that would be
    /// costly to find out.
    pub(crate) fn would_get_slab(&self, id: BlockId, whole: u64) -> bool {
        let (slab, block) = (self.rules.slab, &self.blocks[id]);
        if whole != slab || !block.offset.is_multiple_of(slab) {
            return false;
        }
        let behind = block.next.some().filter(|_| whole > block.size);
        let behind = behind.map_or(block.next, |behind| self.blocks[behind].next);
        let beside = [block.prev, behind].map(|id| id.some().filter(|&id| self.is_free_on(id, Side::Large)));
        let (mut size, mut first) = (slab, id);
        for neighbour in beside.into_iter().flatten() {
            let other = &self.blocks[neighbour];
            let is_before = other.offset < block.offset;
            // Joined, what several streams have used is recorded by place, which could be seen afterwards.
            if other.used_elsewhere || other.user != block.user {
                return false;
            }
            // What guards the memory on either side of the slab does not guard the slab.
            if is_before && other.size >= slab {
                return false;
            }
            size += other.size;
            first = if is_before { neighbour } else { first };
        }
        let free = &self.pools[Side::Large.index()].free;
        let mut others = free.iter_from(slab).filter(|other| !beside.contains(&Some(*other)));
        others.find(|&other| self.first_slab(other).is_some()).is_none_or(|other| {
            let theirs = self.entry(other);
            (size, self.entry(first).rank) < (theirs.size, theirs.rank)
        })
    }

    /// Gives back to the large side what [`returnable`](Self::returnable) names of a block of the small side that is in
    /// no index. Returns whether it has given anything.
    #[inline(never)]
    pub(crate) fn gives_slabs(&mut self, id: BlockId) -> bool {
        let Some(Range { start: begin, end }) = self.returnable(id) else { return false };
        let block = &mut self.blocks[id];
        block.state = State::Claimed;
        let clock = block.age;
        // What is left on both sides is a part of a slab that has other small blocks, so it stays small.
        let slabs = self.carve(id, begin, end - begin, [clock; 2]);
        self.leaves_slab(slabs);
        self.join(slabs, clock);
        true
    }

    /// Returns what of a free block of the small side belongs to the large side: its whole slabs. A restored block may
    /// have left a part of a slab to either side: that goes back where no small block is next to it.
    pub(crate) fn returnable(&self, id: BlockId) -> Option<Range<u64>> {
        let (slab, block) = (self.rules.slab, &self.blocks[id]);
        let is_small = |id: BlockId| id.some().is_some_and(|id| self.blocks[id].side == Side::Small);
        let begin = if is_small(block.prev) { block.offset.next_multiple_of(slab) } else { block.offset };
        let end = if is_small(block.next) { block.end() / slab * slab } else { block.end() };
        (begin < end).then_some(begin..end)
    }

    /// Sets the last use of claimed memory.
    pub(crate) fn set_last_use(&mut self, id: BlockId, last_use: LastUse) {
        debug_assert_eq!(self.blocks[id].state, State::Claimed);
        self.blocks[id].last_use = last_use;
    }

    /// Keeps the first `backed` bytes of a claimed gap that a plan could not back in full: they become a free block.
    pub(crate) fn keep_backed(&mut self, id: BlockId, backed: u64, last_use: LastUse, clocks: [u64; 2]) {
        let clock = clocks[self.blocks[id].side.index()];
        self.blocks[id].last_use = last_use;
        let is_backed = self.keep_mapped(id, backed);
        if is_backed {
            self.join(id, clock);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

/// The free small blocks.
#[derive(Clone, Default)]
pub(crate) struct Slabs {
    /// An index for each stream that has had a slab, by the number of the stream.
    streams: Vec<FreeIndex>,
    /// The number of blocks in all of them.
    blocks: usize,
}

impl Slabs {
    /// Returns the free blocks in the slabs of a stream.
    pub(crate) fn of(&self, stream: StreamId) -> Option<&FreeIndex> {
        self.streams.get(stream.0 as usize)
    }

    /// Returns the free blocks in all slabs, those of each stream in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = BlockId> {
        self.each().flat_map(FreeIndex::iter)
    }

    /// Returns the free blocks in the slabs of each stream. Costs a look at each stream that ever had a slab, unless no
    /// block is free.
    pub(crate) fn each(&self) -> impl Iterator<Item = &FreeIndex> {
        let streams = if self.blocks == 0 { &[][..] } else { &self.streams };
        streams.iter().filter(|index| !index.is_empty())
    }

    fn insert(&mut self, stream: StreamId, id: BlockId, size: u64, key_of: impl Fn(BlockId) -> Key) {
        let at = stream.0 as usize;
        if self.streams.len() <= at {
            self.streams.resize_with(at + 1, FreeIndex::new);
        }
        if !self.streams[at].insert_alone(id, size) {
            self.streams[at].insert_among(id, size, key_of);
        }
        self.blocks += 1;
    }

    fn remove(&mut self, stream: StreamId, id: BlockId, size: u64) {
        self.streams[stream.0 as usize].remove(id, size);
        self.blocks -= 1;
    }
}

impl Memory {
    /// Returns whether a free block of a side is listed with the slabs.
    #[inline(always)]
    pub(crate) fn is_in_slabs(&self, side: Side) -> bool {
        self.rules.moves_pages && side == Side::Small
    }

    pub(crate) fn list_in_slab(&mut self, id: BlockId, size: u64) {
        let Self { blocks, segments, slabs, .. } = self;
        slabs.insert(blocks[id].user, id, size, |id| key_of(blocks, segments, id));
    }

    pub(crate) fn unlist_in_slab(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        self.slabs.remove(block.user, id, block.size);
    }

    /// Returns whether a block may be joined with its lower neighbour of the same side. Slabs stay apart, as each
    /// belongs to a stream.
    #[inline(always)]
    pub(crate) fn is_within_slab(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        block.side == Side::Large || !block.expandable || !block.offset.is_multiple_of(self.rules.slab)
    }

    /// Verifies that the slabs list the free small blocks, each at its stream.
    pub(crate) fn check_slabs(&self) {
        for (stream, index) in (0..).map(StreamId).zip(&self.slabs.streams) {
            index.check(|id| self.entry(id));
            assert!(index.iter().all(|id| self.blocks[id].user == stream), "free blocks in slabs of {stream}");
        }
        let free = self.blocks.iter().filter(|(id, _)| self.is_free_on(*id, Side::Small)).count();
        assert_eq!(self.slabs.iter().count(), self.slabs.blocks, "the number of free small blocks");
        assert_eq!(self.slabs.blocks, if self.rules.moves_pages { free } else { 0 }, "free small blocks");
    }
}

#[cfg(test)]
mod slab_tests {
    use alloc::vec::Vec;

    use millpond_backend::{Point, Tick};

    use super::*;
    use crate::block::LastUse;
    use crate::ids::SegmentId;
    use crate::memory::home::tests::{OWN, SMALL, bare, free, grow, settle, want};
    use crate::memory::{Arrival, Requester};
    use crate::shard::{NewUser, Shard};
    use crate::units::MIB;

    /// Another stream than that of the shards here.
    const OTHER: Requester = Requester::in_order(StreamId(1));

    /// Returns a shard whose home has this many free MiB, used by its own stream up to a tick.
    fn free_home(mib: u64, tick: u64) -> Shard {
        let (mut shard, _) = bare();
        let all = grow(&mut shard, mib * MIB, true).block;
        free(&mut shard, all, tick);
        shard
    }

    /// Only the slab's stream uses its blocks, so a part that no stream uses stays with that stream. Recording such
    /// parts by place would make each small free do so.
    #[test]
    fn what_is_free_in_a_slab_is_one_block_whoever_else_has_memory() {
        let mut shard = free_home(8, 1);
        shard.memory.guards.see_reached([Point { stream: OWN.stream, tick: Tick(1) }].into_iter(), 1);
        shard.find_and_take(&want(4 * MIB), 0, OTHER).expect("the device is done with it");
        let _kept = shard.take_slab(&want(SMALL), 0, OWN).expect("a slab");
        let freed = shard.find_and_take(&want(SMALL), 0, OWN).expect("a block in it");
        free(&mut shard, freed.block, 5);
        settle(&mut shard);
        let rest: Vec<_> = shard.memory.slabs.iter().map(|id| &shard.memory.blocks[id]).collect();
        assert_eq!(rest.len(), 1);
        assert_eq!((rest[0].offset, rest[0].used_elsewhere), (freed.offset, false));
    }

    /// The stream that gets a slab comes after all uses of it, and what the request leaves of it says so.
    #[test]
    fn a_slab_goes_to_the_next_stream_as_a_whole() {
        let mut shard = free_home(2, 3);
        let whole = shard.memory.slabs().next().expect("it has a slab");
        let part = shard.memory.claim_part(&whole, MIB, MIB + SMALL).expect("it is free");
        shard.memory.guards.put(
            &mut shard.memory.blocks[part.block],
            [Point { stream: StreamId(2), tick: Tick(9) }].into_iter().collect(),
        );
        shard.memory.unclaim(part.block, [0; 2]);
        assert!([OWN, OTHER].map(|by| shard.take_slab(&want(SMALL), 0, by)) == [None, None], "it is in use");
        let whole = shard.memory.slabs().next().expect("it has a slab");
        let claimed = shard.memory.claim_small(&whole, OTHER.stream).expect("it is free");
        let points: Vec<_> = claimed.points.iter().map(|point| (point.stream.0, point.tick.0)).collect();
        assert_eq!((points, shard.memory.blocks[claimed.block].size), ([(0, 3), (2, 9)].to_vec(), 2 * MIB));
        shard.memory.set_last_use(claimed.block, LastUse::at(Tick(7)));
        shard.serve(claimed.block, &want(SMALL), 0, NewUser { stream: OTHER.stream, last_use: LastUse::at(Tick(7)) });
        settle(&mut shard);
        let rest = shard.memory.slabs.iter().next().expect("the rest of the slab");
        assert_eq!(shard.memory.blocks[rest].last_point(), Point { stream: OTHER.stream, tick: Tick(7) });
    }

    #[test]
    fn what_is_left_of_a_slab_was_used_as_the_slab_was() {
        let mut shard = free_home(2, 3);
        shard.take_slab(&want(SMALL), 0, OWN).expect("its own slab");
        let rest = shard.memory.slabs.iter().next().expect("the rest of the slab");
        assert_eq!(shard.memory.blocks[rest].last_point(), Point { stream: OWN.stream, tick: Tick(3) });
    }

    /// A segment holds blocks of its own side: no part of it becomes a slab.
    #[test]
    fn a_segment_has_no_slabs() {
        let (mut shard, _) = bare();
        let slot = shard.memory.segments.promise();
        let (id, side) = (SegmentId(u64::from(slot.0)), Side::Large);
        let (bytes, page_bytes) = (4 * MIB, 0);
        let block = shard
            .memory
            .adopt(slot, Arrival { id, base: 0, bytes, side, page_bytes, shared: true, has_windows: false });
        shard.memory.unclaim(block, [0; 2]);
        assert_eq!((shard.take_slab(&want(SMALL), 0, OWN), shard.memory.slabs().next()), (None, None));
        assert!(shard.find_and_take(&want(bytes), 0, OWN).is_some(), "it serves large requests");
    }

    /// What is free at the end of one slab and at the beginning of the next are two blocks.
    #[test]
    fn slabs_stay_apart() {
        let (mut shard, _) = bare();
        let all = grow(&mut shard, 6 * MIB, true).block;
        free(&mut shard, all, 1);
        let low = shard.take_slab(&want(SMALL), 0, OWN).expect("a slab");
        let high = shard.take_slab(&want(SMALL), 0, OWN).expect("another slab");
        assert_eq!((low.offset, high.offset), (0, 2 * MIB));
        // Each has another block, so that it stays a slab.
        let more: Vec<_> = (0..5).map(|_| shard.find_and_take(&want(SMALL), 0, OWN).expect("a block")).collect();
        settle(&mut shard);
        let last = more.iter().filter(|grant| grant.offset < 2 * MIB).max_by_key(|grant| grant.offset).expect("one");
        assert!(more.iter().any(|grant| grant.offset > 2 * MIB), "{more:?}");
        free(&mut shard, last.block, 2);
        free(&mut shard, high.block, 2);
        let starts: Vec<u64> = shard.memory.slabs.iter().map(|id| shard.memory.blocks[id].offset).collect();
        assert!(starts.contains(&last.offset) && starts.contains(&(2 * MIB)), "{starts:?}");
    }
}
