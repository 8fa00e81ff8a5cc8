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

use super::phase::{Asked, Phase, Turned};
use super::plan::{Goal, Plan};
use super::step::Step;
use super::{Coordinator, Shards};
use crate::ids::ShardId;
use crate::policy::ladder::{Attempt, Rung};
use crate::policy::paged::Times;

/// How often a plan repeats an attempt that others have spoiled, before it waits for its turn: a bound that says when
/// the quick way leads nowhere.
const REPEATS_MAX: u32 = 64;

/// Which plans hold something, and which wait.
#[derive(Default)]
pub(super) struct Turns {
    /// The number of plans that hold something which others may be short of: claimed memory, or bytes that the driver
    /// is asked for.
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
    ticket: Ticket,
    /// It would be refused otherwise: it keeps its turn until it is answered.
    keeps: bool,
}

/// The number of a place in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ticket(u64);

/// How a plan stands to the others.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Whether it is counted among those that hold something.
    holds: bool,
    rank: Rank,
    /// What the progress of others was when the current attempt began, and what the plan itself has added.
    seen: u64,
    /// The number of blocks that had been freed when the current attempt began: under `paged` each, in a turn all of
    /// the last part of the ladder.
    frees: u64,
    /// How often an attempt was repeated because other threads interfered.
    repeats: u32,
}

/// Where a plan is among those that wait.
#[derive(Clone, Copy, Default, Debug)]
enum Rank {
    /// It runs beside the others.
    #[default]
    Beside,
    /// It stood back while another had its turn, and has a place in the queue for as long as it waits.
    Back(Ticket),
    /// It would be refused otherwise: it waits for its turn, or has it, until it is answered.
    Turn(Ticket, Round),
}

/// How often a plan in its turn has gone through the last part of its ladder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Round {
    First,
    Second,
}

impl Standing {
    /// Returns whether the plan waits for its turn, or has it.
    pub(crate) fn keeps_turn(&self) -> bool {
        matches!(self.rank, Rank::Turn(..))
    }

    /// Returns whether an attempt that others have spoiled may be made once more, and counts it: the one rule of
    /// repetition.
    pub(crate) fn may_repeat(&mut self) -> bool {
        self.repeats = self.repeats.saturating_add(1);
        self.repeats <= REPEATS_MAX
    }

    fn ticket(&self) -> Option<Ticket> {
        match self.rank {
            Rank::Beside => None,
            Rank::Back(ticket) | Rank::Turn(ticket, _) => Some(ticket),
        }
    }
}

impl Turns {
    fn line_up(&mut self, keeps: bool) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.queue.push_back(Place { ticket, keeps });
        ticket
    }

    fn leave(&mut self, ticket: Ticket) {
        self.queue.retain(|place| place.ticket != ticket);
    }
}

impl Coordinator {
    /// Returns a count of what may have changed the picture for plans that pause. A [`Step::Pause`] is over once this
    /// is another number than the step names.
    pub fn progress(&self) -> u64 {
        self.turns.progress
    }

    /// Returns whether some plan holds something that others may be short of, or waits for its turn. With no plan under
    /// way it is false.
    pub fn is_held(&self) -> bool {
        self.turns.holders > 0 || self.has_queue()
    }

    /// Counts something that came back. It is no news to the plan that gave it.
    pub(super) fn note_progress(&mut self, plan: &mut Plan) {
        self.turns.progress += 1;
        plan.standing.seen += 1;
    }

    /// Begins an attempt: what happens from here on may change what comes of it.
    pub(crate) fn begin_attempt(&self, plan: &mut Plan) {
        plan.standing.seen = self.turns.progress;
    }

    /// Notes the number of frees that an attempt, or the last part of the ladder, begins with.
    pub(crate) fn note_frees(&self, plan: &mut Plan, frees: u64) {
        plan.standing.frees = frees;
    }

    /// Returns whether blocks were freed since they were counted or noted.
    pub(crate) fn were_freed(&self, plan: &Plan, shards: &mut dyn Shards) -> bool {
        self.frees(None, shards) != plan.standing.frees
    }

    /// Returns whether other plans have ended something since the attempt began.
    pub(crate) fn others_progressed(&self, plan: &Plan) -> bool {
        plan.standing.seen != self.turns.progress
    }

    /// Returns whether other plans hold something.
    pub(crate) fn others_hold(&self, plan: &Plan) -> bool {
        self.turns.holders > u32::from(plan.standing.holds)
    }

    /// Returns whether plans wait for their turn, or one has it.
    pub(crate) fn has_queue(&self) -> bool {
        !self.turns.queue.is_empty()
    }

    /// Returns whether one plan goes through the last part of its ladder: what becomes free is for it to look at first.
    pub(super) fn is_closed(&self) -> bool {
        self.turns.queue.front().is_some_and(|place| place.keeps)
    }

    /// Returns the number of the turn in which one plan goes through the last part of its ladder, if one does. Each
    /// turn has a number of its own. Until it is over [`retire_ready`](Self::retire_ready) does nothing.
    pub fn turn(&self) -> Option<u64> {
        self.turns.queue.front().filter(|_| self.is_closed()).map(|place| place.ticket.0)
    }

    pub(super) fn has_turn(&self, plan: &Plan) -> bool {
        let ticket = plan.standing.ticket();
        ticket.is_some() && self.turns.queue.front().map(|place| place.ticket) == ticket
    }

    /// Has a plan that is about to enter a rung stand back while another has its turn. `None`: it goes on.
    pub(super) fn stand_back(&mut self, plan: &mut Plan, rung: Rung) -> Option<Turned> {
        if rung.passes_queue() || !self.has_queue() || self.has_turn(plan) {
            return None;
        }
        if plan.request.goal == Goal::Reclaim {
            // A free waits for no other plan: what it leaves goes back before the next allocation.
            return Some(Phase::Over.turn());
        }
        if plan.standing.ticket().is_none() {
            plan.standing.rank = Rank::Back(self.turns.line_up(false));
        }
        Some(self.pause(plan, rung))
    }

    /// Waits for the plan's turn, and then until no other plan holds anything: the rung before the last part of the
    /// ladder. Whenever others have ended something the plan makes its first attempt again. Once it is alone, it goes
    /// on to `last`.
    pub(crate) fn wait_for_turn(&mut self, plan: &mut Plan, last: Rung, shards: &mut dyn Shards) -> Turned {
        if !plan.standing.keeps_turn() {
            let ticket = plan.standing.ticket().unwrap_or_else(|| self.turns.line_up(true));
            self.turns.queue.iter_mut().filter(|place| place.ticket == ticket).for_each(|place| place.keeps = true);
            plan.standing.rank = Rank::Turn(ticket, Round::First);
        }
        if !self.has_turn(plan) {
            return self.pause(plan, Rung::Turn);
        }
        // From here on nothing changes in the shards between two looks of one step.
        shards.hold();
        if self.others_progressed(plan) {
            return Rung::Grow(Attempt::First).turn();
        }
        if self.others_hold(plan) {
            return self.pause(plan, Rung::Turn);
        }
        plan.standing.repeats = 0;
        last.turn()
    }

    /// Has a plan wait until other plans have ended something, before it enters a rung.
    pub(crate) fn pause(&self, plan: &mut Plan, rung: Rung) -> Turned {
        // By then the device may have come further.
        plan.knows.times = Times::Unasked;
        (Phase::Asked(Asked::Pause(rung)), Some(Step::Pause { seen: self.turns.progress }))
    }

    /// Returns whether a plan that was refused in its turn goes through the last part of its ladder once more: if
    /// blocks were freed since the wait for everything outstanding. Those may not have been free then, while others
    /// that were free have been handed out: to a program that never has more than there is, all looks as if it had
    /// both. So the plan waits for them once more; what was free before is released by now, so a second time there is
    /// nothing left to hand out.
    pub(crate) fn has_second_round(&mut self, plan: &mut Plan, shards: &mut dyn Shards) -> bool {
        let Rank::Turn(ticket, round) = plan.standing.rank else { return false };
        plan.standing.rank = Rank::Turn(ticket, Round::Second);
        round == Round::First && self.were_freed(plan, shards)
    }

    /// Keeps the books, after each thing that a plan has done, of whether it holds something, and whether its turn is
    /// over. `step` is what it asks for next, if it has said so.
    pub(super) fn keep_count(&mut self, plan: &mut Plan, step: Option<&Step>) {
        let holds = plan.phase.holds();
        match (core::mem::replace(&mut plan.standing.holds, holds), holds) {
            (false, true) => self.turns.holders += 1,
            (true, false) => {
                self.turns.holders -= 1;
                self.note_progress(plan);
            }
            _ => {}
        }
        // A plan that only stood back gives its place up as soon as others see what it does, or it has to wait.
        let is_over = step.is_some_and(|step| {
            let waits = matches!(step, Step::Wait(_) | Step::Synchronize(_));
            step.is_end() || (!plan.standing.keeps_turn() && self.has_turn(plan) && (holds || waits))
        });
        if is_over {
            self.leave_queue(plan);
        }
    }

    fn leave_queue(&mut self, plan: &mut Plan) {
        if let Some(ticket) = plan.standing.ticket() {
            plan.standing.rank = Rank::Beside;
            self.turns.leave(ticket);
            self.note_progress(plan);
        }
    }

    /// Forgets a plan that will not go on, because something panicked while the coordinator worked on it: no plan waits
    /// for it any more. What it has claimed, and what it asked the driver for, is lost: it is granted to no request,
    /// and counts against the limit.
    pub fn lose(&mut self, plan: &mut Plan) {
        self.turns.holders -= u32::from(core::mem::take(&mut plan.standing.holds));
        self.note_progress(plan);
        self.leave_queue(plan);
    }

    /// Returns the number of blocks that were freed so far, in all shards but one.
    pub(crate) fn frees(&self, but: Option<ShardId>, shards: &mut dyn Shards) -> u64 {
        let others = self.shard_ids().filter(|&id| Some(id) != but);
        others.map(|id| shards.with(id, |shard| shard.frees())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_repeated_a_bounded_number_of_times() {
        let mut standing = Standing::default();
        assert!((0..REPEATS_MAX).all(|_| standing.may_repeat()));
        assert!(!standing.may_repeat() && !standing.may_repeat());
    }

    #[test]
    fn the_queue_is_served_in_order() {
        let mut turns = Turns::default();
        let tickets = [turns.line_up(false), turns.line_up(true), turns.line_up(false)];
        let first = |turns: &Turns| turns.queue.front().map(|place| (place.ticket, place.keeps));
        assert_eq!(first(&turns), Some((tickets[0], false)));
        turns.leave(tickets[0]);
        assert_eq!(first(&turns), Some((tickets[1], true)));
        turns.leave(tickets[2]);
        turns.leave(tickets[1]);
        assert_eq!(first(&turns), None);
    }

    #[test]
    fn a_plan_keeps_its_turn_only_once_it_would_be_refused() {
        let rank = |rank| Standing { rank, ..Standing::default() };
        assert!(rank(Rank::Turn(Ticket(1), Round::Second)).keeps_turn());
        assert!(!rank(Rank::Back(Ticket(1))).keeps_turn() && !rank(Rank::Beside).keeps_turn());
        assert_eq!(rank(Rank::Back(Ticket(1))).ticket(), Some(Ticket(1)));
    }
}
