//! The free blocks of a home's large side by place, with what is free of each page there. A request that gathers memory
//! looks at those of all streams, most of which have changed nothing since the last one looked: so each shard keeps
//! what was found until a free block comes or goes. Then it keeps what was found of all others: there may be thousands
//! of them, and few come or go from one such request to the next.

use alloc::vec::Vec;
use core::iter::Peekable;
use core::ops::Range;

use super::{Memory, Tile};
use crate::ids::{BlockId, PageId, Side, Slot};
use crate::looks;

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

/// The edges of the pages in a part of a home. Where no page begins or ends in it, `up` is not before `down`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edges {
    /// Where the first page begins that begins in it.
    pub(crate) up: u64,
    /// Where the last page ends that ends in it.
    pub(crate) down: u64,
}

/// A free block, as it was when the list was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    block: BlockId,
    slot: Slot,
    begin: u64,
    end: u64,
    /// The edges of its pages.
    edges: Edges,
    /// The number of pages of the spans up to this one, itself among them, that have a free end in it.
    pages: usize,
}

/// The list, as it was when free blocks came or went last.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByPlace {
    spans: Vec<Span>,
    /// The pages with a free end in each span, in order.
    ends: Vec<(PageId, Ends)>,
    /// Whether there is no list, as it was forgotten.
    is_forgotten: bool,
}

impl ByPlace {
    /// Adds the spans of an earlier list with these numbers behind the others, but for those that are gone.
    fn copy(&mut self, from: &ByPlace, numbers: Range<usize>, gone: &mut Peekable<impl Iterator<Item = usize>>) {
        let mut at = numbers.start;
        while at < numbers.end {
            let end = gone.next_if(|&next| next < numbers.end).unwrap_or(numbers.end);
            let first = self.ends.len();
            let before = from.pages_before(at);
            self.ends.extend_from_slice(&from.ends[before..from.pages_before(end)]);
            let spans = &from.spans[at..end];
            self.spans.extend(spans.iter().map(|span| Span { pages: first + span.pages - before, ..*span }));
            at = end + 1;
        }
    }

    /// Returns the number of pages of the spans in front of one.
    fn pages_before(&self, number: usize) -> usize {
        number.checked_sub(1).map_or(0, |before| self.spans[before].pages)
    }

    /// Returns the pages with a free end in a span.
    fn ends_of(&self, number: usize) -> &[(PageId, Ends)] {
        &self.ends[self.pages_before(number)..self.spans[number].pages]
    }

    /// Returns the blocks, by slot and offset.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockId> {
        self.spans.iter().map(|span| span.block)
    }

    /// Returns the number of the span that a tile comes from, if it is all of it.
    fn number(&self, tile: &Tile) -> Option<usize> {
        let number = tile.number? as usize;
        let span = self.spans.get(number)?;
        ((span.slot, span.begin, span.end) == (tile.slot, tile.begin, tile.end)).then_some(number)
    }
}

impl Memory {
    /// Brings the list up to date.
    pub(crate) fn list_by_place(&mut self) {
        if self.pools[Side::Large.index()].free.take_changed() || self.by_place.is_forgotten {
            self.by_place = self.list_after(&self.by_place);
        }
    }

    /// Forgets the list, as a page goes away: another one may come to its place.
    pub(crate) fn forget_list(&mut self) {
        self.by_place = ByPlace { is_forgotten: true, ..ByPlace::default() };
    }

    /// Returns the list, where an earlier one is right for those of its blocks that are still as they were.
    fn list_after(&self, before: &ByPlace) -> ByPlace {
        looks::note(self.blocks.ids() + before.spans.len());
        let mut is_listed = alloc::vec![false; self.blocks.ids()];
        let mut gone = Vec::new();
        for (number, span) in before.spans.iter().enumerate() {
            let block = &self.blocks[span.block];
            let place = (block.slot, block.offset, block.end());
            let stays = self.is_free_on(span.block, Side::Large) && place == (span.slot, span.begin, span.end);
            if stays { is_listed[span.block.0 as usize] = true } else { gone.push(number) }
        }
        let mut new = Vec::new();
        self.pools[Side::Large.index()].free.visit(|id| {
            if !is_listed[id.0 as usize] && self.blocks[id].expandable {
                new.push((self.blocks[id].slot, self.blocks[id].offset, id));
            }
        });
        new.sort_unstable();

        let spans = Vec::with_capacity(before.spans.len() + new.len());
        let mut list = ByPlace { spans, ends: Vec::with_capacity(before.ends.len()), ..ByPlace::default() };
        let (mut copied, mut gone) = (0, gone.into_iter().peekable());
        for (slot, begin, block) in new {
            let behind = before.spans.partition_point(|span| (span.slot, span.begin) < (slot, begin));
            list.copy(before, copied..behind, &mut gone);
            copied = behind;
            self.add_to(&mut list, block);
        }
        list.copy(before, copied..before.spans.len(), &mut gone);
        list
    }

    /// Adds a block behind the others of a list.
    fn add_to(&self, list: &mut ByPlace, block: BlockId) {
        let (slot, Range { start: begin, end }) = (self.blocks[block].slot, self.blocks[block].range());
        let edges = self.find_edges(slot, begin..end, |page, of_page| list.ends.push((page, of_page)));
        list.spans.push(Span { block, slot, begin, end, edges, pages: list.ends.len() });
    }

    /// Calls `note` with each page of which a free block, or a part of one, has an end.
    pub(crate) fn ends_in(&self, tile: &Tile, mut note: impl FnMut(PageId, Ends)) {
        let Some(number) = self.by_place.number(tile) else {
            self.find_edges(tile.slot, tile.range(), note);
            return;
        };
        self.by_place.ends_of(number).iter().for_each(|&(page, ends)| note(page, ends));
    }

    /// Returns the edges of the pages in a free block, or in a part of one: see [`page_edges`](Self::page_edges).
    pub(crate) fn edges_of(&self, tile: &Tile) -> Edges {
        match self.by_place.number(tile) {
            Some(number) => self.by_place.spans[number].edges,
            None => self.page_edges(tile.slot, tile.range()),
        }
    }

    /// Returns the edges of the pages in a part of a home.
    pub(crate) fn page_edges(&self, slot: Slot, part: Range<u64>) -> Edges {
        self.find_edges(slot, part, |_, _| {})
    }

    /// Returns what [`page_edges`](Self::page_edges) does, and calls `note` with each page of which an end lies in the
    /// part.
    fn find_edges(&self, slot: Slot, part: Range<u64>, mut note: impl FnMut(PageId, Ends)) -> Edges {
        let Range { start: begin, end } = part;
        let (mut up, mut down) = (end, begin);
        for (at, page) in self.segments[slot].mappings.over(begin, end) {
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
        Edges { up, down }
    }

    /// Verifies that the list is as one that is made anew: as it is if no block came or went since it was made, and
    /// else as it will be once it is brought up to date.
    pub(crate) fn check_by_place(&self) {
        let has_changed = self.pools[Side::Large.index()].free.has_changed || self.by_place.is_forgotten;
        let now = if has_changed { &self.list_after(&self.by_place) } else { &self.by_place };
        let anew = self.list_after(&ByPlace::default());
        assert_eq!(now.spans, anew.spans, "the free blocks of {} as they are listed by place", self.id.0);
        assert_eq!(now.ends, anew.ends, "what is free of the pages of {}", self.id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Place;
    use crate::memory::home::tests::{OWN, free, want, with_gaps};
    use crate::segment::Mapping;
    use crate::shard::Shard;
    use crate::units::MIB;

    impl Shard {
        /// Returns the free blocks of the large side by place.
        pub(crate) fn free_blocks_now(&self) -> Vec<Tile> {
            self.memory.list_after(&ByPlace::default()).blocks().map(|id| self.memory.tile(id)).collect()
        }
    }

    fn ends_in(shard: &Shard, tile: &Tile) -> Vec<(u32, u64, u64, bool)> {
        let mut all = Vec::new();
        let note = |page: PageId, Ends { head, tail, is_whole }| all.push((page.0, head / MIB, tail / MIB, is_whole));
        shard.memory.ends_in(tile, note);
        all
    }

    fn listed_bytes(shard: &mut Shard) -> u64 {
        shard.memory.list_by_place();
        shard.memory.free_blocks_by_place().map(|tile| tile.end - tile.begin).sum()
    }

    /// What is told of a part of a free block is of that part, and what is told of all of it is what a look at its
    /// pages shows.
    #[test]
    fn a_part_of_a_free_block_has_its_own_pages() {
        let (mut shard, ..) = with_gaps(&[4, 4, 8]);
        assert_eq!(listed_bytes(&mut shard), 12 * MIB);
        let tiles: Vec<_> = shard.memory.free_blocks_by_place().collect();
        for tile in &tiles {
            let unlisted = Tile { number: None, ..*tile };
            assert_eq!(ends_in(&shard, tile), ends_in(&shard, &unlisted), "{tile:?}");
            assert_eq!(shard.memory.edges_of(tile), shard.memory.edges_of(&unlisted), "{tile:?}");
            let part = Tile { begin: tile.begin + MIB, ..*tile };
            assert_eq!(ends_in(&shard, &part), ends_in(&shard, &Tile { number: None, ..part }), "{part:?}");
            assert_ne!(ends_in(&shard, &part), ends_in(&shard, tile), "a page of it is free in part only");
            assert_eq!(shard.memory.edges_of(&part), shard.memory.edges_of(&Tile { number: None, ..part }), "{part:?}");
        }
    }

    #[test]
    fn the_list_is_up_to_date_once_a_block_came_or_went() {
        let (mut shard, ..) = with_gaps(&[4, 4, 8]);
        shard.memory.list_by_place();
        let block = shard.find_and_take(&want(8 * MIB), 0, OWN).expect("it is free").block;
        assert_eq!(listed_bytes(&mut shard), 4 * MIB);
        free(&mut shard, block, 4);
        shard.tidied();
        assert_eq!(listed_bytes(&mut shard), 12 * MIB);
        assert!(
            shard
                .memory
                .free_blocks_by_place()
                .map(|tile| (tile.begin, tile.end))
                .eq([(0, 4 * MIB), (8 * MIB, 16 * MIB)])
        );
    }

    /// Blocks come and go at random places: what is kept of the last list is right.
    #[test]
    fn a_list_that_was_brought_up_to_date_is_as_one_made_anew() {
        let (mut shard, ..) = with_gaps(&[20, 2, 20, 2, 10]);
        let mut random = millpond_trace::Random::new(5);
        let mut taken = Vec::new();
        let mut most = 0;
        for _ in 0..2_000 {
            for _ in 0..random.below(4) {
                let bytes = (1 + random.below(12)) * MIB / 2;
                taken.extend(shard.find_and_take(&want(bytes), 0, OWN).map(|grant| grant.block));
            }
            for _ in 0..random.below(4).min(taken.len() as u64) {
                let block = taken.swap_remove(random.below(taken.len() as u64) as usize);
                free(&mut shard, block, 4);
            }
            shard.tidied();
            shard.memory.check_by_place();
            shard.memory.list_by_place();
            most = most.max(shard.memory.free_blocks_by_place().count());
        }
        assert!(most > 6, "{most} free blocks at most");
    }

    /// A page went away and another one came to its place, while no block came or went.
    #[test]
    fn where_a_page_went_away_the_pages_are_found_anew() {
        let (mut shard, slot, _) = with_gaps(&[4, 4]);
        shard.memory.list_by_place();
        let tile = shard.memory.free_blocks_by_place().next().expect("4 MiB are free");
        let (at, mapping) =
            shard.memory.segments[slot].mappings.over(tile.begin, tile.end).next().expect("it has a page");
        let place = Place { shard: shard.id(), slot, offset: at };
        shard.memory.page_unmapped(place, mapping.page);
        shard.memory.page_mapped(place, Mapping { page: PageId(77), ..mapping });
        shard.memory.list_by_place();
        let tile = shard.memory.free_blocks_by_place().next().expect("they still are");
        assert_eq!(ends_in(&shard, &tile)[0].0, 77);
    }
}
