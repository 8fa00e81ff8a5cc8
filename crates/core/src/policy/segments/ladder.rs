//! The ladder of policies that take segments from the driver: `classic` and `direct`.
//!
//! It is PyTorch's, with one rung of our own: a plan that would be refused first takes its turn (see the module
//! `turn`), and climbs the rest alone.
//!
//! ```text
//! Search ─▶ Collect ─▶ Grow(First) ─▶ Turn ─▶ Oversize ─▶ Grow(AfterOversize) ─▶ Flush ─▶ SearchAgain
//!                          ▲           │                                           ▲           │
//!                          └── others ─┘                        blocks were freed ─┤           ▼
//!                                                             Refuse ◀─ Grow(Last) ◀─ Release ─┘
//! ```
//!
//! A rung that serves the request ends the plan. One that does not is followed by [`Rung::next`].

use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::plan::Plan;
use crate::coordinator::{Coordinator, Shards};
use crate::policy::Climb;

/// A rung of the ladder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rung {
    /// Look for a free block.
    Search,
    /// Give back what the policy does not keep while it takes more.
    Collect,
    /// Ask the driver for memory.
    Grow(Attempt),
    /// The driver or the limit has refused an attempt.
    Refused(Attempt),
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
}

/// Which attempt to grow it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    First,
    AfterOversize,
    Last,
}

impl Rung {
    /// Returns the rung that follows one that has not served the request: the ladder as a table.
    pub(crate) const fn next(self) -> Rung {
        match self {
            Rung::Search => Rung::Collect,
            Rung::Collect => Rung::Grow(Attempt::First),
            Rung::Grow(attempt) => Rung::Refused(attempt),
            Rung::Refused(Attempt::First) => Rung::Turn,
            Rung::Turn => Rung::Oversize,
            Rung::Oversize => Rung::Grow(Attempt::AfterOversize),
            Rung::Refused(Attempt::AfterOversize) => Rung::Flush,
            Rung::Flush => Rung::SearchAgain,
            Rung::SearchAgain => Rung::Release,
            Rung::Release => Rung::Grow(Attempt::Last),
            Rung::Refused(Attempt::Last) | Rung::Refuse => Rung::Refuse,
        }
    }
}

impl Coordinator {
    /// Climbs one rung.
    pub(crate) fn climb_segments(&mut self, rung: Rung, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let next = Climb::Segments(rung.next());
        match rung {
            Rung::Search => self.search(plan, Phase::Climb(next), shards),
            Rung::Collect => self.collect(next, plan, shards),
            Rung::Grow(_) => self.grow(Climb::Segments(rung), Climb::Segments(Rung::Turn), plan, shards),
            Rung::Refused(Attempt::Last) if self.has_second_round(plan, shards) => {
                Phase::Climb(Climb::Segments(Rung::Flush)).turn()
            }
            Rung::Refused(Attempt::First) => match self.find_in_other_pools(plan, shards) {
                Some(served) => served,
                None => Phase::Climb(next).turn(),
            },
            Rung::Refused(_) => Phase::Climb(next).turn(),
            Rung::Turn => {
                let retry = Climb::Segments(Rung::Grow(Attempt::First));
                let has_oversize = self.settings.max_split_bytes.is_some();
                let last = if has_oversize { next } else { Climb::Segments(Rung::Flush) };
                self.wait_for_turn(plan, Climb::Segments(rung), retry, last, shards)
            }
            Rung::Oversize => {
                let (sweep, enough) = self.sweep_oversize(plan, shards);
                let next = if enough { next } else { Climb::Segments(Rung::Flush) };
                sweep.then(Phase::Climb(next)).turn()
            }
            Rung::Flush => self.flush(next, plan, shards),
            Rung::SearchAgain => self.search_after_wait(next, plan, shards),
            Rung::Release => self.release_all(next, plan, shards),
            Rung::Refuse => {
                let (again, turn) = (Climb::Segments(Rung::Search), Climb::Segments(Rung::Turn));
                self.refuse(again, turn, plan, shards)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    /// The rungs that a request climbs that nothing serves.
    fn climbed(from: Rung) -> Vec<Rung> {
        let next = |rung: &Rung| (*rung != Rung::Refuse).then(|| rung.next());
        core::iter::successors(Some(from), next).collect()
    }

    #[test]
    fn the_order_is_pytorchs() {
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
            &[Rung::Refuse],
        ];
        assert_eq!(climbed(Rung::Search), parts.concat());
    }

    #[test]
    fn every_rung_leads_to_a_refusal() {
        for rung in climbed(Rung::Search) {
            assert_eq!(climbed(rung).last(), Some(&Rung::Refuse), "{rung:?}");
        }
    }
}
