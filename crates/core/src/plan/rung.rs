//! The ladder: what a plan tries for a request that missed, rung by rung, and for memory that goes back.
//!
//! That of policies that take segments from the driver, `classic` and `direct`, is PyTorch's, with one rung of our own:
//! a plan that would be refused first takes its turn (see `books/turns.rs`), and climbs the rest alone.
//!
//! ```text
//! Search ─▶ Collect ─▶ Grow(First) ─▶ Turn ─▶ Oversize ─▶ Grow(AfterOversize) ─▶ Flush ─▶ SearchAgain
//!                          ▲           │                                           ▲           │
//!                          └── others ─┘                        blocks were freed ─┤           ▼
//!                                                             Refuse ◀─ Grow(Last) ◀─ Release ─┘
//! ```
//!
//! That of `paged` shares most of its rungs, and waits for the oldest points instead of a release of oversize segments:
//!
//! ```text
//! Search ─▶ Collect ─▶ Grow(First) ──▶ Oldest ─▶ LookAgain ─▶ Grow(AfterOldest)
//!                       ▲   ▲            │ ▲                       │
//!             others    │   │            │ └───────────────────────┘
//!             ended ────┘   │            ▼ nothing left to wait for
//!             something     │         Refuse ──▶ refused
//!                           │            ▼ others may be the reason
//!                           └───────── Turn ─▶ Flush ─▶ SearchAgain ─▶ Grow(InTurn) ─▶ Release ─▶ Grow(Last)
//!                                                ▲                                                   │
//!                                                └─────────────── blocks were freed ──── Refuse ◀────┘
//! ```
//!
//! A rung that serves the request ends the plan. One that does not is followed by [`Rung::next`].

/// A rung of the ladder.
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
            Rung::Idle | Rung::ReleaseAll | Rung::Done => Rung::Done,
        }
    }

    /// Returns whether a plan goes on to this rung although another plan has its turn.
    pub(crate) fn passes_queue(self) -> bool {
        matches!(self, Rung::Search | Rung::Turn | Rung::Refuse | Rung::Done)
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
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

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
