//! The governor that finds out whether streams run side by side, and creates memory instead of waits where they do.

use millpond_backend::{Point, StreamId, Tick};

use super::pace::{Pace, Spends};
use super::sizes::{self, Slack};
use super::{Creation, Governor, Situation};
use crate::stats::Sharing;

/// Creates up to half as much again as was ever live where streams run side by side.
#[derive(Debug)]
pub(crate) struct Adaptive {
    slack: Slack,
    pace: Pace,
}

impl Adaptive {
    pub(crate) fn new(slack: Slack) -> Self {
        Self { slack, pace: Pace::default() }
    }
}

impl Governor for Adaptive {
    fn asks_whether_behind(&self) -> bool {
        true
    }

    fn creation(&self, situation: &Situation) -> Creation {
        let Situation { wanted, high_live, reserved, is_behind } = *situation;
        let spends = if is_behind { self.pace.spends() } else { Spends::Nothing };
        let cap = sizes::cap_in_flight(spends, self.slack, high_live);
        let is_cautious = match spends {
            Spends::Nothing => false,
            // Waits keep from being found out how streams share the device. Where that cannot be, places go by what is
            // free once no more may be created.
            Spends::Little => reserved + wanted <= cap || self.pace.may_find_out(),
            Spends::Much => true,
        };
        Creation { eager: self.slack.eager(high_live), instead_of_waiting: is_cautious.then_some(cap) }
    }

    fn look(&mut self, reached: &mut dyn Iterator<Item = Point>, now: u64) {
        self.pace.look(reached, now);
    }

    fn mark(&mut self, point: Point, is_reached: bool, granted: u64) {
        self.pace.mark(point, is_reached, granted);
    }

    fn wait(&mut self, stream: StreamId, covered: Tick) {
        self.pace.wait(stream, covered);
    }

    fn sharing(&self) -> Sharing {
        self.pace.sharing()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Policy;
    use crate::units::MIB;

    fn creation(adaptive: &Adaptive, reserved: u64, is_behind: bool) -> Creation {
        adaptive.creation(&Situation { wanted: MIB, high_live: 1024 * MIB, reserved, is_behind })
    }

    #[test]
    fn where_no_time_is_told_memory_is_created_while_the_device_is_behind() {
        let adaptive = Adaptive::new(Slack::new(Policy::DEFAULT_SLACK));
        assert_eq!(creation(&adaptive, 1024 * MIB, false).instead_of_waiting, None, "there is nothing to wait for");
        assert_eq!(creation(&adaptive, 1024 * MIB, true).instead_of_waiting, Some(1544 * MIB));
    }

    #[test]
    fn a_little_is_created_while_nothing_is_known() {
        let mut adaptive = Adaptive::new(Slack::new(Policy::DEFAULT_SLACK));
        (0..2).for_each(|now| adaptive.look(&mut core::iter::empty(), now));
        assert_eq!(adaptive.sharing(), Sharing::Unknown);
        assert_eq!(creation(&adaptive, 1024 * MIB, true).instead_of_waiting, Some(1056 * MIB));
        assert_eq!(creation(&adaptive, 1056 * MIB, true).instead_of_waiting, None, "nobody can find it out");
        adaptive.mark(Point { stream: StreamId(0), tick: Tick(1) }, false, 1);
        assert_eq!(creation(&adaptive, 1056 * MIB, true).instead_of_waiting, Some(1056 * MIB));
    }
}
