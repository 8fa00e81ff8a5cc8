//! How a plan climbs its ladder: what it does on each [rung](super::rung).

use alloc::boxed::Box;

use millpond_backend::Reuse;

use super::Run;
use super::Times;
use super::rung::{Attempt, Rung};
use crate::ids::PoolId;
use crate::plan::phase::{Phase, Turned};
use crate::plan::step::Step;
use crate::plan::{Allowance, Goal};
use crate::policy::{Backing, Policy, Segments};
use crate::shard::Grant;
use alloc::vec::Vec;

impl Run<'_> {
    /// Returns the first rung of a plan, which is told which ladder it climbs.
    pub(crate) fn first_rung(&mut self) -> Rung {
        match self.plan.request.goal {
            Goal::Allocate(shard, _) => {
                self.plan.gathers = self.core.backing_of(shard) == Backing::Pages;
                Rung::Search
            }
            Goal::EmptyCache | Goal::EmptyPool(_) | Goal::Trim(_) => Rung::FlushAll,
            Goal::Reclaim => Rung::Idle,
        }
    }

    /// Climbs one rung.
    pub(crate) fn climb(&mut self, rung: Rung) -> Turned {
        let (gathers, next) = (self.plan.gathers, rung.next(self.plan.gathers));
        match rung {
            Rung::Search if gathers && self.is_as_missed() => next.turn(),
            Rung::Search => self.search(next),
            Rung::Collect => self.collect(next),
            Rung::Grow(_) if !gathers => self.grow(rung),
            Rung::Refused(Attempt::Last) if !gathers && self.has_second_round() => Rung::Flush.turn(),
            Rung::Refused(Attempt::First) if !gathers => self.find_in_other_pools().unwrap_or_else(|| next.turn()),
            Rung::Refused(_) if !gathers => next.turn(),
            Rung::Grow(_) | Rung::Refused(_) | Rung::Oldest => self.climb_pages(rung),
            Rung::LookAgain => {
                self.core.retire(self.plan.request.clocks, self.shards);
                self.plan.knows.times = Times::Unasked;
                self.search(next)
            }
            Rung::Turn => {
                let has_oversize = self.core.settings.max_split_bytes.is_some();
                let last = if gathers || has_oversize { next } else { Rung::Flush };
                self.wait_for_turn(last)
            }
            Rung::Oversize => {
                let (sweep, enough) = self.sweep_oversize();
                sweep.then(if enough { next } else { Rung::Flush }).turn()
            }
            Rung::Flush => self.flush(next),
            Rung::SearchAgain => {
                self.core.retire(self.plan.request.clocks, self.shards);
                if self.core.settings.search_after_wait { self.search(next) } else { next.turn() }
            }
            Rung::Release => {
                let sweep = self.sweep_all();
                self.core.scalars.num_alloc_retries += 1;
                sweep.then(next).turn()
            }
            Rung::Refuse => self.refuse(),
            Rung::Idle => self.release_idle(next),
            Rung::FlushAll => match self.plan.request.goal {
                Goal::EmptyPool(pool) if self.core.pools.is_held(pool) => Rung::Done.turn(),
                _ => self.flush(next),
            },
            Rung::ReleaseAll => {
                self.core.retire(self.plan.request.clocks, self.shards);
                if self.plan.request.goal == Goal::EmptyCache {
                    self.core.begin_anew(self.shards);
                }
                self.sweep_all().then(next).turn()
            }
            Rung::Done => Phase::Over.turn(),
        }
    }

    /// Looks for a free block once more: others may have freed one since the plan began. Goes on with `next` if there
    /// is none.
    pub(crate) fn search(&mut self, next: Rung) -> Turned {
        self.find().map_or_else(|| next.turn(), |grant| Phase::end(Step::Grant(grant)))
    }

    /// Takes a free block for the request, if its shard has one.
    pub(crate) fn find(&mut self) -> Option<Grant> {
        let Goal::Allocate(shard, want) = self.plan.request.goal else { return None };
        let (clock, by) = (self.plan.request.clock(), self.requester_of());
        if self.core.facts.reuse != Reuse::InOrder {
            // Blocks that settled in the shard may have used up its room for peaks: that is why the request came here.
            self.core.settle(shard, self.shards);
        }
        let grant = self.shards.with(shard, |shard| shard.find_and_take(&want, clock, by))?;
        Some(self.core.settled(shard, grant, self.shards))
    }

    /// Serves a request in the default pool from free memory of the same stream in a private pool that allows it:
    /// PyTorch's `try_mempool_fallback`. The block stays one of that pool.
    pub(crate) fn find_in_other_pools(&mut self) -> Option<Turned> {
        let (shard, want) = self.plan.request.allocation();
        if self.core.pool_of(shard) != PoolId::DEFAULT {
            return None;
        }
        let allowing: Vec<_> =
            self.core.pools.private().filter(|&pool| self.core.pools.flags(pool).use_on_oom).collect();
        let by = self.requester_of();
        for lender in allowing.into_iter().filter_map(|pool| self.core.shard_of(by.stream, pool)) {
            let may_lend = !self.core.pools.is_capturing(self.core.pool_of(lender));
            let found =
                self.shards.with(lender, |lender| may_lend.then(|| lender.find_and_take(&want, 0, by)).flatten());
            if let Some(grant) = found {
                let grant = self.core.settled(lender, grant, self.shards);
                return Some(Phase::end(Step::Lend { lender, grant }));
            }
        }
        None
    }

    /// Gives back what the policy does not keep while it takes more.
    fn collect(&mut self, next: Rung) -> Turned {
        let (shard, _) = self.plan.request.allocation();
        match self.core.settings_in(self.core.pool_of(shard)).policy {
            Policy::Direct => self.release_idle(next),
            Policy::Classic(Segments::Snug(_)) => self.sweep_surplus().then(next).turn(),
            _ => self.sweep_garbage().then(next).turn(),
        }
    }

    /// Waits for everything outstanding, or, where one pool is emptied, for what that pool's memory waits for.
    fn flush(&mut self, next: Rung) -> Turned {
        self.core.scalars.num_sync_all_streams += 1;
        if self.plan.standing.keeps_turn() {
            self.plan.standing.frees = self.core.frees(None, self.shards);
        }
        let points = match self.plan.request.goal {
            Goal::EmptyPool(pool) => self.core.outstanding_in(pool, self.shards),
            _ => self.core.outstanding(self.shards),
        };
        if points.is_empty() { next.turn() } else { Phase::Climb(next).after(Step::Wait(points)) }
    }

    /// Refuses the request with a report; unless it was held back by the budget alone, in which case it begins again
    /// without one, or others may be the reason for the refusal, in which case it waits for its turn first.
    fn refuse(&mut self) -> Turned {
        let limit = self.core.headroom.limit();
        if self.plan.request.allowance.most().is_some_and(|allowance| limit.is_none_or(|limit| allowance < limit)) {
            // Nothing within the budget serves the request: all over again, with what the driver grants beyond it.
            self.plan.request.allowance = Allowance::Any;
            self.plan.knows.begin_again();
            return Rung::Search.turn();
        }
        if self.may_be_disturbed() {
            return Rung::Turn.turn();
        }
        // The plan may have waited for what is free there now.
        if let Some(served) = self.find_in_other_pools() {
            return served;
        }
        self.core.scalars.num_ooms += 1;
        Phase::end(Step::Refuse(Box::new(self.report(false))))
    }

    /// Returns whether others may be the reason that the plan found nothing, and it has not looked in its turn.
    fn may_be_disturbed(&mut self) -> bool {
        let (_, want) = self.plan.request.allocation();
        self.core.headroom.could_hold(want.rounded)
            && !self.plan.standing.keeps_turn()
            && (self.core.turns.others_hold(&self.plan.standing)
                || self.core.turns.others_progressed(&self.plan.standing)
                || self.were_freed())
    }
}
