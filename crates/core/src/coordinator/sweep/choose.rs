//! Everything cached, as what a sweep releases.

use alloc::vec::Vec;
use core::cmp::Reverse;

use millpond_backend::StreamId;

use super::{Scope, Sweep};
use crate::coordinator::plan::{Goal, Plan};
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{BlockId, PoolId, ShardId, Side};

impl Coordinator {
    /// Chooses everything cached: unsplit free segments and whole free pages, the large side first (PyTorch's
    /// `release_cached_blocks`). A trim takes the largest first and stops at its goal. Nothing of a held pool goes.
    pub(crate) fn sweep_all(&mut self, plan: &Plan, shards: &mut dyn Shards) -> Sweep {
        self.ranges.forget_refusals();
        let only = if let Goal::EmptyPool(pool) = plan.request.goal { Some(pool) } else { None };
        let concerns = |id| only.is_none_or(|pool| self.pool_of(id) == pool);
        let mut blocks = Vec::new();
        for side in [Side::Large, Side::Small] {
            for id in self.releasable_shards().filter(|&id| concerns(id)) {
                blocks.extend(claim_releasable(id, side, shards));
            }
        }
        let down_to = match plan.request.goal {
            Goal::Trim(bytes) => {
                blocks.sort_by_key(|&(id, block)| Reverse(shards.with(id, |shard| shard.size_of(block))));
                bytes
            }
            _ => 0,
        };
        // Spare pages have no home, and so belong to no pool.
        let has_spare = only.is_none() && self.pages.spare().next().is_some();
        Sweep::waiting(blocks, if has_spare { Scope::WithSpare } else { Scope::Listed }, down_to)
    }

    /// Chooses everything that private pools without references have cached, as far as it is idle; of pools in which a
    /// stream was captured only if `with_captured`, as no tick covers the last run of a graph. Also returns the streams
    /// that used it last, which are to be asked how far they are.
    pub(crate) fn sweep_pools_that_are_over(
        &self,
        with_captured: bool,
        shards: &mut dyn Shards,
    ) -> (Sweep, Vec<StreamId>) {
        let is_over = |id: &ShardId| {
            let pool = self.pool_of(*id);
            pool != PoolId::DEFAULT && (with_captured || !self.pools.was_captured(pool))
        };
        let over = self.releasable_shards().filter(is_over).flat_map(|id| Side::BOTH.map(|side| (id, side)));
        let sweep = Sweep::idle(over.flat_map(|(id, side)| claim_releasable(id, side, shards)).collect());
        let streams = self.last_uses(&sweep, shards).iter().map(|point| point.stream).collect();
        (sweep, streams)
    }
}

/// Claims every free block of a shard's side that is a whole segment or has whole pages inside it.
pub(crate) fn claim_releasable(id: ShardId, side: Side, shards: &mut dyn Shards) -> Vec<(ShardId, BlockId)> {
    let blocks = shards.with(id, |shard| shard.claim_releasable(side));
    blocks.into_iter().map(|block| (id, block)).collect()
}
