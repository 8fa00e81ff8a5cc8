//! The free blocks of a home's large side by place, with what is free of each page there. A request that gathers memory
//! looks at those of all streams, most of which have changed nothing since the last one looked: so each shard keeps
//! what was found until a free block comes or goes.

use alloc::vec::Vec;

use super::{Shard, Tile};
use crate::ids::{BlockId, PageId, Side, Slot};

/// The free bytes of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ends {
    /// From its beginning on.
    pub(crate) head: u64,
    /// Up to its end.
    pub(crate) tail: u64,
    /// Whether that is all of it.
    pub(crate) is_whole: bool,
}

impl Ends {
    /// Adds what another free block has of the page: two blocks have different ends of it.
    pub(crate) fn add(&mut self, other: Ends) {
        let is_whole = self.is_whole | other.is_whole;
        *self = Self { head: self.head.max(other.head), tail: self.tail.max(other.tail), is_whole };
    }
}

/// A free block, as it was when the list was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    block: BlockId,
    slot: Slot,
    begin: u64,
    end: u64,
    /// The edges of its pages.
    edges: (u64, u64),
    /// The number of pages of the spans up to this one, itself among them, that have a free end in it.
    pages: usize,
}

/// The list, as it was when free blocks came or went last.
#[derive(Debug, Default)]
pub(super) struct ByPlace {
    spans: Vec<Span>,
    /// The bytes of all spans.
    bytes: u64,
    /// The pages with a free end in each span, in order.
    ends: Vec<(PageId, Ends)>,
}

impl ByPlace {
    /// Returns the blocks, by slot and offset.
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.spans.iter().map(|span| span.block)
    }

    /// Returns the number of the span that a tile comes from, if it is all of it.
    fn number(&self, tile: &Tile) -> Option<usize> {
        let number = tile.number? as usize;
        let span = self.spans.get(number)?;
        ((span.slot, span.begin, span.end) == (tile.slot, tile.begin, tile.end)).then_some(number)
    }
}

impl Shard {
    /// Brings the list up to date. Returns the bytes of its blocks.
    pub(crate) fn list_by_place(&mut self) -> u64 {
        if self.pools[Side::Large.index()].free.take_changed() {
            let ByPlace { mut spans, mut ends, .. } = core::mem::take(&mut self.by_place);
            spans.clear();
            ends.clear();
            let mut bytes = 0;
            for (slot, begin, block) in self.sorted_by_place() {
                let end = self.blocks[block].end();
                bytes += end - begin;
                let edges = self.find_edges((slot, begin, end), |page, of_page| ends.push((page, of_page)));
                spans.push(Span { block, slot, begin, end, edges, pages: ends.len() });
            }
            self.by_place = ByPlace { spans, bytes, ends };
        }
        self.by_place.bytes
    }

    fn sorted_by_place(&self) -> Vec<(Slot, u64, BlockId)> {
        let free = self.pools[Side::Large.index()].free.iter();
        let mut blocks: Vec<_> = free.map(|id| (self.blocks[id].slot, self.blocks[id].offset, id)).collect();
        blocks.sort_unstable();
        blocks
    }

    /// Calls `note` with each page of which a free block, or a part of one, has an end.
    pub(crate) fn ends_in(&self, tile: &Tile, mut note: impl FnMut(PageId, Ends)) {
        let Some(number) = self.by_place.number(tile) else {
            self.find_edges((tile.slot, tile.begin, tile.end), note);
            return;
        };
        let pages = |number: usize| self.by_place.spans[number].pages;
        let first = number.checked_sub(1).map_or(0, pages);
        self.by_place.ends[first..pages(number)].iter().for_each(|&(page, ends)| note(page, ends));
    }

    /// Returns the edges of the pages in a free block, or in a part of one: see [`page_edges`](Self::page_edges).
    pub(crate) fn edges_of(&self, tile: &Tile) -> (u64, u64) {
        match self.by_place.number(tile) {
            Some(number) => self.by_place.spans[number].edges,
            None => self.page_edges(tile.slot, tile.begin, tile.end),
        }
    }

    /// Returns the edges of the pages in a part of a home: where the first page begins that begins in it, and where the
    /// last page ends that ends in it. Where no page does, the first is not before the second.
    pub(crate) fn page_edges(&self, slot: Slot, begin: u64, end: u64) -> (u64, u64) {
        self.find_edges((slot, begin, end), |_, _| {})
    }

    /// Returns what [`page_edges`](Self::page_edges) does, and calls `note` with each page of which an end lies in the
    /// part.
    fn find_edges(&self, (slot, begin, end): (Slot, u64, u64), mut note: impl FnMut(PageId, Ends)) -> (u64, u64) {
        let (mut up, mut down) = (end, begin);
        for (at, page) in self.pages_over(slot, begin, end) {
            let behind = at + page.bytes;
            let mut ends = Ends::default();
            if begin <= at {
                up = up.min(at);
                ends.head = end.min(behind) - at;
            }
            if end >= behind {
                down = behind;
                (ends.tail, ends.is_whole) = (behind - begin.max(at), begin <= at);
            }
            if ends != Ends::default() {
                note(page.page, ends);
            }
        }
        (up, down)
    }

    /// Verifies that the list is as a new one would be, if no free block came or went since it was made.
    pub(super) fn check_by_place(&self) {
        if self.pools[Side::Large.index()].free.has_changed() {
            return;
        }
        let ByPlace { spans, bytes, ends } = &self.by_place;
        let mut found = Vec::new();
        let mut listed = spans.iter();
        for (slot, begin, block) in self.sorted_by_place() {
            let end = self.blocks[block].end();
            let edges = self.find_edges((slot, begin, end), |page, of_page| found.push((page, of_page)));
            let span = Span { block, slot, begin, end, edges, pages: found.len() };
            assert_eq!(listed.next(), Some(&span), "a free block of {} as it was listed by place", self.id.0);
        }
        assert_eq!(listed.next(), None, "no free block of {}", self.id.0);
        assert_eq!(*ends, found, "what is free of the pages of {}", self.id.0);
        assert_eq!(
            *bytes,
            spans.iter().map(|span| span.end - span.begin).sum::<u64>(),
            "the bytes listed of {}",
            self.id.0
        );
    }

    /// Returns the free blocks of the large side by place.
    #[cfg(test)]
    pub(super) fn tiles_now(&self) -> Vec<Tile> {
        self.sorted_by_place().into_iter().map(|(.., id)| self.tile(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::home::tests::{free, want, with_gaps};
    use crate::units::MIB;

    fn ends_in(shard: &Shard, tile: &Tile) -> Vec<(u32, u64, u64, bool)> {
        let mut all = Vec::new();
        let note = |page: PageId, Ends { head, tail, is_whole }| all.push((page.0, head / MIB, tail / MIB, is_whole));
        shard.ends_in(tile, note);
        all
    }

    /// What is told of a part of a free block is of that part, and what is told of all of it is what a look at its
    /// pages tells.
    #[test]
    fn a_part_of_a_free_block_has_its_own_pages() {
        let (mut shard, ..) = with_gaps(&[4, 4, 8]);
        assert_eq!(shard.list_by_place(), 12 * MIB);
        let tiles: Vec<_> = shard.tiles_by_place().collect();
        for tile in &tiles {
            let unlisted = Tile { number: None, ..*tile };
            assert_eq!(ends_in(&shard, tile), ends_in(&shard, &unlisted), "{tile:?}");
            assert_eq!(shard.edges_of(tile), shard.edges_of(&unlisted), "{tile:?}");
            let part = Tile { begin: tile.begin + MIB, ..*tile };
            assert_eq!(ends_in(&shard, &part), ends_in(&shard, &Tile { number: None, ..part }), "{part:?}");
            assert_ne!(ends_in(&shard, &part), ends_in(&shard, tile), "a page of it is free in part only");
            assert_eq!(shard.edges_of(&part), shard.edges_of(&Tile { number: None, ..part }), "{part:?}");
        }
    }

    #[test]
    fn the_list_is_made_anew_once_a_block_came_or_went() {
        let (mut shard, ..) = with_gaps(&[4, 4, 8]);
        shard.list_by_place();
        shard.check_by_place();
        let block = shard.find_and_take(&want(8 * MIB), 0).expect("it is free").block;
        assert_eq!(shard.list_by_place(), 4 * MIB);
        free(&mut shard, block, 4);
        shard.tidied();
        assert_eq!(shard.list_by_place(), 12 * MIB);
        assert!(shard.tiles_by_place().map(|tile| (tile.begin, tile.end)).eq([(0, 4 * MIB), (8 * MIB, 16 * MIB)]));
    }
}
