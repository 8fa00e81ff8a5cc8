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

/// How often a plan repeats an attempt that others have spoiled, before it waits for its turn: a bound that says when
/// the quick way leads nowhere.
const REPEATS_MAX: u32 = 64;

/// Which plans hold something, and which wait.
#[derive(Clone, Default)]
pub(crate) struct Turns {
    /// The number of plans that hold something which others may be short of: claimed memory, or bytes that the driver
    /// is asked for.
    holders: u32,
    /// Counts what may change the picture for a plan that found nothing: a release that ended, a plan that holds
    /// nothing any more, a turn that is over.
    pub(crate) progress: u64,
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
    pub(crate) frees: u64,
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

    /// Begins to count repetitions anew.
    pub(crate) fn forget_repeats(&mut self) {
        self.repeats = 0;
    }

    /// Begins the second round through the last part of the ladder. Returns whether the plan is in its turn, and was in
    /// the first.
    pub(crate) fn begin_second_round(&mut self) -> bool {
        let Rank::Turn(ticket, round) = self.rank else { return false };
        self.rank = Rank::Turn(ticket, Round::Second);
        round == Round::First
    }

    fn ticket(&self) -> Option<Ticket> {
        match self.rank {
            Rank::Beside => None,
            Rank::Back(ticket) | Rank::Turn(ticket, _) => Some(ticket),
        }
    }
}

impl Turns {
    /// Returns whether some plan holds something that others may be short of, or waits for its turn.
    pub(crate) fn is_held(&self) -> bool {
        self.holders > 0 || self.has_queue()
    }

    /// Counts something that came back. It is no news to the plan that gave it.
    pub(crate) fn note_progress(&mut self, by: &mut Standing) {
        self.progress += 1;
        by.seen += 1;
    }

    /// Begins an attempt: what happens from here on may change what comes of it.
    pub(crate) fn begin_attempt(&self, of: &mut Standing) {
        of.seen = self.progress;
    }

    /// Returns whether other plans have ended something since the attempt began.
    pub(crate) fn others_progressed(&self, of: &Standing) -> bool {
        of.seen != self.progress
    }

    /// Returns whether other plans hold something.
    pub(crate) fn others_hold(&self, of: &Standing) -> bool {
        self.holders > u32::from(of.holds)
    }

    /// Returns whether plans wait for their turn, or one has it.
    pub(crate) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns whether one plan goes through the last part of its ladder: what becomes free is for it to look at first.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.front().is_some_and(|place| place.keeps)
    }

    /// Returns the number of the turn in which one plan goes through the last part of its ladder, if one does.
    pub(crate) fn turn(&self) -> Option<u64> {
        self.queue.front().filter(|_| self.is_closed()).map(|place| place.ticket.0)
    }

    /// Returns whether a plan is the first in the queue.
    pub(crate) fn has_turn(&self, of: &Standing) -> bool {
        let ticket = of.ticket();
        ticket.is_some() && self.queue.front().map(|place| place.ticket) == ticket
    }

    /// Has a plan stand back while another has its turn.
    pub(crate) fn stand_back(&mut self, of: &mut Standing) {
        if of.ticket().is_none() {
            of.rank = Rank::Back(self.line_up(false));
        }
    }

    /// Has a plan wait for its turn, and keep it until it is answered.
    pub(crate) fn keep_turn(&mut self, of: &mut Standing) {
        if !of.keeps_turn() {
            let ticket = of.ticket().unwrap_or_else(|| self.line_up(true));
            self.queue.iter_mut().filter(|place| place.ticket == ticket).for_each(|place| place.keeps = true);
            of.rank = Rank::Turn(ticket, Round::First);
        }
    }

    /// Counts whether a plan holds something.
    pub(crate) fn count(&mut self, of: &mut Standing, holds: bool) {
        match (core::mem::replace(&mut of.holds, holds), holds) {
            (false, true) => self.holders += 1,
            (true, false) => {
                self.holders -= 1;
                self.note_progress(of);
            }
            _ => {}
        }
    }

    /// Has a plan give up its place in the queue.
    pub(crate) fn leave(&mut self, of: &mut Standing) {
        if let Some(ticket) = of.ticket() {
            of.rank = Rank::Beside;
            self.remove(ticket);
            self.note_progress(of);
        }
    }

    /// Forgets a plan that will not go on.
    pub(crate) fn lose(&mut self, of: &mut Standing) {
        self.holders -= u32::from(core::mem::take(&mut of.holds));
        self.note_progress(of);
        self.leave(of);
    }

    fn line_up(&mut self, keeps: bool) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.queue.push_back(Place { ticket, keeps });
        ticket
    }

    fn remove(&mut self, ticket: Ticket) {
        self.queue.retain(|place| place.ticket != ticket);
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
        turns.remove(tickets[0]);
        assert_eq!(first(&turns), Some((tickets[1], true)));
        turns.remove(tickets[2]);
        turns.remove(tickets[1]);
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
