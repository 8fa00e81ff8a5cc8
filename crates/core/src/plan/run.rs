//! A plan taken from step to step.
//!
//! [`Coordinator::next`] has the phase of the plan go on until there is something for the shell to do;
//! [`Coordinator::learn`] takes in what came of it. The other files of this folder have what happens in each phase and
//! on each rung.

use millpond_backend::{Reuse, Tick};

use super::phase::{Asked, Phase, Purpose, Rung, Stopped, Turned};
use super::step::{Outcome, Step};
use super::{Allocation, Allowance, Plan};
use crate::block::LastUse;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::BlockId;
use crate::memory::Requester;
use crate::paged::Times;
use crate::settings::Backing;
use crate::shard::{Grant, NewUser};

/// A plan with what it works on: the books of the coordinator, and the shards.
pub(crate) struct Run<'a> {
    pub(crate) core: &'a mut Coordinator,
    pub(crate) shards: &'a mut dyn Shards,
    pub(crate) plan: &'a mut Plan,
}

impl Coordinator {
    /// Returns the next step of a plan.
    ///
    /// # Panics
    ///
    /// If the outcome of the previous step was not told.
    pub fn next(&mut self, plan: &mut Plan, shards: &mut dyn Shards) -> Step {
        Run { core: self, shards, plan }.next()
    }

    /// Takes in the outcome of the last step.
    ///
    /// # Panics
    ///
    /// If the outcome does not answer the step.
    pub fn learn(&mut self, plan: &mut Plan, outcome: Outcome, shards: &mut dyn Shards) {
        Run { core: self, shards, plan }.learn(outcome);
    }

    /// Ends a plan early: its claims are released, and the next step is [`Step::Done`], or starts to undo what is
    /// half-done.
    pub fn abandon(&mut self, plan: &mut Plan, shards: &mut dyn Shards) {
        Run { core: self, shards, plan }.abandon();
    }

    /// Returns whether plans for homes may have the device asked [before they begin](Self::answer).
    pub fn asks_first(&self) -> bool {
        let is_calm = self.pending.waiters == 0 && !self.turns.has_queue();
        self.backing == Backing::Pages && is_calm && !self.pending.has_captures()
    }

    /// Serves a request that missed in a home if the device's answer shows a free block, which it does in most cases.
    /// Otherwise the plan starts from what is known. `outcome` is that of a [`Step::Poll`] of the first streams of
    /// [`Shard::first_question`](crate::Shard::first_question). Costs a look at each of those, and a search.
    ///
    /// # Panics
    ///
    /// If the plan is for no request, or the outcome is that of another step.
    pub fn answer(&mut self, plan: &mut Plan, outcome: Outcome, shards: &mut dyn Shards) -> Option<Grant> {
        Run { core: self, shards, plan }.answer(outcome)
    }
}

impl Run<'_> {
    fn next(mut self) -> Step {
        if self.plan.standing.keeps_turn() && self.core.turns.has_turn(&self.plan.standing) {
            // Alone among plans: nor do blocks that are handed out or taken back change what it sees.
            self.shards.hold();
        }
        let mut phase = self.take_phase();
        let mut step = loop {
            let turned = self.go_on(phase);
            if let Some(step) = turned.step {
                self.plan.phase = turned.phase;
                break step;
            }
            phase = turned.phase;
        };
        self.shards.let_go();
        self.keep_count(Some(&step));
        self.leave_captured_alone(&mut step);
        if let Step::Pause { seen } = &mut step {
            *seen = self.core.progress();
        }
        step
    }

    fn learn(mut self, outcome: Outcome) {
        match self.take_phase() {
            Phase::Asked(asked) => self.plan.phase = self.answered(asked, outcome),
            phase => panic!("{outcome:?} answers no step: the plan is at {phase:?}"),
        }
        self.keep_count(None);
    }

    fn abandon(mut self) {
        let phase = self.take_phase();
        self.plan.phase = self.give_up(phase);
        self.keep_count(None);
    }

    fn answer(mut self, outcome: Outcome) -> Option<Grant> {
        self.plan.phase = self.told(Phase::Begin, outcome);
        if !self.core.asks_first() {
            // A plan has begun to wait for its turn, a block waits for a point, or a capture has begun.
            return None;
        }
        self.plan.knows.times = Times::Told;
        let served = self.find_by_news().ok();
        if served.is_none() {
            let home = self.plan.request.allocation().shard;
            self.plan.request.missed_at = Some(self.shards.with(home, |home| home.changes()));
            // By the plan's first turn more may be free, so its first attempt searches once more.
            self.plan.knows.times = Times::Told;
        }
        served
    }

    fn take_phase(&mut self) -> Phase {
        core::mem::replace(&mut self.plan.phase, Phase::Over)
    }

    /// Returns the stream that a plan requests memory for, as shards see it.
    pub(crate) fn requester_of(&self) -> Requester {
        let shard = self.plan.request.allocation().shard;
        let stream = self.plan.request.stream.unwrap_or_else(|| self.core.stream_of(shard));
        let usable = match self.core.facts.reuse {
            Reuse::InOrder => Tick(u64::MAX),
            Reuse::AfterSubmit => Tick(self.plan.request.open.0.saturating_sub(1)),
            Reuse::AfterDone => self.core.pending.reached(stream),
        };
        Requester { stream, usable }
    }

    /// Leaves streams that are being captured out of what the shell is asked: a question or a wait would record an
    /// event there.
    fn leave_captured_alone(&self, step: &mut Step) {
        if !self.core.pending.has_captures() {
            return;
        }
        match step {
            Step::Poll(streams) => streams.retain(|&stream| !self.core.pending.is_captured(stream)),
            Step::Wait(points) => points.retain(|point| !self.core.pending.is_captured(point.stream)),
            _ => {}
        }
    }

    /// Has a phase go on.
    fn go_on(&mut self, phase: Phase) -> Turned {
        match phase {
            Phase::Begin => self.first_rung().turn(),
            Phase::Climb(rung) => self.held_back(rung).unwrap_or_else(|| self.climb(rung)),
            Phase::Woken(rung) => self.held_back(rung).unwrap_or_else(|| self.search(rung)),
            Phase::Sweep(sweep) => self.sweep_on(sweep),
            Phase::Extend(block, rung) => self.extend(Some(block), rung),
            Phase::Serve(block) => self.serve(block),
            Phase::Job(job, rung) => self.work_on(job, rung),
            Phase::Unfill(calls, refill, refused) => Phase::call(calls, Purpose::Unfill(refill, refused)),
            Phase::Undo(calls, extension, refused) => Phase::call(calls, Purpose::Undo(extension, refused)),
            Phase::TakeBack(calls, job, rung, refused) => Phase::call(calls, Purpose::TakeBack(job, rung, refused)),
            Phase::Asked(asked) => panic!("the outcome of the last step was not told: {asked:?}"),
            Phase::Refused(report) => self.refuse_with(report),
            Phase::Over => Phase::end(Step::Done),
        }
    }

    /// Ends a plan whose request is of a pool that is closed, or has it stand back while another plan has its turn.
    fn held_back(&mut self, rung: Rung) -> Option<Turned> {
        self.deny_closed().or_else(|| self.stand_back(rung))
    }

    /// Hands out a claimed block.
    pub(crate) fn serve(&mut self, block: BlockId) -> Turned {
        let Allocation { shard, want } = self.plan.request.allocation();
        let clock = self.plan.request.clock();
        let to = NewUser { stream: self.requester_of().stream, last_use: LastUse::NEVER };
        let grant = self.shards.with(shard, |shard| shard.serve(block, &want, clock, to));
        Phase::end(Step::Grant(self.core.settled(shard, grant, self.shards)))
    }

    /// Takes in an outcome, and returns the phase that follows.
    fn answered(&mut self, asked: Asked, outcome: Outcome) -> Phase {
        match (asked, outcome) {
            (Asked::Points(rung), outcome) => self.told(Phase::Climb(rung), outcome),
            (Asked::Sweep(sweep), outcome) => self.told(Phase::Sweep(sweep), outcome),
            (Asked::Pause(rung), Outcome::Done) => Phase::Woken(rung),
            (Asked::Pause(_), Outcome::Failed) => Phase::Over,
            (Asked::Appeal(_), Outcome::Retry) => self.begin_again(),
            (Asked::Appeal(report), Outcome::Done) => Phase::Refused(report),
            (Asked::Release { shard, slot, sweep }, Outcome::Done) => {
                self.shards.with(shard, |shard| shard.memory.segments.vacate(slot));
                self.core.turns.note_progress(&mut self.plan.standing);
                Phase::Sweep(sweep)
            }
            (Asked::Pages(calls, purpose), Outcome::Done) => self.calls_made(calls, *purpose, None),
            (Asked::Pages(calls, purpose), Outcome::Stopped { done, refused }) => {
                self.calls_made(calls, *purpose, Some(Stopped { done, refused }))
            }
            (Asked::Waits(job, rung), outcome) => self.waits_queued(job, rung, outcome),
            (Asked::Memory(reserve), outcome) => self.memory_answered(reserve, outcome),
            (asked, outcome) => panic!("{outcome:?} does not answer {asked:?}"),
        }
    }

    /// Takes in how far streams are, or what the budget leaves. That took time: what is free may be more than the plan
    /// has seen. Returns the phase that follows.
    fn told(&mut self, then: Phase, outcome: Outcome) -> Phase {
        match outcome {
            Outcome::Reached(points) => {
                points.iter().for_each(|point| self.core.pending.note_reached(point.stream, point.tick));
            }
            Outcome::Polled { streams, time } => {
                self.note_pace(&streams, time);
                streams.iter().for_each(|polled| self.core.pending.note_polled(polled));
            }
            Outcome::Left(left) => {
                // The budget is what is left plus what is reserved.
                let most = |left| Allowance::Most(self.core.headroom.with_asked().saturating_add(left));
                self.plan.request.allowance = left.map_or(Allowance::Any, most);
            }
            // A driver that cannot wait any more: the plan ends, its claims go back.
            Outcome::Failed => return self.give_up(then),
            other => panic!("{other:?} does not answer what comes before {then:?}"),
        }
        self.plan.knows.told();
        then
    }

    /// Gives back what a phase holds, and returns the phase that undoes the rest.
    fn give_up(&mut self, phase: Phase) -> Phase {
        match phase {
            Phase::Sweep(sweep) => sweep.give_up(self.plan.request.clocks, self.shards),
            Phase::Extend(block, _) | Phase::Serve(block) => {
                let shard = self.plan.request.allocation().shard;
                self.shards.with(shard, |shard| shard.memory.unclaim(block, self.plan.request.clocks));
            }
            Phase::Job(job, _) => self.pager().give_up(*job),
            // What is half-done is undone, and then the plan is over.
            Phase::Undo(calls, extension, _) => return Phase::Undo(calls, extension, false),
            Phase::Unfill(calls, refill, _) => return Phase::Unfill(calls, refill, false),
            Phase::TakeBack(calls, job, rung, _) => return Phase::TakeBack(calls, job, rung, false),
            Phase::Asked(asked) => panic!("a plan is given up before the outcome of its step was told: {asked:?}"),
            Phase::Begin | Phase::Climb(_) | Phase::Woken(_) | Phase::Refused(_) | Phase::Over => {}
        }
        Phase::Over
    }
}
