//! The policy `direct`: nothing is cached.
//!
//! A freed block goes back to the driver as soon as the device is done with it, at the free itself if that is already
//! so, or else before the next allocation. Its ladder is that of all policies that take segments (`policy/segments`).

mod idle;

use super::{Choice, Collects, Keeps, Policy, Room, Source, Traits, Variant};

/// The folder.
pub(super) struct Direct;

impl Room for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn variants(&self) -> &'static [Variant] {
        const { &[Variant { name: "direct", policy: Policy::Direct }] }
    }

    fn choose(&self, _: &Choice) -> Policy {
        Policy::Direct
    }

    fn describe(&self, policy: Policy) -> Option<(Traits, Choice)> {
        let traits = Traits { source: Source::Segments, collects: Collects::Idle, keeps: Keeps::Nothing, slack: None };
        (policy == Policy::Direct).then(|| (traits, Choice::default()))
    }
}
