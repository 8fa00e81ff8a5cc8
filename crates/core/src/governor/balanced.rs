//! The governor of `growth:balanced`, which spends memory where that saves time.
//!
//! Where streams run side by side, a stream that waits for another loses time. So pages are created instead, up to half
//! as much again as was ever live. Where streams have the device in turn, a wait costs nothing, as the other stream
//! runs meanwhile. While neither is known, a little is spent, as waits would keep it from being found out.

use super::situation::{Creation, Situation};
use super::sizes::Proportions;
use crate::stats::Sharing;
use crate::units::MIB;

/// The number of bytes that may be reserved beyond half as much again as was ever live, rather than that a stream waits
/// for another one.
const IN_FLIGHT_BYTES: u64 = 8 * MIB;
/// The number of bytes that may be reserved beyond the most that was ever live, rather than that a stream waits for
/// another one, where it is not known whether streams run side by side. A small program needs no more.
const UNPROVEN_BYTES: u64 = 32 * MIB;

/// The governor of `growth:balanced`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Balanced(pub(super) Proportions);

impl Balanced {
    /// Returns how much may be created for a request.
    pub(super) fn creation(&self, situation: &Situation) -> Creation {
        let Situation { wanted, high_live, reserved, is_behind, sharing, may_find_out } = *situation;
        let eager = self.0.eager(high_live);
        let most = high_live + high_live / 2 + IN_FLIGHT_BYTES;
        let much = eager.max(most);
        let little = eager.max(most.min(high_live + UNPROVEN_BYTES));
        let instead_of_waiting = match sharing {
            Sharing::InTurn => None,
            Sharing::Untold | Sharing::SideBySide => Some(much),
            // Waits keep from being found out how streams share the device. Where that cannot be, places go by what is
            // free once no more may be created, and it stays little: streams that are never seen to be busy together
            // lose nothing by a wait.
            Sharing::Unknown => (may_find_out || reserved + wanted <= little).then_some(little),
        };
        Creation { eager, instead_of_waiting: instead_of_waiting.filter(|_| is_behind) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Policy;

    /// Returns what is created instead of a wait for a request of 1 MiB.
    fn instead(slack: f64, high_live: u64, reserved: u64, sharing: Sharing, may_find_out: bool) -> Option<u64> {
        let situation = Situation { wanted: MIB, high_live, reserved, is_behind: true, sharing, may_find_out };
        let creation = |situation| Balanced(Proportions::new(slack, 2 * MIB)).creation(&situation);
        let ahead = creation(Situation { is_behind: false, ..situation });
        assert_eq!(ahead.instead_of_waiting, None, "there is nothing to wait for");
        assert_eq!(ahead.eager, creation(situation).eager);
        creation(situation).instead_of_waiting
    }

    #[test]
    fn memory_is_created_where_a_wait_would_cost_time() {
        let most = |reserved, sharing, may_find_out| {
            let most = instead(Policy::DEFAULT_SLACK, 1024 * MIB, reserved * MIB, sharing, may_find_out);
            most.map(|bytes| bytes / MIB)
        };
        assert_eq!(most(1024, Sharing::SideBySide, true), Some(1544));
        assert_eq!(most(1024, Sharing::Untold, false), Some(1544));
        assert_eq!(most(1024, Sharing::InTurn, true), None, "a wait costs nothing");
        assert_eq!(most(1024, Sharing::Unknown, false), Some(1056), "a little");
        assert_eq!(most(1056, Sharing::Unknown, false), None, "it can no longer be found out");
        assert_eq!(most(1056, Sharing::Unknown, true), Some(1056), "waits would keep it from being found out");
    }

    /// The sizes that were measured, to the byte.
    #[test]
    fn it_is_half_as_much_again_or_a_little_but_never_less_than_the_slack_allows() {
        for live in [0, 1, 49, 50, 99, MIB - 1, 13 * MIB + 512, 999_999_999_999, 1 << 50] {
            let eager = Proportions::new(Policy::DEFAULT_SLACK, 2 * MIB).eager(live);
            let most = live + live / 2 + 8 * MIB;
            let instead = |sharing| instead(Policy::DEFAULT_SLACK, live, 0, sharing, true);
            assert_eq!(instead(Sharing::SideBySide), Some(most.max(eager)), "{live}");
            assert_eq!(instead(Sharing::Unknown), Some(most.min(live + 32 * MIB).max(eager)), "{live}");
        }
        let allowed = instead(4.0, 600 * MIB, 0, Sharing::SideBySide, true);
        assert_eq!(allowed, Some(2200 * MIB), "the slack allows more");
    }
}
