//! The loan of a free block of one stream to another, without moving a page.
//!
//! Where a free block of another stream is large enough and the device no longer uses it, no page has to move: the
//! block is handed out where it lies. It still belongs to its shard. Once it is freed, and the stream that borrowed it
//! has reached the point of that free, it is a free block there again. Small requests are not served this way: they
//! need few pages, and each is worth moving. Under `tight` nothing is lent either: until the borrower's work is over,
//! no stream can use a block that was given back to its lender, not even behind a wait, and others would have to create
//! memory meanwhile.

use alloc::vec::Vec;

use super::Growth;
use crate::coordinator::plan::Plan;
use crate::coordinator::step::Step;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{ShardId, Side};
use crate::size::Want;

impl Coordinator {
    /// Serves a request from the best fit among the idle blocks of all other streams.
    pub(super) fn lend(
        &mut self,
        plan: &Plan,
        borrower: ShardId,
        want: Want,
        shards: &mut impl Shards,
    ) -> Option<Step> {
        if want.side == Side::Small || self.paging.growth == Growth::Tight {
            return None;
        }
        let mut best: Option<(u64, ShardId)> = None;
        for id in self.neighbours(borrower) {
            match shards.with(id, |shard| shard.offer(&want)) {
                Some((size, point)) if self.pending.is_reached(point) && best.is_none_or(|(least, _)| size < least) => {
                    best = Some((size, id));
                }
                _ => {}
            }
        }
        let (_, lender) = best?;
        let (clock, stream) = (plan.request.clock(), self.stream_of(borrower));
        let reached = self.pending.reached(self.stream_of(lender));
        let grant = shards.with(lender, |shard| shard.lend(&want, reached, clock, stream))?;
        self.paging.stats.lent += 1;
        let grant = self.settled(lender, grant, shards);
        Some(Step::Lend { lender, grant })
    }

    /// Returns the other shards of the same private pool.
    pub(super) fn neighbours(&self, shard: ShardId) -> impl Iterator<Item = ShardId> + use<> {
        let same = |id: &ShardId| *id != shard && self.pool_of(*id) == self.pool_of(shard);
        let neighbours: Vec<_> = self.shard_ids().filter(same).collect();
        neighbours.into_iter()
    }
}
