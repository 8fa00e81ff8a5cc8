//! The governor that goes by what was ever live alone.

use super::{Creation, Governor, Situation};

/// Creates two fifths of the slack first, and has streams wait beyond that.
#[derive(Debug)]
pub(crate) struct Fixed;

impl Governor for Fixed {
    fn asks_whether_behind(&self) -> bool {
        false
    }

    fn creation(&self, situation: &Situation) -> Creation {
        Creation { eager: situation.slack.eager(situation.high_live), instead_of_waiting: None }
    }
}
