//! What policies give back while they take more: PyTorch's garbage and its oversize segments, what is reserved beyond
//! the slack, and what is idle.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::coordinator::phase::Turned;
use crate::coordinator::plan::Plan;
use crate::coordinator::step::Step;
use crate::coordinator::sweep::{Sweep, claim_releasable};
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{BlockId, PoolId, ShardId, Side};
use crate::policy::ladder::Rung;

impl Coordinator {
    /// Chooses PyTorch's garbage: in passes, every unsplit free block of the large side that is at least as old as the
    /// mean of those left; a pass is finished even when the goal is reached within it. Only the default pool has
    /// garbage.
    pub(super) fn sweep_garbage(&self, plan: &Plan, shards: &mut dyn Shards) -> Sweep {
        let excess = self.gc_goal().map_or(0, |goal| self.reserved_bytes().saturating_sub(goal));
        if excess == 0 {
            return Sweep::waiting(Vec::new());
        }
        let now = plan.request.clocks[Side::Large.index()];
        // (age, bytes, shard, block)
        let mut left: Vec<(u64, u64, ShardId, BlockId)> = Vec::new();
        for id in self.shards_of(PoolId::DEFAULT) {
            shards.with(id, |shard| left.extend(shard.garbage(now).map(|(age, bytes, block)| (age, bytes, id, block))));
        }
        let mut chosen = Vec::new();
        let mut freed = 0;
        while freed < excess && !left.is_empty() {
            let (sum, count) = (left.iter().map(|row| u128::from(row.0)).sum::<u128>(), left.len() as u128);
            // age >= sum / count, without a division. The mean is fixed for the pass.
            left.retain(|&(age, bytes, id, block)| {
                let stays = u128::from(age) * count < sum;
                if !stays {
                    freed += bytes;
                    chosen.push((id, block));
                }
                stays
            });
        }
        // Between two looks at a shard another thread may have taken a block: that one is in use, and stays.
        chosen.retain(|&(id, block)| shards.with(id, |shard| shard.claim_garbage(block)));
        Sweep::waiting(chosen)
    }

    /// Chooses what PyTorch's `release_available_cached_blocks` releases for a request. Returns also whether that is
    /// enough. Nothing of a held pool is released.
    pub(super) fn sweep_oversize(&self, plan: &Plan, shards: &mut dyn Shards) -> (Sweep, bool) {
        let (id, want) = plan.request.allocation();
        if !self.may_release(id) {
            return (Sweep::waiting(Vec::new()), false);
        }
        let max_split = self.settings_in(self.pool_of(id)).max_split();
        let (blocks, enough) = shards.with(id, |shard| shard.claim_oversize(&want, max_split));
        let blocks = blocks.into_iter().map(|block| (id, block)).collect();
        (Sweep::waiting(blocks), enough)
    }

    /// Chooses whole idle segments, the largest first, until the segment that a request needs stays within the slack.
    pub(super) fn sweep_surplus(&self, plan: &Plan, shards: &mut dyn Shards) -> Sweep {
        let (of, want) = plan.request.allocation();
        let bytes = self.segment_for(of, &want, shards).0;
        let (mut bound, mut idle) = (0_u64, Vec::new());
        for id in self.shard_ids() {
            bound = bound.saturating_add(shards.with(id, |shard| shard.snug_bound((id == of).then_some(&want))));
            if self.may_release(id) && !self.has_source(self.pool_of(id)) {
                idle.append(&mut claim_releasable(id, Side::Large, shards));
            }
        }
        let mut sized: Vec<_> =
            idle.into_iter().map(|(id, block)| (shards.with(id, |s| s.size_of(block)), id, block)).collect();
        sized.sort_by_key(|&(size, ..)| Reverse(size));
        let reserved = self.headroom.with_asked() - self.pools.reserved_from_sources();
        let mut excess = (reserved + bytes).saturating_sub(bound);
        let mut chosen = Vec::new();
        for (size, id, block) in sized {
            if excess > 0 {
                chosen.push((id, block));
            } else {
                shards.with(id, |shard| shard.unclaim(block, plan.request.clocks));
            }
            excess = excess.saturating_sub(size);
        }
        Sweep::waiting(chosen)
    }

    /// Releases everything that could go, of which what is still in use stays, once its streams were asked how far they
    /// are: what `direct` gives back before it takes more, but for held pools.
    pub(super) fn release_idle(&mut self, next: Rung, shards: &mut dyn Shards) -> Turned {
        let holders: Vec<_> =
            self.releasable_shards().filter(|&id| shards.with(id, |shard| shard.has_free())).collect();
        if holders.is_empty() {
            return next.turn();
        }
        let each = holders.iter().flat_map(|&id| Side::BOTH.map(|side| (id, side)));
        let blocks = each.flat_map(|(id, side)| claim_releasable(id, side, shards)).collect();
        let mut streams = Vec::new();
        for stream in holders.into_iter().map(|id| self.stream_of(id)) {
            if !streams.contains(&stream) {
                streams.push(stream);
            }
        }
        Sweep::idle(blocks).then(next).after(Step::Poll(streams))
    }
}
