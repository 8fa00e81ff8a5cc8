//! How much memory `paged` creates, and how large its pages are.
//!
//! The governor works like a congestion controller: it is told numbers and asked for numbers. It sees no block, no
//! shard and no plan. Under `tight` it goes by what was ever live alone. Under `balanced` it also goes by how streams
//! share the device, which [`Pace`] finds out.

mod pace;
pub(crate) mod sizes;

use sizes::{Slack, Spends};

use crate::settings::Growth;
use crate::stats::Sharing;

pub(crate) use pace::Pace;

/// What is known when a request needs memory. Numbers are bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// How much more may be reserved than was ever live.
    pub(crate) slack: Slack,
    /// What the request gets.
    pub(crate) wanted: u64,
    /// The most that was ever live in the request's pool, the request among it.
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
    /// Up to here pages are created instead of having the stream wait. `None`: it waits at once.
    pub(crate) instead_of_waiting: Option<u64>,
}

impl Growth {
    /// Returns whether [`Situation::is_behind`] matters, which costs a look at each free block to find out.
    pub(crate) fn asks_whether_behind(self) -> bool {
        self == Growth::Balanced
    }

    /// Returns how much may be created for a request.
    pub(crate) fn creation(self, situation: &Situation) -> Creation {
        let instead_of_waiting = match self {
            Growth::Tight => None,
            Growth::Balanced => instead_of_waiting(situation),
        };
        Creation { eager: situation.slack.eager(situation.high_live), instead_of_waiting }
    }
}

/// Returns up to where `balanced` creates pages instead of a wait: half as much again as was ever live where streams
/// run side by side.
fn instead_of_waiting(situation: &Situation) -> Option<u64> {
    let Situation { slack, wanted, high_live, reserved, is_behind, sharing, may_find_out } = *situation;
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
    use crate::settings::Policy;
    use crate::units::MIB;

    fn creation(growth: Growth, reserved: u64, is_behind: bool, sharing: Sharing, may_find_out: bool) -> Creation {
        let slack = Slack::new(Policy::DEFAULT_SLACK);
        let (wanted, high_live) = (MIB, 1024 * MIB);
        growth.creation(&Situation { slack, wanted, high_live, reserved, is_behind, sharing, may_find_out })
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
        assert_eq!(most(1056, true, Sharing::Unknown, false), None, "nobody can find it out");
        assert_eq!(most(1056, true, Sharing::Unknown, true), Some(1056), "waits would keep it from being found out");
    }
}
