//! The queue of plans that wait for their turn: it keeps plans that run at the same time from disturbing each other
//! where memory is short.
//!
//! Most plans run side by side. A plan that is about to be refused may not rely on what it sees then: another plan may
//! hold memory that it will not need, or be about to give some back, and a third may take what the plan itself
//! released. So the plan takes a place in a queue. While the queue is not empty, a plan that has claimed nothing takes
//! a place of its own there before it claims or asks for anything; a plan that has claimed something goes on to its
//! end. The first in the queue looks again whenever another plan has finished something. Once no other plan holds
//! anything, it goes through the last part of its ladder alone: it sees what it would see if there were one lock around
//! every request, as in PyTorch. Cached blocks are handed out and taken back all the while.
//!
//! Every wait here is for a plan that holds something, or for one that is earlier in the queue. Plans that hold
//! something never wait here. A plan enters the queue at most once for each rung, and the number of rungs is bounded.
//! So each plan has its turn after a bounded number of driver calls and of waits for the device by the plans before it.

use super::Times;
use super::phase::{Asked, Phase, Turned};
use super::rung::{Attempt, Rung};
use super::step::Step;
use super::{Goal, Plan, Run};
use crate::coordinator::Coordinator;

impl Coordinator {
    /// Returns a count of what may have changed the picture for plans that pause. A [`Step::Pause`] is over once this
    /// is another number than the step names.
    pub fn progress(&self) -> u64 {
        self.turns.progress()
    }

    /// Returns whether some plan holds something that others may be short of, or waits for its turn. With no plan under
    /// way it is false.
    pub fn is_held(&self) -> bool {
        self.turns.is_held()
    }

    /// Returns the number of the turn in which one plan goes through the last part of its ladder, if one does. Each
    /// turn has a number of its own. Until it is over [`retire_ready`](Self::retire_ready) does nothing.
    pub fn turn(&self) -> Option<u64> {
        self.turns.turn()
    }

    /// Forgets a plan that will not go on, because something panicked while the coordinator worked on it: no plan waits
    /// for it any more. What it has claimed, and what it asked the driver for, is lost: it is granted to no request,
    /// and counts against the limit.
    pub fn lose(&mut self, plan: &mut Plan) {
        self.turns.lose(&mut plan.standing);
    }
}

impl Run<'_> {
    /// Returns whether blocks were freed since they were counted or noted.
    pub(crate) fn were_freed(&mut self) -> bool {
        self.core.frees(None, self.shards) != self.plan.standing.frees
    }

    /// Has a plan that is about to enter a rung stand back while another has its turn. `None`: it goes on.
    pub(crate) fn stand_back(&mut self, rung: Rung) -> Option<Turned> {
        if rung.passes_queue() || !self.core.turns.has_queue() || self.core.turns.has_turn(&self.plan.standing) {
            return None;
        }
        if self.plan.request.goal == Goal::Reclaim {
            // A free waits for no other plan: what it leaves goes back before the next allocation.
            return Some(Phase::Over.turn());
        }
        self.core.turns.stand_back(&mut self.plan.standing);
        Some(self.pause(rung))
    }

    /// Waits for the plan's turn, and then until no other plan holds anything: the rung before the last part of the
    /// ladder. Whenever others have ended something the plan makes its first attempt again. Once it is alone, it goes
    /// on to `last`.
    pub(crate) fn wait_for_turn(&mut self, last: Rung) -> Turned {
        self.core.turns.keep_turn(&mut self.plan.standing);
        if !self.core.turns.has_turn(&self.plan.standing) {
            return self.pause(Rung::Turn);
        }
        // From here on nothing changes in the shards between two looks of one step.
        self.shards.hold();
        if self.core.turns.others_progressed(&self.plan.standing) {
            return Rung::Grow(Attempt::First).turn();
        }
        if self.core.turns.others_hold(&self.plan.standing) {
            return self.pause(Rung::Turn);
        }
        self.plan.standing.forget_repeats();
        last.turn()
    }

    /// Has a plan wait until other plans have ended something, before it enters a rung.
    pub(crate) fn pause(&mut self, rung: Rung) -> Turned {
        // By then the device may have come further.
        self.plan.knows.times = Times::Unasked;
        (Phase::Asked(Asked::Pause(rung)), Some(Step::Pause { seen: self.core.turns.progress() }))
    }

    /// Returns whether a plan that was refused in its turn goes through the last part of its ladder once more: if
    /// blocks were freed since the wait for everything outstanding. Those may not have been free then, while others
    /// that were free have been handed out: to a program that never has more than there is, all looks as if it had
    /// both. So the plan waits for them once more; what was free before is released by now, so a second time there is
    /// nothing left to hand out.
    pub(crate) fn has_second_round(&mut self) -> bool {
        self.plan.standing.begin_second_round() && self.were_freed()
    }

    /// Keeps the books, after each thing that a plan has done, of whether it holds something, and whether its turn is
    /// over. `step` is what it asks for next, if it has said so.
    pub(crate) fn keep_count(&mut self, step: Option<&Step>) {
        let holds = self.plan.phase.holds();
        self.core.turns.count(&mut self.plan.standing, holds);
        // A plan that only stood back gives its place up as soon as others see what it does, or it has to wait.
        let is_over = step.is_some_and(|step| {
            let waits = matches!(step, Step::Wait(_) | Step::Synchronize(_));
            step.is_end()
                || (!self.plan.standing.keeps_turn()
                    && self.core.turns.has_turn(&self.plan.standing)
                    && (holds || waits))
        });
        if is_over {
            self.core.turns.leave(&mut self.plan.standing);
        }
    }
}
