//! The governor that learns nothing: the same share of what was ever live, whatever the device does.

use super::sizes::Slack;
use super::{Creation, Governor, Situation};

/// Creates two fifths of the slack first, and has streams wait beyond that.
#[derive(Debug)]
pub(crate) struct Fixed {
    slack: Slack,
}

impl Fixed {
    pub(crate) fn new(slack: Slack) -> Self {
        Self { slack }
    }
}

impl Governor for Fixed {
    fn creation(&self, situation: &Situation) -> Creation {
        Creation { eager: self.slack.eager(situation.high_live), instead_of_waiting: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Policy;

    #[test]
    fn streams_wait_however_far_the_device_is_behind() {
        let fixed = Fixed::new(Slack::new(Policy::DEFAULT_SLACK));
        let creation = |is_behind| {
            fixed.creation(&Situation { wanted: 1 << 20, high_live: 1 << 30, reserved: 1 << 30, is_behind })
        };
        assert_eq!(creation(true), creation(false));
        assert_eq!(creation(true).instead_of_waiting, None);
    }
}
