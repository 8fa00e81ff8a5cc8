//! The governor that creates memory instead of waits where streams run side by side.

use super::sizes::{Spends, cap_in_flight};
use super::{Creation, Governor, Situation};
use crate::stats::Sharing;

/// Creates up to half as much again as was ever live where streams run side by side.
#[derive(Debug)]
pub(crate) struct Adaptive;

impl Governor for Adaptive {
    fn asks_whether_behind(&self) -> bool {
        true
    }

    fn creation(&self, situation: &Situation) -> Creation {
        let Situation { slack, wanted, high_live, reserved, is_behind, sharing, may_find_out } = *situation;
        // Where nothing is found out it stays little: streams that are never seen to be busy together lose nothing by a
        // wait.
        let spends = match sharing {
            _ if !is_behind => Spends::Nothing,
            Sharing::Untold | Sharing::SideBySide => Spends::Much,
            Sharing::InTurn => Spends::Nothing,
            Sharing::Unknown => Spends::Little,
        };
        let cap = cap_in_flight(spends, slack, high_live);
        let is_cautious = match spends {
            Spends::Nothing => false,
            // Waits keep from being found out how streams share the device. Where that cannot be, places go by what is
            // free once no more may be created.
            Spends::Little => reserved + wanted <= cap || may_find_out,
            Spends::Much => true,
        };
        Creation { eager: slack.eager(high_live), instead_of_waiting: is_cautious.then_some(cap) }
    }
}
