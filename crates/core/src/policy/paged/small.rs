//! Small requests for which nothing is left at home but what other streams may still use, or nothing at all.
//!
//! A home that grows by a slab whenever it has no small block that is ready would grow with the work in flight, and
//! with the number of streams. Once the slack is used up, a stream waits for the others instead, or borrows a block of
//! a slab of theirs, as it does for large blocks.

use super::job::Job;
use super::tiles::{Idle, Taker, When};
use super::ways::Way;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{ShardId, Side};
use crate::shard::{Shard, Tile};
use crate::size::Want;

/// The number of free blocks of another stream that a request looks at.
const LOOKS_MAX: usize = 16;

impl Coordinator {
    /// Serves a small request from a guarded block of its own side, or a guarded slab of its home.
    pub(super) fn guarded_way(&mut self, want: &Want, taker: Taker, shards: &mut dyn Shards) -> Option<Way> {
        if !self.guards() {
            return None;
        }
        let tile = shards.with(taker.shard, |shard| {
            let all = shard.small_tiles_at_least(want.rounded).chain(shard.slabs());
            self.first_usable(all, want, (taker, When::BehindWait), shard)
        })?;
        Some(self.small_way(want, (taker, taker.shard), &tile, shards))
    }

    /// Has another stream lend a small block: one that is free in a slab there, or of a block that has a slab.
    pub(super) fn small_loan(&mut self, want: &Want, taker: Taker, shards: &mut dyn Shards) -> Option<Way> {
        let by = (taker, When::BehindWait);
        let mut best: Option<(u64, Idle)> = None;
        for id in self.neighbours(taker.shard) {
            if let Some(tile) = shards.with(id, |shard| self.small_offer(want, by, shard)) {
                let size = tile.end - tile.begin;
                if best.is_none_or(|(least, _)| size < least) {
                    best = Some((size, Idle { shard: id, tile }));
                }
            }
        }
        let best = best.map(|(_, idle)| idle).or_else(|| self.slab_offer(want, by, shards));
        let Idle { shard, tile } = best?;
        Some(self.small_way(want, (taker, shard), &tile, shards))
    }

    /// Returns the part of a block that is free in a slab of another stream from which a small block can be lent at
    /// `latest`.
    pub(super) fn small_offer(&self, want: &Want, by: (Taker, When), home: &Shard) -> Option<Tile> {
        self.first_usable(home.small_tiles_at_least(want.rounded).take(LOOKS_MAX), want, by, home)
    }

    /// Returns the part of the first free block of another stream that has a slab from which a small block can be lent
    /// at `latest`.
    pub(super) fn slab_offer(&self, want: &Want, by: (Taker, When), shards: &mut dyn Shards) -> Option<Idle> {
        self.neighbours(by.0.shard).find_map(|id| {
            let usable = |shard: &mut Shard| self.first_usable(shard.slabs().take(LOOKS_MAX), want, by, shard);
            shards.with(id, usable).map(|tile| Idle { shard: id, tile })
        })
    }

    fn small_way(&mut self, want: &Want, (taker, home): (Taker, ShardId), tile: &Tile, shards: &mut dyn Shards) -> Way {
        let mut job = Job::new(self.pending.reached(taker.stream));
        let is_claimed = self.claim_small(&mut job, want, (taker, home), tile, shards);
        if is_claimed { Way::Job(job) } else { Way::Spoiled(job) }
    }

    /// Returns the first part of some free blocks of a home that has room for a small block which the taker can use at
    /// `latest`. A block may be guarded in part.
    fn first_usable(
        &self,
        mut tiles: impl Iterator<Item = Tile>,
        want: &Want,
        by: (Taker, When),
        home: &Shard,
    ) -> Option<Tile> {
        tiles.find_map(|tile| {
            self.find_part(by, home, &tile, |begin, end| {
                let at = match tile.side {
                    Side::Small => (begin + want.rounded <= end).then_some(begin),
                    Side::Large => home.within_slab((tile.begin, tile.end), (begin, end), want.rounded),
                };
                at.map(|begin| Tile { begin, end, ..tile })
            })
        })
    }
}
