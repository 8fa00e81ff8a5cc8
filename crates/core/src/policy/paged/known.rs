//! Loans of memory that is known to be ready, without a question.
//!
//! To ask all streams how far they are takes several driver calls for each stream that has work. Where the place of a
//! request would be the same whatever they answered, and the memory there is known to be ready by what was seen of them
//! before, or by the order of the requesting stream's own work, no question is needed. That holds for most loans: what
//! is free was often freed before the streams were asked last, or was borrowed by the same stream before.

use millpond_backend::Point;

use super::Growth;
use super::climb::Climb;
use super::order::{Claimed, Order};
use super::sizes;
use super::tiles::{Idle, Taker, When};
use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::plan::Plan;
use crate::coordinator::step::Step;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::Side;
use crate::shard::{Shard, Tile};
use crate::size::Want;

/// What a request sees of the other streams of its pool.
#[derive(Debug, Default)]
struct Elsewhere {
    /// The bytes live in the pool.
    live_bytes: u64,
    /// The free block that fits best. For a small request it lies in a slab.
    best: Option<Idle>,
}

impl Coordinator {
    /// Has another stream lend a free block before any stream is asked how far it is. It is the block that would be
    /// lent if all of them were done: the requesting stream has none that it could get once others are done with it,
    /// its home may not grow, and the block is known to be ready.
    pub(super) fn lend_known(&mut self, climb: &Climb, plan: &Plan, shards: &mut dyn Shards) -> Option<Turned> {
        let (shard, want) = plan.request.allocation();
        let may_lend = self.guards() && self.pending.waiters() == 0 && !self.pending.has_captures();
        if !may_lend || (self.paging.growth == Growth::Balanced && self.paging.pace.had_better_ask()) {
            return None;
        }
        let taker = self.taker(climb, plan);
        let elsewhere = self.look_elsewhere(taker, &want, shards)?;
        let high = self.high_live(shard, &want, elsewhere.live_bytes);
        let room = self.room(&climb.knows, plan);
        let left = self.paging.slack.eager(high).saturating_sub(self.reserved_for(shard)).min(room);
        if left >= sizes::least(self.granularity()) {
            return None;
        }
        let (idle, bytes) = match want.side {
            Side::Large => (elsewhere.best?, want.rounded),
            Side::Small => {
                let idle = elsewhere.best.or_else(|| self.slab_offer(&want, (taker, When::Later), shards))?;
                (idle, idle.tile.end - idle.tile.begin)
            }
        };
        self.lend_ready((idle, bytes), taker, plan, shards)
    }

    /// Has a stream lend the front of a free block, if this number of bytes of it are known to be ready. All of that is
    /// one visit of the lender: most requests that miss are served here.
    fn lend_ready(
        &mut self,
        (Idle { shard: lender, tile }, bytes): (Idle, u64),
        taker: Taker,
        plan: &Plan,
        shards: &mut dyn Shards,
    ) -> Option<Turned> {
        let (shard, want) = plan.request.allocation();
        let mut order = Order::behind(self.pending.reached(taker.stream));
        let grant = shards.with(lender, |home| {
            if !self.is_known(home, &tile, bytes, taker) {
                return None;
            }
            let (block, last_use, guards) = match want.side {
                Side::Large => home.claim_part(&tile, tile.begin, tile.begin + want.rounded),
                Side::Small => home.claim_small(&tile, want.rounded),
            }?;
            let until = Point { stream: home.stream(), tick: last_use.tick() };
            self.wait_for(&mut order, taker.stream, guards.iter().chain([until]));
            assert!(order.waits.is_empty(), "{tile:?} is known to be ready, but for {:?}", order.waits);
            let claimed = Claimed { shard: lender, block, last_use, guards };
            let last_use = self.last_use_of(&[claimed], order.covered, shard);
            Some(home.serve_to(block, &want, plan.request.clock(), (taker.stream, last_use)))
        })?;
        if self.pools.has_private() {
            let live = self.live_in_pool(shard, shards);
            self.note_live(shard, live);
        }
        self.note_loan(lender, shard, shards);
        let grant = self.settled(lender, grant, shards);
        Some(Phase::end(Step::Lend { lender, grant }))
    }

    /// Looks once at each stream of the taker's pool. Returns `None` if the taker has free memory of its own for the
    /// request.
    fn look_elsewhere(&self, taker: Taker, want: &Want, shards: &mut dyn Shards) -> Option<Elsewhere> {
        let is_small = want.side == Side::Small;
        let mut all = Elsewhere::default();
        let has_own = shards.with(taker.shard, |own| {
            let has_own = own.has_free_for(want);
            if !has_own {
                all.live_bytes += own.live_bytes();
            }
            has_own
        });
        if has_own {
            return None;
        }
        let mut least = u64::MAX;
        for id in self.neighbours(taker.shard) {
            shards.visit(id, &mut |shard| {
                all.live_bytes += shard.live_bytes();
                // Whether a stream could wait for it now has no part in the choice: on another device it could.
                let later = (taker, When::Later);
                let tile = if is_small { self.small_offer(want, later, shard) } else { shard.best_tile(want) };
                if let Some(tile) = tile.filter(|tile| tile.end - tile.begin < least) {
                    least = tile.end - tile.begin;
                    all.best = Some(Idle { shard: id, tile });
                }
            });
        }
        Some(all)
    }

    /// Returns whether this number of bytes at the front of a free block are known to be ready for a stream.
    fn is_known(&self, lender: &Shard, tile: &Tile, bytes: u64, taker: Taker) -> bool {
        let is_ready = |tick| self.when(taker, Point { stream: lender.stream(), tick }) == When::Now;
        let is_plain_ready = is_ready(tile.last_use.tick());
        if !tile.is_marked {
            return is_plain_ready;
        }
        let (begin, end) = (tile.begin, tile.begin + bytes);
        let mut guarded = 0;
        let all_ready = lender.guarded_parts_in(tile.slot, (begin, end)).all(|part| {
            guarded += part.end.min(end) - part.begin.max(begin);
            is_ready(part.last_use.tick()) && part.points.iter().all(|point| self.when(taker, point) == When::Now)
        });
        all_ready && (is_plain_ready || guarded == bytes)
    }
}
