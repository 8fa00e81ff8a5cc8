//! One attempt to serve a request that missed.

use super::Growth;
use super::climb::{Climb, Knows, Times};
use super::scheme;
use super::sizes;
use super::survey::{self, Means};
use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::plan::Plan;
use crate::coordinator::step::Step;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::ShardId;
use crate::meter::Low;
use crate::policy;
use crate::size::Want;

impl Coordinator {
    /// Makes one attempt to serve a request that missed.
    pub(super) fn attempt(&mut self, mut climb: Climb, plan: &mut Plan, shards: &mut impl Shards) -> Turned {
        let (shard, want) = plan.request.allocation();
        // What is not known to be over may be. Asking first makes what follows depend on how far the device is, and not
        // on which plan asked last.
        if climb.knows.times == Times::Unasked {
            climb.knows.times = Times::Told;
            return climb.again().after(Step::Poll(self.every_stream()));
        }
        if let Some(grant) = self.retire_and_find(&mut climb.knows, plan, shards) {
            return Phase::end(Step::Grant(grant));
        }
        if climb.knows.repeated.is_none() {
            climb.knows.repeated = Some(self.note_miss(&want, shards));
        }
        if !self.settles(&climb.knows, plan, &want)
            && let Some(step) = self.lend(plan, shard, want, shards)
        {
            return Phase::end(step);
        }
        self.begin_attempt(plan);
        if !plan.standing.keeps_turn() {
            self.count_frees(plan, shards);
        }
        if !self.headroom.could_hold(want.rounded) {
            // No wait would help.
            return if self.settings.throw_on_oom {
                self.reject(climb.turn(), plan, shards)
            } else {
                climb.hopeless().turn()
            };
        }
        self.find_scheme(climb, shard, want, plan, shards)
    }

    /// Makes free the blocks whose points are reached by now, which no plan waits for any more and which therefore must
    /// not be missed; what another plan was told is among it. Then looks for a free block, if there is any news.
    fn retire_and_find(
        &mut self,
        knows: &mut Knows,
        plan: &Plan,
        shards: &mut impl Shards,
    ) -> Option<crate::shard::Grant> {
        let waiters = self.pending.waiters();
        self.retire(plan.request.clocks, shards);
        let was_told = core::mem::replace(&mut knows.times, Times::Seen) == Times::Told;
        if was_told || self.pending.waiters() != waiters { self.find(plan, shards) } else { None }
    }

    /// Begins to carry out the cheapest way to serve the request from pages, if there is one.
    fn find_scheme(
        &mut self,
        mut climb: Climb,
        shard: ShardId,
        want: Want,
        plan: &mut Plan,
        shards: &mut impl Shards,
    ) -> Turned {
        let granularity = self.granularity();
        let means = self.survey(&climb.knows, plan, shard, &want, shards);
        let windows = shards.with(shard, |shard| {
            let mut windows = shard.windows(&want, granularity, |page| means.comes_back(page));
            windows.extend(shard.last_window(&want, granularity).filter(|_| climb.knows.lacks.new_range));
            windows
        });
        if windows.is_empty() {
            return self.new_range(policy::Climb::Pages(climb), plan, shards);
        }
        match scheme::choose(self, &means, windows) {
            Some(scheme) => self.begin_job(scheme, climb, plan, shards),
            // There is enough, but wherever the request could lie something is in the way, or holds what could move.
            None if !climb.knows.lacks.new_range && means.suffice(want.rounded) => {
                climb.knows.lacks.new_range = true;
                self.new_range(policy::Climb::Pages(climb), plan, shards)
            }
            // Neither idle memory nor what may be created suffices: refused at once, where that is asked for.
            None if self.settings.throw_on_oom && !climb.knows.lacks.new_pages && plan.request.allowance.is_none() => {
                self.reject(climb.turn(), plan, shards)
            }
            None => climb.refused().again().turn(),
        }
    }

    /// Notes that a request missed, once for each request. Returns the number of known rounds that had to ask for more.
    fn note_miss(&mut self, want: &Want, shards: &mut impl Shards) -> u32 {
        let (low, now) = self.lows(shards);
        self.paging.high_live = self.paging.high_live.max(now.live_bytes as u64 + want.rounded);
        self.paging.largest = self.paging.largest.max(want.rounded);
        self.paging.rounds.miss(&low, &now)
    }

    /// Returns what was live on the device at its lowest since the last miss, and what is live now, in bytes after
    /// rounding. With several streams the first is what it would be if all had been at their lowest together.
    fn lows(&self, shards: &mut impl Shards) -> (Low, Low) {
        let (mut low, mut now) = (Low::default(), Low::default());
        for id in self.shard_ids() {
            let (shard_low, shard_now) = shards.with(id, |shard| shard.take_low());
            low += shard_low;
            now += shard_now;
        }
        (low, now)
    }

    /// Returns whether each stream keeps to its own pages and gets new ones for what it lacks: in a known round, as
    /// long as the slack lasts. Nothing is then lent, and no page comes back.
    fn settles(&self, knows: &Knows, plan: &Plan, want: &Want) -> bool {
        let is_known = knows.repeated.is_some_and(|repeated| repeated > 0);
        is_known && self.paging.growth == Growth::Balanced && self.slack(knows, plan) >= want.rounded
    }

    /// Returns the number of bytes that may be created at all.
    fn room(&self, knows: &Knows, plan: &Plan) -> u64 {
        if knows.lacks.new_pages {
            return 0;
        }
        let throw_above = if self.settings.throw_on_oom { self.throw_above() } else { u64::MAX };
        self.headroom.room(Some(throw_above.min(plan.request.allowance.unwrap_or(u64::MAX))))
    }

    /// Returns how many of those bytes may be created before anything is moved.
    fn slack(&self, knows: &Knows, plan: &Plan) -> u64 {
        let most = sizes::slack(self.paging.growth, self.paging.high_live, knows.repeated.unwrap_or(0));
        most.saturating_sub(self.headroom.with_asked()).min(self.room(knows, plan))
    }

    fn survey(&self, knows: &Knows, plan: &Plan, shard: ShardId, want: &Want, shards: &mut impl Shards) -> Means {
        let reserved = self.headroom.with_asked();
        let free = self.free_pages(shard, !knows.lacks.waits, plan.request.open, shards);
        Means {
            shard,
            by_size: survey::by_size(&free),
            free,
            spare: self.pages.spare().map(|(id, page)| (id, page.bytes)).collect(),
            room: self.room(knows, plan),
            slack: self.slack(knows, plan),
            cap: sizes::page_cap(want.side, reserved + want.rounded, self.paging.largest, self.granularity()),
            settles: self.settles(knows, plan, want),
            tight: self.paging.growth == Growth::Tight,
        }
    }
}
