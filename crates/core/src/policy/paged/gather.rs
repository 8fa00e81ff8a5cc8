//! The gathering of free memory for a window: stretches at several homes that will follow each other there.
//!
//! Only whole pages can be mapped, so all stretches but the first begin with a page, and all but the last end with one.
//! The first is the longest that ends with a page. Then comes the shortest that is long enough for what is left, or
//! else the longest.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::kept::Stretch;
use super::tiles::Tiles;
use crate::books::Part;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::Place;
use crate::shard::{Shard, Tile};

/// Where the first stretch of a window may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum First {
    /// Anywhere in a page: a window begins there.
    Anywhere,
    /// With a page: a window goes on there.
    Page,
}

/// A free block, with the edges of the pages in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
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

    fn first_page(&self) -> Place {
        Place { offset: self.up, ..self.home }
    }
}

/// Chooses stretches of up to `bytes` from the gaps. The first of them may begin anywhere if `from` says so, and not
/// only with a page. Returns them with the bytes that are still missing.
fn choose(gaps: &[Gap], bytes: u64, from: First) -> (Vec<Stretch>, u64) {
    let mut left = bytes;
    let mut stretches = Vec::new();
    let mut is_used = alloc::vec![false; gaps.len()];
    if from == First::Anywhere
        && let Some(at) = longest_tail(gaps)
    {
        let bytes = gaps[at].tail().min(left);
        is_used[at] = true;
        stretches.push(Stretch { home: gaps[at].home, bytes });
        left -= bytes;
    }
    if left == 0 {
        return (stretches, 0);
    }
    if let Some(last) = shortest(gaps, left, &is_used) {
        stretches.push(last);
        return (stretches, 0);
    }
    // There may be thousands, of which a window takes few: it would take longer to sort them.
    let with_pages = (0..gaps.len()).filter(|&at| !is_used[at] && gaps[at].whole() > 0);
    let mut longest: BinaryHeap<_> = with_pages.map(|at| (gaps[at].whole(), Reverse(gaps[at].home), at)).collect();
    let most_besides = gaps.iter().map(|gap| gap.room() - gap.whole()).max().unwrap_or(0);
    while let Some((bytes, _, at)) = longest.pop() {
        is_used[at] = true;
        stretches.push(Stretch { home: gaps[at].first_page(), bytes });
        left -= bytes;
        let most = longest.peek().map_or(0, |&(whole, ..)| whole) + most_besides;
        if most >= left
            && let Some(last) = shortest(gaps, left, &is_used)
        {
            stretches.push(last);
            return (stretches, 0);
        }
    }
    (stretches, left)
}

/// Returns the first bytes of the shortest gap that has that many from its first page on, of those that are not used,
/// and the first of equally long ones.
fn shortest(gaps: &[Gap], bytes: u64, is_used: &[bool]) -> Option<Stretch> {
    let fits = (0..gaps.len()).filter(|&at| gaps[at].room() >= bytes && !is_used[at]);
    let at = fits.min_by_key(|&at| (gaps[at].room(), gaps[at].home))?;
    Some(Stretch { home: gaps[at].first_page(), bytes })
}

/// Returns the gap with the most bytes that end with a page, the first of those with equally many, if any has some.
fn longest_tail(gaps: &[Gap]) -> Option<usize> {
    let numbered = gaps.iter().enumerate().filter(|(_, gap)| gap.tail() > 0);
    numbered.max_by_key(|(_, gap)| (gap.tail(), Reverse(gap.home))).map(|(at, _)| at)
}

impl Coordinator {
    /// Returns the free blocks of some homes with the edges of the pages in them.
    pub(super) fn gaps_of(&self, tiles: &Tiles, shards: &mut dyn Shards) -> Vec<Gap> {
        let mut gaps = Vec::with_capacity(tiles.len());
        for (id, tiles) in tiles.by_shard() {
            let gap = |shard: &Shard, tile: &Tile| {
                let (up, down) = shard.edges_of(tile);
                let home = Place { shard: id, slot: tile.slot, offset: tile.begin };
                Gap { home, end: tile.end, up, down }
            };
            shards.with(id, |shard| gaps.extend(tiles.iter().map(|idle| gap(shard, &idle.tile))));
        }
        gaps
    }

    /// Chooses free memory for a window, without what is in `taken`. Returns it with the bytes that are missing.
    pub(super) fn gather(
        &self,
        gaps: &[Gap],
        taken: &[Stretch],
        (bytes, first): (u64, First),
        shards: &mut dyn Shards,
    ) -> (Vec<Stretch>, u64) {
        if taken.is_empty() {
            return choose(gaps, bytes, first);
        }
        let mut left = Vec::with_capacity(gaps.len() + taken.len());
        for gap in gaps {
            match without(gap.home, gap.end, taken) {
                None => left.push(*gap),
                Some(parts) => left.extend(parts.into_iter().map(|(begin, end)| {
                    let home = Place { offset: begin, ..gap.home };
                    shards.with(home.shard, |shard| gap_at(shard, home, end))
                })),
            }
        }
        choose(&left, bytes, first)
    }

    /// Returns the pages of a window over these stretches, the first of which is mapped at `at`.
    pub(super) fn parts_of(&self, stretches: &[Stretch], at: Place, shards: &mut dyn Shards) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut offset = at.offset;
        for &Stretch { home, bytes } in stretches {
            shards.with(home.shard, |shard| {
                for (begin, page) in shard.pages_over(home.slot, home.offset, home.offset + bytes) {
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
    let (up, down) = shard.page_edges(home.slot, home.offset, end);
    Gap { home, end, up, down }
}

/// Returns what is left of a free block without the stretches that are taken, as beginnings and ends, or `None` if
/// nothing of it is taken.
fn without(home: Place, end: u64, taken: &[Stretch]) -> Option<Vec<(u64, u64)>> {
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
            left.push((from, begin));
        }
        from = behind;
    }
    Some(left)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use super::*;
    use crate::ids::{ShardId, Slot};

    /// Returns a gap at a home with pages of 10 bytes.
    fn gap(begin: u64, end: u64) -> Gap {
        let home = Place { shard: ShardId(0), slot: Slot(0), offset: begin };
        Gap { home, end, up: begin.next_multiple_of(10), down: (end / 10 * 10).max(begin) }
    }

    fn chosen(gaps: &[(u64, u64)], bytes: u64) -> (Vec<(u64, u64)>, u64) {
        chosen_from(gaps, bytes, First::Anywhere)
    }

    fn chosen_from(gaps: &[(u64, u64)], bytes: u64, first: First) -> (Vec<(u64, u64)>, u64) {
        let (stretches, left) =
            choose(&gaps.iter().map(|&(begin, end)| gap(begin, end)).collect::<Vec<_>>(), bytes, first);
        (stretches.iter().map(|stretch| (stretch.home.offset, stretch.bytes)).collect(), left)
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

    /// What is chosen of many is what a look at all of them before each choice finds.
    #[test]
    fn random_gaps_are_chosen_as_if_all_were_looked_at_each_time() {
        let mut random = millpond_trace::Random::new(3);
        for _ in 0..20_000 {
            let mut at = 0;
            let gaps: Vec<_> = (0..random.below(12))
                .map(|_| {
                    let begin = at + 1 + random.below(12);
                    at = begin + 1 + random.below(45);
                    gap(begin, at)
                })
                .collect();
            let bytes = 1 + random.below(150);
            let from = if random.below(3) == 0 { First::Page } else { First::Anywhere };
            let (mut expected, mut left, mut rest) = (Vec::new(), bytes, gaps.clone());
            if let Some(at) = longest_tail(&rest).filter(|_| from == First::Anywhere) {
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
            let (stretches, missing) = choose(&gaps, bytes, from);
            let stretches: Vec<_> = stretches.iter().map(|s| (s.home.offset, s.bytes)).collect();
            assert_eq!((stretches, missing), (expected, left), "{bytes} bytes of {gaps:?}, {from:?}");
        }
    }

    #[test]
    fn what_a_window_has_already_is_not_gathered_for_it() {
        let stretch = |shard, begin, end: u64| Stretch {
            home: Place { shard: ShardId(shard), slot: Slot(0), offset: begin },
            bytes: end - begin,
        };
        let taken = [stretch(0, 20, 25), stretch(0, 10, 14), stretch(1, 15, 18), stretch(0, 40, 50)];
        assert_eq!(without(gap(10, 30).home, 30, &taken), Some(vec![(14, 20), (25, 30)]));
        assert_eq!(without(gap(40, 50).home, 50, &taken), Some(vec![]));
        assert_eq!(without(gap(60, 70).home, 70, &taken), None);
    }
}
