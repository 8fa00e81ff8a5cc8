//! What an attempt has to know of all streams, from one visit of each: a visit takes a lock.

use alloc::vec::Vec;

use super::Growth;
use super::tiles::Idle;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{ShardId, Side};
use crate::size::Want;

/// What an attempt sees of the streams when it begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Overview {
    /// The bytes live in the pool of the request.
    pub(super) live_bytes: u64,
    /// The number of blocks that were freed so far, in all pools.
    pub(super) frees: u64,
    /// Whether the device still uses free memory of the pool that another stream would have to wait for.
    pub(super) is_behind: bool,
    /// Of each other stream of the pool the free block of the large side that fits the request best.
    pub(super) offers: Vec<Idle>,
}

impl Coordinator {
    /// Forgets the guards that are over, and returns what the streams look like then, for a request of a shard.
    pub(super) fn overview(&mut self, of: ShardId, want: &Want, shards: &mut dyn Shards) -> Overview {
        let pool = self.pool_of(of);
        let asks = self.paging.growth == Growth::Balanced;
        let large = Want { side: Side::Large, ..*want };
        let mut all = Overview { is_behind: asks && self.pending.waiters() > 0, ..Overview::default() };
        for id in self.shard_ids() {
            let is_in_pool = self.pool_of(id) == pool;
            let (survey, offer) = shards.with(id, |shard| {
                let survey = shard.survey(|point| self.is_over(point), |point| self.pending.is_behind(point));
                let offer = if is_in_pool && id != of { shard.best_tile(&large) } else { None };
                (survey, offer)
            });
            if survey.is_guarded {
                self.paging.goes_past.insert(self.pool_of(id));
            }
            all.frees += survey.frees;
            all.offers.extend(offer.map(|tile| Idle { shard: id, tile }));
            if is_in_pool {
                all.live_bytes += survey.live_bytes;
                all.is_behind |= asks && (survey.is_guarded || (id != of && survey.is_in_use));
            }
        }
        all
    }
}
