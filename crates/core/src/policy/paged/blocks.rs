//! Free blocks that serve a request where they lie, without any page call.

use millpond_backend::Point;

use super::job::Job;
use super::tiles::{Taker, When};
use super::ways::Way;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::Side;
use crate::shard::{Shard, Tile};
use crate::size::Want;

/// The number of free blocks that a request looks at.
const LOOKS_MAX: usize = 32;

impl Coordinator {
    /// Serves a request from a free block of the large side. If only what is ready may be used: from any part of it,
    /// the shortest that the stream itself used last, or else the shortest of all. Behind waits: from the one that
    /// fits best, or from the one that is ready `soonest`, whose streams are fewest ticks behind. Looks at few blocks.
    pub(super) fn block_way(
        &mut self,
        want: &Want,
        (taker, latest): (Taker, When),
        soonest: bool,
        shards: &mut dyn Shards,
    ) -> Option<Way> {
        let tile = shards.with(taker.shard, |shard| {
            let tiles = shard.tiles_at_least(want.rounded).take(LOOKS_MAX);
            let mut parts = tiles.filter_map(|tile| self.first_part((taker, latest), shard, &tile, want.rounded));
            match latest {
                When::Now => parts.min_by_key(|part| (part.point.stream != taker.stream, part.end - part.begin)),
                _ if soonest => parts.min_by_key(|part| self.ticks_behind(taker, shard, part, want.rounded)),
                _ => parts.next(),
            }
        })?;
        Some(self.take(&tile, (Side::Large, want.rounded), taker, shards))
    }

    /// Returns by how many ticks another stream is behind with its use of the front of free memory, at most.
    fn ticks_behind(&self, taker: Taker, shard: &Shard, tile: &Tile, bytes: u64) -> u64 {
        let behind = |point: Point| match point.stream == taker.stream {
            true => 0,
            false => point.tick.0.saturating_sub(self.pending.reached(point.stream).0),
        };
        if !tile.is_marked {
            return behind(tile.point);
        }
        let parts = shard.guarded_parts_of(tile.slot, (tile.begin, tile.begin + bytes));
        parts.flat_map(|(part, _)| part.points.iter().map(behind)).max().unwrap_or(0)
    }

    /// Serves a small request from a part of a block of the small side that can be used at `latest`, or of a slab that
    /// can. Looks at few blocks.
    pub(super) fn small_way(&mut self, want: &Want, by: (Taker, When), shards: &mut dyn Shards) -> Option<Way> {
        let taker = by.0;
        let tile = shards.with(taker.shard, |shard| {
            let small = shard.small_tiles_at_least(want.rounded, taker.stream).take(LOOKS_MAX);
            self.small_part(want, by, shard, small.chain(shard.slabs().take(LOOKS_MAX)))
        })?;
        Some(self.take(&tile, (Side::Small, want.rounded), taker, shards))
    }

    /// Serves a small request from the slab of another stream, behind waits. Costs a look at each free small block that
    /// is long enough.
    pub(super) fn other_slab_way(&mut self, want: &Want, taker: Taker, shards: &mut dyn Shards) -> Option<Way> {
        let by = (taker, When::BehindWait);
        let tile = shards.with(taker.shard, |shard| {
            self.small_part(want, by, shard, shard.any_small_tiles_at_least(want.rounded))
        })?;
        Some(self.take(&tile, (Side::Small, want.rounded), taker, shards))
    }

    /// Returns the first part of some free blocks where a small block fits that a stream can use at `latest`.
    fn small_part(
        &self,
        want: &Want,
        by: (Taker, When),
        shard: &Shard,
        mut tiles: impl Iterator<Item = Tile>,
    ) -> Option<Tile> {
        let place = |tile: Tile, begin: u64, end: u64| {
            let at = match tile.side {
                Side::Small => (begin + want.rounded <= end).then_some(begin),
                Side::Large => shard.within_slab((tile.begin, tile.end), (begin, end), want.rounded),
            };
            at.map(|begin| Tile { begin, end, ..tile })
        };
        tiles.find_map(|tile| self.find_part(by, shard, &tile, |begin, end| place(tile, begin, end)))
    }

    /// Claims a part of free memory for a block of some bytes on a side.
    fn take(&mut self, tile: &Tile, block: (Side, u64), taker: Taker, shards: &mut dyn Shards) -> Way {
        let mut job = Job::new(taker, self.pending.reached(taker.stream));
        let is_claimed = self.claim_free(&mut job, tile, block, shards);
        if is_claimed { Way::Job(job) } else { Way::Spoiled(job) }
    }
}
