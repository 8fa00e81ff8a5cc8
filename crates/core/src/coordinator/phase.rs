//! The phases of a plan: what each of them holds, and what the shell was asked for.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::calls::{Extension, Purpose};
use super::step::{PageCall, Step};
use super::sweep::Sweep;
use crate::ids::{BlockId, ShardId, Slot};
use crate::policy::paged::Job;
use crate::policy::{Addresses, Climb};

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
///             ├──▶ Window ◀──▶ Asked(Waits, Pages) ──▶ granted   `paged`: free blocks, pages, windows
///             └──▶ Over                                       refused, served or done
/// ```
#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing was done yet.
    Begin,
    /// A rung of the ladder is to be entered.
    Climb(Climb),
    /// The plan has paused: before it enters the rung it looks for a free block once more.
    Woken(Climb),
    /// Claimed memory goes back to the driver; the second phase follows.
    Sweep(Sweep, Box<Phase>),
    /// A claimed block of an expandable segment is to become longer, for an attempt of the ladder.
    Extend(BlockId, Climb),
    /// A claimed block is to be handed out.
    Serve(BlockId),
    /// A job of `paged` is under way.
    Window(Box<Job>, Climb),
    /// These calls are to take back what was done of an extension, and whether it was refused.
    Undo(Vec<PageCall>, Extension, bool),
    /// The shell was asked for something, and has not answered.
    Asked(Asked),
    /// The plan is answered, or has put everything back.
    Over,
}

/// What the shell was asked for, with what the answer will be needed for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// How far streams are, or to wait for points, or what the budget leaves; the phase follows.
    Points(Box<Phase>),
    /// To wait until other plans have ended something.
    Pause(Climb),
    /// A segment, or a range of addresses.
    Memory(Reserve),
    /// To give a segment or a range back; the phase follows.
    Release { shard: ShardId, slot: Slot, then: Box<Phase> },
    /// To make page calls. Their purpose is apart, as some are long, and phases are moved from hand to hand.
    Pages(Vec<PageCall>, Box<Purpose>),
    /// To queue device-side waits for a window.
    Waits(Box<Job>, Climb),
}

/// A place that is kept for memory or addresses, asked for by an attempt of the ladder.
#[derive(Debug)]
pub(crate) struct Reserve {
    pub(crate) slot: Slot,
    pub(crate) bytes: u64,
    pub(crate) attempt: Climb,
    /// What the addresses are for; `None` for a segment.
    pub(crate) addresses: Option<Addresses>,
}

/// What a phase leads to: the next phase, and what the shell is to do before that, if anything.
pub(crate) type Turned = (Phase, Option<Step>);

impl Phase {
    /// Goes on with a phase at once.
    pub(crate) fn turn(self) -> Turned {
        (self, None)
    }

    /// Ends the plan with a step.
    pub(crate) fn end(step: Step) -> Turned {
        (Phase::Over, Some(step))
    }

    /// Asks the shell for page calls.
    pub(crate) fn call(calls: Vec<PageCall>, purpose: Purpose) -> Turned {
        let step = Step::Pages(calls.clone());
        (Phase::Asked(Asked::Pages(calls, Box::new(purpose))), Some(step))
    }

    /// Asks the shell how far streams are, or to wait, or what the budget leaves, before the phase follows.
    pub(crate) fn after(self, step: Step) -> Turned {
        (Phase::Asked(Asked::Points(Box::new(self))), Some(step))
    }

    /// The plan was told something that took time: what is free may be more than it has seen.
    pub(crate) fn told(self) -> Phase {
        match self {
            Phase::Climb(climb) => Phase::Climb(climb.told()),
            Phase::Sweep(sweep, then) => Phase::Sweep(sweep, Box::new(then.told())),
            other => other,
        }
    }

    /// Returns whether the plan holds something that others may be short of.
    pub(super) fn holds(&self) -> bool {
        match self {
            Phase::Begin | Phase::Climb(_) | Phase::Woken(_) | Phase::Over => false,
            Phase::Sweep(..) | Phase::Extend(..) | Phase::Serve(_) | Phase::Window(..) | Phase::Undo(..) => true,
            Phase::Asked(Asked::Points(then)) => then.holds(),
            Phase::Asked(Asked::Pause(_)) => false,
            Phase::Asked(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;

    use millpond_backend::{Point, StreamId, Tick};

    use super::*;
    use crate::policy::ladder::{Attempt, Rung};

    fn grow() -> Climb {
        Climb::begin(Rung::Grow(Attempt::First), false)
    }

    fn wait() -> Step {
        Step::Wait(vec![Point { stream: StreamId(0), tick: Tick(1) }])
    }

    /// What other plans may be short of is held by the plan through whatever it asks of the shell meanwhile.
    #[test]
    fn what_is_held_is_held_while_the_shell_is_asked() {
        let reserve = || Reserve { slot: Slot(0), bytes: 512, attempt: grow(), addresses: None };
        let (then, slot) = (Box::new(Phase::Over), Slot(0));
        let holding = [
            Phase::Serve(BlockId(0)),
            Phase::Extend(BlockId(0), grow()),
            Phase::Asked(Asked::Memory(reserve())),
            Phase::Asked(Asked::Release { shard: ShardId(0), slot, then }),
            Phase::Serve(BlockId(0)).after(wait()).0,
        ];
        assert!(holding.iter().all(Phase::holds), "{holding:?}");
        let free = [
            Phase::Begin,
            Phase::Climb(grow()),
            Phase::Woken(grow()),
            Phase::Asked(Asked::Pause(grow())),
            Phase::Climb(grow()).after(wait()).0,
            Phase::Over,
        ];
        assert!(!free.iter().any(Phase::holds), "{free:?}");
    }

    #[test]
    fn a_wait_comes_before_the_phase_that_follows() {
        let (phase, step) = Phase::Climb(grow()).after(wait());
        assert_eq!(step, Some(wait()));
        let Phase::Asked(Asked::Points(then)) = phase else { panic!("{phase:?}") };
        assert!(matches!(*then, Phase::Climb(climb) if climb == grow()));
    }
}
