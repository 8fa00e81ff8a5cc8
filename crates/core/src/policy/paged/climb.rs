//! The ladder of `paged`.
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

use millpond_backend::Point;

use crate::books::Points;
use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::plan::Plan;
use crate::coordinator::{Coordinator, Shards};
use crate::policy;

/// A rung of the ladder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rung {
    /// Look for a free block.
    Search,
    /// Give back garbage.
    Collect,
    /// Make an attempt.
    Grow(Attempt),
    /// Nothing has served an attempt.
    Refused(Attempt),
    /// Wait for the oldest points.
    Oldest,
    /// They are reached: look for a block that is free by that.
    LookAgain,
    /// Wait for the plan's turn, and until no other plan holds anything.
    Turn,
    /// Wait for everything outstanding.
    Flush,
    /// Look for a block that the wait has freed.
    SearchAgain,
    /// Release everything cached.
    Release,
    /// Refuse the request.
    Refuse,
}

/// Which attempt it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    First,
    AfterOldest,
    /// In the plan's turn, before everything cached is released.
    InTurn,
    Last,
}

impl Rung {
    /// Returns the rung that follows one that has not served the request: the ladder as a table.
    const fn next(self) -> Rung {
        match self {
            Rung::Search => Rung::Collect,
            Rung::Collect => Rung::Grow(Attempt::First),
            Rung::Grow(attempt) => Rung::Refused(attempt),
            Rung::Refused(Attempt::First | Attempt::AfterOldest) => Rung::Oldest,
            Rung::Oldest => Rung::LookAgain,
            Rung::LookAgain => Rung::Grow(Attempt::AfterOldest),
            Rung::Turn => Rung::Flush,
            Rung::Flush => Rung::SearchAgain,
            Rung::SearchAgain => Rung::Grow(Attempt::InTurn),
            Rung::Refused(Attempt::InTurn) => Rung::Release,
            Rung::Release => Rung::Grow(Attempt::Last),
            Rung::Refused(Attempt::Last) | Rung::Refuse => Rung::Refuse,
        }
    }
}

/// Where a plan stands, and what it has learnt on its way.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Climb {
    rung: Rung,
    pub(super) knows: Knows,
}

/// What the attempts of a plan have learnt.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Knows {
    pub(super) times: Times,
    /// What the next attempt has to do without.
    pub(super) lacks: Lacks,
    /// The points that the plan waited for last: waiting for the same ones again leads nowhere.
    waited: Points,
}

/// How far the streams are, as the plan knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Times {
    /// They were not asked.
    #[default]
    Unasked,
    /// They were asked, and what that makes free was not looked at.
    Told,
    /// They were asked, and what that makes free was looked at.
    Seen,
}

/// What an attempt has to do without, because an earlier one was refused it, or has no need to try again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lacks {
    /// The driver or the limit has refused new pages: those there are have to do.
    pub(super) new_pages: bool,
    /// A stream cannot take part in a device-side wait now: nothing is taken behind one.
    pub(super) waits: bool,
    /// There are no addresses for a new window.
    pub(super) windows: bool,
    /// There are no addresses for a home to grow in.
    pub(super) homes: bool,
    /// What the device's budget leaves, which has to be asked for before anything is created.
    pub(super) budget: bool,
}

impl Lacks {
    /// Has the driver asked again for the memory and the addresses that it refused.
    fn forget_refusals(&mut self) {
        (self.new_pages, self.windows, self.homes) = (false, false, false);
    }
}

impl Climb {
    /// Returns the start of the ladder.
    pub(crate) fn first() -> Self {
        Self { rung: Rung::Search, knows: Knows::default() }
    }

    fn at(self, rung: Rung) -> Phase {
        Phase::Climb(policy::Climb::Pages(Self { rung, ..self }))
    }

    /// Goes on to the next rung.
    fn up(self) -> Phase {
        let next = self.rung.next();
        self.at(next)
    }

    /// Makes the same attempt once more.
    pub(crate) fn again(self) -> Phase {
        Phase::Climb(policy::Climb::Pages(self))
    }

    /// Notes that there are no addresses for a new window.
    pub(crate) fn without_windows(mut self) -> Self {
        self.knows.lacks.windows = true;
        self
    }

    /// Notes that there are no addresses for a home to grow in.
    pub(crate) fn without_homes(mut self) -> Self {
        self.knows.lacks.homes = true;
        self
    }

    /// Refuses without any wait, as none would help.
    pub(super) fn hopeless(self) -> Phase {
        self.at(Rung::Refuse)
    }

    /// Returns the rung that waits for the plan's turn.
    pub(super) fn turn(&self) -> policy::Climb {
        policy::Climb::Pages(Self { rung: Rung::Turn, knows: self.knows.clone() })
    }

    /// See [`policy::Climb::passes_queue`].
    pub(crate) fn passes_queue(&self) -> bool {
        matches!(self.rung, Rung::Search | Rung::Turn | Rung::Refuse)
    }

    /// See [`policy::Climb::searches`].
    pub(crate) fn searches(&self) -> bool {
        self.rung == Rung::Search
    }

    /// See [`policy::Climb::refused`].
    pub(crate) fn refused(self) -> Self {
        assert!(matches!(self.rung, Rung::Grow(_)), "{:?} is no attempt that can be refused", self.rung);
        Self { rung: self.rung.next(), ..self }
    }

    /// See [`policy::Climb::told`].
    pub(crate) fn told(mut self) -> Self {
        if self.knows.times == Times::Seen {
            self.knows.times = Times::Told;
        }
        self
    }

    /// See [`policy::Climb::forget_times`].
    pub(crate) fn forget_times(mut self) -> Self {
        self.knows.times = Times::Unasked;
        self
    }

    /// Begins the ladder once more, with what the driver grants beyond the budget.
    fn restart(mut self) -> Self {
        self.knows.times = Times::Unasked;
        self.knows.lacks = Lacks { waits: self.knows.lacks.waits, ..Lacks::default() };
        self.knows.waited = Points::default();
        Self { rung: Rung::Search, ..self }
    }
}

impl Coordinator {
    /// Climbs one rung.
    pub(in crate::policy) fn climb_pages(&mut self, climb: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let next = || policy::Climb::Pages(Climb { rung: climb.rung.next(), knows: climb.knows.clone() });
        match climb.rung {
            Rung::Search if self.is_as_missed(plan, shards) => Phase::Climb(next()).turn(),
            Rung::Search => self.search(plan, Phase::Climb(next()), shards),
            Rung::Collect => self.collect(next(), plan, shards),
            Rung::Grow(_) => self.attempt(climb, plan, shards),
            Rung::Refused(attempt) => self.attempt_refused(climb, attempt, plan, shards),
            Rung::Oldest => self.wait_for_oldest(climb, plan, shards),
            Rung::LookAgain => {
                self.retire(plan.request.clocks, shards);
                self.search(plan, climb.forget_times().up(), shards)
            }
            Rung::Turn => {
                let last = next();
                let retry = Climb { rung: Rung::Grow(Attempt::First), knows: climb.knows.clone() };
                let (here, retry) = (policy::Climb::Pages(climb), policy::Climb::Pages(retry));
                self.wait_for_turn(plan, here, retry, last, shards)
            }
            Rung::Flush => self.flush(next(), plan, shards),
            Rung::SearchAgain => self.search_after_wait(next(), plan, shards),
            Rung::Release => self.release_all(next(), plan, shards),
            Rung::Refuse => {
                let turn = climb.turn();
                self.refuse(policy::Climb::Pages(climb.restart()), turn, plan, shards)
            }
        }
    }

    /// Returns whether nothing has happened in the home since the request missed there, the first time it is asked.
    fn is_as_missed(&self, plan: &mut Plan, shards: &mut dyn Shards) -> bool {
        let (home, _) = plan.request.allocation();
        plan.request.missed_at.take().is_some_and(|changes| changes == shards.with(home, |home| home.changes()))
    }

    /// Goes on from an attempt that nothing has served: tries again when others have released memory, or else waits
    /// for what is outstanding.
    fn attempt_refused(
        &mut self,
        mut climb: Climb,
        attempt: Attempt,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Turned {
        if plan.standing.keeps_turn() {
            // What the driver refused before memory came back it may grant now.
            climb.knows.lacks.forget_refusals();
            return match attempt {
                Attempt::First => climb.at(Rung::Turn).turn(),
                Attempt::Last if self.has_second_round(plan, shards) => climb.at(Rung::Flush).turn(),
                _ => climb.up().turn(),
            };
        }
        let progressed = self.others_progressed(plan);
        if (progressed || self.others_hold(plan)) && plan.standing.may_repeat() {
            climb.knows.lacks.forget_refusals();
            climb.rung = Rung::Grow(attempt);
            return if progressed { climb.again().turn() } else { self.pause(plan, policy::Climb::Pages(climb)) };
        }
        if attempt == Attempt::First {
            if let Some(served) = self.find_in_other_pools(plan, shards) {
                return served;
            }
            self.scalars.num_alloc_retries += 1;
        }
        climb.up().turn()
    }

    /// Waits for the oldest outstanding point of each stream; with none left, refuses.
    fn wait_for_oldest(&mut self, mut climb: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let points = self.oldest_points(self.taker(&climb, plan), shards);
        if points.iter().all(|Point { stream, tick }| climb.knows.waited.tick(stream) == Some(tick)) {
            // What can be gathered nowhere may be of use once it was released.
            let may_release = !plan.standing.keeps_turn() && !self.gathers_all(&climb, plan);
            return if may_release { climb.at(Rung::Turn).turn() } else { climb.hopeless().turn() };
        }
        // Where others go on using what this plan waits for, that counts as an attempt that they have spoiled.
        if self.were_freed(plan, shards) && !plan.standing.may_repeat() {
            return climb.at(Rung::Turn).turn();
        }
        climb.knows.waited = points.clone();
        climb.up().after(crate::coordinator::step::Step::Wait(points.into_vec()))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::coordinator::sweep::{Scope, Sweep};

    fn climbed(from: Rung, steps: usize) -> Vec<Rung> {
        core::iter::successors(Some(from), |rung| Some(rung.next())).take(steps).collect()
    }

    #[test]
    fn a_plan_goes_on_waiting_for_the_oldest_points() {
        let rungs = climbed(Rung::Oldest, 5);
        assert_eq!((rungs[0], rungs[4]), (Rung::Oldest, Rung::Oldest), "{rungs:?}");
    }

    #[test]
    fn in_its_turn_a_plan_waits_for_everything_before_it_releases() {
        let attempt = |attempt| [Rung::Grow(attempt), Rung::Refused(attempt)];
        let [in_turn, last] = [attempt(Attempt::InTurn), attempt(Attempt::Last)];
        let waits = [Rung::Turn, Rung::Flush, Rung::SearchAgain];
        let expected = [&waits[..], &in_turn, &[Rung::Release], &last, &[Rung::Refuse]].concat();
        assert_eq!(climbed(Rung::Turn, 9), expected);
    }

    /// What a plan was told is looked at, also if a sweep comes before that.
    #[test]
    fn news_are_news_until_they_are_looked_at() {
        let at = |times| Climb { rung: Rung::Search, knows: Knows { times, ..Knows::default() } };
        for (before, after) in
            [(Times::Unasked, Times::Unasked), (Times::Told, Times::Told), (Times::Seen, Times::Told)]
        {
            assert_eq!(at(before).told(), at(after));
            let sweep = Sweep::waiting(Vec::new(), Scope::WithSpare, 0);
            let Phase::Sweep(_, then) = sweep.then(at(before).again()).told() else { panic!("a sweep is left out") };
            let Phase::Climb(policy::Climb::Pages(climb)) = *then else { panic!("{then:?}") };
            assert_eq!(climb, at(after));
        }
    }

    #[test]
    fn beyond_the_budget_a_plan_tries_new_pages_again() {
        let mut climb = Climb { rung: Rung::Refuse, knows: Knows::default() };
        climb.knows.lacks = Lacks { new_pages: true, waits: true, windows: true, homes: true, budget: true };
        let again = climb.restart();
        assert_eq!(again.rung, Rung::Search);
        assert_eq!(again.knows.lacks, Lacks { waits: true, ..Lacks::default() }, "a capture goes on");
    }
}
