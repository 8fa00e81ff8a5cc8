//! How much memory `paged` creates, and how large its pages are.
//!
//! The governor works like a congestion controller: it is told numbers and asked for numbers. It sees no block, no
//! shard and no plan. `tight` looks only at the peak of live bytes. `balanced` also looks at how streams
//! share the device, which [`Pace`] finds out.

mod pace;
mod sizes;

use sizes::{Slack, Spends};

use crate::settings::{Growth, Policy};
use crate::stats::Sharing;

pub(crate) use pace::Pace;
pub(crate) use sizes::{created, least};

/// What is known when a request needs memory. Numbers are bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// What the request gets.
    pub(crate) wanted: u64,
    /// The peak of live bytes in the request's pool, including the request.
    pub(crate) high_live: u64,
    /// What is reserved for that pool.
    pub(crate) reserved: u64,
    /// Whether the device still uses free memory for which the request would have to wait.
    pub(crate) is_behind: bool,
    /// How streams share the device, as far as that is known.
    pub(crate) sharing: Sharing,
    /// Whether that may still be found out.
    pub(crate) may_find_out: bool,
}

/// How much may be created for a request. Both are numbers of reserved bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Creation {
    /// Up to here pages are created before free memory is used after waits, or gathered.
    pub(crate) eager: u64,
    /// Up to here pages are created instead of having the stream wait. `None`: none are, but small requests get the
    /// eager ones before a wait.
    pub(crate) instead_of_waiting: Option<u64>,
}

/// Decides how much is created, and in pages of which sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Governor {
    growth: Growth,
    /// How far reserved bytes may exceed the peak of live bytes.
    slack: Slack,
    /// The size of the smallest page, in bytes.
    page_unit: u64,
}

impl Governor {
    /// Returns the governor of a policy, on a device whose pages are multiples of `granularity` bytes. Policies without
    /// pages have the default one, for what they report.
    pub(crate) fn new(policy: Policy, granularity: u64) -> Self {
        let (growth, slack) = match policy {
            Policy::Paged { growth, slack } => (growth, slack),
            Policy::Classic(_) | Policy::Direct => (Growth::default(), Policy::DEFAULT_SLACK),
        };
        Self { growth, slack: Slack::new(slack), page_unit: least(granularity) }
    }

    /// Returns the number of reserved bytes that the slack allows, where this many bytes were live at most.
    pub(crate) fn bound(&self, high_live: u64) -> u64 {
        self.slack.bound(high_live)
    }

    /// Returns the size of the smallest page and of slabs, in bytes: all pages are a multiple of it.
    pub(crate) fn page_unit(&self) -> u64 {
        self.page_unit
    }

    /// Returns the size of the largest page to create, in bytes, where `reserved` bytes will be reserved.
    pub(crate) fn page_cap(&self, reserved: u64) -> u64 {
        sizes::page_cap(reserved, self.page_unit)
    }

    /// Returns whether [`Situation::is_behind`] matters, which costs a look at each free block to find out.
    pub(crate) fn asks_whether_behind(&self) -> bool {
        self.growth == Growth::Balanced
    }

    /// Returns how much may be created for a request.
    pub(crate) fn creation(&self, situation: &Situation) -> Creation {
        let instead_of_waiting = match self.growth {
            Growth::Tight => None,
            Growth::Balanced => instead_of_waiting(self.slack, situation),
        };
        Creation { eager: self.slack.eager(situation.high_live), instead_of_waiting }
    }
}

/// Returns how many bytes `balanced` reserves at most before it waits. Where streams run side by side, that is 1.5
/// times the peak of live bytes and 8 MiB.
fn instead_of_waiting(slack: Slack, situation: &Situation) -> Option<u64> {
    let Situation { wanted, high_live, reserved, is_behind, sharing, may_find_out } = *situation;
    // Where nothing is found out it stays little: streams that are never seen to be busy together lose nothing by a
    // wait.
    let spends = match sharing {
        _ if !is_behind => Spends::Nothing,
        Sharing::Untold | Sharing::SideBySide => Spends::Much,
        Sharing::InTurn => Spends::Nothing,
        Sharing::Unknown => Spends::Little,
    };
    let cap = sizes::cap_in_flight(spends, slack, high_live);
    let is_cautious = match spends {
        Spends::Nothing => false,
        // Waits keep from being found out how streams share the device. Where that cannot be, places go by what is
        // free once no more may be created.
        Spends::Little => reserved + wanted <= cap || may_find_out,
        Spends::Much => true,
    };
    is_cautious.then_some(cap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;

    fn creation(growth: Growth, reserved: u64, is_behind: bool, sharing: Sharing, may_find_out: bool) -> Creation {
        let governor = Governor::new(Policy::Paged { growth, slack: Policy::DEFAULT_SLACK }, 2 * MIB);
        let (wanted, high_live) = (MIB, 1024 * MIB);
        governor.creation(&Situation { wanted, high_live, reserved, is_behind, sharing, may_find_out })
    }

    #[test]
    fn under_tight_streams_wait_whatever_is_known() {
        for sharing in [Sharing::Untold, Sharing::Unknown, Sharing::InTurn, Sharing::SideBySide] {
            let [ahead, behind] = [false, true].map(|is| creation(Growth::Tight, 1024 * MIB, is, sharing, true));
            assert_eq!((ahead, behind.instead_of_waiting), (behind, None), "{sharing:?}");
        }
    }

    #[test]
    fn under_balanced_memory_is_created_where_a_wait_would_cost_time() {
        let most = |reserved, is_behind, sharing, may_find_out| {
            let most = creation(Growth::Balanced, reserved * MIB, is_behind, sharing, may_find_out).instead_of_waiting;
            most.map(|bytes| bytes / MIB)
        };
        assert_eq!(most(1024, false, Sharing::SideBySide, true), None, "there is nothing to wait for");
        assert_eq!(most(1024, true, Sharing::SideBySide, true), Some(1544));
        assert_eq!(most(1024, true, Sharing::Untold, false), Some(1544));
        assert_eq!(most(1024, true, Sharing::InTurn, true), None, "a wait costs nothing");
        assert_eq!(most(1024, true, Sharing::Unknown, false), Some(1056), "a little");
        assert_eq!(most(1056, true, Sharing::Unknown, false), None, "it can no longer be found out");
        assert_eq!(most(1056, true, Sharing::Unknown, true), Some(1056), "waits would keep it from being found out");
    }
}
