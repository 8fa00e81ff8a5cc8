//! The ladder: what a plan tries for a request that missed, rung by rung, and for memory that goes back.
//!
//! That of policies that take segments from the driver, `classic` and `direct`, is PyTorch's, with one rung of our own:
//! a plan that would be refused first takes its turn (see the module `turn`), and climbs the rest alone.
//!
//! ```text
//! Search ─▶ Collect ─▶ Grow(First) ─▶ Turn ─▶ Oversize ─▶ Grow(AfterOversize) ─▶ Flush ─▶ SearchAgain
//!                          ▲           │                                           ▲           │
//!                          └── others ─┘                        blocks were freed ─┤           ▼
//!                                                             Refuse ◀─ Grow(Last) ◀─ Release ─┘
//! ```
//!
//! That of `paged` shares most of its rungs, and waits for the oldest points instead of a release of oversize segments:
//!
//! ```text
//! Search ─▶ Collect ─▶ Grow(First) ──▶ Oldest ─▶ LookAgain ─▶ Grow(AfterOldest)
//!                       ▲   ▲            │ ▲                       │
//!             others    │   │            │ └───────────────────────┘
//!             ended ────┘   │            ▼ nothing left to wait for
//!             something     │         Refuse ──▶ refused
//!                           │            ▼ others may be the reason
//!                           └───────── Turn ─▶ Flush ─▶ SearchAgain ─▶ Grow(InTurn) ─▶ Release ─▶ Grow(Last)
//!                                                ▲                                                   │
//!                                                └─────────────── blocks were freed ──── Refuse ◀────┘
//! ```
//!
//! A rung that serves the request ends the plan. One that does not is followed by [`Rung::next`].

use alloc::boxed::Box;

use millpond_backend::Reuse;

use super::paged::{Knows, Lacks, Times};
use super::{Policy, Segments, Source};
use crate::books::Points;
use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::plan::{Allowance, Goal, Plan};
use crate::coordinator::step::Step;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::ShardId;
use crate::shard::Grant;

/// A rung of the ladder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rung {
    /// Look for a free block.
    Search,
    /// Give back what the policy does not keep while it takes more.
    Collect,
    /// Make an attempt: ask the driver for memory, or under `paged` take the first way that serves the request.
    Grow(Attempt),
    /// Nothing has served an attempt.
    Refused(Attempt),
    /// Wait for the oldest points.
    Oldest,
    /// They are reached: look for a block that is free by that.
    LookAgain,
    /// Wait for the plan's turn, and until no other plan holds anything.
    Turn,
    /// Release oversize segments.
    Oversize,
    /// Wait for everything outstanding.
    Flush,
    /// Look for a block that the wait has freed.
    SearchAgain,
    /// Release everything cached.
    Release,
    /// Refuse the request.
    Refuse,
    /// Of a plan that gives memory back: release what is idle, without waiting.
    Idle,
    /// Of a plan that gives memory back: wait for everything outstanding.
    FlushAll,
    /// Of a plan that gives memory back: release everything cached.
    ReleaseAll,
}

/// Which attempt it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    First,
    AfterOldest,
    AfterOversize,
    /// In the turn of a plan of `paged`, before everything cached is released.
    InTurn,
    Last,
}

impl Rung {
    /// Returns the rung that follows one that has not served the request: the ladder as a table, of `paged` if the
    /// policy `gathers`.
    fn next(self, gathers: bool) -> Rung {
        match self {
            Rung::Search => Rung::Collect,
            Rung::Collect => Rung::Grow(Attempt::First),
            Rung::Grow(attempt) => Rung::Refused(attempt),
            Rung::Refused(Attempt::First) if !gathers => Rung::Turn,
            Rung::Refused(Attempt::First | Attempt::AfterOldest) => Rung::Oldest,
            Rung::Oldest => Rung::LookAgain,
            Rung::LookAgain => Rung::Grow(Attempt::AfterOldest),
            Rung::Turn if !gathers => Rung::Oversize,
            Rung::Oversize => Rung::Grow(Attempt::AfterOversize),
            Rung::Turn | Rung::Refused(Attempt::AfterOversize) => Rung::Flush,
            Rung::Flush => Rung::SearchAgain,
            Rung::SearchAgain if gathers => Rung::Grow(Attempt::InTurn),
            Rung::SearchAgain | Rung::Refused(Attempt::InTurn) => Rung::Release,
            Rung::Release => Rung::Grow(Attempt::Last),
            Rung::Refused(Attempt::Last) | Rung::Refuse => Rung::Refuse,
            Rung::Idle | Rung::FlushAll | Rung::ReleaseAll => Rung::ReleaseAll,
        }
    }
}

/// Where a plan stands on its ladder, and what it has learnt on its way.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Climb {
    pub(super) rung: Rung,
    /// Whether the ladder is that of `paged`.
    pub(super) gathers: bool,
    pub(super) knows: Knows,
}

impl Climb {
    pub(crate) fn begin(rung: Rung, gathers: bool) -> Self {
        Self { rung, gathers, knows: Knows::default() }
    }

    /// Goes on at a rung.
    pub(super) fn at(self, rung: Rung) -> Phase {
        Phase::Climb(Self { rung, ..self })
    }

    /// Goes on to the next rung.
    pub(super) fn up(self) -> Phase {
        let next = self.rung.next(self.gathers);
        self.at(next)
    }

    /// Makes the same attempt once more.
    pub(crate) fn again(self) -> Phase {
        Phase::Climb(self)
    }

    /// Refuses without any wait, as none would help.
    pub(super) fn hopeless(self) -> Phase {
        self.at(Rung::Refuse)
    }

    /// Returns the rung that waits for the plan's turn.
    pub(super) fn turn(&self) -> Self {
        Self { rung: Rung::Turn, ..self.clone() }
    }

    /// Returns whether a plan goes on to this rung although another plan has its turn.
    pub(crate) fn passes_queue(&self) -> bool {
        matches!(self.rung, Rung::Search | Rung::Turn | Rung::Refuse)
    }

    /// Returns the rung that follows an attempt that the driver or the limit has refused.
    ///
    /// # Panics
    ///
    /// If the rung is no attempt.
    pub(crate) fn refused(self) -> Self {
        let Rung::Grow(attempt) = self.rung else { panic!("{:?} is no attempt that can be refused", self.rung) };
        Self { rung: Rung::Refused(attempt), ..self }
    }

    /// Notes that the plan was told how far streams are.
    pub(crate) fn told(mut self) -> Self {
        if self.knows.times == Times::Seen {
            self.knows.times = Times::Told;
        }
        self
    }

    /// Notes that streams may have come further than the plan was told.
    pub(crate) fn forget_times(mut self) -> Self {
        self.knows.times = Times::Unasked;
        self
    }

    /// Begins the ladder once more, with what the driver grants beyond the budget.
    fn restart(mut self) -> Phase {
        self.knows.times = Times::Unasked;
        self.knows.lacks = Lacks { waits: self.knows.lacks.waits, ..Lacks::default() };
        self.knows.waited = Points::default();
        self.at(Rung::Search)
    }
}

impl Coordinator {
    /// Returns the first rung of a plan.
    pub(crate) fn first_rung(&self, goal: Goal) -> Phase {
        let (rung, gathers) = match goal {
            Goal::Allocate(shard, _) => (Rung::Search, self.traits_of(shard).source == Source::Pages),
            Goal::EmptyCache | Goal::EmptyPool(_) | Goal::Trim(_) => (Rung::FlushAll, false),
            Goal::Reclaim => (Rung::Idle, false),
        };
        Climb::begin(rung, gathers).again()
    }

    /// Climbs one rung.
    pub(crate) fn climb(&mut self, climb: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        match climb.rung {
            Rung::Search if climb.gathers && self.is_as_missed(plan, shards) => climb.up().turn(),
            Rung::Search => self.search(plan, climb.up(), shards),
            Rung::Collect => self.collect(climb.up(), plan, shards),
            Rung::Grow(_) if !climb.gathers => self.grow(climb, plan, shards),
            Rung::Refused(Attempt::Last) if !climb.gathers && self.has_second_round(plan, shards) => {
                climb.at(Rung::Flush).turn()
            }
            Rung::Refused(Attempt::First) if !climb.gathers => {
                self.find_in_other_pools(plan, shards).unwrap_or_else(|| climb.up().turn())
            }
            Rung::Refused(_) if !climb.gathers => climb.up().turn(),
            Rung::Grow(_) | Rung::Refused(_) | Rung::Oldest => self.climb_pages(climb, plan, shards),
            Rung::LookAgain => {
                self.retire(plan.request.clocks, shards);
                self.search(plan, climb.forget_times().up(), shards)
            }
            Rung::Turn => {
                let has_oversize = self.settings.max_split_bytes.is_some();
                let last =
                    if climb.gathers || has_oversize { climb.clone().up() } else { climb.clone().at(Rung::Flush) };
                let retry = climb.clone().at(Rung::Grow(Attempt::First));
                self.wait_for_turn(plan, climb, retry, last, shards)
            }
            Rung::Oversize => {
                let (sweep, enough) = self.sweep_oversize(plan, shards);
                sweep.then(if enough { climb.up() } else { climb.at(Rung::Flush) }).turn()
            }
            Rung::Flush => self.flush(climb.up(), plan, shards),
            Rung::SearchAgain => {
                self.retire(plan.request.clocks, shards);
                match self.settings.search_after_wait {
                    true => self.search(plan, climb.up(), shards),
                    false => climb.up().turn(),
                }
            }
            Rung::Release => {
                let sweep = self.sweep_all(plan, shards);
                self.scalars.num_alloc_retries += 1;
                sweep.then(climb.up()).turn()
            }
            Rung::Refuse => self.refuse(climb, plan, shards),
            Rung::Idle => self.release_idle(Phase::Over, shards),
            Rung::FlushAll => match plan.request.goal {
                Goal::EmptyPool(pool) if self.pools.is_held(pool) => Phase::Over.turn(),
                _ => self.flush(climb.up(), plan, shards),
            },
            Rung::ReleaseAll => {
                self.retire(plan.request.clocks, shards);
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
        self.find(plan, shards).map_or_else(|| next.turn(), |grant| Phase::end(Step::Grant(grant)))
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
    fn collect(&mut self, next: Phase, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let (shard, _) = plan.request.allocation();
        match self.settings_in(self.pool_of(shard)).policy {
            Policy::Direct => self.release_idle(next, shards),
            Policy::Classic(Segments::Snug(_)) => self.sweep_surplus(plan, shards).then(next).turn(),
            _ => self.sweep_garbage(plan, shards).then(next).turn(),
        }
    }

    /// Waits for everything outstanding, or, where one pool is emptied, for what that pool's memory waits for.
    fn flush(&mut self, next: Phase, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        self.scalars.num_sync_all_streams += 1;
        if plan.standing.keeps_turn() {
            self.note_frees(plan, self.frees(shards));
        }
        let points = match plan.request.goal {
            Goal::EmptyPool(pool) => self.outstanding_in(pool, shards),
            _ => self.outstanding(shards),
        };
        if points.is_empty() { next.turn() } else { next.after(Step::Wait(points)) }
    }

    /// Refuses the request with a report; unless it was held back by the budget alone, in which case it begins again
    /// without one, or others may be the reason for the refusal, in which case it waits for its turn first.
    fn refuse(&mut self, climb: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let limit = self.headroom.limit();
        if plan.request.allowance.most().is_some_and(|allowance| limit.is_none_or(|limit| allowance < limit)) {
            // Nothing within the budget serves the request: all over again, with what the driver grants beyond it.
            plan.request.allowance = Allowance::Any;
            return climb.restart().turn();
        }
        if self.may_be_disturbed(plan, shards) {
            return climb.at(Rung::Turn).turn();
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

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::coordinator::sweep::Sweep;
    use crate::ids::BlockId;

    fn climbed(from: Rung, gathers: bool, steps: usize) -> Vec<Rung> {
        core::iter::successors(Some(from), |rung| Some(rung.next(gathers))).take(steps).collect()
    }

    #[test]
    fn the_order_of_segments_is_pytorchs() {
        let attempt = |attempt| [Rung::Grow(attempt), Rung::Refused(attempt)];
        let attempts = [Attempt::First, Attempt::AfterOversize, Attempt::Last].map(attempt);
        let [first, after_oversize, last] = &attempts;
        let waits = [Rung::Flush, Rung::SearchAgain, Rung::Release];
        let parts: [&[Rung]; 7] = [
            &[Rung::Search, Rung::Collect],
            first,
            &[Rung::Turn, Rung::Oversize],
            after_oversize,
            &waits,
            last,
            &[Rung::Refuse, Rung::Refuse],
        ];
        assert_eq!(climbed(Rung::Search, false, 15), parts.concat());
    }

    #[test]
    fn a_plan_goes_on_waiting_for_the_oldest_points() {
        let rungs = climbed(Rung::Oldest, true, 5);
        assert_eq!((rungs[0], rungs[4]), (Rung::Oldest, Rung::Oldest), "{rungs:?}");
    }

    #[test]
    fn in_its_turn_a_plan_waits_for_everything_before_it_releases() {
        let attempt = |attempt| [Rung::Grow(attempt), Rung::Refused(attempt)];
        let [in_turn, last] = [attempt(Attempt::InTurn), attempt(Attempt::Last)];
        let waits = [Rung::Turn, Rung::Flush, Rung::SearchAgain];
        let expected = [&waits[..], &in_turn, &[Rung::Release], &last, &[Rung::Refuse]].concat();
        assert_eq!(climbed(Rung::Turn, true, 9), expected);
    }

    /// What a plan was told is looked at, also if a sweep comes before that.
    #[test]
    fn news_are_news_until_they_are_looked_at() {
        let at = |times| {
            let knows = Knows { times, ..Knows::default() };
            Climb { knows, ..Climb::begin(Rung::Search, true) }
        };
        for (before, after) in
            [(Times::Unasked, Times::Unasked), (Times::Told, Times::Told), (Times::Seen, Times::Told)]
        {
            assert_eq!(at(before).told(), at(after));
            let sweep = Sweep::waiting([(ShardId(0), BlockId(0))].into());
            let Phase::Sweep(_, then) = sweep.then(at(before).again()).told() else { panic!("a sweep is left out") };
            let Phase::Climb(climb) = *then else { panic!("{then:?}") };
            assert_eq!(climb, at(after));
        }
    }

    #[test]
    fn beyond_the_budget_a_plan_tries_new_pages_again() {
        let mut climb = Climb::begin(Rung::Refuse, true);
        climb.knows.lacks = Lacks { new_pages: true, waits: true, windows: true, homes: true, budget: true };
        let Phase::Climb(again) = climb.restart() else { panic!("the ladder begins again") };
        assert_eq!(again.rung, Rung::Search);
        assert_eq!(again.knows.lacks, Lacks { waits: true, ..Lacks::default() }, "a capture goes on");
    }
}
