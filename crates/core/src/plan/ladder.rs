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

use super::Times;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::ShardId;
use crate::plan::phase::{Phase, Turned};
use crate::plan::step::Step;
use crate::plan::{Allowance, Goal, Plan};
use crate::policy::{Policy, Segments, Source};
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
    /// Of a plan that gives memory back: it is over.
    Done,
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
            Rung::FlushAll => Rung::ReleaseAll,
            Rung::Idle | Rung::ReleaseAll | Rung::Done => Rung::Done,
        }
    }

    /// Returns the next rung of a plan's ladder.
    pub(crate) fn up(self, plan: &Plan) -> Rung {
        self.next(plan.gathers)
    }

    /// Goes on at the rung.
    pub(crate) fn turn(self) -> Turned {
        Phase::Climb(self).turn()
    }

    /// Returns whether a plan goes on to this rung although another plan has its turn.
    pub(crate) fn passes_queue(self) -> bool {
        matches!(self, Rung::Search | Rung::Turn | Rung::Refuse | Rung::Done)
    }

    /// Returns the rung that follows an attempt that the driver or the limit has refused.
    ///
    /// # Panics
    ///
    /// If the rung is no attempt.
    pub(crate) fn refused(self) -> Self {
        let Rung::Grow(attempt) = self else { panic!("{self:?} is no attempt that can be refused") };
        Rung::Refused(attempt)
    }
}

impl Coordinator {
    /// Returns the first rung of a plan, which is told which ladder it climbs.
    pub(crate) fn first_rung(&self, plan: &mut Plan) -> Rung {
        match plan.request.goal {
            Goal::Allocate(shard, _) => {
                plan.gathers = self.traits_of(shard).source == Source::Pages;
                Rung::Search
            }
            Goal::EmptyCache | Goal::EmptyPool(_) | Goal::Trim(_) => Rung::FlushAll,
            Goal::Reclaim => Rung::Idle,
        }
    }

    /// Climbs one rung.
    pub(crate) fn climb(&mut self, rung: Rung, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let (gathers, next) = (plan.gathers, rung.up(plan));
        match rung {
            Rung::Search if gathers && self.is_as_missed(plan, shards) => next.turn(),
            Rung::Search => self.search(plan, next, shards),
            Rung::Collect => self.collect(next, plan, shards),
            Rung::Grow(_) if !gathers => self.grow(rung, plan, shards),
            Rung::Refused(Attempt::Last) if !gathers && self.has_second_round(plan, shards) => Rung::Flush.turn(),
            Rung::Refused(Attempt::First) if !gathers => {
                self.find_in_other_pools(plan, shards).unwrap_or_else(|| next.turn())
            }
            Rung::Refused(_) if !gathers => next.turn(),
            Rung::Grow(_) | Rung::Refused(_) | Rung::Oldest => self.climb_pages(rung, plan, shards),
            Rung::LookAgain => {
                self.retire(plan.request.clocks, shards);
                plan.knows.times = Times::Unasked;
                self.search(plan, next, shards)
            }
            Rung::Turn => {
                let has_oversize = self.settings.max_split_bytes.is_some();
                let last = if gathers || has_oversize { next } else { Rung::Flush };
                self.wait_for_turn(plan, last, shards)
            }
            Rung::Oversize => {
                let (sweep, enough) = self.sweep_oversize(plan, shards);
                sweep.then(if enough { next } else { Rung::Flush }).turn()
            }
            Rung::Flush => self.flush(next, plan, shards),
            Rung::SearchAgain => {
                self.retire(plan.request.clocks, shards);
                if self.settings.search_after_wait { self.search(plan, next, shards) } else { next.turn() }
            }
            Rung::Release => {
                let sweep = self.sweep_all(plan, shards);
                self.scalars.num_alloc_retries += 1;
                sweep.then(next).turn()
            }
            Rung::Refuse => self.refuse(plan, shards),
            Rung::Idle => self.release_idle(next, shards),
            Rung::FlushAll => match plan.request.goal {
                Goal::EmptyPool(pool) if self.pools.is_held(pool) => Rung::Done.turn(),
                _ => self.flush(next, plan, shards),
            },
            Rung::ReleaseAll => {
                self.retire(plan.request.clocks, shards);
                if plan.request.goal == Goal::EmptyCache {
                    self.begin_anew(shards);
                }
                self.sweep_all(plan, shards).then(next).turn()
            }
            Rung::Done => Phase::Over.turn(),
        }
    }

    /// Looks for a free block once more: others may have freed one since the plan began. Goes on with `next` if there
    /// is none.
    pub(crate) fn search(&mut self, plan: &mut Plan, next: Rung, shards: &mut dyn Shards) -> Turned {
        self.find(plan, shards).map_or_else(|| next.turn(), |grant| Phase::end(Step::Grant(grant)))
    }

    /// Takes a free block for the request, if its shard has one.
    pub(crate) fn find(&mut self, plan: &Plan, shards: &mut dyn Shards) -> Option<Grant> {
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
    fn collect(&mut self, next: Rung, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let (shard, _) = plan.request.allocation();
        match self.settings_in(self.pool_of(shard)).policy {
            Policy::Direct => self.release_idle(next, shards),
            Policy::Classic(Segments::Snug(_)) => self.sweep_surplus(plan, shards).then(next).turn(),
            _ => self.sweep_garbage(plan, shards).then(next).turn(),
        }
    }

    /// Waits for everything outstanding, or, where one pool is emptied, for what that pool's memory waits for.
    fn flush(&mut self, next: Rung, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        self.scalars.num_sync_all_streams += 1;
        if plan.standing.keeps_turn() {
            plan.standing.frees = self.frees(None, shards);
        }
        let points = match plan.request.goal {
            Goal::EmptyPool(pool) => self.outstanding_in(pool, shards),
            _ => self.outstanding(shards),
        };
        if points.is_empty() { next.turn() } else { Phase::Climb(next).after(Step::Wait(points)) }
    }

    /// Refuses the request with a report; unless it was held back by the budget alone, in which case it begins again
    /// without one, or others may be the reason for the refusal, in which case it waits for its turn first.
    fn refuse(&mut self, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let limit = self.headroom.limit();
        if plan.request.allowance.most().is_some_and(|allowance| limit.is_none_or(|limit| allowance < limit)) {
            // Nothing within the budget serves the request: all over again, with what the driver grants beyond it.
            plan.request.allowance = Allowance::Any;
            plan.knows.begin_again();
            return Rung::Search.turn();
        }
        if self.may_be_disturbed(plan, shards) {
            return Rung::Turn.turn();
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
            && (self.turns.others_hold(&plan.standing)
                || self.turns.others_progressed(&plan.standing)
                || self.were_freed(plan, shards))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

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
}
