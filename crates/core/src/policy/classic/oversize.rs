//! PyTorch's release of oversize segments for an oversize request.

use alloc::vec::Vec;

use crate::coordinator::plan::Plan;
use crate::coordinator::sweep::{Scope, Sweep};
use crate::coordinator::{Coordinator, Shards};

impl Coordinator {
    /// Chooses what PyTorch's `release_available_cached_blocks` releases for a request. Returns also whether that is
    /// enough. Nothing of a held pool is released.
    pub(crate) fn sweep_oversize(&self, plan: &Plan, shards: &mut dyn Shards) -> (Sweep, bool) {
        let (id, want) = plan.request.allocation();
        if !self.may_release(id) {
            return (Sweep::waiting(Vec::new(), Scope::Listed, 0), false);
        }
        let max_split = self.settings_in(self.pool_of(id)).max_split();
        let (blocks, enough) = shards.with(id, |shard| shard.claim_oversize(&want, max_split));
        let blocks = blocks.into_iter().map(|block| (id, block)).collect();
        (Sweep::waiting(blocks, Scope::Listed, 0), enough)
    }
}
