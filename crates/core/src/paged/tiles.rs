//! The free memory of a home, when each part of it can be used, and free blocks that serve a request where they lie,
//! without any page call.

use alloc::vec::Vec;

use super::Pager;
use super::job::{Job, Target};
use super::taker::{Taker, When};
use super::ways::Way;
use crate::books::Points;
use crate::ids::{Place, Side};
use crate::looks;
use crate::memory::Tile;

/// The free blocks of a home, by slot and offset.
#[derive(Debug, Default)]
pub(crate) struct Tiles(Vec<Tile>);

impl Tiles {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Tile> {
        self.0.iter()
    }

    /// Returns the free block that has all of these bytes.
    pub(crate) fn around(&self, home: Place, bytes: u64) -> Option<&Tile> {
        let key = (home.slot, home.offset);
        let behind = self.0.partition_point(|tile| (tile.slot, tile.begin) <= key);
        let tile = self.0[..behind].last()?;
        (tile.slot == home.slot && home.offset + bytes <= tile.end).then_some(tile)
    }
}

/// The number of free blocks that a request looks at.
const LOOKS_MAX: usize = 32;

impl Pager<'_> {
    /// Returns the free memory at home that can be used at `latest`: free blocks, and the parts of those that cannot be
    /// used as a whole.
    pub(crate) fn tiles_of(&mut self, taker: Taker, latest: When) -> Tiles {
        let all = self.shards.with(taker.shard, |shard| {
            shard.memory.list_by_place();
            let tiles = shard.memory.tiles_by_place();
            let mut all = Vec::with_capacity(tiles.size_hint().1.unwrap_or(0));
            for tile in tiles {
                if !tile.is_marked && self.core.pending.is_reached(tile.point) {
                    all.push(tile);
                } else {
                    let keep = |begin, end| {
                        all.push(Tile { begin, end, ..tile });
                        None::<()>
                    };
                    taker.find_part(self.core, latest, shard, &tile, keep);
                }
            }
            all
        });
        looks::note(all.len());
        Tiles(all)
    }

    /// Serves a request from a free block of the large side. If only what is ready may be used: from any part of it,
    /// the shortest that the stream itself used last, or else the shortest of all. Behind waits: from the one that
    /// fits best, or from the one that is ready `soonest`, whose streams are fewest ticks behind. Looks at few blocks.
    pub(crate) fn block_way(&mut self, taker: Taker, latest: When, soonest: bool) -> Option<Way> {
        let want = taker.want;
        let tile = self.shards.with(taker.shard, |shard| {
            let tiles = shard.memory.tiles_at_least(want.rounded).take(LOOKS_MAX);
            let mut parts = tiles.filter_map(|tile| taker.first_part(self.core, latest, shard, &tile, want.rounded));
            match latest {
                When::Now => parts.min_by_key(|part| (part.point.stream != taker.by.stream, part.end - part.begin)),
                _ if soonest => parts.min_by_key(|part| taker.ticks_behind(self.core, shard, part, want.rounded)),
                _ => parts.next(),
            }
        })?;
        Some(self.take(&tile, (Side::Large, want.rounded), taker))
    }

    /// Serves a small request from a part of a block of the small side that can be used at `latest`, or of a slab that
    /// can. Looks at few blocks.
    pub(crate) fn small_way(&mut self, taker: Taker, latest: When) -> Option<Way> {
        let (taker, want) = (taker, taker.want);
        let tile = self.shards.with(taker.shard, |shard| {
            let small = shard.memory.small_tiles_at_least(want.rounded, taker.by.stream).take(LOOKS_MAX);
            taker.small_part(self.core, latest, shard, small.chain(shard.memory.slabs().take(LOOKS_MAX)))
        })?;
        Some(self.take(&tile, (Side::Small, want.rounded), taker))
    }

    /// Serves a small request from the slab of another stream, behind waits. Costs a look at each free small block that
    /// is long enough.
    pub(crate) fn other_slab_way(&mut self, taker: Taker) -> Option<Way> {
        let (latest, want) = (When::BehindWait, taker.want);
        let tile = self.shards.with(taker.shard, |shard| {
            taker.small_part(self.core, latest, shard, shard.memory.any_small_tiles_at_least(want.rounded))
        })?;
        Some(self.take(&tile, (Side::Small, want.rounded), taker))
    }

    /// Claims what the block that is handed out will have: some bytes at the front of a free block, or a small block in
    /// a slab, or in one that a free block of the large side has.
    fn take(&mut self, tile: &Tile, (side, bytes): (Side, u64), taker: Taker) -> Way {
        let mut job = Job::new(taker, self.core.pending.reached(taker.by.stream));
        job.target = Target::Free(side);
        let claimed = self.shards.with(taker.shard, |shard| match side {
            Side::Small => shard.memory.claim_small(tile, taker.by.stream),
            Side::Large => shard.memory.claim_part(tile, tile.begin, tile.begin + bytes),
        });
        let claimed = claimed.and_then(|claimed| self.keep_if_usable(&mut job, claimed));
        job.pieces.extend(claimed);
        if job.pieces.is_empty() { Way::Spoiled(job) } else { Way::Job(job) }
    }

    /// Returns for each stream the first point that freed memory waits for, whether inside its block or as the last use
    /// of memory that could be gathered, or as a guard. Leaves out what does not keep `taker` from using free memory,
    /// and held pools that are not the taker's, whose memory neither serves it nor goes back.
    pub(crate) fn oldest_points(&mut self, taker: Taker) -> Points {
        let mut points = Points::default();
        let lower = |points: &mut Points, point| {
            if !self.core.pending.is_reached(point) {
                points.min(point);
            }
        };
        self.core.pending.first().iter().for_each(|point| lower(&mut points, point));
        let granularity = self.core.granularity();
        let of = self.core.pool_of(taker.shard);
        for id in self.core.shard_ids().filter(|&id| self.core.pool_of(id) == of || self.core.may_release(id)) {
            self.shards.with(id, |shard| {
                shard.settling_from().into_iter().for_each(|point| lower(&mut points, point));
                let free = shard.memory.pools[Side::Large.index()]
                    .free
                    .iter_from(granularity)
                    .map(|block| shard.memory.blocks[block].last_point());
                for point in shard.memory.guards.points().chain(free) {
                    if taker.when(self.core, point) > When::Now {
                        lower(&mut points, point);
                    }
                }
            });
        }
        points
    }
}
