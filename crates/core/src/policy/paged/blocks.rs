//! Free blocks that serve a large request where they lie, without any page call: of the own stream, or lent by another.

use alloc::vec::Vec;

use super::job::Job;
use super::tiles::{Idle, Taker, When};
use super::ways::Way;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{ShardId, Side};
use crate::size::Want;

impl Coordinator {
    /// Serves a request from a free block of its own stream that can be used at `latest`: other streams may still use
    /// it. Where that is now, any part of a block does that is ready.
    pub(super) fn own_way(&mut self, want: &Want, taker: Taker, latest: When, shards: &mut dyn Shards) -> Option<Way> {
        if !self.guards() {
            return None;
        }
        if latest == When::Now {
            let ready = self.shortest_ready([taker.shard].into_iter(), want, taker, shards)?;
            return Some(self.take(ready, want, taker, shards));
        }
        let tile = shards.with(taker.shard, |shard| {
            let mut tiles = shard.tiles_at_least(want.rounded);
            tiles.find_map(|tile| self.first_part((taker, latest), shard, &tile, want.rounded))
        })?;
        Some(self.take(Idle { shard: taker.shard, tile }, want, taker, shards))
    }

    /// Has another stream lend the one of some free blocks that fits best, behind a wait if need be. Another thread may
    /// have taken it since it was seen, which is found out when it is claimed.
    pub(super) fn loan(&mut self, want: &Want, offers: &[Idle], taker: Taker, shards: &mut dyn Shards) -> Option<Way> {
        let mut best: Option<(u64, Idle)> = None;
        for &Idle { shard: id, tile } in offers {
            let size = tile.end - tile.begin;
            if best.is_some_and(|(least, _)| size >= least) {
                continue;
            }
            let by = (taker, When::BehindWait);
            if let Some(tile) = shards.with(id, |shard| self.first_part(by, shard, &tile, want.rounded)) {
                best = Some((size, Idle { shard: id, tile }));
            }
        }
        let (_, idle) = best?;
        Some(self.take(idle, want, taker, shards))
    }

    /// Has another stream lend the part of a free block that is ready and fits best.
    pub(super) fn ready_loan(&mut self, want: &Want, taker: Taker, shards: &mut dyn Shards) -> Option<Way> {
        let ready = self.shortest_ready(self.neighbours(taker.shard), want, taker, shards)?;
        Some(self.take(ready, want, taker, shards))
    }

    /// Returns the shortest part of a free block of some shards that can be used now and is long enough.
    fn shortest_ready(
        &self,
        homes: impl Iterator<Item = ShardId>,
        want: &Want,
        taker: Taker,
        shards: &mut dyn Shards,
    ) -> Option<Idle> {
        let length = |idle: &Idle| idle.tile.end - idle.tile.begin;
        let mut best: Option<Idle> = None;
        for id in homes {
            let shortest = shards.with(id, |shard| {
                let mut ready = Vec::new();
                let tiles = shard.tiles_at_least(want.rounded);
                tiles.for_each(|tile| self.usable_parts((taker, When::Now), shard, &tile, &mut ready));
                ready.into_iter().filter(|part| length(part) >= want.rounded).min_by_key(length)
            });
            // Of equal ones the first.
            best = best.into_iter().chain(shortest).min_by_key(length);
        }
        best
    }

    /// Claims the front of free memory for a request.
    fn take(&mut self, idle: Idle, want: &Want, taker: Taker, shards: &mut dyn Shards) -> Way {
        let mut job = Job::new(self.pending.reached(taker.stream));
        if !self.claim_front(&mut job, idle, want.rounded, taker, shards) {
            return Way::Spoiled(job);
        }
        match idle.shard == taker.shard {
            true => Self::serve_here(&mut job),
            false => Self::lend_it(&mut job, Side::Large),
        }
        Way::Job(job)
    }
}
