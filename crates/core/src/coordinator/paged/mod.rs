//! Growth under the `paged` policy: a request that missed is served from pages that are spare, idle elsewhere, or new.
//!
//! One attempt has these parts, in order: [`lend`] looks for a block of another stream that can serve the request where
//! it is; [`survey`] lists the pages that could move; the shard lists the windows in which the request could be served;
//! [`scheme`] calculates what each would cost and takes the cheapest; [`job`] claims what that needs, has the driver
//! calls made, and books what they changed. An attempt that cannot be served waits for the oldest points and is made
//! again, until nothing is left to wait for. [`sizes`] and [`rounds`] determine how large pages are made, and how many
//! are made before any move.

mod job;
mod lend;
mod rounds;
mod scheme;
mod sizes;
mod survey;

use alloc::vec::Vec;

use millpond_backend::{Point, StreamId};

pub(super) use job::Job;

use self::rounds::Rounds;
use self::survey::Means;
use super::plan::{Attempt, Awaited, Plan, REPEATS_MAX, Rung};
use super::step::Step;
use super::{Coordinator, Shards};
use crate::ids::{ShardId, Side};
use crate::meter::Low;
use crate::settings::Growth;
use crate::size::Want;
use crate::stats::PageStats;

/// What `paged` remembers about the whole device.
#[derive(Default)]
pub(super) struct Paging {
    /// The most bytes that were live when a request missed, including that request.
    high_live: u64,
    /// The largest request that missed, in bytes.
    largest: u64,
    rounds: Rounds,
    pub(super) stats: PageStats,
}

impl Coordinator {
    /// Makes one attempt to serve a request that missed.
    pub(super) fn grow_paged(
        &mut self,
        plan: &mut Plan,
        attempt: Attempt,
        shard: ShardId,
        want: Want,
        shards: &mut impl Shards,
    ) -> Option<Step> {
        if plan.refused {
            return self.paged_refused(plan, attempt, shards);
        }
        if plan.job.is_some() {
            return self.go_on(plan, shards);
        }
        // Work that is not known to be over may be over. A query first makes what follows depend on how far the device
        // is, and not on which thread asked last.
        if !core::mem::replace(&mut plan.polled, true) {
            let streams = self.shard_ids().map(|id| self.stream_of(id)).collect();
            return Some(plan.awaits(Awaited::Points, Step::Poll(streams)));
        }
        // The points of some freed blocks are reached by now, perhaps because another plan waited for them. No later
        // wait covers these blocks, so they are retired and searched here.
        let waiters = self.waiters;
        self.retire(plan.clocks, shards);
        if (core::mem::take(&mut plan.news) || self.waiters != waiters)
            && let Some(step) = self.search(plan, shards)
        {
            return Some(step);
        }
        if plan.repeated.is_none() {
            self.note_miss(plan, &want, shards);
        }
        if !self.settles(plan, &want)
            && let Some(step) = self.lend(plan, shard, want, shards)
        {
            return Some(step);
        }
        self.begin_attempt(plan);
        if !plan.keeps_turn {
            plan.frees_seen = self.frees(shards);
        }
        if want.rounded > self.limit.unwrap_or(u64::MAX).min(self.facts.total_bytes) {
            // No wait can help.
            if self.settings.throw_on_oom {
                return self.reject(plan, shard, want, shards);
            }
            plan.rung = Rung::Refuse;
            return None;
        }
        let granularity = self.granularity();
        let means = self.survey(plan, shard, &want, shards);
        let windows = shards.with(shard, |shard| {
            let mut windows = shard.windows(&want, granularity, |page| means.comes_back(page));
            windows.extend(shard.last_window(&want, granularity).filter(|_| plan.ranged));
            windows
        });
        if windows.is_empty() {
            return self.new_range(plan, shard, want, shards);
        }
        match scheme::choose(self, &means, windows) {
            Some(scheme) => self.begin_job(plan, scheme, shards),
            // There is enough memory, but every window is obstructed or contains the memory that would have to move.
            None if !plan.ranged && means.suffice(want.rounded) => {
                plan.ranged = true;
                return self.new_range(plan, shard, want, shards);
            }
            // Neither idle memory nor what may be created suffices. The settings may ask for a refusal at once.
            None if self.settings.throw_on_oom && !plan.no_new_pages && plan.allowance.is_none() => {
                return self.reject(plan, shard, want, shards);
            }
            None => plan.refused = true,
        }
        None
    }

    pub(super) fn granularity(&self) -> u64 {
        match self.facts.pages {
            Some(pages) => pages.granularity,
            None => panic!("a device without virtual memory is asked for pages"),
        }
    }

    /// Returns what was live on the device at its lowest since the last miss, and what is live now, in bytes after
    /// rounding. With several streams the first is a sum of lows that the streams may have had at different times.
    fn lows(&self, shards: &mut impl Shards) -> (Low, Low) {
        let (mut low, mut now) = (Low::default(), Low::default());
        for id in self.shard_ids() {
            for side in Side::BOTH {
                let (shard_low, shard_now) = shards.with(id, |shard| shard.meter.take_low(side));
                low += shard_low;
                now += shard_now;
            }
        }
        (low, now)
    }

    /// Handles an attempt that nothing served: it is made again when others have released memory, and then after a wait
    /// for what is outstanding.
    fn paged_refused(&mut self, plan: &mut Plan, attempt: Attempt, shards: &mut impl Shards) -> Option<Step> {
        plan.refused = false;
        if plan.keeps_turn {
            // The driver may now grant what it refused before memory was given back.
            plan.no_new_pages = false;
            match attempt {
                Attempt::First | Attempt::AfterOversize => plan.rung = Rung::Turn,
                Attempt::AfterWait => plan.rung = Rung::Release,
                Attempt::Last => self.end_turn(plan, shards),
            }
            return None;
        }
        if plan.repeats < REPEATS_MAX && (self.others_hold(plan) || self.others_progressed(plan)) {
            plan.repeats += 1;
            plan.no_new_pages = false;
            return (!self.others_progressed(plan)).then(|| self.pause(plan));
        }
        if attempt == Attempt::First {
            self.scalars.num_alloc_retries += 1;
        }
        plan.rung = Rung::Oldest;
        None
    }

    /// Waits for the oldest outstanding point of each stream; with none left, refuses.
    pub(super) fn wait_for_oldest(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Option<Step> {
        let points = self.oldest_points(shards);
        if points.is_empty() || points.iter().all(|point| plan.waited.contains(point)) {
            plan.rung = Rung::Refuse;
            return None;
        }
        if self.frees(shards) != plan.frees_seen {
            // Other threads go on using what this plan waits for.
            plan.repeats += 1;
            if plan.repeats > REPEATS_MAX {
                plan.rung = Rung::Turn;
                return None;
            }
        }
        plan.waited.clone_from(&points);
        plan.rung = Rung::AfterOldest;
        Some(plan.awaits(Awaited::Points, Step::Wait(points)))
    }

    /// Retires and searches after that wait: what the points freed may serve the request without further growth.
    pub(super) fn after_oldest(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Option<Step> {
        self.retire(plan.clocks, shards);
        plan.rung = Rung::Grow(Attempt::Last);
        plan.polled = false;
        self.search(plan, shards)
    }

    /// Returns the first point on each stream that freed memory waits for, whether as a pending block or as the last
    /// use of a page that could move.
    fn oldest_points(&self, shards: &mut impl Shards) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        let mut lower = |point: Point| {
            if self.is_reached(point) {
                return;
            }
            match points.iter_mut().find(|known| known.stream == point.stream) {
                Some(known) => known.tick = known.tick.min(point.tick),
                None => points.push(point),
            }
        };
        for (stream, queue) in self.queues.iter().enumerate() {
            if let Some(first) = queue.front() {
                let stream = StreamId(stream as u32);
                lower(Point { stream, tick: first.tick });
            }
        }
        let granularity = self.granularity();
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                let stream = shard.stream;
                if let Some(&(tick, _)) = shard.settling.front() {
                    lower(Point { stream, tick });
                }
                for side in Side::BOTH {
                    for block in shard.free_with_pages(side, granularity) {
                        lower(Point { stream, tick: shard.blocks[block].last_use.tick() });
                    }
                }
            });
        }
        points
    }

    /// Notes that a request missed, once for each request.
    fn note_miss(&mut self, plan: &mut Plan, want: &Want, shards: &mut impl Shards) {
        let (low, now) = self.lows(shards);
        self.paging.high_live = self.paging.high_live.max(now.live_bytes as u64 + want.rounded);
        self.paging.largest = self.paging.largest.max(want.rounded);
        plan.repeated = Some(self.paging.rounds.miss(&low, &now));
    }

    /// Returns whether each stream keeps to its own pages and gets new ones for what it lacks: in a known round, as
    /// long as the slack lasts. Nothing is then lent, and no page comes back.
    fn settles(&self, plan: &Plan, want: &Want) -> bool {
        let is_known = plan.repeated.is_some_and(|repeated| repeated > 0);
        is_known && self.settings.growth == Growth::Balanced && self.slack(plan) >= want.rounded
    }

    /// Returns the number of bytes that may be created at all.
    fn room(&self, plan: &Plan) -> u64 {
        let reserved = self.reserved.all.current + self.reserving;
        let throw_above = if self.settings.throw_on_oom { self.throw_above() } else { u64::MAX };
        let most = self.limit.unwrap_or(u64::MAX).min(throw_above).min(plan.allowance.unwrap_or(u64::MAX));
        if plan.no_new_pages { 0 } else { most.saturating_sub(reserved) }
    }

    /// Returns how many of those bytes may be created before anything is moved.
    fn slack(&self, plan: &Plan) -> u64 {
        let reserved = self.reserved.all.current + self.reserving;
        let most = sizes::slack(self.settings.growth, self.paging.high_live, plan.repeated.unwrap_or(0));
        most.saturating_sub(reserved).min(self.room(plan))
    }

    fn survey(&self, plan: &Plan, shard: ShardId, want: &Want, shards: &mut impl Shards) -> Means {
        let reserved = self.reserved.all.current + self.reserving;
        let idle = self.idle_pages(shard, !plan.no_waits, plan.open, shards);
        Means {
            shard,
            by_size: survey::by_size(&idle),
            idle,
            spare: self.pages.spare.iter().map(|&page| (page, self.pages[page].bytes)).collect(),
            room: self.room(plan),
            slack: self.slack(plan),
            cap: sizes::page_cap(want.side, reserved + want.rounded, self.paging.largest, self.granularity()),
            settles: self.settles(plan, want),
            tight: self.settings.growth == Growth::Tight,
        }
    }
}
