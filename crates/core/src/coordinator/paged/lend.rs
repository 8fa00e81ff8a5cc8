//! Free memory of one stream, lent to another as it is.
//!
//! Where a free block of another stream is large enough and the device is done with it, no page has to move: the block
//! is handed out where it lies. It stays its shard's: once freed, and once the stream that had it has come as far as it
//! was then, it is free there again. Small requests are not served so: their pages are few, and each is worth moving.
//! Nor is anything lent under `tight`: until the borrower's work is over, a block given back to its lender is of use to
//! nobody, not even behind a wait, and others would have to create memory meanwhile.

use alloc::vec::Vec;

use millpond_backend::{Point, Tick};

use crate::coordinator::plan::Plan;
use crate::coordinator::step::Step;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{ShardId, Side};
use crate::last_use::LastUse;
use crate::settings::Growth;
use crate::size::Want;

impl Coordinator {
    /// Serves a request from the best fit among the idle blocks of all other streams.
    pub(super) fn lend(
        &mut self,
        plan: &mut Plan,
        borrower: ShardId,
        want: Want,
        shards: &mut impl Shards,
    ) -> Option<Step> {
        if want.side == Side::Small || self.settings.growth == Growth::Tight {
            return None;
        }
        let mut best: Option<(u64, ShardId)> = None;
        for id in self.neighbours(borrower) {
            let offer = shards.with(id, |shard| {
                let block = &shard.blocks[shard.find(&want)?];
                Some((block.size, Point { stream: shard.stream, tick: block.last_use.tick() }))
            });
            match offer {
                Some((size, point)) if self.is_reached(point) && best.is_none_or(|(least, _)| size < least) => {
                    best = Some((size, id));
                }
                _ => {}
            }
        }
        let (_, lender) = best?;
        let (clock, stream) = (plan.clocks[want.side.index()], self.stream_of(borrower));
        let reached = self.reached[self.stream_of(lender).0 as usize];
        let grant = shards.with(lender, |shard| {
            // Another thread may have taken it, or freed one that is still in use.
            let found = shard.find(&want).filter(|&found| shard.blocks[found].last_use.tick() <= reached)?;
            let mut grant = shard.take(found, &want, clock);
            if !grant.last_use.is_never() {
                // It is over, which is all that the borrower has to know: the tick is one of the lender's stream.
                grant.last_use = LastUse::at(Tick::ZERO);
            }
            shard.record_stream(grant.block, stream);
            shard.note_lent(&grant);
            Some(grant)
        })?;
        self.paging.stats.lent += 1;
        let grant = self.settled(lender, grant, shards);
        Some(Step::Lend { lender, grant })
    }

    /// The other shards of the same private pool.
    pub(super) fn neighbours(&self, shard: ShardId) -> impl Iterator<Item = ShardId> + use<> {
        let pool = self.shards[shard.0 as usize].1;
        let same: Vec<_> = self.shard_ids().filter(|&id| id != shard && self.shards[id.0 as usize].1 == pool).collect();
        same.into_iter()
    }
}
