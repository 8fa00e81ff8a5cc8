//! What the ladders of several policies have in common.

use alloc::boxed::Box;

use millpond_backend::Reuse;

use super::{Climb, Collects};
use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::plan::{Allowance, Goal, Plan};
use crate::coordinator::step::Step;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::ShardId;
use crate::shard::Grant;

/// The rungs of a plan that gives memory back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rung {
    /// Release what is idle, without waiting.
    Idle,
    /// Wait for everything outstanding.
    Flush,
    /// Make free what the wait has reached.
    Retire,
    /// Release everything cached.
    Release,
}

impl Coordinator {
    /// Climbs one rung of a plan that gives memory back.
    pub(super) fn climb_release(&mut self, rung: Rung, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        match rung {
            Rung::Idle => self.release_idle(Phase::Over, shards),
            Rung::Flush => match plan.request.goal {
                Goal::EmptyPool(pool) if self.pools.is_held(pool) => Phase::Over.turn(),
                _ => self.flush(Climb::Release(Rung::Retire), plan, shards),
            },
            Rung::Retire => {
                self.retire(plan.request.clocks, shards);
                Phase::Climb(Climb::Release(Rung::Release)).turn()
            }
            Rung::Release => {
                if plan.request.goal == Goal::EmptyCache {
                    self.begin_anew(shards);
                }
                self.sweep_all(plan, shards).then(Phase::Over).turn()
            }
        }
    }

    /// Looks for a free block once more: others may have freed one since the plan began. Goes on with `next` if there
    /// is none.
    pub(crate) fn search(&mut self, plan: &mut Plan, next: Phase, shards: &mut dyn Shards) -> Turned {
        match self.find(plan, shards) {
            Some(grant) => Phase::end(Step::Grant(grant)),
            None => next.turn(),
        }
    }

    /// Takes a free block for the request, if its shard has one.
    pub(super) fn find(&mut self, plan: &Plan, shards: &mut dyn Shards) -> Option<Grant> {
        let Goal::Allocate(shard, want) = plan.request.goal else { return None };
        let (clock, by) = (plan.request.clock(), self.requester_of(plan));
        if self.facts.reuse != Reuse::InOrder {
            // Blocks that settled in the shard may have used up its room for peaks: that is why the request came here.
            self.settle(shard, shards);
        }
        let grant = shards.with(shard, |shard| shard.find_and_take(&want, clock, by))?;
        Some(self.settled(shard, grant, shards))
    }

    /// Settles a shard if the grant has used up its room for peaks.
    pub(crate) fn settled(&mut self, shard: ShardId, mut grant: Grant, shards: &mut dyn Shards) -> Grant {
        if core::mem::take(&mut grant.unsettled) {
            self.settle(shard, shards);
        }
        grant
    }

    /// Gives back what the policy does not keep while it takes more.
    pub(super) fn collect(&mut self, next: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let next = Phase::Climb(next);
        match self.traits_of(plan.request.allocation().0).collects {
            Collects::Idle => self.release_idle(next, shards),
            Collects::Surplus => self.sweep_surplus(plan, shards).then(next).turn(),
            Collects::Garbage => match self.sweep_garbage(plan, shards) {
                Some(sweep) => sweep.then(next).turn(),
                None => next.turn(),
            },
        }
    }

    /// Waits for everything outstanding, or, where one pool is emptied, for what that pool's memory waits for.
    pub(super) fn flush(&mut self, next: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        self.scalars.num_sync_all_streams += 1;
        if plan.standing.keeps_turn() {
            self.count_frees(plan, shards);
        }
        let points = match plan.request.goal {
            Goal::EmptyPool(pool) => self.outstanding_in(pool, shards),
            _ => self.outstanding(shards),
        };
        let next = Phase::Climb(next);
        if points.is_empty() { next.turn() } else { next.after(Step::Wait(points)) }
    }

    /// Makes free what the wait has reached, and searches again if the settings say so.
    pub(super) fn search_after_wait(&mut self, next: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        self.retire(plan.request.clocks, shards);
        if self.settings.search_after_wait {
            return self.search(plan, Phase::Climb(next), shards);
        }
        Phase::Climb(next).turn()
    }

    /// Releases everything cached before the last attempt.
    pub(super) fn release_all(&mut self, next: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let sweep = self.sweep_all(plan, shards);
        self.scalars.num_alloc_retries += 1;
        sweep.then(Phase::Climb(next)).turn()
    }

    /// Refuses the request with a report; unless it was held back by the budget alone, in which case it begins `again`
    /// without one, or others may be the reason for the refusal, in which case it waits for its `turn` first.
    pub(super) fn refuse(&mut self, again: Climb, turn: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let limit = self.headroom.limit();
        if plan.request.allowance.most().is_some_and(|allowance| limit.is_none_or(|limit| allowance < limit)) {
            // Nothing within the budget serves the request: all over again, with what the driver grants beyond it.
            plan.request.allowance = Allowance::Any;
            return Phase::Climb(again).turn();
        }
        if self.may_be_disturbed(plan, shards) {
            return Phase::Climb(turn).turn();
        }
        // The plan may have waited for what is free there now.
        if let Some(served) = self.find_in_other_pools(plan, shards) {
            return served;
        }
        self.scalars.num_ooms += 1;
        Phase::end(Step::Refuse(Box::new(self.report(plan, false, shards))))
    }

    /// Returns whether others may be the reason that the plan found nothing, and it has not looked in its turn.
    fn may_be_disturbed(&self, plan: &Plan, shards: &mut dyn Shards) -> bool {
        let (_, want) = plan.request.allocation();
        self.headroom.could_hold(want.rounded)
            && !plan.standing.keeps_turn()
            && (self.others_hold(plan) || self.others_progressed(plan) || self.were_freed(plan, shards))
    }
}
