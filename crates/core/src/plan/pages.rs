//! One attempt to serve a request that missed: what attempts learn, the rungs of the ladder that are those of `paged`
//! alone, and what an attempt does.

use alloc::vec::Vec;

use millpond_backend::{Point, StreamId};

use super::phase::{Asked, Purpose};
use super::step::{Outcome, PageCall};
use crate::books::Addresses;
use crate::coordinator::{Coordinator, Shards};
use crate::paged::Job;
use crate::paged::{Pager, Taker, Times, Way};
use crate::plan::phase::{Phase, Turned};
use crate::plan::step::{Polled, Step};
use crate::plan::{Allowance, Goal, Plan, Request};
use crate::plan::{Attempt, Rung};
use crate::policy::Source;
use crate::shard::Grant;
use alloc::boxed::Box;

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
        let points = self.pager(shards).oldest_points(taker);
        if points.iter().all(|Point { stream, tick }| plan.knows.waited.tick(stream) == Some(tick)) {
            // What can be gathered nowhere may be of use once it was released.
            let may_release = !plan.standing.keeps_turn() && !self.pager(shards).gathers_all(taker);
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

    /// Returns the number of bytes that may be created at all.
    pub(crate) fn room(&self, plan: &Plan) -> u64 {
        if plan.knows.lacks.new_pages {
            return 0;
        }
        let throw_above = if self.settings.throw_on_oom { self.throw_above() } else { u64::MAX };
        self.headroom.room(Some(throw_above.min(plan.request.allowance.most().unwrap_or(u64::MAX))))
    }

    /// Returns the stream that a plan requests memory for.
    pub(crate) fn taker(&self, plan: &Plan) -> Taker {
        let (shard, want) = plan.request.allocation();
        let (by, lacks) = (self.requester_of(plan), plan.knows.lacks);
        let (is_capturing, open) = (self.is_capturing(by.stream, shard), plan.request.open);
        Taker { shard, by, want, clocks: plan.request.clocks, lacks, is_capturing, open, creates_up_to: 0 }
    }

    /// Takes the first way that serves the request.
    pub(crate) fn find_way(&mut self, rung: Rung, plan: &mut Plan, shards: &mut dyn Shards) -> Option<Turned> {
        let (shard, _) = plan.request.allocation();
        let (taker, room) = (self.taker(plan), self.room(plan));
        let way = self.pager(shards).first_way(taker, room)?;
        Some(match way {
            Way::Job(job) => Phase::Window(Box::new(job), rung).turn(),
            Way::Spoiled(job) => {
                self.pager(shards).give_up(job);
                if plan.standing.may_repeat() { rung } else { rung.refused() }.turn()
            }
            Way::Range(Addresses::Windows(bytes)) if self.pager(shards).has_few_addresses(shard, bytes) => {
                let calls = self.pager(shards).calls_to_end(|of| of == shard, |freed, _| freed >= bytes);
                if calls.is_empty() {
                    plan.knows.lacks.windows = true;
                    return Some(rung.turn());
                }
                Phase::call(calls, Purpose::EndWindows(rung))
            }
            Way::Range(addresses) => self.new_range(rung, addresses, plan, shards),
            Way::Found(grant) => Phase::end(Step::Grant(self.settled(shard, grant, shards))),
            Way::Segment(bytes) => self.new_segment(shard, bytes, rung, shards),
            Way::End(calls) => Phase::call(calls, Purpose::EndWindows(rung)),
            Way::Budget => Phase::Climb(rung).after(Step::Budget),
        })
    }

    /// Has a job go on: its waits are queued, then its page calls made, then the block is handed out.
    pub(crate) fn back_window(&mut self, mut job: Box<Job>, rung: Rung, shards: &mut dyn Shards) -> Turned {
        if let Some(points) = job.waits() {
            let step = Step::StreamWait { stream: job.taker.by.stream, points };
            return (Phase::Asked(Asked::Waits(job, rung)), Some(step));
        }
        match job.calls() {
            Some(calls) => Phase::call(calls, Purpose::Back(job, rung)),
            None => Phase::end(Step::Grant(self.pager(shards).serve(*job))),
        }
    }

    /// Takes in whether the waits of a job are queued on the stream. If a stream cannot take part in one now, the
    /// attempt is made again without waits; those that were queued do no harm.
    pub(crate) fn waits_queued(
        &mut self,
        mut job: Box<Job>,
        rung: Rung,
        outcome: Outcome,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Phase {
        if let Outcome::Waits(tick) = outcome {
            self.pager(shards).note_waits(&mut job, tick);
            return Phase::Window(job, rung);
        }
        assert!(
            matches!(outcome, Outcome::Refused | Outcome::Failed),
            "{outcome:?} does not answer the waits of {job:?}"
        );
        self.pager(shards).give_up(*job);
        if outcome == Outcome::Failed {
            return Phase::Over;
        }
        plan.knows.lacks.waits = true;
        Phase::Climb(rung)
    }

    /// Takes in that the calls of a job were made, or that one failed after those that were `made`.
    pub(crate) fn backed(
        &mut self,
        mut job: Box<Job>,
        rung: Rung,
        made: &[PageCall],
        stopped: Option<bool>,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Phase {
        self.pager(shards).note_calls(&mut job, made);
        let Some(refused) = stopped else { return Phase::Window(job, rung) };
        let lacks_windows = self.pager(shards).undo(*job);
        if !refused {
            return Phase::Over;
        }
        plan.knows.lacks.windows |= lacks_windows;
        plan.knows.lacks.new_pages |= !lacks_windows;
        Phase::Climb(rung)
    }

    /// Returns what serves requests that missed.
    pub(crate) fn pager<'a>(&'a mut self, shards: &'a mut dyn Shards) -> Pager<'a> {
        Pager { core: self, shards }
    }
}
