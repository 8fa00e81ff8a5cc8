//! Where a plan stands: on which ladder, on which rung.

use super::{Source, paged, segments, shared};
use crate::coordinator::phase::Turned;
use crate::coordinator::plan::{Goal, Plan};
use crate::coordinator::{Coordinator, Shards};

/// Where a plan stands on its ladder.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Climb {
    /// On the ladder of policies that take segments.
    Segments(segments::Rung),
    /// On the ladder of `paged`.
    Pages(paged::Climb),
    /// Giving memory back.
    Release(shared::Rung),
}

impl Climb {
    /// Returns whether a plan goes on to this rung although another plan has its turn.
    pub(crate) fn passes_queue(&self) -> bool {
        match self {
            Climb::Segments(rung) => {
                matches!(rung, segments::Rung::Search | segments::Rung::Turn | segments::Rung::Refuse)
            }
            Climb::Pages(climb) => climb.passes_queue(),
            Climb::Release(_) => false,
        }
    }

    /// Returns whether the rung is a search for a free block.
    pub(crate) fn searches(&self) -> bool {
        match self {
            Climb::Segments(rung) => *rung == segments::Rung::Search,
            Climb::Pages(climb) => climb.searches(),
            Climb::Release(_) => false,
        }
    }

    /// Returns the rung that follows an attempt to grow that the driver or the limit has refused.
    ///
    /// # Panics
    ///
    /// If the rung is no attempt.
    pub(crate) fn refused(self) -> Climb {
        match self {
            Climb::Segments(rung @ segments::Rung::Grow(_)) => Climb::Segments(rung.next()),
            Climb::Pages(climb) => Climb::Pages(climb.refused()),
            other => panic!("{other:?} is no attempt that can be refused"),
        }
    }

    /// Notes that the plan was told how far streams are.
    pub(crate) fn told(self) -> Climb {
        match self {
            Climb::Pages(climb) => Climb::Pages(climb.told()),
            other => other,
        }
    }

    /// Notes that streams may have come further than the plan was told.
    pub(crate) fn forget_times(self) -> Climb {
        match self {
            Climb::Pages(climb) => Climb::Pages(climb.forget_times()),
            other => other,
        }
    }
}

impl Coordinator {
    /// Returns the first rung of a plan.
    pub(crate) fn first_rung(&self, goal: Goal) -> Climb {
        match goal {
            Goal::Allocate(shard, _) => match self.traits_of(shard).source {
                Source::Pages => Climb::Pages(paged::Climb::first()),
                Source::Segments | Source::Ranges => Climb::Segments(segments::Rung::Search),
            },
            Goal::EmptyCache | Goal::EmptyPool(_) | Goal::Trim(_) => Climb::Release(shared::Rung::Flush),
            Goal::Reclaim => Climb::Release(shared::Rung::Idle),
        }
    }

    /// Climbs one rung.
    pub(crate) fn climb(&mut self, climb: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        match climb {
            Climb::Segments(rung) => self.climb_segments(rung, plan, shards),
            Climb::Pages(climb) => self.climb_pages(climb, plan, shards),
            Climb::Release(rung) => self.climb_release(rung, plan, shards),
        }
    }
}
