//! PyTorch's garbage collection.

use alloc::vec::Vec;

use crate::coordinator::plan::Plan;
use crate::coordinator::sweep::{Scope, Sweep};
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{BlockId, PoolId, ShardId, Side};

impl Coordinator {
    /// Chooses PyTorch's garbage: in passes, every unsplit free block of the large side that is at least as old as the
    /// mean of those left; a pass is finished even when the goal is reached within it. Only the default pool has
    /// garbage.
    pub(crate) fn sweep_garbage(&self, plan: &Plan, shards: &mut dyn Shards) -> Option<Sweep> {
        let excess = self.reserved_bytes().checked_sub(self.gc_goal()?).filter(|&excess| excess > 0)?;
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
        Some(Sweep::waiting(chosen, Scope::Listed, 0))
    }
}
