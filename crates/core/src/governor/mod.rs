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
            Policy::Classic(_) | Policy::Direct => (Growth::default(), Policy::DEFAULT_SLACK),
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
    use crate::stats::Sharing;
    use crate::units::MIB;

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
