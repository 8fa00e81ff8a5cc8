//! The arrival and removal of segments, and of the pages mapped in ranges, as the page table has them changed.

use alloc::vec::Vec;

use super::Memory;
use crate::block::{Block, State};
use crate::ids::{BlockId, PageId, Place, SegmentId, Side, Slot};
use crate::mapped::Mappings;
use crate::segment::{Mapping, Role, Segment};
use crate::settings::Ties;
use crate::units::QUANTUM;

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

    /// Returns the whole pages inside a block of an expandable segment, as offset and bytes.
    pub(crate) fn whole_pages(&self, id: BlockId) -> Option<(u64, u64)> {
        let mut pages = self.pages_in(id);
        let (begin, first) = pages.next()?;
        let end = pages.last().map_or(begin + first.bytes, |(at, last)| at + last.bytes);
        Some((begin, end - begin))
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
    use crate::segment::{Mapping, Role};
    use crate::settings::{Growth, Policy, Settings};
    use crate::shard::Shard;

    const RANGE: SegmentId = SegmentId(7);

    /// Returns a shard with one range, in which nothing is mapped.
    fn with_range() -> (Shard, Slot) {
        let settings = Settings { policy: Policy::paged(Growth::Tight), ..Settings::default() };
        let mut shard = Shard::new(ShardId(0), StreamId(0), PoolId::default(), Rules::new(&settings, Reuse::InOrder));
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
