//! Where a plan stands: on a rung of its ladder, which is a table, and in a phase. With the phases is what each of them
//! holds, what the shell was asked for, and what driver calls about pages are for, which are made in batches.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::groups::Refill;
use super::step::{Denied, Report, Step};
use super::{Allocation, Run};
use crate::books::{Addresses, PageCall};
use crate::coordinator::Shards;
use crate::ids::{BlockId, GroupId, SegmentId, ShardBlock, ShardId, Slot};
use crate::paged::Job;
use crate::segment::Role;

/// A rung of the ladder: what a plan tries for a request that missed, rung by rung, and for memory that goes back.
///
/// That of policies that take segments from the driver, `classic` and `direct`, is PyTorch's, with one rung of our own:
/// a plan that would be refused first takes its turn (see `books/turns.rs`), and climbs the rest alone.
///
/// ```text
/// Search ─▶ Collect ─▶ Grow(First) ─▶ Turn ─▶ Oversize ─▶ Grow(AfterOversize) ─▶ Flush ─▶ SearchAgain
///                          ▲           │                                           ▲           │
///                          └── others ─┘                        blocks were freed ─┤           ▼
///                                                             Refuse ◀─ Grow(Last) ◀─ Release ─┘
/// ```
///
/// That of `paged` shares most of its rungs, and waits for the oldest points instead of a release of oversize segments:
///
/// ```text
/// Search ─▶ Collect ─▶ Grow(First) ──▶ Oldest ─▶ LookAgain ─▶ Grow(AfterOldest)
///                       ▲   ▲            │ ▲                       │
///             others    │   │            │ └───────────────────────┘
///             ended ────┘   │            ▼ nothing left to wait for
///             something     │         Refuse ──▶ refused
///                           │            ▼ others may be the reason
///                           └───────── Turn ─▶ Flush ─▶ SearchAgain ─▶ Grow(InTurn) ─▶ Release ─▶ Grow(Last)
///                                                ▲                                                   │
///                                                └─────────────── blocks were freed ──── Refuse ◀────┘
/// ```
///
/// A rung that serves the request ends the plan. One that does not is followed by [`Rung::next`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rung {
    /// Look for a free block.
    Search,
    /// Give back what the policy does not keep while it takes more.
    Collect,
    /// Make an attempt: ask the driver for memory, or under `paged` take the first way that serves the request.
    Grow(Attempt),
    /// Nothing has served an attempt.
    Refused(Attempt),
    /// Wait for the oldest points.
    Oldest,
    /// They are reached: look for a block that is free by that.
    LookAgain,
    /// Wait for the plan's turn, and until no other plan holds anything.
    Turn,
    /// Release oversize segments.
    Oversize,
    /// Wait for everything outstanding.
    Flush,
    /// Look for a block that the wait has freed.
    SearchAgain,
    /// Release everything cached.
    Release,
    /// Refuse the request.
    Refuse,
    /// Of a plan that gives memory back: release what is idle, without waiting.
    Idle,
    /// Of a plan that gives memory back: wait for everything outstanding.
    FlushAll,
    /// Of a plan that gives memory back: release everything cached.
    ReleaseAll,
    /// Of a plan that closes a group: wait until it is alone, and close it.
    Close,
    /// Of a plan that pauses a group: give its pages back.
    Vacate,
    /// Of a plan that resumes a group: get its pages anew.
    Refill,
    /// There was no room for them: wait for the plan's turn.
    RefillAlone,
    /// Get them anew, after everything cached was released.
    RefillLast,
    /// The group stays as it is.
    Deny(Denied),
    /// Of a plan that gives memory back: it is over.
    Done,
}

/// Which attempt it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    First,
    AfterOldest,
    AfterOversize,
    /// In the turn of a plan of `paged`, before everything cached is released.
    InTurn,
    Last,
}

impl Rung {
    /// Returns the rung that follows one that has not served the request: the ladder as a table, of `paged` if the
    /// policy `gathers`.
    pub(crate) fn next(self, gathers: bool) -> Rung {
        match self {
            Rung::Search => Rung::Collect,
            Rung::Collect => Rung::Grow(Attempt::First),
            Rung::Grow(attempt) => Rung::Refused(attempt),
            Rung::Refused(Attempt::First) if !gathers => Rung::Turn,
            Rung::Refused(Attempt::First | Attempt::AfterOldest) => Rung::Oldest,
            Rung::Oldest => Rung::LookAgain,
            Rung::LookAgain => Rung::Grow(Attempt::AfterOldest),
            Rung::Turn if !gathers => Rung::Oversize,
            Rung::Oversize => Rung::Grow(Attempt::AfterOversize),
            Rung::Turn | Rung::Refused(Attempt::AfterOversize) => Rung::Flush,
            Rung::Flush => Rung::SearchAgain,
            Rung::SearchAgain if gathers => Rung::Grow(Attempt::InTurn),
            Rung::SearchAgain | Rung::Refused(Attempt::InTurn) => Rung::Release,
            Rung::Release => Rung::Grow(Attempt::Last),
            Rung::Refused(Attempt::Last) | Rung::Refuse => Rung::Refuse,
            Rung::FlushAll => Rung::ReleaseAll,
            Rung::RefillAlone => Rung::FlushAll,
            Rung::Idle | Rung::ReleaseAll | Rung::Done => Rung::Done,
            Rung::Close | Rung::Vacate | Rung::Refill | Rung::RefillLast | Rung::Deny(_) => Rung::Done,
        }
    }

    /// Returns whether a plan goes on to this rung although another plan has its turn.
    pub(crate) fn passes_queue(self) -> bool {
        matches!(self, Rung::Search | Rung::Turn | Rung::Refuse | Rung::Vacate | Rung::Deny(_) | Rung::Done)
    }

    /// Returns the rung that follows an attempt that the driver or the limit has refused.
    ///
    /// # Panics
    ///
    /// If the rung is no attempt.
    pub(crate) fn refused(self) -> Self {
        let Rung::Grow(attempt) = self else { panic!("{self:?} is no attempt that can be refused") };
        Rung::Refused(attempt)
    }

    /// Goes on at the rung.
    pub(crate) fn turn(self) -> Turned {
        Phase::Climb(self).turn()
    }
}

/// Where a plan is between two steps. Each phase owns what belongs to it, so that no phase reads what another left.
///
/// ```text
///             ┌─────────────── the ladder ───────────────┐
/// Begin ──▶ Climb ──▶ Asked(Pause) ──▶ Woken ──▶ Climb   │ a rung after the other, as the policy's table says
///             │                                          │
///             ├──▶ Sweep ◀──▶ Asked(Release, Pages, Points)   memory goes back, then the next rung
///             ├──▶ Asked(Memory) ──▶ Serve ──▶ granted        a plain segment
///             ├──▶ Extend ◀──▶ Asked(Pages) ──▶ granted       an expandable segment
///             │                └──▶ Undo ──▶ Asked(Pages)     a failed extension is undone
///             ├──▶ Job ◀──▶ Asked(Waits, Pages) ──▶ granted      `paged`: free blocks, pages, windows
///             ├──▶ Asked(Appeal) ──▶ Climb                    the program may have made room
///             │                └──▶ Refused ──▶ refused
///             │                └──▶ TakeBack ──▶ Asked(Pages)     a failed growth is undone
///             └──▶ Over                                       refused, served or done
/// ```
#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing was done yet.
    Begin,
    /// A rung of the ladder is to be entered.
    Climb(Rung),
    /// The plan has paused: before it enters the rung it looks for a free block once more.
    Woken(Rung),
    /// Claimed memory goes back to the driver.
    Sweep(Box<Sweep>),
    /// A claimed block of an expandable segment is to become longer, for an attempt of the ladder.
    Extend(BlockId, Rung),
    /// A claimed block is to be handed out.
    Serve(BlockId),
    /// A job of `paged` is under way.
    Job(Box<Job>, Rung),
    /// These calls are to take back what was done of an extension, and whether it was refused.
    Undo(Vec<PageCall>, Extension, bool),
    /// These calls are to take back what was made of a group's pages, and whether the driver had no room for more.
    Unfill(Vec<PageCall>, Refill, bool),
    /// The request is to be refused: nothing has served it, and the program has made no room.
    Refused(Box<Report>),
    /// These calls are to take back what has arrived of a job, for an attempt, and whether it was refused.
    TakeBack(Vec<PageCall>, Box<Job>, Rung, bool),
    /// The shell was asked for something, and has not answered.
    Asked(Asked),
    /// The plan is answered, or has put everything back.
    Over,
}

/// What the shell was asked for, with what the answer will be needed for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// How far streams are, or to wait for points, or what the budget leaves, before a rung is entered.
    Points(Rung),
    /// The same, before a sweep goes on.
    Sweep(Box<Sweep>),
    /// To wait until other plans have ended something.
    Pause(Rung),
    /// To ask the program to make room, before this report is the answer.
    Appeal(Box<Report>),
    /// A segment, or a range of addresses.
    Memory(Reserve),
    /// To give a segment or a range back, before the sweep goes on.
    Release { shard: ShardId, slot: Slot, sweep: Box<Sweep> },
    /// To make page calls. Their purpose is apart, as some are long, and phases are moved from hand to hand.
    Pages(Vec<PageCall>, Box<Purpose>),
    /// To queue the device-side waits of a job.
    Waits(Box<Job>, Rung),
}

/// A place that is kept for memory or addresses, asked for by an attempt of the ladder.
#[derive(Debug)]
pub(crate) struct Reserve {
    pub(crate) slot: Slot,
    pub(crate) bytes: u64,
    pub(crate) attempt: Rung,
    /// What the addresses are for; `None` for a segment.
    pub(crate) addresses: Option<Addresses>,
}

/// What a phase leads to.
#[derive(Debug)]
pub(crate) struct Turned {
    /// The next phase.
    pub(crate) phase: Phase,
    /// What the shell is to do before that.
    pub(crate) step: Option<Step>,
}

/// A batch of page calls of which one failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped {
    /// The number of calls before it, which were made.
    pub(crate) done: usize,
    /// Whether it was refused, and not broken.
    pub(crate) refused: bool,
}

impl Phase {
    /// Goes on with a phase at once.
    pub(crate) fn turn(self) -> Turned {
        Turned { phase: self, step: None }
    }

    /// Ends the plan with a step.
    pub(crate) fn end(step: Step) -> Turned {
        Turned { phase: Phase::Over, step: Some(step) }
    }

    /// Asks the shell for page calls.
    pub(crate) fn call(calls: Vec<PageCall>, purpose: Purpose) -> Turned {
        let step = Step::Pages(calls.clone());
        Asked::Pages(calls, Box::new(purpose)).by(step)
    }

    /// Asks the shell how far streams are, or to wait, or what the budget leaves, before the phase follows.
    ///
    /// # Panics
    ///
    /// If the phase is neither a rung nor a sweep.
    pub(crate) fn after(self, step: Step) -> Turned {
        match self {
            Phase::Climb(rung) => Asked::Points(rung).by(step),
            Phase::Sweep(sweep) => Asked::Sweep(sweep).by(step),
            other => panic!("{other:?} waits for nothing"),
        }
    }

    /// Returns whether the plan holds something that others may be short of.
    pub(crate) fn holds(&self) -> bool {
        let is_free =
            matches!(self, Phase::Begin | Phase::Climb(_) | Phase::Woken(_) | Phase::Refused(_) | Phase::Over);
        !is_free && !matches!(self, Phase::Asked(Asked::Points(_) | Asked::Pause(_) | Asked::Appeal(_)))
    }
}

impl Asked {
    /// Asks the shell by a step.
    pub(crate) fn by(self, step: Step) -> Turned {
        Turned { phase: Phase::Asked(self), step: Some(step) }
    }
}

/// A release in progress: of whole segments, and of the pages inside blocks of expandable ones. Its candidates are
/// claimed, so that no other plan can take them meanwhile.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) candidates: VecDeque<ShardBlock>,
    /// Whether spare pages go before the candidates.
    pub(crate) with_spare: bool,
    /// The sweep stops, though it has candidates left, once no more than this number of bytes are reserved.
    pub(crate) down_to: u64,
    pub(crate) stage: Stage,
    /// The rung that follows.
    pub(crate) then: Rung,
}

/// What a sweep does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It waits for the last uses of all that is to be released.
    Wait,
    /// It releases the spare pages, if they go.
    Spare,
    /// It releases the range that the last unmap left without memory, unless other plans have put memory there since.
    Emptied { shard: ShardId, slot: Slot, id: SegmentId },
    /// It releases the first candidate.
    Next,
    /// The stream of the first candidate was synchronised, as is required before its pages are unmapped.
    Synchronized,
}

impl Sweep {
    /// Returns the sweep of these claimed blocks, which first waits for their last uses.
    pub(crate) fn waiting(blocks: Vec<ShardBlock>) -> Self {
        Self { stage: Stage::Wait, ..Self::idle(blocks) }
    }

    /// Returns the sweep of these claimed blocks, of which those that are in use stay.
    pub(crate) fn idle(blocks: Vec<ShardBlock>) -> Self {
        Self { candidates: blocks.into(), with_spare: false, down_to: 0, stage: Stage::Next, then: Rung::Done }
    }

    /// Returns the number of bytes that are still to be released, where this many are reserved.
    pub(crate) fn excess(&self, reserved: u64) -> u64 {
        reserved.saturating_sub(self.down_to)
    }

    /// Returns the phase that sweeps before a rung is entered, or enters it if there is nothing to release.
    pub(crate) fn then(self, then: Rung) -> Phase {
        match self.candidates.is_empty() && !self.with_spare {
            true => Phase::Climb(then),
            false => Phase::Sweep(Box::new(Self { then, ..self })),
        }
    }

    /// Gives all claims back.
    pub(crate) fn give_up(self, clocks: [u64; 2], shards: &mut dyn Shards) {
        for ShardBlock { shard, block } in self.candidates {
            shards.with(shard, |shard| shard.memory.unclaim(block, clocks));
        }
    }
}

/// What a batch of page calls is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// New pages for claimed addresses of an expandable segment.
    Extend(Extension),
    /// Taking back what was done of such an extension before a call failed, and whether that was refused: if not, the
    /// plan ends.
    Undo(Extension, bool),
    /// Unmapping and releasing the pages of a claimed block, or spare pages; the rest of the sweep follows.
    GiveUp { of: Option<ShardBlock>, sweep: Box<Sweep> },
    /// The page calls of a job.
    Back(Box<Job>, Rung),
    /// Taking back what was done of a job before a call failed, and whether that was refused: if not, the plan ends.
    TakeBack(Box<Job>, Rung, bool),
    /// Unmapping the pages of windows that end, before the attempt is made again.
    EndWindows(Rung),
    /// Unmapping and releasing the pages of a group.
    Vacate(GroupId),
    /// Creating and mapping them again.
    Refill(Refill),
    /// Taking back what was made of them before a call failed, and whether that was refused.
    Unfill(Refill, bool),
}

/// Addresses that are being mapped, for an attempt of the ladder.
#[derive(Debug)]
pub(crate) struct Extension {
    /// The claimed addresses.
    pub(crate) gap: BlockId,
    pub(crate) bytes: u64,
    /// The plan's claimed block in front of them, if there is one.
    pub(crate) before: Option<BlockId>,
    /// Whether fewer bytes would not serve.
    pub(crate) is_least: bool,
    pub(crate) attempt: Rung,
}

impl Run<'_> {
    /// Takes in that page calls were made: all of them, or the first `done` before one failed.
    pub(crate) fn calls_made(&mut self, mut calls: Vec<PageCall>, purpose: Purpose, stopped: Option<Stopped>) -> Phase {
        let skipped = stopped.map_or(Vec::new(), |Stopped { done, .. }| calls.split_off(done));
        match (purpose, stopped) {
            (Purpose::Extend(Extension { gap, bytes, before, attempt, .. }), None) => {
                for call in &calls {
                    if let PageCall::Map { page, at } = *call {
                        self.core.page_arrives(page, at, Role::Home, self.shards);
                    }
                }
                let Allocation { shard, want } = self.plan.request.allocation();
                self.core.headroom.end_ask(bytes);
                self.core.headroom.gain(want.side, bytes);
                Phase::Extend(self.shards.with(shard, |shard| shard.memory.mapped(gap, before)), attempt)
            }
            (Purpose::Extend(extension), Some(Stopped { refused, .. })) => {
                self.forget_new(&skipped);
                // What was mapped before the call that failed is taken back, as PyTorch does.
                let undo = |call: &PageCall| match *call {
                    PageCall::Create { page, .. } => PageCall::Release { page },
                    PageCall::Map { page, at } => PageCall::Unmap { page, at },
                    other => panic!("{other:?} extends nothing"),
                };
                let calls: Vec<_> = calls.iter().rev().map(undo).collect();
                match calls.is_empty() {
                    true => self.extension_undone(extension, refused),
                    false => Phase::Undo(calls, extension, refused),
                }
            }
            (Purpose::Undo(extension, refused), None) => {
                self.forget_new(&calls);
                self.extension_undone(extension, refused)
            }
            (Purpose::GiveUp { of, sweep }, None) => Phase::Sweep(self.given_up(of, sweep, &calls)),
            (Purpose::Back(job, rung), stopped) => {
                self.backed(job, rung, &calls, stopped.map(|stopped| stopped.refused))
            }
            (Purpose::TakeBack(job, rung, refused), None) => self.taken_back(job, rung, refused, &calls),
            (Purpose::EndWindows(rung), None) => {
                self.pager().pages_released(&calls);
                Phase::Climb(rung)
            }
            (Purpose::Vacate(group), None) => self.group_vacated(group, &calls),
            (Purpose::Refill(refill), stopped) => self.group_refilled(refill, &calls, stopped),
            (Purpose::Unfill(refill, refused), None) => self.group_unfilled(refill, refused, &calls),
            (purpose, Some(stopped)) => panic!("calls for {purpose:?} cannot fail and did: {stopped:?}"),
        }
    }

    /// Forgets new pages that were never created, or were released again: no plan has known of them.
    fn forget_new(&mut self, calls: &[PageCall]) {
        for call in calls {
            if let PageCall::Create { page, .. } | PageCall::Release { page } = *call {
                self.core.pages.remove(page);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use millpond_backend::{Point, StreamId, Tick};

    use super::*;

    const GROW: Rung = Rung::Grow(Attempt::First);
    const ONE: ShardBlock = ShardBlock { shard: ShardId(0), block: BlockId(0) };

    fn sweep() -> Box<Sweep> {
        let Phase::Sweep(sweep) = Sweep::idle(vec![ONE]).then(GROW) else { panic!("no sweep") };
        sweep
    }

    fn wait() -> Step {
        Step::Wait(vec![Point { stream: StreamId(0), tick: Tick(1) }])
    }

    /// What other plans may be short of is held by the plan through whatever it asks of the shell meanwhile.
    #[test]
    fn what_is_held_is_held_while_the_shell_is_asked() {
        let reserve = || Reserve { slot: Slot(0), bytes: 512, attempt: GROW, addresses: None };
        let holding = [
            Phase::Serve(BlockId(0)),
            Phase::Extend(BlockId(0), GROW),
            Phase::Asked(Asked::Memory(reserve())),
            Phase::Asked(Asked::Release { shard: ShardId(0), slot: Slot(0), sweep: sweep() }),
            Phase::Sweep(sweep()).after(wait()).phase,
        ];
        assert!(holding.iter().all(Phase::holds), "{holding:?}");
        let free = [
            Phase::Begin,
            Phase::Climb(GROW),
            Phase::Woken(GROW),
            Phase::Asked(Asked::Pause(GROW)),
            Phase::Climb(GROW).after(wait()).phase,
            Phase::Over,
        ];
        assert!(!free.iter().any(Phase::holds), "{free:?}");
    }

    #[test]
    fn a_wait_comes_before_the_phase_that_follows() {
        let Turned { phase, step } = Phase::Climb(GROW).after(wait());
        assert_eq!(step, Some(wait()));
        assert!(matches!(phase, Phase::Asked(Asked::Points(GROW))), "{phase:?}");
    }

    #[test]
    fn a_sweep_of_nothing_is_left_out() {
        assert!(matches!(Sweep::idle(vec![]).then(Rung::Search), Phase::Climb(Rung::Search)));
        assert!(matches!(Sweep::waiting(vec![]).then(Rung::Search), Phase::Climb(Rung::Search)));
        let with_spare = Sweep { with_spare: true, ..Sweep::waiting(vec![]) };
        assert!(matches!(with_spare.then(Rung::Search), Phase::Sweep(_)), "spare pages go");
        let one = vec![ONE];
        assert!(matches!(Sweep::idle(one).then(Rung::Search), Phase::Sweep(_)));
    }

    #[test]
    fn what_is_not_idle_yet_is_waited_for_first() {
        let one = || vec![ONE];
        assert_eq!(Sweep::waiting(one()).stage, Stage::Wait);
        assert_eq!(Sweep::idle(one()).stage, Stage::Next);
    }

    fn climbed(from: Rung, gathers: bool, steps: usize) -> Vec<Rung> {
        core::iter::successors(Some(from), |rung| Some(rung.next(gathers))).take(steps).collect()
    }

    #[test]
    fn the_order_of_segments_is_pytorchs() {
        let attempt = |attempt| [Rung::Grow(attempt), Rung::Refused(attempt)];
        let attempts = [Attempt::First, Attempt::AfterOversize, Attempt::Last].map(attempt);
        let [first, after_oversize, last] = &attempts;
        let waits = [Rung::Flush, Rung::SearchAgain, Rung::Release];
        let parts: [&[Rung]; 7] = [
            &[Rung::Search, Rung::Collect],
            first,
            &[Rung::Turn, Rung::Oversize],
            after_oversize,
            &waits,
            last,
            &[Rung::Refuse, Rung::Refuse],
        ];
        assert_eq!(climbed(Rung::Search, false, 15), parts.concat());
    }

    #[test]
    fn a_plan_goes_on_waiting_for_the_oldest_points() {
        let rungs = climbed(Rung::Oldest, true, 5);
        assert_eq!((rungs[0], rungs[4]), (Rung::Oldest, Rung::Oldest), "{rungs:?}");
    }

    #[test]
    fn in_its_turn_a_plan_waits_for_everything_before_it_releases() {
        let attempt = |attempt| [Rung::Grow(attempt), Rung::Refused(attempt)];
        let [in_turn, last] = [attempt(Attempt::InTurn), attempt(Attempt::Last)];
        let waits = [Rung::Turn, Rung::Flush, Rung::SearchAgain];
        let expected = [&waits[..], &in_turn, &[Rung::Release], &last, &[Rung::Refuse]].concat();
        assert_eq!(climbed(Rung::Turn, true, 9), expected);
    }
}
