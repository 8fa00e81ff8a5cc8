//! The choice between a new window and a longer one.

use alloc::vec::Vec;

use super::gather::{First, Gap};
use super::idle::{IdlePages, memory_of};
use super::kept::Stretch;
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
    /// The bytes of the pages that have to be mapped, without what is missing.
    pub(super) length: u64,
    /// The number of these pages.
    pub(super) pages: usize,
}

impl Gathered {
    /// Returns the memory that has to be mapped.
    pub(super) fn added(&self) -> &[Stretch] {
        &self.stretches[self.behind..]
    }
}

impl Coordinator {
    /// Gathers free memory for a request: in a new window or behind the last free bytes of a kept one, whichever needs
    /// less memory to be created, and of these what needs fewer pages to be mapped.
    pub(super) fn gather_best(
        &self,
        (taker, bytes): (Taker, u64),
        tiles: &Tiles,
        idle: Option<&IdlePages>,
        shards: &mut dyn Shards,
    ) -> Gathered {
        let shard = taker.shard;
        let gaps = self.gaps_of(tiles, shards);
        let alone = self.gather_for(shard, None, bytes, &gaps, shards);
        let cost = |gathered: &Gathered| {
            let created = self.created_for(gathered);
            (created, gathered.pages + self.page_sizes(Side::Large, created, taker).len())
        };
        // It has room for what is missing at least: what is gathered for it may need more.
        let longer = idle.and_then(|idle| self.longest_rear(shard, bytes, idle, shards));
        let longer = longer.and_then(|(rear, room)| {
            let longer = self.gather_for(shard, Some(rear), bytes, &gaps, shards);
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
        bytes: u64,
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
        let (added, missing) = self.gather(gaps, &stretches, (bytes - had, first), shards);
        let nowhere = Place { shard, slot: Slot(0), offset: 0 };
        let parts = self.parts_of(&added, nowhere, shards);
        let length = parts.iter().map(|part| part.bytes).sum();
        let behind = stretches.len();
        stretches.extend(added);
        Gathered { rear, stretches, behind, missing, length, pages: parts.len() }
    }

    /// Returns the bytes of pages that have to be created for what is missing.
    pub(super) fn created_for(&self, gathered: &Gathered) -> u64 {
        gathered.missing.next_multiple_of(sizes::least(self.granularity()))
    }
}
