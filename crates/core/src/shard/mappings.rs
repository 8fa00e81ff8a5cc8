//! The pages mapped in a shard's ranges, as the page table has them changed.

use alloc::vec::Vec;

use super::Shard;
use crate::ids::{BlockId, PageId, Place, Slot};
use crate::segment::{Mapping, Role};

impl Shard {
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

    /// Notes that the mapping of a page in a window is being unmapped.
    ///
    /// # Panics
    ///
    /// If there is no such mapping.
    pub(crate) fn page_leaves(&mut self, at: Place) {
        match self.segments[at.slot].mappings.get_mut(at.offset) {
            Some(mapping) if mapping.role == Role::Window => mapping.role = Role::Leaving,
            other => panic!("no page of a window to unmap at {at:?}: {other:?}"),
        }
    }

    /// Returns every mapping with its place, by slot and offset.
    pub(crate) fn mappings(&self) -> Vec<(Place, Mapping)> {
        let shard = self.id;
        let in_segment = |(slot, segment): (Slot, &crate::segment::Segment)| {
            let place = move |offset| Place { shard, slot, offset };
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

    /// Returns the pages that share a byte with a part of a range, in order.
    pub(crate) fn pages_over(&self, slot: Slot, begin: u64, end: u64) -> impl Iterator<Item = (u64, Mapping)> {
        self.segments[slot].mappings.over(begin, end)
    }
}
