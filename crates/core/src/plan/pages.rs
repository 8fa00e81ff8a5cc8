//! One attempt to serve a request that missed: what attempts learn, the rungs of the ladder that are those of `paged`
//! alone, and what an attempt does.

use alloc::vec::Vec;

use millpond_backend::{Point, StreamId};

use crate::books::Points;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::ShardId;
use crate::plan::phase::{Phase, Turned};
use crate::plan::step::{Polled, Step};
use crate::plan::{Allowance, Goal, Plan, Request};
use crate::plan::{Attempt, Rung};
use crate::policy::Growth;
use crate::policy::Source;
use crate::shard::Grant;
use crate::size::Want;

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
    pub(crate) fn is_as_missed(&self, plan: &mut Plan, shards: &mut dyn Shards) -> bool {
        let (home, _) = plan.request.allocation();
        plan.request.missed_at.take().is_some_and(|changes| changes == shards.with(home, |home| home.changes()))
    }

    /// Climbs one rung of `paged` alone. From an attempt that nothing has served: tries again when others have released
    /// memory, or else waits for what is outstanding.
    pub(crate) fn climb_pages(&mut self, rung: Rung, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
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
        let progressed = self.turns.others_progressed(&plan.standing);
        if (progressed || self.turns.others_hold(&plan.standing)) && plan.standing.may_repeat() {
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

impl Coordinator {
    /// Makes one attempt to serve a request that missed.
    pub(crate) fn attempt(&mut self, rung: Rung, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let (_, want) = plan.request.allocation();
        // What is not known to be over may be. Asking first makes what follows depend on how far the device is, and not
        // on which plan asked last.
        if plan.knows.times == Times::Unasked {
            plan.knows.times = Times::Told;
            // Where there is nobody to ask, it is told what time it is.
            return Phase::Climb(rung).after(Step::Poll(self.streams_to_ask(plan, shards)));
        }
        let frees = match self.find_by_news(plan, shards) {
            Ok(grant) => return Phase::end(Step::Grant(grant)),
            Err(frees) => frees,
        };
        self.turns.begin_attempt(&mut plan.standing);
        if !plan.standing.keeps_turn() {
            plan.standing.frees = frees + self.frees(Some(plan.request.allocation().0), shards);
        }
        if !self.headroom.could_hold(want.rounded) {
            // No wait would help.
            return if self.settings.throw_on_oom { self.reject(plan, shards) } else { Rung::Refuse.turn() };
        }
        let is_rejected =
            self.settings.throw_on_oom && !plan.knows.lacks.new_pages && plan.request.allowance.most().is_none();
        plan.knows.lacks.budget = plan.request.allowance == Allowance::Unasked;
        match self.find_way(rung, plan, shards) {
            Some(turned) => turned,
            // Neither idle memory nor what may be created suffices: refused at once, where that is asked for.
            None if is_rejected => self.reject(plan, shards),
            None => rung.refused().turn(),
        }
    }

    /// Returns whether the device still uses free memory of a home that a stream would have to wait for, where that
    /// matters. Costs a look at each stream that is behind, and at each free block if one is.
    pub(crate) fn is_behind(&self, home: ShardId, stream: StreamId, shards: &mut dyn Shards) -> bool {
        let is_behind = |point: Point| point.stream != stream && self.pending.is_behind(point);
        self.paging.growth == Growth::Balanced
            && shards.with(home, |home| {
                home.memory.guards.seen.latest_points().any(is_behind) && home.memory.free_points().any(is_behind)
            })
    }

    /// Returns the streams that freed memory waits for: of the home of the request, and blocks of all pools.
    fn streams_to_ask(&self, plan: &Plan, shards: &mut dyn Shards) -> Vec<StreamId> {
        let (home, _) = plan.request.allocation();
        let mut streams =
            [shards.with(home, |home| home.memory.guards.seen.streams_to_ask()), self.pending.waited_for()].concat();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// Takes in how far streams were at a time, if that is known and they were asked for a request of a home, and marks
    /// those of which a tick was closed then. What they do in other homes counts once those ask.
    pub(crate) fn note_pace(&mut self, by: &Request, streams: &[Polled], time: Option<u64>, shards: &mut dyn Shards) {
        let (Some(time), Goal::Allocate(home, _)) = (time, by.goal) else { return };
        if self.traits_of(home).source != Source::Pages {
            return;
        }
        self.paging.pace.look(streams.iter().map(|at| Point { stream: at.stream, tick: at.reached }), time);
        for (at, tick) in streams.iter().filter_map(|at| Some((at, at.closed?))) {
            let granted = shards.with(home, |home| home.memory.guards.seen.new_grants_to(at.stream));
            self.paging.pace.mark(Point { stream: at.stream, tick }, at.reached >= tick, granted);
        }
    }

    /// Tells the home how far streams have come, and looks for a free block if the plan was told of it, too. Where
    /// there is none, returns the number of blocks of the home that were freed before that.
    pub(crate) fn find_by_news(&mut self, plan: &mut Plan, shards: &mut dyn Shards) -> Result<Grant, u64> {
        let (home, want) = plan.request.allocation();
        let has_news = core::mem::replace(&mut plan.knows.times, Times::Seen) == Times::Told;
        let (clock, by) = (plan.request.clock(), self.requester_of(plan));
        let found = self.tell_news(home, shards, |home| {
            let grant = if has_news { home.find_and_take(&want, clock, by) } else { None };
            grant.ok_or_else(|| home.frees())
        });
        found.map(|grant| self.settled(home, grant, shards))
    }

    /// Returns the most bytes that were live in the shard's pool since the program began anew, or will be once the
    /// request is served, where `live` bytes are now. A request that is refused leaves no trace in it. Where there is
    /// but one pool, and it has not begun anew since peaks were reset, that is what the device's peak says; else what
    /// was seen at requests that missed.
    pub(crate) fn high_live(&mut self, shard: ShardId, want: &Want, shards: &mut dyn Shards) -> u64 {
        let live = shards.with(shard, |shard| shard.live_bytes());
        self.note_live(shard, live);
        let most = match self.pools.has_private() {
            false => self.most_live(),
            true => self.pools.most_live(self.pool_of(shard)),
        };
        most.max(live + want.rounded)
    }

    /// Returns the number of bytes that may be created at all.
    pub(crate) fn room(&self, plan: &Plan) -> u64 {
        if plan.knows.lacks.new_pages {
            return 0;
        }
        let throw_above = if self.settings.throw_on_oom { self.throw_above() } else { u64::MAX };
        self.headroom.room(Some(throw_above.min(plan.request.allowance.most().unwrap_or(u64::MAX))))
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
