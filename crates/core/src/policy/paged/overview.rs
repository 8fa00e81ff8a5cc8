//! What an attempt has to know of all streams, from one visit of each: a visit takes a lock.

use super::Growth;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::ShardId;

/// What an attempt sees of the streams when it begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overview {
    /// The bytes live in the pool of the request.
    pub(super) live_bytes: u64,
    /// The number of blocks that were freed so far, in all pools.
    pub(super) frees: u64,
    /// Whether the device still uses free memory of the pool that another stream would have to wait for.
    pub(super) is_behind: bool,
}

impl Coordinator {
    /// Forgets the guards that are over, and returns what the streams look like then, for a request of a shard.
    pub(super) fn overview(&self, of: ShardId, shards: &mut impl Shards) -> Overview {
        let pool = self.pool_of(of);
        let asks = self.paging.growth == Growth::Balanced;
        let mut all = Overview { is_behind: asks && self.pending.waiters() > 0, ..Overview::default() };
        for id in self.shard_ids() {
            let survey = shards.with(id, |shard| shard.survey(|point| self.is_over(point)));
            all.frees += survey.frees;
            if self.pool_of(id) == pool {
                all.live_bytes += survey.live_bytes;
                all.is_behind |= asks && (survey.is_guarded || (id != of && survey.is_in_use));
            }
        }
        all
    }
}
