//! The governor of `growth:tight`, which is fixed.
//!
//! It looks only at the peak of live bytes. No page is created instead of a wait, so how far the device is and how
//! streams share it make no difference. Comparisons take it as the baseline: what another governor reserves beyond it
//! has to buy time.

use super::situation::Creation;
use super::sizes::Proportions;

/// The governor of `growth:tight`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tight(pub(super) Proportions);

impl Tight {
    /// Returns how much may be created for a request, where this many bytes were live at most.
    pub(super) fn creation(&self, high_live: u64) -> Creation {
        Creation { eager: self.0.eager(high_live), instead_of_waiting: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;

    #[test]
    fn the_slack_alone_says_what_is_created() {
        for (slack, eager) in [(0.0, 600), (0.025, 610), (0.5, 800)] {
            let tight = Tight(Proportions::new(slack, 2 * MIB));
            let creation = Creation { eager: eager * MIB, instead_of_waiting: None };
            assert_eq!(tight.creation(600 * MIB), creation, "slack {slack}");
        }
    }
}
