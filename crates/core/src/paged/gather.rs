//! The gathering of free memory for a window, new or longer: which pieces of the home follow each other there.
//!
//! Only whole pages can be mapped, so all stretches but the first begin with a page, and all but the last end with one.
//! Which blocks the first and the last stretch are of decides how much of all free memory a window can have: of each
//! other block it has the whole pages alone.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use super::Pager;
use super::idle::{IdlePages, memory_of};
use super::taker::{Stretch, Taker, Tiles};
use crate::books::Part;
use crate::ids::{Place, ShardId, Side, Slot, WindowId};
use crate::memory::{Edges, Tile};
use crate::shard::Shard;

/// Where the first stretch of a window may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum First {
    /// Anywhere in a page: a window begins there.
    Anywhere,
    /// With a page: a window goes on there.
    Page,
}

/// What the choice is to be good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Aim {
    /// That few pages are mapped. The first stretch is the longest that ends with a page. Then comes the shortest that
    /// is long enough for what is left, or else the longest.
    FewPages,
    /// That as few bytes as possible are missing. The first stretch is of the block with the most bytes in front of its
    /// first page, and the last of the one with the most behind its last page.
    LittleMissing,
}

/// What is chosen for a window.
#[derive(PartialEq, Eq, Debug)]
struct Chosen {
    /// In order of the addresses in the window.
    stretches: Vec<Stretch>,
    /// The bytes that are missing.
    missing: u64,
    /// Whether the new pages for what is missing come in front of the last stretch, and not behind it. What is missing
    /// is whole pages then.
    is_last_behind: bool,
}

/// A free block, with the edges of the pages in it.
#[derive(Clone, Copy, Debug)]
struct Gap {
    home: Place,
    end: u64,
    /// Where the first page begins that begins in it.
    up: u64,
    /// Where the last page ends that ends in it.
    down: u64,
}

impl Gap {
    /// Returns the bytes in front of the end of its last page.
    fn tail(&self) -> u64 {
        self.down.saturating_sub(self.home.offset)
    }

    /// Returns the bytes of its whole pages.
    fn whole(&self) -> u64 {
        self.down.saturating_sub(self.up)
    }

    /// Returns the bytes from its first page on.
    fn room(&self) -> u64 {
        self.end.saturating_sub(self.up)
    }

    /// Returns the bytes in front of its whole pages that a window may begin with.
    fn before(&self) -> u64 {
        self.tail() - self.whole()
    }

    /// Returns the bytes behind its whole pages that a window may end with.
    fn behind(&self) -> u64 {
        self.room() - self.whole()
    }

    fn first_page(&self) -> Place {
        Place { offset: self.up, ..self.home }
    }

    /// Returns its first `bytes` bytes from its first page on.
    fn begun(&self, bytes: u64) -> Stretch {
        Stretch { home: self.first_page(), bytes }
    }
}

/// Free memory for a window, or to lengthen one.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// The free end of the window that is lengthened, if one is.
    pub(crate) rear: Option<FreeEnd>,
    /// The memory in order of addresses, that of the rear first.
    pub(crate) stretches: Vec<Stretch>,
    /// The number of stretches of the rear.
    behind: usize,
    /// The bytes that are missing.
    pub(crate) missing: u64,
    /// Whether new pages for them come in front of the last stretch, and not behind it.
    pub(crate) is_last_behind: bool,
    /// The bytes of the pages that have to be mapped, without what is missing.
    pub(crate) length: u64,
    /// The number of these pages.
    pub(crate) pages: usize,
}

/// The free end of a kept window that can be lengthened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreeEnd {
    pub(crate) window: WindowId,
    /// The number of its last bytes that are free.
    pub(crate) bytes: u64,
    /// The bytes of vacant addresses behind it.
    pub(crate) room: u64,
}

impl Gathered {
    /// Returns the memory that has to be mapped in front of new pages, and behind them.
    pub(crate) fn added(&self) -> (&[Stretch], &[Stretch]) {
        let last = self.stretches.len() - usize::from(self.is_last_behind);
        (&self.stretches[self.behind..last], &self.stretches[last..])
    }
}

impl Pager<'_> {
    /// Gathers free memory for a request: in a new window or behind the last free bytes of a kept one, whichever needs
    /// less memory to be created, and of these what needs fewer pages to be mapped. Where more would be created for it
    /// than before anything is gathered, it is chosen so that little is missing.
    pub(crate) fn gather_best(
        &mut self,
        taker: Taker,
        bytes: u64,
        tiles: &Tiles,
        idle: Option<&IdlePages>,
    ) -> Gathered {
        let shard = taker.shard;
        let gaps = self.gaps_of(shard, tiles);
        let mut aim = Aim::FewPages;
        let mut alone = self.gather_for(shard, None, bytes, aim, &gaps);
        if alone.missing > 0 && self.core.reserved_for(shard) + self.created_for(&alone) > taker.creates_up_to {
            aim = Aim::LittleMissing;
            alone = self.gather_for(shard, None, bytes, aim, &gaps);
        }
        // It has room for what is missing at least: what is gathered for it may need more.
        let longer = idle.and_then(|idle| self.longest_rear(shard, bytes, idle));
        let longer = longer.and_then(|rear| {
            let longer = self.gather_for(shard, Some(rear), bytes, aim, &gaps);
            (longer.length + self.created_for(&longer) <= rear.room).then_some(longer)
        });
        let cost = |gathered: &Gathered| {
            let created = self.created_for(gathered);
            (created, gathered.pages + self.page_sizes(Side::Large, created).len())
        };
        match longer {
            Some(longer) if cost(&longer) <= cost(&alone) => longer,
            _ => alone,
        }
    }

    fn gather_for(&mut self, shard: ShardId, rear: Option<FreeEnd>, bytes: u64, aim: Aim, gaps: &[Gap]) -> Gathered {
        let (had, mut stretches, first) = match rear {
            Some(FreeEnd { window, bytes, .. }) => {
                let window = &self.core.paging.windows[window];
                (bytes, memory_of(window, window.end() - bytes, bytes), First::Page)
            }
            None => (0, Vec::new(), First::Anywhere),
        };
        let chosen = self.gather(gaps, &stretches, bytes - had, first, aim);
        let Chosen { stretches: added, missing, is_last_behind } = chosen;
        let nowhere = Place { shard, slot: Slot(0), offset: 0 };
        let parts = self.parts_of(&added, nowhere);
        let length = parts.iter().map(|part| part.bytes).sum();
        let behind = stretches.len();
        stretches.extend(added);
        Gathered { rear, stretches, behind, missing, is_last_behind, length, pages: parts.len() }
    }

    /// Returns the bytes of pages that have to be created for what is missing.
    pub(crate) fn created_for(&self, gathered: &Gathered) -> u64 {
        gathered.missing.next_multiple_of(self.core.paging.governor.page_unit())
    }
}

impl Pager<'_> {
    /// Returns the free blocks of a home with the edges of the pages in them.
    fn gaps_of(&mut self, id: ShardId, tiles: &Tiles) -> Vec<Gap> {
        let gap = |shard: &Shard, tile: &Tile| {
            let Edges { up, down } = shard.memory.edges_of(tile);
            let home = Place { shard: id, slot: tile.slot, offset: tile.begin };
            Gap { home, end: tile.end, up, down }
        };
        self.shards.with(id, |shard| tiles.iter().map(|tile| gap(shard, tile)).collect())
    }

    /// Chooses free memory for a window, without what is in `taken`.
    fn gather(&mut self, gaps: &[Gap], taken: &[Stretch], bytes: u64, first: First, aim: Aim) -> Chosen {
        let unit = self.core.paging.governor.page_unit();
        if taken.is_empty() {
            return choose(gaps, bytes, first, aim, unit);
        }
        let mut left = Vec::with_capacity(gaps.len() + taken.len());
        for gap in gaps {
            match without(gap.home, gap.end, taken) {
                None => left.push(*gap),
                Some(parts) => left.extend(parts.into_iter().map(|part| {
                    let home = Place { offset: part.start, ..gap.home };
                    self.shards.with(home.shard, |shard| gap_at(shard, home, part.end))
                })),
            }
        }
        choose(&left, bytes, first, aim, unit)
    }

    /// Returns the pages of a window over these stretches, the first of which is mapped at `at`.
    pub(crate) fn parts_of(&mut self, stretches: &[Stretch], at: Place) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut offset = at.offset;
        for &Stretch { home, bytes } in stretches {
            self.shards.with(home.shard, |shard| {
                for (begin, page) in shard.memory.segments[home.slot].mappings.over(home.offset, home.offset + bytes) {
                    let home = Place { offset: begin, ..home };
                    parts.push(Part::new(page.page, home, page.bytes, Place { offset, ..at }));
                    offset += page.bytes;
                }
            });
        }
        parts
    }
}

/// Returns a free block, or a part of one, with the edges of the pages in it.
fn gap_at(shard: &Shard, home: Place, end: u64) -> Gap {
    let Edges { up, down } = shard.memory.page_edges(home.slot, home.offset..end);
    Gap { home, end, up, down }
}

/// Returns what is left of a free block without the stretches that are taken, as beginnings and ends, or `None` if
/// nothing of it is taken.
fn without(home: Place, end: u64, taken: &[Stretch]) -> Option<Vec<Range<u64>>> {
    let inside = |stretch: &&Stretch| {
        (stretch.home.shard, stretch.home.slot) == (home.shard, home.slot)
            && (home.offset..end).contains(&stretch.home.offset)
    };
    let mut taken: Vec<_> = taken.iter().filter(inside).map(|s| (s.home.offset, s.home.offset + s.bytes)).collect();
    if taken.is_empty() {
        return None;
    }
    taken.sort_unstable();
    taken.push((end, end));
    let mut from = home.offset;
    let mut left = Vec::new();
    for (begin, behind) in taken {
        if begin > from {
            left.push(from..begin);
        }
        from = behind;
    }
    Some(left)
}

/// The numbers of the gaps that the first and the last stretch of a window are of, where that is settled.
#[derive(Clone, Copy, Default)]
struct Ends {
    first: Option<usize>,
    last: Option<usize>,
}

/// Chooses stretches of up to `bytes` from the gaps. The first of them may begin anywhere if `first` says so, and not
/// only with a page. New pages are a multiple of `unit` bytes long.
fn choose(gaps: &[Gap], bytes: u64, first: First, aim: Aim, unit: u64) -> Chosen {
    let ends = match (first, aim) {
        (First::Anywhere, Aim::FewPages) => Ends { first: most(gaps, Gap::tail, None), last: None },
        (First::Page, Aim::FewPages) => Ends::default(),
        (First::Anywhere, Aim::LittleMissing) => best_ends(gaps),
        (First::Page, Aim::LittleMissing) => Ends { first: None, last: most(gaps, Gap::behind, None) },
    };
    fill(gaps, bytes, ends, unit)
}

/// Returns the ends with which a window has the most bytes beside whole pages.
fn best_ends(gaps: &[Gap]) -> Ends {
    let first = most(gaps, Gap::before, None);
    let last = most(gaps, Gap::behind, None);
    if first != last {
        return Ends { first, last };
    }
    // One gap has the most of both, and can be at one end only.
    let bytes = |ends: &Ends| {
        let of = |at: Option<usize>, part: fn(&Gap) -> u64| at.map_or(0, |at| part(&gaps[at]));
        of(ends.first, Gap::before) + of(ends.last, Gap::behind)
    };
    let begins = Ends { first, last: most(gaps, Gap::behind, first) };
    let ends = Ends { first: most(gaps, Gap::before, last), last };
    if bytes(&begins) >= bytes(&ends) { begins } else { ends }
}

/// Returns the gap with the most bytes of a kind, the first of those with equally many, if any but the one that is left
/// out has some.
fn most(gaps: &[Gap], of: fn(&Gap) -> u64, left_out: Option<usize>) -> Option<usize> {
    let numbered = gaps.iter().enumerate().filter(|&(at, gap)| of(gap) > 0 && Some(at) != left_out);
    numbered.max_by_key(|(_, gap)| (of(gap), Reverse(gap.home))).map(|(at, _)| at)
}

/// Fills a window of up to `bytes` bytes: with the first gap up to the end of its last page, with the whole pages of
/// others, the longest first, and with the shortest gap that has all that is left, or else with the last one.
fn fill(gaps: &[Gap], bytes: u64, ends: Ends, unit: u64) -> Chosen {
    let mut left = bytes;
    let mut stretches = Vec::new();
    let mut is_used = alloc::vec![false; gaps.len()];
    let enough = |stretches| Chosen { stretches, missing: 0, is_last_behind: false };
    if let Some(at) = ends.first {
        let bytes = gaps[at].tail().min(left);
        is_used[at] = true;
        stretches.push(Stretch { home: gaps[at].home, bytes });
        left -= bytes;
    }
    if left == 0 {
        return enough(stretches);
    }
    if let Some(last) = shortest(gaps, left, &is_used) {
        stretches.push(last);
        return enough(stretches);
    }
    // There may be thousands, of which a window takes few: it would take longer to sort them.
    let with_pages = (0..gaps.len()).filter(|&at| !is_used[at] && gaps[at].whole() > 0 && ends.last != Some(at));
    let mut longest: BinaryHeap<_> = with_pages.map(|at| (gaps[at].whole(), Reverse(gaps[at].home), at)).collect();
    let most_besides = gaps.iter().map(Gap::behind).max().unwrap_or(0);
    let room_of_last = ends.last.map_or(0, |at| gaps[at].room());
    while let Some((bytes, _, at)) = longest.pop() {
        is_used[at] = true;
        stretches.push(gaps[at].begun(bytes));
        left -= bytes;
        let most = longest.peek().map_or(0, |&(whole, ..)| whole) + most_besides;
        if most.max(room_of_last) >= left
            && let Some(last) = shortest(gaps, left, &is_used)
        {
            stretches.push(last);
            return enough(stretches);
        }
    }
    let Some(last) = ends.last.map(|at| &gaps[at]) else {
        return Chosen { stretches, missing: left, is_last_behind: false };
    };
    end_short(stretches, left, last, unit)
}

/// Ends a window for which free memory does not suffice, as `left` bytes are more than the last gap has: with new pages
/// and that gap behind them, or in front of them with its whole pages alone, whichever takes fewer new pages.
fn end_short(mut stretches: Vec<Stretch>, left: u64, last: &Gap, unit: u64) -> Chosen {
    let in_front = (left - last.room()).next_multiple_of(unit);
    let missing = left - last.whole();
    if in_front < missing.next_multiple_of(unit) && in_front < left {
        stretches.push(last.begun(left - in_front));
        return Chosen { stretches, missing: in_front, is_last_behind: true };
    }
    if last.whole() > 0 {
        stretches.push(last.begun(last.whole()));
    }
    Chosen { stretches, missing, is_last_behind: false }
}

/// Returns the first bytes of the shortest gap that has that many from its first page on, of those that are not used,
/// and the first of equally long ones.
fn shortest(gaps: &[Gap], bytes: u64, is_used: &[bool]) -> Option<Stretch> {
    let fits = (0..gaps.len()).filter(|&at| gaps[at].room() >= bytes && !is_used[at]);
    let at = fits.min_by_key(|&at| (gaps[at].room(), gaps[at].home))?;
    Some(gaps[at].begun(bytes))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use super::*;

    #[test]
    fn what_a_window_has_already_is_not_gathered_for_it() {
        let at = |shard, offset| Place { shard: ShardId(shard), slot: Slot(0), offset };
        let stretch = |shard, begin, end: u64| Stretch { home: at(shard, begin), bytes: end - begin };
        let place = |offset| at(0, offset);
        let taken = [stretch(0, 20, 25), stretch(0, 10, 14), stretch(1, 15, 18), stretch(0, 40, 50)];
        assert_eq!(without(place(10), 30, &taken), Some(vec![14..20, 25..30]));
        assert_eq!(without(place(40), 50, &taken), Some(vec![]));
        assert_eq!(without(place(60), 70, &taken), None);
    }

    /// Returns a gap at a home with pages of 10 bytes.
    fn gap(begin: u64, end: u64) -> Gap {
        let home = Place { shard: ShardId(0), slot: Slot(0), offset: begin };
        Gap { home, end, up: begin.next_multiple_of(10), down: (end / 10 * 10).max(begin) }
    }

    fn chosen(gaps: &[(u64, u64)], bytes: u64) -> (Vec<(u64, u64)>, u64) {
        chosen_from(gaps, bytes, First::Anywhere)
    }

    fn chosen_from(gaps: &[(u64, u64)], bytes: u64, first: First) -> (Vec<(u64, u64)>, u64) {
        let (stretches, missing, is_last_behind) = chosen_for(gaps, bytes, first, Aim::FewPages);
        assert!(!is_last_behind, "new pages come last");
        (stretches, missing)
    }

    fn chosen_for(gaps: &[(u64, u64)], bytes: u64, first: First, aim: Aim) -> (Vec<(u64, u64)>, u64, bool) {
        let gaps: Vec<_> = gaps.iter().map(|&(begin, end)| gap(begin, end)).collect();
        told(&choose(&gaps, bytes, first, aim, 10))
    }

    /// Returns the stretches that are chosen as their beginnings and lengths, and the rest.
    fn told(chosen: &Chosen) -> (Vec<(u64, u64)>, u64, bool) {
        let stretches = chosen.stretches.iter().map(|stretch| (stretch.home.offset, stretch.bytes)).collect();
        (stretches, chosen.missing, chosen.is_last_behind)
    }

    #[test]
    fn the_tail_of_a_page_comes_first_and_the_head_of_one_last() {
        assert_eq!(chosen(&[(3, 10), (20, 24), (30, 40)], 15), (vec![(30, 10)], 5));
        assert_eq!(chosen(&[(3, 20), (30, 36)], 20), (vec![(3, 17), (30, 3)], 0));
        assert_eq!(chosen(&[(3, 20), (30, 36), (50, 54)], 20), (vec![(3, 17), (50, 3)], 0), "the shortest that fits");
    }

    #[test]
    fn what_lies_inside_one_page_ends_a_window_only() {
        assert_eq!(chosen(&[(2, 8), (12, 18)], 9), (vec![], 9), "neither begins or ends with a page");
        assert_eq!(chosen(&[(2, 8), (10, 18), (33, 40)], 9), (vec![(33, 7), (10, 2)], 0));
    }

    #[test]
    fn the_longest_come_first_where_none_is_long_enough() {
        assert_eq!(chosen(&[(0, 10), (20, 40), (60, 70)], 40), (vec![(20, 20), (0, 10), (60, 10)], 0));
    }

    #[test]
    fn a_window_goes_on_with_whole_pages() {
        assert_eq!(chosen_from(&[(3, 20), (30, 36)], 15, First::Page), (vec![(10, 10), (30, 5)], 0));
        assert_eq!(chosen_from(&[(3, 10), (30, 36)], 15, First::Page), (vec![], 15));
    }

    #[test]
    fn where_little_is_to_be_missing_the_ends_of_pages_count() {
        let gaps = [(3, 30), (41, 50), (60, 78)];
        assert_eq!(chosen(&gaps, 46), (vec![(3, 27), (60, 10)], 9), "the longest comes first");
        let most = |bytes| chosen_for(&gaps, bytes, First::Anywhere, Aim::LittleMissing);
        assert_eq!(most(47), (vec![(41, 9), (10, 20), (60, 18)], 0, false), "nothing is left of the ends that count");
        let from_page = |bytes| chosen_for(&gaps, bytes, First::Page, Aim::LittleMissing);
        assert_eq!(from_page(38), (vec![(10, 20), (60, 18)], 0, false));
    }

    #[test]
    fn a_gap_is_at_one_end_only() {
        let most = |gaps: &[_], bytes| chosen_for(gaps, bytes, First::Anywhere, Aim::LittleMissing);
        assert_eq!(most(&[(3, 38), (45, 50)], 33), (vec![(45, 5), (10, 28)], 0, false), "the last, as 8 are behind it");
        assert_eq!(most(&[(2, 36), (40, 45)], 33), (vec![(2, 28), (40, 5)], 0, false), "the first, as 8 are before it");
    }

    #[test]
    fn new_pages_are_in_front_of_the_last_stretch_if_there_are_fewer_then() {
        let most = |bytes| chosen_for(&[(3, 10), (60, 68)], bytes, First::Anywhere, Aim::LittleMissing);
        assert_eq!(most(24), (vec![(3, 7), (60, 7)], 10, true));
        assert_eq!(most(25), (vec![(3, 7), (60, 8)], 10, true));
        assert_eq!(most(26), (vec![(3, 7)], 19, false));
        let alone = chosen_for(&[(60, 68)], 15, First::Page, Aim::LittleMissing);
        assert_eq!(alone, (vec![(60, 5)], 10, true), "also where nothing is in front of them");
    }

    /// Returns random gaps at a home.
    fn random_gaps(random: &mut millpond_trace::Random) -> Vec<Gap> {
        let mut at = 0;
        (0..random.below(12))
            .map(|_| {
                let begin = at + 1 + random.below(12);
                at = begin + 1 + random.below(45);
                gap(begin, at)
            })
            .collect()
    }

    /// No other first and last gap leave less to be created.
    #[test]
    fn of_random_gaps_as_little_is_missing_as_can_be() {
        let mut random = millpond_trace::Random::new(4);
        for _ in 0..20_000 {
            let gaps = random_gaps(&mut random);
            let bytes = 1 + random.below(250);
            let from = if random.below(3) == 0 { First::Page } else { First::Anywhere };
            let whole: u64 = gaps.iter().map(Gap::whole).sum();
            let mut most = whole;
            for last in 0..gaps.len() {
                let firsts = (0..gaps.len()).filter(|&first| first != last && from == First::Anywhere);
                let before = firsts.map(|first| gaps[first].before()).max().unwrap_or(0);
                let alone = if from == First::Anywhere { gaps[last].before() } else { 0 };
                most = most.max(whole + (before + gaps[last].behind()).max(alone));
            }
            let found = choose(&gaps, bytes, from, Aim::LittleMissing, 10);
            let case = std::format!("{bytes} bytes of {gaps:?}, {from:?}: {found:?}");
            assert_eq!(found.missing.next_multiple_of(10), bytes.saturating_sub(most).next_multiple_of(10), "{case}");
            let had: u64 = found.stretches.iter().map(|stretch| stretch.bytes).sum();
            assert_eq!(had + found.missing, bytes, "{case}");
            let is_edge = |at: u64| at.is_multiple_of(10);
            assert!(!found.is_last_behind || is_edge(found.missing), "whole pages are in front of others: {case}");
            let mut places: Vec<_> = found.stretches.iter().map(|s| (s.home.offset, s.home.offset + s.bytes)).collect();
            // What comes first begins anywhere, and what comes last ends anywhere: all else is whole pages.
            let in_front = places.len() - usize::from(found.is_last_behind);
            let ends_anywhere = usize::from(found.is_last_behind || found.missing == 0);
            for (at, &(begin, end)) in places.iter().enumerate() {
                let begins_anywhere = at == 0 && in_front > 0 && from == First::Anywhere;
                assert!(begins_anywhere || is_edge(begin), "{case}");
                assert!(at + ends_anywhere >= places.len() || is_edge(end), "{case}");
            }
            places.sort_unstable();
            assert!(places.windows(2).all(|two| two[0].1 <= two[1].0), "no byte is chosen twice: {case}");
        }
    }

    /// What is chosen of many is what a look at all of them before each choice finds.
    #[test]
    fn random_gaps_are_chosen_as_if_all_were_looked_at_each_time() {
        let mut random = millpond_trace::Random::new(3);
        for _ in 0..20_000 {
            let gaps = random_gaps(&mut random);
            let bytes = 1 + random.below(150);
            let from = if random.below(3) == 0 { First::Page } else { First::Anywhere };
            let (mut expected, mut left, mut rest) = (Vec::new(), bytes, gaps.clone());
            if let Some(at) = most(&rest, Gap::tail, None).filter(|_| from == First::Anywhere) {
                let tail = rest.remove(at);
                expected.push((tail.home.offset, tail.tail().min(left)));
                left -= tail.tail().min(left);
            }
            while left > 0 {
                let fits = (0..rest.len()).filter(|&at| rest[at].room() >= left);
                let shortest = fits.min_by_key(|&at| (rest[at].room(), rest[at].home));
                let longest = (0..rest.len()).filter(|&at| rest[at].whole() > 0);
                let longest = longest.max_by_key(|&at| (rest[at].whole(), Reverse(rest[at].home)));
                let Some(at) = shortest.or(longest) else { break };
                let bytes = if shortest.is_some() { left } else { rest[at].whole() };
                expected.push((rest.remove(at).up, bytes));
                left -= bytes;
            }
            let found = told(&choose(&gaps, bytes, from, Aim::FewPages, 10));
            assert_eq!(found, (expected, left, false), "{bytes} bytes of {gaps:?}, {from:?}");
        }
    }
}
