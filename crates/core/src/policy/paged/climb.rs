//! The rungs of the ladder that are those of `paged` alone, and what its attempts learn.

use millpond_backend::Point;

use crate::books::Points;
use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::plan::Plan;
use crate::coordinator::step::Step;
use crate::coordinator::{Coordinator, Shards};
use crate::policy::ladder::{Attempt, Rung};

/// What the attempts of a plan have learnt.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Knows {
    pub(crate) times: Times,
    /// What the next attempt has to do without.
    pub(crate) lacks: Lacks,
    /// The points that the plan waited for last: waiting for the same ones again leads nowhere.
    pub(crate) waited: Points,
}

/// How far the streams are, as the plan knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Times {
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
pub(crate) struct Lacks {
    /// The driver or the limit has refused new pages: those there are have to do.
    pub(crate) new_pages: bool,
    /// A stream cannot take part in a device-side wait now: nothing is taken behind one.
    pub(crate) waits: bool,
    /// There are no addresses for a new window.
    pub(crate) windows: bool,
    /// There are no addresses for a home to grow in.
    pub(crate) homes: bool,
    /// What the device's budget leaves, which has to be asked for before anything is created.
    pub(crate) budget: bool,
}

impl Knows {
    /// Notes that the plan was told how far streams are.
    pub(crate) fn told(&mut self) {
        if self.times == Times::Seen {
            self.times = Times::Told;
        }
    }

    /// Forgets what held up to now, as the ladder begins once more with what the driver grants beyond the budget.
    pub(crate) fn begin_again(&mut self) {
        *self = Self { lacks: Lacks { waits: self.lacks.waits, ..Lacks::default() }, ..Self::default() };
    }
}

impl Lacks {
    /// Has the driver asked again for the memory and the addresses that it refused.
    fn forget_refusals(&mut self) {
        (self.new_pages, self.windows, self.homes) = (false, false, false);
    }
}

impl Coordinator {
    /// Returns whether nothing has happened in the home since the request missed there, the first time it is asked.
    pub(in crate::policy) fn is_as_missed(&self, plan: &mut Plan, shards: &mut dyn Shards) -> bool {
        let (home, _) = plan.request.allocation();
        plan.request.missed_at.take().is_some_and(|changes| changes == shards.with(home, |home| home.changes()))
    }

    /// Climbs one rung of `paged` alone. From an attempt that nothing has served: tries again when others have released
    /// memory, or else waits for what is outstanding.
    pub(in crate::policy) fn climb_pages(&mut self, rung: Rung, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let attempt = match rung {
            Rung::Refused(attempt) => attempt,
            Rung::Oldest => return self.wait_for_oldest(plan, shards),
            _ => return self.attempt(rung, plan, shards),
        };
        if plan.standing.keeps_turn() {
            // What the driver refused before memory came back it may grant now.
            plan.knows.lacks.forget_refusals();
            return match attempt {
                Attempt::First => Rung::Turn.turn(),
                Attempt::Last if self.has_second_round(plan, shards) => Rung::Flush.turn(),
                _ => rung.up(plan).turn(),
            };
        }
        let progressed = self.others_progressed(plan);
        if (progressed || self.others_hold(plan)) && plan.standing.may_repeat() {
            plan.knows.lacks.forget_refusals();
            let again = Rung::Grow(attempt);
            return if progressed { again.turn() } else { self.pause(plan, again) };
        }
        if attempt == Attempt::First {
            if let Some(served) = self.find_in_other_pools(plan, shards) {
                return served;
            }
            self.scalars.num_alloc_retries += 1;
        }
        rung.up(plan).turn()
    }

    /// Waits for the oldest outstanding point of each stream; with none left, refuses.
    fn wait_for_oldest(&mut self, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let taker = self.taker(plan);
        let points = self.oldest_points(taker, shards);
        if points.iter().all(|Point { stream, tick }| plan.knows.waited.tick(stream) == Some(tick)) {
            // What can be gathered nowhere may be of use once it was released.
            let may_release = !plan.standing.keeps_turn() && !self.gathers_all(taker);
            return if may_release { Rung::Turn } else { Rung::Refuse }.turn();
        }
        // Where others go on using what this plan waits for, that counts as an attempt that they have spoiled.
        if self.were_freed(plan, shards) && !plan.standing.may_repeat() {
            return Rung::Turn.turn();
        }
        plan.knows.waited = points.clone();
        Phase::Climb(Rung::LookAgain).after(Step::Wait(points.into_vec()))
    }
}

#[cfg(test)]
mod tests {
    use millpond_backend::{StreamId, Tick};

    use super::*;

    #[test]
    fn news_are_news_until_they_are_looked_at() {
        let told = |times| {
            let mut knows = Knows { times, ..Knows::default() };
            knows.told();
            knows.times
        };
        assert_eq!([Times::Unasked, Times::Told, Times::Seen].map(told), [Times::Unasked, Times::Told, Times::Told]);
    }

    #[test]
    fn beyond_the_budget_a_plan_tries_new_pages_again() {
        let lacks = Lacks { new_pages: true, waits: true, windows: true, homes: true, budget: true };
        let waited = Points::from_iter([Point { stream: StreamId(0), tick: Tick(1) }]);
        let mut knows = Knows { times: Times::Seen, lacks, waited };
        knows.begin_again();
        let lacks = Lacks { waits: true, ..Lacks::default() };
        assert_eq!(knows, Knows { lacks, ..Knows::default() }, "a capture goes on");
    }
}
