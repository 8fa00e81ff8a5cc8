//! The loan of a free block of one stream to another, without moving a page.
//!
//! Where a free block of another stream is large enough and the device no longer uses it, no page has to move: the
//! block is handed out where it lies. It still belongs to its shard. Once it is freed, and the stream that borrowed it
//! has reached the point of that free, it is a free block there again. Small requests are not served this way: they
//! need few pages, and each is worth moving. Under `tight` nothing is lent either: until the borrower's work is over,
//! no stream can use a block that was given back to its lender, not even behind a wait, and others would have to create
//! memory meanwhile.

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
            // Another thread may have taken the block that was seen, or freed one that the device still uses.
            let found = shard.find(&want).filter(|&found| shard.blocks[found].last_use.tick() <= reached)?;
            let mut grant = shard.take(found, &want, clock);
            if !grant.last_use.is_never() {
                // Its last use is over, which is all that the borrower needs. The tick itself is one of the lender's
                // stream.
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

    /// Returns the other shards of the same private pool.
    pub(super) fn neighbours(&self, shard: ShardId) -> impl Iterator<Item = ShardId> + use<> {
        let pool = self.shards[shard.0 as usize].1;
        let same: Vec<_> = self.shard_ids().filter(|&id| id != shard && self.shards[id.0 as usize].1 == pool).collect();
        same.into_iter()
    }
}
