//! How much memory `paged` creates, and how large its pages are.
//!
//! The governor works like a congestion controller: it is told numbers and asked for numbers. It sees no block, no
//! shard and no plan. The policy names one of two: [`Tight`] looks only at the peak of live bytes, and [`Balanced`]
//! also looks at how streams share the device, which [`Pace`] finds out.

mod balanced;
mod pace;
mod situation;
mod sizes;
mod tight;

use balanced::Balanced;
use sizes::Proportions;
use tight::Tight;

use crate::settings::{Growth, Policy};
use crate::stats::Sharing;

pub(crate) use pace::Pace;
pub(crate) use situation::{Creation, Situation};
pub(crate) use sizes::created;

/// Decides how much is created, and in pages of which sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Governor {
    Tight(Tight),
    Balanced(Balanced),
}

impl Governor {
    /// Returns the governor of a policy, on a device whose pages are multiples of `granularity` bytes. Policies without
    /// pages have the default one, for what they report.
    pub(crate) fn new(policy: Policy, granularity: u64) -> Self {
        let (growth, slack) = match policy {
            Policy::Paged { growth, slack } => (growth, slack),
            Policy::Classic(_) | Policy::Direct => (Growth::default(), policy.slack().unwrap_or(Policy::DEFAULT_SLACK)),
        };
        let proportions = Proportions::new(slack, granularity);
        match growth {
            Growth::Tight => Governor::Tight(Tight(proportions)),
            Growth::Balanced => Governor::Balanced(Balanced(proportions)),
        }
    }

    fn proportions(&self) -> &Proportions {
        match self {
            Governor::Tight(Tight(proportions)) | Governor::Balanced(Balanced(proportions)) => proportions,
        }
    }

    /// Returns the number of reserved bytes that the slack allows, where this many bytes were live at most.
    pub(crate) fn bound(&self, high_live: u64) -> u64 {
        self.proportions().bound(high_live)
    }

    /// Returns the number of reserved bytes that a program may come to again which has no more than this number of
    /// bytes live: what the slack allows, and what is created before memory is gathered, or instead of a wait.
    pub(crate) fn needed(&self, high_live: u64, sharing: Sharing) -> u64 {
        let (wanted, reserved) = (0, high_live);
        let situation = Situation { wanted, high_live, reserved, is_behind: true, sharing, may_find_out: true };
        let Creation { eager, instead_of_waiting } = self.creation(&situation);
        self.bound(high_live).max(eager).max(instead_of_waiting.unwrap_or(0))
    }

    /// Returns the size of the smallest page and of slabs, in bytes: all pages are a multiple of it.
    pub(crate) fn page_unit(&self) -> u64 {
        self.proportions().page_unit
    }

    /// Returns the size of the largest page to create, in bytes, where `reserved` bytes will be reserved.
    pub(crate) fn page_cap(&self, reserved: u64) -> u64 {
        self.proportions().page_cap(reserved)
    }

    /// Returns whether [`Situation::is_behind`] matters, which costs a look at each free block to find out.
    pub(crate) fn asks_whether_behind(&self) -> bool {
        match self {
            Governor::Tight(_) => false,
            Governor::Balanced(_) => true,
        }
    }

    /// Returns how much may be created for a request.
    pub(crate) fn creation(&self, situation: &Situation) -> Creation {
        match self {
            Governor::Tight(tight) => tight.creation(situation.high_live),
            Governor::Balanced(balanced) => balanced.creation(situation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;

    #[test]
    fn what_a_program_may_come_to_again_is_needed() {
        let needed =
            |growth, live, sharing| Governor::new(Policy::paged(growth), 2 * MIB).needed(live * MIB, sharing) / MIB;
        assert_eq!([10, 1000].map(|live| needed(Growth::Tight, live, Sharing::SideBySide)), [18, 1050]);
        assert_eq!([10, 1000].map(|live| needed(Growth::Balanced, live, Sharing::InTurn)), [18, 1050]);
        assert_eq!([10, 1000].map(|live| needed(Growth::Balanced, live, Sharing::SideBySide)), [23, 1508]);
    }

    #[test]
    fn under_tight_streams_wait_whatever_is_known() {
        let governor = Governor::new(Policy::paged(Growth::Tight), 2 * MIB);
        for sharing in [Sharing::Untold, Sharing::Unknown, Sharing::InTurn, Sharing::SideBySide] {
            let [ahead, behind] = [false, true].map(|is_behind| {
                let (wanted, high_live, reserved) = (MIB, 1024 * MIB, 1024 * MIB);
                let may_find_out = true;
                governor.creation(&Situation { wanted, high_live, reserved, is_behind, sharing, may_find_out })
            });
            assert_eq!((ahead, behind.instead_of_waiting), (behind, None), "{sharing:?}");
        }
    }
}
