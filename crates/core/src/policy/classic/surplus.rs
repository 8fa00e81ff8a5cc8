//! What is reserved beyond the slack.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::coordinator::plan::Plan;
use crate::coordinator::sweep::claim_releasable;
use crate::coordinator::sweep::{Scope, Sweep};
use crate::coordinator::{Coordinator, Shards};
use crate::ids::Side;

impl Coordinator {
    /// Chooses whole idle segments, the largest first, until the segment that a request needs stays within the slack.
    pub(crate) fn sweep_surplus(&self, plan: &Plan, shards: &mut dyn Shards) -> Sweep {
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
        Sweep::waiting(chosen, Scope::Listed, 0)
    }
}
