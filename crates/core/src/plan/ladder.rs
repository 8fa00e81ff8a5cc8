//! How a plan climbs its ladder: what it does on each [rung](Rung).

use alloc::boxed::Box;
use alloc::vec::Vec;

use millpond_backend::Reuse;

use super::phase::{Asked, Attempt, Phase, Rung, Turned};
use super::step::{Report, Step};
use super::{Allocation, Allowance, Goal, Plan, Run, Times};
use crate::coordinator::Coordinator;
use crate::ids::PoolId;
use crate::settings::{Backing, Policy, Segments};
use crate::shard::Grant;

impl Run<'_> {
    /// Returns the first rung of a plan, which is told which ladder it climbs.
    pub(crate) fn first_rung(&mut self) -> Rung {
        match self.plan.request.goal {
            Goal::Allocate(Allocation { shard, .. }) => {
                self.plan.gathers = self.core.backing_of(shard) == Backing::Pages;
                Rung::Search
            }
            Goal::EmptyCache | Goal::EmptyPool(_) | Goal::Trim(_) => Rung::FlushAll,
            Goal::Reclaim | Goal::TrimIdle(_) => Rung::Idle,
            Goal::Close(_) => Rung::Close,
            Goal::Pause(_) => Rung::Vacate,
            Goal::Resume(_) => Rung::Refill,
        }
    }

    /// Returns the rung that follows one that has not served the request. Where what is cached has to do, there is a
    /// search alone, and under `paged` one attempt.
    fn next_rung(&self, rung: Rung) -> Rung {
        match rung {
            Rung::Search if self.plan.request.is_cached_only() => {
                if self.plan.gathers {
                    Rung::Grow(Attempt::First)
                } else {
                    Rung::Refuse
                }
            }
            _ => rung.next(self.plan.gathers),
        }
    }

    /// Climbs one rung.
    pub(crate) fn climb(&mut self, rung: Rung) -> Turned {
        let (gathers, next) = (self.plan.gathers, self.next_rung(rung));
        match rung {
            // Nothing that is cached has served it.
            Rung::Refuse if self.plan.request.is_cached_only() => Phase::Over.turn(),
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
            Rung::Oversize => self.sweep_oversize(next),
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
            Rung::Idle => match self.plan.request.goal {
                Goal::TrimIdle(bytes) => self.trim_idle(bytes, next),
                _ => self.release_idle(next),
            },
            Rung::FlushAll => match self.plan.request.goal {
                Goal::EmptyPool(pool) if self.core.pools.is_held(pool) => Rung::Done.turn(),
                _ => self.flush(next),
            },
            Rung::ReleaseAll => {
                self.core.retire(self.plan.request.clocks, self.shards);
                if self.plan.request.goal == Goal::EmptyCache {
                    self.core.begin_anew(self.shards);
                }
                let next = if let Goal::Resume(_) = self.plan.request.goal { Rung::RefillLast } else { next };
                self.sweep_all().then(next).turn()
            }
            Rung::Close | Rung::Vacate | Rung::Refill | Rung::RefillAlone | Rung::RefillLast => self.climb_group(rung),
            Rung::Deny(denied) => Phase::end(Step::Denied(denied)),
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
        let Goal::Allocate(Allocation { shard, want }) = self.plan.request.goal else { return None };
        if !self.plan.request.is_anywhere() {
            return None;
        }
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
        let Allocation { shard, want } = self.plan.request.allocation();
        if self.core.pool_of(shard) != PoolId::DEFAULT || !self.plan.request.is_anywhere() {
            return None;
        }
        let allowing: Vec<_> = self.core.pools.private().filter(|&pool| self.core.pools.may_lend(pool)).collect();
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
        let shard = self.plan.request.allocation().shard;
        match self.core.settings_in(self.core.pool_of(shard)).policy {
            Policy::Direct => self.release_idle(next),
            Policy::Classic(Segments::Snug(_)) => self.sweep_surplus().then(next).turn(),
            Policy::Classic(Segments::Plain | Segments::Expandable) | Policy::Paged { .. } => {
                self.sweep_garbage().then(next).turn()
            }
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
        let limit = self.core.headroom.limit;
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
        let report = Box::new(self.report(false));
        self.appeal(report)
    }

    /// Has the program asked to make room before a request is refused with a report, if the plan appeals.
    pub(crate) fn appeal(&mut self, report: Box<Report>) -> Turned {
        match self.plan.request.appeals {
            true => Asked::Appeal(report.clone()).by(Step::Appeal(report)),
            false => self.refuse_with(report),
        }
    }

    /// Refuses the request with a report, and counts that.
    pub(crate) fn refuse_with(&mut self, report: Box<Report>) -> Turned {
        let scalars = &mut self.core.scalars;
        *if report.rejected { &mut scalars.num_oom_rejections } else { &mut scalars.num_ooms } += 1;
        Phase::end(Step::Refuse(report))
    }

    /// Begins again, as if the request had just missed: the program may have made room meanwhile.
    pub(crate) fn begin_again(&mut self) -> Phase {
        self.plan.request.begin_again();
        self.plan.standing.forget_repeats();
        self.plan.knows.begin_again();
        (self.plan.refused_addresses, self.plan.emptied_pools) = (None, None);
        Phase::Climb(Rung::Search)
    }

    /// Returns whether others may be the reason that the plan found nothing, and it has not looked in its turn.
    fn may_be_disturbed(&mut self) -> bool {
        let want = self.plan.request.allocation().want;
        self.core.headroom.could_hold(want.rounded)
            && !self.plan.standing.keeps_turn()
            && (self.core.turns.others_hold(&self.plan.standing)
                || self.core.turns.others_progressed(&self.plan.standing)
                || self.were_freed())
    }
}

impl Coordinator {
    /// Returns a count of the events that may help paused plans. A [`Step::Pause`] is over once this differs from the
    /// number in the step.
    pub fn progress(&self) -> u64 {
        self.turns.progress
    }

    /// Returns whether some plan holds memory that others may need, or waits for its turn. Returns false if no plan is
    /// in progress.
    pub fn is_held(&self) -> bool {
        self.turns.is_held()
    }

    /// Returns the number of the turn in which one plan goes through the last part of its ladder, if one does. Each
    /// turn has a number of its own. Until it is over [`retire_ready`](Self::retire_ready) does nothing.
    pub fn turn(&self) -> Option<u64> {
        self.turns.turn()
    }

    /// Forgets a plan that will not go on, because something panicked while the coordinator worked on it: no plan waits
    /// for it any more. What it has claimed, and what it asked the driver for, is lost: it is granted to no request,
    /// and counts against the limit.
    pub fn lose(&mut self, plan: &mut Plan) {
        self.turns.lose(&mut plan.standing);
    }
}

impl Run<'_> {
    /// Returns whether blocks were freed since they were counted or noted.
    pub(crate) fn were_freed(&mut self) -> bool {
        self.core.frees(None, self.shards) != self.plan.standing.frees
    }

    /// Has a plan that is about to enter a rung stand back while another has its turn. `None`: it goes on.
    pub(crate) fn stand_back(&mut self, rung: Rung) -> Option<Turned> {
        if rung.passes_queue() || !self.core.turns.has_queue() || self.core.turns.has_turn(&self.plan.standing) {
            return None;
        }
        let is_reclaim = matches!(self.plan.request.goal, Goal::Reclaim | Goal::TrimIdle(_));
        if is_reclaim || self.plan.request.is_cached_only() {
            // It waits for no other plan. What a free leaves goes back before the next allocation. And where a plan has
            // its turn, memory is short, and nothing is left that could go back later.
            return Some(Phase::Over.turn());
        }
        self.core.turns.stand_back(&mut self.plan.standing);
        Some(self.pause(rung))
    }

    /// Waits for the plan's turn, and then until no other plan holds anything: the rung before the last part of the
    /// ladder. Whenever others have ended something the plan makes its first attempt again. Once it is alone, it goes
    /// on to `last`.
    pub(crate) fn wait_for_turn(&mut self, last: Rung) -> Turned {
        self.core.turns.keep_turn(&mut self.plan.standing);
        if !self.core.turns.has_turn(&self.plan.standing) {
            return self.pause(Rung::Turn);
        }
        // From here on nothing changes in the shards between two looks of one step.
        self.shards.hold();
        if self.core.turns.others_progressed(&self.plan.standing) {
            return Rung::Grow(Attempt::First).turn();
        }
        if self.core.turns.others_hold(&self.plan.standing) {
            return self.pause(Rung::Turn);
        }
        self.plan.standing.forget_repeats();
        last.turn()
    }

    /// Has a plan wait until other plans have ended something, before it enters a rung.
    pub(crate) fn pause(&mut self, rung: Rung) -> Turned {
        // By then the device may have come further.
        self.plan.knows.times = Times::Unasked;
        Asked::Pause(rung).by(Step::Pause { seen: self.core.turns.progress })
    }

    /// Returns whether a plan that was refused in its turn goes through the last part of its ladder once more: if
    /// blocks were freed since the wait for everything outstanding. Those may not have been free then, while others
    /// that were free have been handed out: to a program that never has more than there is, all looks as if it had
    /// both. So the plan waits for them once more; what was free before is released by now, so a second time there is
    /// nothing left to hand out.
    pub(crate) fn has_second_round(&mut self) -> bool {
        self.plan.standing.begin_second_round() && self.were_freed()
    }

    /// Keeps the books, after each thing that a plan has done, of whether it holds something, and whether its turn is
    /// over. `step` is what it asks for next, if it has said so.
    pub(crate) fn keep_count(&mut self, step: Option<&Step>) {
        let holds = self.plan.phase.holds();
        self.core.turns.count(&mut self.plan.standing, holds);
        // A plan that only stood back gives its place up as soon as others see what it does, or it has to wait.
        let is_over = step.is_some_and(|step| {
            let waits = matches!(step, Step::Wait(_) | Step::Synchronize(_));
            step.is_end()
                || matches!(step, Step::Appeal(_))
                || (!self.plan.standing.keeps_turn()
                    && self.core.turns.has_turn(&self.plan.standing)
                    && (holds || waits))
        });
        if is_over {
            self.core.turns.leave(&mut self.plan.standing);
        }
    }
}
