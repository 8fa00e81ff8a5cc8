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

use alloc::collections::VecDeque;

use super::plan::{Awaited, Goal, Plan, Rung};
use super::step::Step;
use super::{Coordinator, Shards};
use crate::ids::Side;
use crate::meter::Lane;

/// The plans that hold something, and those that wait.
#[derive(Default)]
pub(super) struct Turns {
    /// The number of plans that hold something which others may lack: claimed memory, or bytes that the driver is asked
    /// for.
    holders: u32,
    /// A count of the events after which a plan that found nothing may find something: a release has ended, a plan
    /// holds nothing any more, a turn is over.
    progress: u64,
    queue: VecDeque<Place>,
    tickets: u64,
}

/// A plan's place in the queue.
#[derive(Clone, Copy, Debug)]
struct Place {
    ticket: u64,
    /// Whether the plan would be refused otherwise: it then keeps its turn until it is answered.
    keeps: bool,
}

impl Coordinator {
    /// Returns the count of events that plans in a pause wait for. A [`Step::Pause`] is over once this differs from the
    /// number that the step holds.
    pub fn progress(&self) -> u64 {
        self.turns.progress
    }

    /// Returns whether a plan holds something that others may lack, or waits for its turn. It is `false` while no plan
    /// is under way.
    pub fn is_held(&self) -> bool {
        self.turns.holders > 0 || !self.turns.queue.is_empty()
    }

    /// Counts memory that a plan has given back. The plan that gave it does not count this as progress of others.
    pub(super) fn note_progress(&mut self, plan: &mut Plan) {
        self.turns.progress += 1;
        plan.seen += 1;
    }

    /// Begins an attempt: what other plans finish from here on may change its result.
    pub(super) fn begin_attempt(&self, plan: &mut Plan) {
        plan.seen = self.turns.progress;
    }

    /// Returns whether other plans have finished something since the attempt began.
    pub(super) fn others_progressed(&self, plan: &Plan) -> bool {
        plan.seen != self.turns.progress
    }

    /// Returns whether other plans hold something.
    pub(super) fn others_hold(&self, plan: &Plan) -> bool {
        self.turns.holders > u32::from(plan.counted)
    }

    /// Returns whether a plan has the last part of its ladder to itself. What becomes free is then for that plan to
    /// look at first.
    pub(super) fn is_closed(&self) -> bool {
        self.turns.queue.front().is_some_and(|place| place.keeps)
    }

    pub(super) fn has_turn(&self, plan: &Plan) -> bool {
        plan.ticket.is_some() && self.turns.queue.front().map(|place| place.ticket) == plan.ticket
    }

    /// Makes a plan wait while another has its turn. `None` means that it goes on.
    pub(super) fn stand_back(&mut self, plan: &mut Plan) -> Option<Step> {
        let goes_on = matches!(plan.rung, Rung::Search | Rung::Turn | Rung::Refuse | Rung::End);
        if goes_on || plan.holds() || self.turns.queue.is_empty() || self.has_turn(plan) {
            return None;
        }
        if plan.goal == Goal::Reclaim {
            // A free does not wait for other plans: what it leaves is given back before the next allocation.
            plan.rung = Rung::End;
            return None;
        }
        self.queue_up(plan);
        Some(self.pause(plan))
    }

    /// Waits for the plan's turn, before the last part of the ladder, and then until no other plan holds anything.
    /// Whenever other plans have finished something the plan goes back to `retry`; once it is alone, it goes on to
    /// `last`.
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
        // From here on the shards do not change between two looks of one step.
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
        // The device may have advanced by the end of the pause, so a plan that keeps its turn polls again.
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

    /// Updates, after each thing that a plan has done, whether the plan holds something and whether its turn is over.
    /// `step` is the next step of the plan, if it is known.
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
        // A plan that only stood back gives up its place as soon as it holds something that others see, or has to wait
        // for the device.
        let is_over = step.is_some_and(|step| {
            let waits = matches!(step, Step::Wait(_) | Step::Synchronize(_));
            step.is_end() || (!plan.keeps_turn && self.has_turn(plan) && (holds || waits))
        });
        if is_over {
            self.leave_queue(plan);
        }
    }

    /// Removes a plan that will not go on, because something panicked while the coordinator worked on it. No other plan
    /// waits for it any more. What it has claimed, and what it asked the driver for, is lost: it is never granted to a
    /// request, and counts against the limit.
    pub fn lose(&mut self, plan: &mut Plan) {
        self.turns.holders -= u32::from(core::mem::take(&mut plan.counted));
        self.note_progress(plan);
        self.leave_queue(plan);
    }

    /// Returns how many blocks were freed so far, on all streams.
    pub(super) fn frees(&self, shards: &mut impl Shards) -> u64 {
        let in_shard = |shard: &mut crate::shard::Shard| {
            Side::BOTH.map(|side| shard.meter.totals(side, Lane::Allocation).1).iter().sum::<u64>()
        };
        self.shard_ids().map(|id| shards.with(id, in_shard)).sum()
    }
}

impl Plan {
    /// Returns whether the plan holds something that others may lack.
    fn holds(&self) -> bool {
        let asks = matches!(self.awaited, Awaited::Segment { .. } | Awaited::Range { .. } | Awaited::Release { .. });
        asks || self.sweep.is_some() || self.growing.is_some() || self.batch.is_some() || self.job.is_some()
    }
}
