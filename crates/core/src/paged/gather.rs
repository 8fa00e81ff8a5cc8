//! The gathering of free memory for a window, new or longer: [`pieces`] chooses which pieces of the home follow each
//! other there.

use alloc::vec::Vec;
use core::ops::Range;

use super::Pager;
use super::idle::{IdlePages, memory_of};
use super::pieces::{self, Aim, Chosen, First, Gap};
use super::taker::{Stretch, Taker, Tiles};
use crate::books::Part;
use crate::ids::{Place, ShardId, Side, Slot, WindowId};
use crate::memory::{Edges, Tile};
use crate::shard::Shard;

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
    pub(crate) fn gaps_of(&mut self, id: ShardId, tiles: &Tiles) -> Vec<Gap> {
        let gap = |shard: &Shard, tile: &Tile| {
            let Edges { up, down } = shard.memory.edges_of(tile);
            let home = Place { shard: id, slot: tile.slot, offset: tile.begin };
            Gap { home, end: tile.end, up, down }
        };
        self.shards.with(id, |shard| tiles.iter().map(|tile| gap(shard, tile)).collect())
    }

    /// Chooses free memory for a window, without what is in `taken`.
    pub(crate) fn gather(&mut self, gaps: &[Gap], taken: &[Stretch], bytes: u64, first: First, aim: Aim) -> Chosen {
        let unit = self.core.paging.governor.page_unit();
        if taken.is_empty() {
            return pieces::choose(gaps, bytes, first, aim, unit);
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
        pieces::choose(&left, bytes, first, aim, unit)
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
        assert_eq!(without(place(10), 30, &taken), Some(vec![14..20, 25..30]));
        assert_eq!(without(place(40), 50, &taken), Some(vec![]));
        assert_eq!(without(place(60), 70, &taken), None);
    }
}
