//! The gathering of free memory for a window: [`pieces`] chooses which pieces of several homes follow each other there.

use alloc::vec::Vec;

use super::kept::Stretch;
use super::pieces::{self, Aim, Chosen, First, Gap};
use super::sizes;
use super::tiles::Tiles;
use crate::books::Part;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{Place, ShardId};
use crate::shard::{Shard, Tile};

impl Coordinator {
    /// Returns the free blocks of a home with the edges of the pages in them.
    pub(super) fn gaps_of(&self, id: ShardId, tiles: &Tiles, shards: &mut dyn Shards) -> Vec<Gap> {
        let gap = |shard: &Shard, tile: &Tile| {
            let (up, down) = shard.edges_of(tile);
            let home = Place { shard: id, slot: tile.slot, offset: tile.begin };
            Gap { home, end: tile.end, up, down }
        };
        shards.with(id, |shard| tiles.iter().map(|tile| gap(shard, tile)).collect())
    }

    /// Chooses free memory for a window, without what is in `taken`.
    pub(super) fn gather(
        &self,
        gaps: &[Gap],
        taken: &[Stretch],
        (bytes, how): (u64, (First, Aim)),
        shards: &mut dyn Shards,
    ) -> Chosen {
        let unit = sizes::least(self.granularity());
        if taken.is_empty() {
            return pieces::choose(gaps, bytes, how, unit);
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
        pieces::choose(&left, bytes, how, unit)
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

    #[test]
    fn what_a_window_has_already_is_not_gathered_for_it() {
        let at = |shard, offset| Place { shard: ShardId(shard), slot: Slot(0), offset };
        let stretch = |shard, begin, end: u64| Stretch { home: at(shard, begin), bytes: end - begin };
        let place = |offset| at(0, offset);
        let taken = [stretch(0, 20, 25), stretch(0, 10, 14), stretch(1, 15, 18), stretch(0, 40, 50)];
        assert_eq!(without(place(10), 30, &taken), Some(vec![(14, 20), (25, 30)]));
        assert_eq!(without(place(40), 50, &taken), Some(vec![]));
        assert_eq!(without(place(60), 70, &taken), None);
    }
}
