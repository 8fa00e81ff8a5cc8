//! One attempt to serve a request that missed: what attempts learn, the rungs of the ladder that are those of `paged`
//! alone, and what an attempt does.

use alloc::boxed::Box;
use alloc::vec::Vec;

use millpond_backend::{Point, StreamId};

use super::phase::{Asked, Attempt, Phase, Purpose, Rung, Turned};
use super::step::{Outcome, Step};
use super::{Allocation, Allowance, Goal, Placing, Run};
use crate::books::{Addresses, PageCall, Polled};
use crate::paged::{Job, Pager, Taker, Times, Way};
use crate::settings::Backing;
use crate::shard::Grant;

impl Run<'_> {
    /// Returns whether nothing has happened in the home since the request missed there, the first time it is asked.
    pub(crate) fn is_as_missed(&mut self) -> bool {
        let home = self.plan.request.allocation().shard;
        let missed_at = self.plan.request.missed_at.take();
        missed_at.is_some_and(|changes| changes == self.shards.with(home, |home| home.changes()))
    }

    /// Climbs one rung of `paged` alone. From an attempt that nothing has served: tries again when others have released
    /// memory, or else waits for what is outstanding.
    pub(crate) fn climb_pages(&mut self, rung: Rung) -> Turned {
        let attempt = match rung {
            Rung::Refused(_) if self.plan.request.is_cached_only() => return Rung::Refuse.turn(),
            Rung::Refused(attempt) => attempt,
            Rung::Oldest => return self.wait_for_oldest(),
            _ => return self.attempt(rung),
        };
        if self.plan.standing.keeps_turn() {
            // What the driver refused before memory came back it may grant now.
            self.plan.knows.lacks.forget_refusals();
            return match attempt {
                Attempt::First => Rung::Turn.turn(),
                Attempt::Last if self.has_second_round() => Rung::Flush.turn(),
                _ => rung.next(self.plan.gathers).turn(),
            };
        }
        let progressed = self.core.turns.others_progressed(&self.plan.standing);
        if (progressed || self.core.turns.others_hold(&self.plan.standing)) && self.plan.standing.may_repeat() {
            self.plan.knows.lacks.forget_refusals();
            let again = Rung::Grow(attempt);
            return if progressed { again.turn() } else { self.pause(again) };
        }
        if attempt == Attempt::First {
            if let Some(served) = self.find_in_other_pools() {
                return served;
            }
            self.core.scalars.num_alloc_retries += 1;
        }
        rung.next(self.plan.gathers).turn()
    }

    /// Waits for the oldest outstanding point of each stream; with none left, takes its turn or refuses.
    fn wait_for_oldest(&mut self) -> Turned {
        if self.core.pending.has_ready() {
            // Another plan has waited for these points, and has not come to what they free.
            return Rung::LookAgain.turn();
        }
        let taker = self.taker();
        let points = self.pager().oldest_points(taker);
        if points.iter().all(|Point { stream, tick }| self.plan.knows.waited.tick(stream) == Some(tick)) {
            // What can be gathered nowhere may be of use once it was released.
            let may_release = !self.plan.standing.keeps_turn() && !self.pager().gathers_all(taker);
            return if may_release { Rung::Turn } else { Rung::Refuse }.turn();
        }
        // Where others go on using what this plan waits for, that counts as an attempt that they have spoiled.
        if self.were_freed() && !self.plan.standing.may_repeat() {
            return Rung::Turn.turn();
        }
        self.plan.knows.waited = points.clone();
        Phase::Climb(Rung::LookAgain).after(Step::Wait(points.into_vec()))
    }
}

impl Run<'_> {
    /// Makes one attempt to serve a request that missed.
    pub(crate) fn attempt(&mut self, rung: Rung) -> Turned {
        let want = self.plan.request.allocation().want;
        // What is not known to be over may be. Asking first makes what follows depend on how far the device is, and not
        // on which plan asked last.
        if self.plan.knows.times == Times::Unasked {
            self.plan.knows.times = Times::Told;
            // Even a poll of no stream returns the time.
            return Phase::Climb(rung).after(Step::Poll(self.streams_to_ask()));
        }
        let frees = match self.find_by_news() {
            Ok(grant) => return Phase::end(Step::Grant(grant)),
            Err(frees) => frees,
        };
        self.core.turns.begin_attempt(&mut self.plan.standing);
        if !self.plan.standing.keeps_turn() {
            self.plan.standing.frees = frees + self.core.frees(Some(self.plan.request.allocation().shard), self.shards);
        }
        if !self.core.headroom.could_hold(want.rounded) {
            // No wait would help.
            let is_rejected = self.core.settings.throw_on_oom && !self.plan.request.is_cached_only();
            return if is_rejected { self.reject() } else { Rung::Refuse.turn() };
        }
        let is_rejected = self.core.settings.throw_on_oom
            && !self.plan.knows.lacks.new_pages
            && self.plan.request.allowance.most().is_none();
        self.plan.knows.lacks.budget = self.plan.request.allowance == Allowance::Unasked;
        match self.find_way(rung) {
            Some(turned) => turned,
            // Neither idle memory nor what may be created suffices: refused at once, where that is asked for.
            None if is_rejected => self.reject(),
            None => rung.refused().turn(),
        }
    }

    /// Returns the streams that freed memory waits for: of the home of the request, and blocks of all pools.
    fn streams_to_ask(&mut self) -> Vec<StreamId> {
        let home = self.plan.request.allocation().shard;
        let mut streams =
            [self.shards.with(home, |home| home.memory.guards.seen.streams_to_ask()), self.core.pending.waited_for()]
                .concat();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// Takes in how far streams were at a time, if that is known and they were asked for a request of a home, and marks
    /// those of which a tick was closed then. What they do in other homes counts once those ask.
    pub(crate) fn note_pace(&mut self, streams: &[Polled], time: Option<u64>) {
        let (Some(time), Goal::Allocate(Allocation { shard: home, .. })) = (time, self.plan.request.goal) else {
            return;
        };
        if self.core.backing_of(home) != Backing::Pages {
            return;
        }
        self.core.paging.pace.look(streams.iter().map(|at| Point { stream: at.stream, tick: at.reached }), time);
        for (at, tick) in streams.iter().filter_map(|at| Some((at, at.closed?))) {
            let granted = self.shards.with(home, |home| home.memory.guards.seen.new_grants_to(at.stream));
            self.core.paging.pace.mark(Point { stream: at.stream, tick }, at.reached >= tick, granted);
        }
    }

    /// Updates the home with how far streams have come, and looks for a free block if the plan was told of it, too.
    /// Where there is none, returns the number of blocks of the home that were freed before that.
    pub(crate) fn find_by_news(&mut self) -> Result<Grant, u64> {
        let Allocation { shard: home, want } = self.plan.request.allocation();
        let was_told = core::mem::replace(&mut self.plan.knows.times, Times::Seen) == Times::Told;
        let has_news = was_told && self.plan.request.is_anywhere();
        let (clock, by) = (self.plan.request.clock(), self.requester_of());
        if was_told && self.core.pending.waiters > 0 {
            self.core.retire_pending(self.plan.request.clocks, self.shards);
        }
        let found = self.core.tell_news(home, self.shards, |home| {
            let grant = if has_news { home.find_and_take(&want, clock, by) } else { None };
            grant.ok_or_else(|| home.frees())
        });
        found.map(|grant| self.core.settled(home, grant, self.shards))
    }

    /// Returns the number of bytes that may be created at all.
    pub(crate) fn room(&self) -> u64 {
        if self.plan.knows.lacks.new_pages {
            return 0;
        }
        let throw_above = if self.core.settings.throw_on_oom { self.core.throw_above() } else { u64::MAX };
        self.core.headroom.room(Some(throw_above.min(self.plan.request.allowance.most().unwrap_or(u64::MAX))))
    }

    /// Returns the stream that a plan requests memory for.
    pub(crate) fn taker(&self) -> Taker {
        let Allocation { shard, want } = self.plan.request.allocation();
        let (by, lacks) = (self.requester_of(), self.plan.knows.lacks);
        let (is_capturing, open) = (self.core.is_capturing(by.stream, shard), self.plan.request.open);
        let (clocks, placing) = (self.plan.request.clocks, self.plan.request.placing);
        Taker { shard, by, want, placing, clocks, lacks, is_capturing, open, creates_up_to: 0 }
    }

    /// Takes the first way that serves the request.
    pub(crate) fn find_way(&mut self, rung: Rung) -> Option<Turned> {
        let shard = self.plan.request.allocation().shard;
        let (taker, room) = (self.taker(), self.room());
        let way = self.pager().first_way(taker, room)?;
        Some(match way {
            Way::Job(job) => Phase::Job(Box::new(job), rung).turn(),
            Way::Spoiled(job) => {
                self.pager().give_up(job);
                if self.plan.standing.may_repeat() { rung } else { rung.refused() }.turn()
            }
            Way::Range(Addresses::Windows(bytes)) if self.pager().has_few_addresses(shard, bytes) => {
                let calls = self.pager().calls_to_end(|of| of == shard, |freed, _| freed >= bytes);
                if calls.is_empty() {
                    self.plan.knows.lacks.windows = true;
                    return Some(rung.turn());
                }
                Phase::call(calls, Purpose::EndWindows(rung))
            }
            Way::Range(addresses) => self.new_range(rung, addresses),
            Way::Found(grant) => Phase::end(Step::Grant(self.core.settled(shard, grant, self.shards))),
            Way::Segment(bytes) => self.new_segment(shard, bytes, rung),
            Way::End(calls) => Phase::call(calls, Purpose::EndWindows(rung)),
            Way::Budget => Phase::Climb(rung).after(Step::Budget),
            Way::GiveBack { down_to, of } => {
                // The driver may grant then what it has refused.
                (self.plan.knows.lacks.idle, self.plan.knows.lacks.new_pages) = (true, false);
                self.sweep_idle(down_to, of).then(rung).turn()
            }
            Way::Stuck(why) => Phase::end(Step::Stuck(why)),
        })
    }

    /// Has a job go on: its waits are queued, then its page calls made, then the block is handed out.
    pub(crate) fn work_on(&mut self, mut job: Box<Job>, rung: Rung) -> Turned {
        if let Some(points) = job.waits() {
            let step = Step::StreamWait { stream: job.taker.by.stream, points };
            return Asked::Waits(job, rung).by(step);
        }
        match job.calls() {
            Some(calls) => Phase::call(calls, Purpose::Back(job, rung)),
            None => {
                let is_growth = matches!(self.plan.request.placing, Placing::After(..));
                let grant = self.pager().serve(*job);
                Phase::end(if is_growth { Step::Grown(grant) } else { Step::Grant(grant) })
            }
        }
    }

    /// Takes in whether the waits of a job are queued on the stream. If a stream cannot take part in one now, the
    /// attempt is made again without waits; those that were queued do no harm.
    pub(crate) fn waits_queued(&mut self, mut job: Box<Job>, rung: Rung, outcome: Outcome) -> Phase {
        if let Outcome::Waits(tick) = outcome {
            self.pager().note_waits(&mut job, tick);
            return Phase::Job(job, rung);
        }
        assert!(
            matches!(outcome, Outcome::Refused | Outcome::Failed),
            "{outcome:?} does not answer the waits of {job:?}"
        );
        self.pager().give_up(*job);
        if outcome == Outcome::Failed {
            return Phase::Over;
        }
        self.plan.knows.lacks.waits = true;
        Phase::Climb(rung)
    }

    /// Takes in that the calls of a job were made, or that one failed after those that were `made`.
    pub(crate) fn backed(&mut self, mut job: Box<Job>, rung: Rung, made: &[PageCall], stopped: Option<bool>) -> Phase {
        self.pager().note_calls(&mut job, made);
        let Some(refused) = stopped else { return Phase::Job(job, rung) };
        if !self.plan.request.is_anywhere() {
            return self.take_back(job, rung, refused);
        }
        let lacks_windows = self.pager().undo(*job);
        if !refused {
            return Phase::Over;
        }
        self.plan.knows.lacks.windows |= lacks_windows;
        self.plan.knows.lacks.new_pages |= !lacks_windows;
        Phase::Climb(rung)
    }

    /// Takes back what has arrived for a growth or a growable block, of which a call has failed.
    fn take_back(&mut self, job: Box<Job>, rung: Rung, refused: bool) -> Phase {
        let calls = self.pager().calls_to_take_back(&job);
        match calls.is_empty() {
            true => self.taken_back(job, rung, refused, &calls),
            false => Phase::TakeBack(calls, job, rung, refused),
        }
    }

    /// Notes that it is taken back.
    pub(crate) fn taken_back(&mut self, job: Box<Job>, rung: Rung, refused: bool, calls: &[PageCall]) -> Phase {
        for call in calls {
            if let PageCall::Release { page } = *call {
                self.core.headroom.lose(self.core.pages[page].side, self.core.pages[page].bytes);
            }
        }
        self.pager().pages_released(calls);
        self.pager().give_up(*job);
        self.core.turns.note_progress(&mut self.plan.standing);
        self.plan.knows.lacks.new_pages |= refused;
        if refused { Phase::Climb(rung) } else { Phase::Over }
    }

    /// Returns what serves requests that missed.
    pub(crate) fn pager(&mut self) -> Pager<'_> {
        Pager { core: self.core, shards: self.shards }
    }
}
