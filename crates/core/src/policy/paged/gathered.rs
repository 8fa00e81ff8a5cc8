//! The choice between a new window and a longer one.

use alloc::vec::Vec;

use super::idle::{IdlePages, memory_of};
use super::kept::Stretch;
use super::pieces::{Aim, Chosen, First, Gap};
use super::sizes;
use super::tiles::{Taker, Tiles};
use crate::books::WindowId;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{Place, ShardId, Side, Slot};

/// Free memory for a window, or to lengthen one.
#[derive(Debug)]
pub(super) struct Gathered {
    /// The window that is lengthened, if one is, and the number of its last bytes that are free.
    pub(super) rear: Option<(WindowId, u64)>,
    /// The memory in order of addresses, that of the rear first.
    pub(super) stretches: Vec<Stretch>,
    /// The number of stretches of the rear.
    behind: usize,
    /// The bytes that are missing.
    pub(super) missing: u64,
    /// Whether new pages for them come in front of the last stretch, and not behind it.
    pub(super) is_last_behind: bool,
    /// The bytes of the pages that have to be mapped, without what is missing.
    pub(super) length: u64,
    /// The number of these pages.
    pub(super) pages: usize,
}

impl Gathered {
    /// Returns the memory that has to be mapped in front of new pages, and behind them.
    pub(super) fn added(&self) -> (&[Stretch], &[Stretch]) {
        let last = self.stretches.len() - usize::from(self.is_last_behind);
        (&self.stretches[self.behind..last], &self.stretches[last..])
    }
}

impl Coordinator {
    /// Gathers free memory for a request: in a new window or behind the last free bytes of a kept one, whichever needs
    /// less memory to be created, and of these what needs fewer pages to be mapped. Where more would be created for it
    /// than before anything is gathered, it is chosen so that little is missing.
    pub(super) fn gather_best(
        &self,
        (taker, bytes): (Taker, u64),
        tiles: &Tiles,
        idle: Option<&IdlePages>,
        shards: &mut dyn Shards,
    ) -> Gathered {
        let shard = taker.shard;
        let gaps = self.gaps_of(shard, tiles, shards);
        let mut aim = Aim::FewPages;
        let mut alone = self.gather_for(shard, None, (bytes, aim), &gaps, shards);
        if alone.missing > 0 && self.reserved_for(shard) + self.created_for(&alone) > taker.creates_up_to {
            aim = Aim::LittleMissing;
            alone = self.gather_for(shard, None, (bytes, aim), &gaps, shards);
        }
        let cost = |gathered: &Gathered| {
            let created = self.created_for(gathered);
            (created, gathered.pages + self.page_sizes(Side::Large, created).len())
        };
        // It has room for what is missing at least: what is gathered for it may need more.
        let longer = idle.and_then(|idle| self.longest_rear(shard, bytes, idle, shards));
        let longer = longer.and_then(|(rear, room)| {
            let longer = self.gather_for(shard, Some(rear), (bytes, aim), &gaps, shards);
            (longer.length + self.created_for(&longer) <= room).then_some(longer)
        });
        match longer {
            Some(longer) if cost(&longer) <= cost(&alone) => longer,
            _ => alone,
        }
    }

    fn gather_for(
        &self,
        shard: ShardId,
        rear: Option<(WindowId, u64)>,
        (bytes, aim): (u64, Aim),
        gaps: &[Gap],
        shards: &mut dyn Shards,
    ) -> Gathered {
        let (had, mut stretches, first) = match rear {
            Some((id, had)) => {
                let window = &self.paging.windows[id];
                (had, memory_of(window, window.end() - had, had), First::Page)
            }
            None => (0, Vec::new(), First::Anywhere),
        };
        let chosen = self.gather(gaps, &stretches, (bytes - had, (first, aim)), shards);
        let Chosen { stretches: added, missing, is_last_behind } = chosen;
        let nowhere = Place { shard, slot: Slot(0), offset: 0 };
        let parts = self.parts_of(&added, nowhere, shards);
        let length = parts.iter().map(|part| part.bytes).sum();
        let behind = stretches.len();
        stretches.extend(added);
        Gathered { rear, stretches, behind, missing, is_last_behind, length, pages: parts.len() }
    }

    /// Returns the bytes of pages that have to be created for what is missing.
    pub(super) fn created_for(&self, gathered: &Gathered) -> u64 {
        gathered.missing.next_multiple_of(sizes::least(self.granularity()))
    }
}
