//! One attempt to serve a request that missed.

use alloc::vec::Vec;

use millpond_backend::{Point, StreamId};

use super::Growth;
use super::climb::Times;
use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::plan::{Allowance, Goal, Plan, Request};
use crate::coordinator::step::{Polled, Step};
use crate::coordinator::{Coordinator, Shards};
use crate::ids::ShardId;
use crate::policy::Source;
use crate::policy::ladder::Rung;
use crate::shard::{Grant, Shard};
use crate::size::Want;

impl Coordinator {
    /// Makes one attempt to serve a request that missed.
    pub(super) fn attempt(&mut self, rung: Rung, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
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
        self.begin_attempt(plan);
        if !plan.standing.keeps_turn() {
            self.note_frees(plan, frees + self.frees(Some(plan.request.allocation().0), shards));
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
    pub(super) fn is_behind(&self, home: ShardId, stream: StreamId, shards: &mut dyn Shards) -> bool {
        let is_behind = |point: Point| point.stream != stream && self.pending.is_behind(point);
        self.paging.growth == Growth::Balanced
            && shards.with(home, |home| home.latest_points().any(is_behind) && home.free_points().any(is_behind))
    }

    /// Returns the streams that freed memory waits for: of the home of the request, and blocks of all pools.
    fn streams_to_ask(&self, plan: &Plan, shards: &mut dyn Shards) -> Vec<StreamId> {
        let (home, _) = plan.request.allocation();
        let mut streams = [shards.with(home, Shard::streams_to_ask), self.pending.waited_for()].concat();
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
            let granted = shards.with(home, |home| home.new_grants_to(at.stream));
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
    pub(super) fn high_live(&mut self, shard: ShardId, want: &Want, shards: &mut dyn Shards) -> u64 {
        let live = shards.with(shard, |shard| shard.live_bytes());
        self.note_live(shard, live);
        let most = match self.pools.has_private() {
            false => self.most_live(),
            true => self.pools.most_live(self.pool_of(shard)),
        };
        most.max(live + want.rounded)
    }

    /// Returns the number of bytes that may be created at all.
    pub(super) fn room(&self, plan: &Plan) -> u64 {
        if plan.knows.lacks.new_pages {
            return 0;
        }
        let throw_above = if self.settings.throw_on_oom { self.throw_above() } else { u64::MAX };
        self.headroom.room(Some(throw_above.min(plan.request.allowance.most().unwrap_or(u64::MAX))))
    }
}
