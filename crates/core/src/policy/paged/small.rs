//! Small requests for which nothing is left but memory that other streams may still use.
//!
//! A home that grows by a slab whenever its small blocks are guarded would grow with the work in flight. Once the slack
//! is used up, a stream waits for the others instead, as it does for large blocks.

use alloc::vec::Vec;

use millpond_backend::Point;

use super::job::Job;
use super::tiles::{Taker, When};
use super::ways::Way;
use crate::coordinator::{Coordinator, Shards};
use crate::shard::Tile;
use crate::size::Want;

impl Coordinator {
    /// Serves a small request from a guarded block of its own side, or a guarded slab of its home.
    pub(super) fn guarded_way(&mut self, want: &Want, taker: Taker, shards: &mut impl Shards) -> Option<Way> {
        if !self.guards() {
            return None;
        }
        let blocks: Vec<_> = shards.with(taker.shard, |shard| shard.small_tiles_at_least(want.rounded).collect());
        if let Some(tile) = self.first_usable(blocks, taker, shards) {
            let mut job = Job::new(self.pending.reached(taker.stream));
            let is_claimed = self.claim_small(&mut job, taker, tile.block, shards);
            return Some(if is_claimed { Way::Job(job) } else { Way::Spoiled(job) });
        }
        let slabs: Vec<_> = shards.with(taker.shard, |shard| shard.slabs().collect());
        let tile = self.first_usable(slabs, taker, shards)?;
        let mut job = Job::new(self.pending.reached(taker.stream));
        let is_claimed = self.claim_slab(&mut job, taker, &tile, shards);
        Some(if is_claimed { Way::Job(job) } else { Way::Spoiled(job) })
    }

    /// Returns the first of some free blocks of the taker's own home that it can use, at the latest behind a wait.
    fn first_usable(&self, tiles: Vec<Tile>, taker: Taker, shards: &mut impl Shards) -> Option<Tile> {
        tiles.into_iter().find(|tile| {
            let until = Point { stream: taker.stream, tick: tile.last_use.tick() };
            self.when_free(taker, taker.shard, tile, until, shards) <= When::BehindWait
        })
    }
}
