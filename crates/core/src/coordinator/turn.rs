//! Whose turn it is: how plans that run at the same time keep out of each other's way where memory is short.
//!
//! Most plans run side by side. One that is about to be refused may not judge by what it sees then: another plan may
//! hold memory that it will not need, or be about to give some back, and a third may take what it released itself. So
//! it takes a place in a queue. While the queue is not empty, a plan that has claimed nothing stands back before it
//! claims or asks for anything, in a place of its own; what has been claimed already goes on to its end. The first in
//! the queue looks again whenever another plan has ended something. Once no other plan holds anything, it goes through
//! the last part of its ladder alone: it sees what it would see if there were one lock around every request, as in
//! PyTorch, while cached blocks are handed out and taken back as ever.
//!
//! Every wait here is for a plan that holds something, or for one that stands before in the queue. Those that hold
//! something never wait here. A plan stands in the queue once for each rung that it comes to, and the rungs end, so
//! each plan has its turn after a bounded number of driver calls and of waits for the device by those before it.

use alloc::collections::VecDeque;

use super::plan::{Awaited, Goal, Plan, Rung};
use super::step::Step;
use super::{Coordinator, Shards};
use crate::ids::Side;
use crate::meter::Lane;

/// Who holds what, and who waits.
#[derive(Default)]
pub(super) struct Turns {
    /// Plans that hold something which others may be short of: claimed memory, or bytes that the driver is asked for.
    holders: u32,
    /// Counts what may change the picture for a plan that found nothing: a release that ended, a plan that holds
    /// nothing any more, a turn that is over.
    progress: u64,
    queue: VecDeque<Place>,
    tickets: u64,
}

/// A plan's place in the queue.
#[derive(Clone, Copy, Debug)]
struct Place {
    ticket: u64,
    /// It would be refused otherwise: it keeps its turn until it is answered.
    keeps: bool,
}

impl Coordinator {
    /// Counts what may have changed the picture for plans that pause. A [`Step::Pause`] is over once this is another
    /// number than the step names.
    pub fn progress(&self) -> u64 {
        self.turns.progress
    }

    /// Some plan holds something that others may be short of, or waits for its turn. With no plan under way it is
    /// false.
    pub fn is_held(&self) -> bool {
        self.turns.holders > 0 || !self.turns.queue.is_empty()
    }

    /// Something came back. It is no news to the plan that gave it.
    pub(super) fn note_progress(&mut self, plan: &mut Plan) {
        self.turns.progress += 1;
        plan.seen += 1;
    }

    /// An attempt begins: what happens from here on may change what comes of it.
    pub(super) fn begin_attempt(&self, plan: &mut Plan) {
        plan.seen = self.turns.progress;
    }

    /// Other plans have ended something since the attempt began.
    pub(super) fn others_progressed(&self, plan: &Plan) -> bool {
        plan.seen != self.turns.progress
    }

    /// Other plans hold something.
    pub(super) fn others_hold(&self, plan: &Plan) -> bool {
        self.turns.holders > u32::from(plan.counted)
    }

    /// One plan goes through the last part of its ladder, and what becomes free is for it to look at first.
    pub(super) fn is_closed(&self) -> bool {
        self.turns.queue.front().is_some_and(|place| place.keeps)
    }

    pub(super) fn has_turn(&self, plan: &Plan) -> bool {
        plan.ticket.is_some() && self.turns.queue.front().map(|place| place.ticket) == plan.ticket
    }

    /// Has a plan stand back while another has its turn. `None`: it goes on.
    pub(super) fn stand_back(&mut self, plan: &mut Plan) -> Option<Step> {
        let goes_on = matches!(plan.rung, Rung::Search | Rung::Turn | Rung::Refuse | Rung::End);
        if goes_on || plan.holds() || self.turns.queue.is_empty() || self.has_turn(plan) {
            return None;
        }
        if plan.goal == Goal::Reclaim {
            // A free waits for nobody: what it leaves goes back before the next allocation.
            plan.rung = Rung::End;
            return None;
        }
        self.queue_up(plan);
        Some(self.pause(plan))
    }

    /// The rung before the last part of the ladder: waits for the plan's turn, then until nobody else holds anything.
    /// Whenever others have ended something the plan goes back to `retry`; once it is alone, on to `last`.
    pub(super) fn wait_for_turn(
        &mut self,
        plan: &mut Plan,
        retry: Rung,
        last: Rung,
        shards: &mut impl Shards,
    ) -> Option<Step> {
        self.queue_up(plan);
        plan.keeps_turn = true;
        for place in self.turns.queue.iter_mut().filter(|place| Some(place.ticket) == plan.ticket) {
            place.keeps = true;
        }
        if !self.has_turn(plan) {
            return Some(self.pause(plan));
        }
        // From here on nothing changes in the shards between two looks of one step.
        shards.hold();
        if self.others_progressed(plan) {
            plan.rung = retry;
            return None;
        }
        if self.others_hold(plan) {
            return Some(self.pause(plan));
        }
        plan.repeats = 0;
        plan.rung = last;
        None
    }

    pub(super) fn pause(&self, plan: &mut Plan) -> Step {
        plan.paused = true;
        // How far the device is may be another story then.
        plan.polled &= !plan.keeps_turn;
        plan.awaits(Awaited::Pause, Step::Pause { seen: self.turns.progress })
    }

    fn queue_up(&mut self, plan: &mut Plan) {
        if plan.ticket.is_none() {
            self.turns.tickets += 1;
            plan.ticket = Some(self.turns.tickets);
            self.turns.queue.push_back(Place { ticket: self.turns.tickets, keeps: plan.keeps_turn });
        }
    }

    fn leave_queue(&mut self, plan: &mut Plan) {
        if let Some(ticket) = plan.ticket.take() {
            self.turns.queue.retain(|place| place.ticket != ticket);
            self.note_progress(plan);
        }
    }

    /// Books, after each thing that a plan has done, whether it holds something, and whether its turn is over. `step`
    /// is what it asks for next, if it has said so.
    pub(super) fn keep_count(&mut self, plan: &mut Plan, step: Option<&Step>) {
        let holds = plan.holds();
        match (plan.counted, holds) {
            (false, true) => self.turns.holders += 1,
            (true, false) => {
                self.turns.holders -= 1;
                self.note_progress(plan);
            }
            _ => {}
        }
        plan.counted = holds;
        // A plan that only stood back gives its place up as soon as others see what it does, or it has to wait.
        let is_over = step.is_some_and(|step| {
            let waits = matches!(step, Step::Wait(_) | Step::Synchronize(_));
            step.is_end() || (!plan.keeps_turn && self.has_turn(plan) && (holds || waits))
        });
        if is_over {
            self.leave_queue(plan);
        }
    }

    /// A plan will not go on, because something panicked while the coordinator worked on it. Nobody waits for it any
    /// more. What it has claimed, and what it asked the driver for, is lost: it is granted to nobody, and counts
    /// against the limit.
    pub fn lose(&mut self, plan: &mut Plan) {
        self.turns.holders -= u32::from(core::mem::take(&mut plan.counted));
        self.note_progress(plan);
        self.leave_queue(plan);
    }

    /// How many blocks were freed so far, on all streams.
    pub(super) fn frees(&self, shards: &mut impl Shards) -> u64 {
        let in_shard = |shard: &mut crate::shard::Shard| {
            Side::BOTH.map(|side| shard.meter.totals(side, Lane::Allocation).1).iter().sum::<u64>()
        };
        self.shard_ids().map(|id| shards.with(id, in_shard)).sum()
    }
}

impl Plan {
    /// It holds something that others may be short of.
    fn holds(&self) -> bool {
        let asks = matches!(self.awaited, Awaited::Segment { .. } | Awaited::Range { .. } | Awaited::Release { .. });
        asks || self.sweep.is_some() || self.growing.is_some() || self.batch.is_some() || self.job.is_some()
    }
}
