//! The free small blocks of a home, by the stream that has their slab.
//!
//! A small request is served from a slab of its own stream alone. So where a program's small blocks lie depends on its
//! own requests, and not on how far other streams are. A slab belongs to the stream that took it until all of it is
//! free. Only where nothing else is left, a request gets a block in the slab of another stream.

use alloc::vec::Vec;

use millpond_backend::StreamId;

use super::{Memory, key_of};
use crate::ids::{BlockId, Side};
use crate::index::{FreeIndex, Key};

/// The free small blocks.
#[derive(Default)]
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

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks == 0
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
mod tests {
    use alloc::vec::Vec;

    use millpond_backend::{Point, Tick};

    use super::*;
    use crate::block::LastUse;
    use crate::ids::SegmentId;
    use crate::memory::home::tests::{OWN, SMALL, bare, free, grow, settle, want};
    use crate::memory::{Arrival, Requester};
    use crate::shard::Shard;
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

    /// A block in a slab is used by the slab's stream as before, so its part that nobody uses is no other's to have.
    /// If it were kept apart, each small free would be recorded by place.
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
        shard.serve(claimed.block, &want(SMALL), 0, (OTHER.stream, LastUse::at(Tick(7))));
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
