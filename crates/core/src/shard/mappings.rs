//! The pages mapped in a shard's ranges, as the page table has them changed.

use alloc::vec::Vec;

use super::Shard;
use crate::ids::{BlockId, PageId, Place, Slot};
use crate::segment::{Mapping, Role};

impl Shard {
    /// Maps a page at its home. Returns what was mapped there before.
    pub(crate) fn map_home(&mut self, at: Place, page: PageId, birth: u64, bytes: u64) -> Option<Mapping> {
        self.note_page(at, bytes);
        let mapping = Mapping { page, birth, bytes, role: Role::Home };
        self.segments[at.slot].mappings.insert(at.offset, mapping)
    }

    /// Turns the mapping of a page at its home into a shadow.
    ///
    /// # Panics
    ///
    /// If the page is not mapped there.
    pub(crate) fn home_to_shadow(&mut self, at: Place, page: PageId) {
        match self.segments[at.slot].mappings.get_mut(&at.offset) {
            Some(mapping) if mapping.page == page => mapping.role = Role::Shadow,
            other => panic!("page {} is not mapped at its home: {other:?}", page.0),
        }
    }

    /// Forgets the mapping of a page at its home.
    ///
    /// # Panics
    ///
    /// If the page is not mapped there.
    pub(crate) fn unmap_home(&mut self, at: Place, page: PageId) {
        let mapping = self.segments[at.slot].mappings.remove(&at.offset);
        assert!(mapping.is_some_and(|m| m.page == page), "page {} is not mapped at its home: {mapping:?}", page.0);
    }

    /// Notes that a shadow is being unmapped: no plan takes the page back through it any more.
    ///
    /// # Panics
    ///
    /// If there is no shadow.
    pub(crate) fn shadow_leaves(&mut self, at: Place) {
        match self.segments[at.slot].mappings.get_mut(&at.offset) {
            Some(mapping) if mapping.role == Role::Shadow => mapping.role = Role::Leaving,
            other => panic!("no shadow to unmap at {at:?}: {other:?}"),
        }
    }

    /// Notes that a shadow that was to be unmapped stays.
    ///
    /// # Panics
    ///
    /// If none was to be unmapped there.
    pub(crate) fn shadow_stays(&mut self, at: Place) {
        match self.segments[at.slot].mappings.get_mut(&at.offset) {
            Some(mapping) if mapping.role == Role::Leaving => mapping.role = Role::Shadow,
            other => panic!("no shadow was leaving at {at:?}: {other:?}"),
        }
    }

    /// Forgets a shadow of a page that the driver has unmapped.
    ///
    /// # Panics
    ///
    /// If none was to be unmapped there.
    pub(crate) fn shadow_left(&mut self, at: Place, page: PageId) {
        let mapping = self.segments[at.slot].mappings.remove(&at.offset);
        assert!(mapping.is_some_and(|m| m.page == page && m.role == Role::Leaving), "unmapped at {at:?}: {mapping:?}");
    }

    /// Returns what the mapping at a place is to its page.
    ///
    /// # Panics
    ///
    /// If nothing is mapped there.
    pub(crate) fn role_at(&self, at: Place) -> Role {
        self.segments[at.slot].mappings[&at.offset].role
    }

    /// Returns every mapping with its place, by slot and offset.
    pub(crate) fn mappings(&self) -> Vec<(Place, Mapping)> {
        let shard = self.id;
        let in_segment = |(slot, segment): (Slot, &crate::segment::Segment)| {
            let place = move |offset| Place { shard, slot, offset };
            segment.mappings.iter().map(|(&offset, &mapping)| (place(offset), mapping)).collect::<Vec<_>>()
        };
        self.segments.iter().flat_map(in_segment).collect()
    }

    /// Returns the whole pages inside a block of an expandable segment, as offset and bytes.
    pub(crate) fn whole_pages(&self, id: BlockId) -> Option<(u64, u64)> {
        let mut pages = self.pages_in(id);
        let (begin, first) = pages.next()?;
        let end = pages.next_back().map_or(begin + first.bytes, |(at, last)| at + last.bytes);
        Some((begin, end - begin))
    }

    /// Returns the pages that lie wholly inside a block, in order.
    pub(crate) fn pages_in(&self, id: BlockId) -> impl DoubleEndedIterator<Item = (u64, Mapping)> {
        let block = &self.blocks[id];
        self.segments[block.slot].pages_within(block.offset, block.end())
    }
}
