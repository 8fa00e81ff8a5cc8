//! The policy `classic`: PyTorch's native allocator, to the counter.
//!
//! Its ladder is that of all policies that take segments (`policy/segments`). What is its own: the three kinds of
//! segments, garbage collection, the release of oversize segments, expandable segments, and the bound on what is
//! reserved beyond the slack.

mod expand;
mod garbage;
mod oversize;
mod surplus;

use super::{Choice, Collects, Keeps, Policy, Room, Source, Traits, Variant};

/// The segments of `classic`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Segments {
    /// PyTorch's: 2 MiB for small requests, 20 MiB or the size of the request for large ones.
    #[default]
    Plain,
    /// `expandable_segments`: large address ranges that grow by pages instead of many fixed segments. They need a
    /// device with virtual memory.
    Expandable,
    /// `slack`: segments of which no more stays reserved than this share beyond what was ever live, for example 0.125
    /// for an eighth. They are meant for memory that is expensive to take and whose segments cannot be taken apart,
    /// such as page-locked memory of the host ([`Settings::for_host`](crate::settings::Settings::for_host)).
    ///
    /// A segment then has the size of the request or, for requests that are small compared with that peak, a part of
    /// the peak. Before one is taken, idle ones are given back as far as the share demands; garbage is not collected.
    /// The smaller the slack, the more often the driver is called.
    Snug(f64),
}

/// The folder.
pub(super) struct Classic;

impl Room for Classic {
    fn name(&self) -> &'static str {
        "classic"
    }

    fn variants(&self) -> &'static [Variant] {
        const PLAIN: Variant = Variant { name: "classic", policy: Policy::Classic(Segments::Plain) };
        const EXPANDABLE: Variant = Variant { name: "expandable", policy: Policy::Classic(Segments::Expandable) };
        &[PLAIN, EXPANDABLE]
    }

    fn choose(&self, choice: &Choice) -> Policy {
        Policy::Classic(match choice.slack {
            _ if choice.expandable_segments => Segments::Expandable,
            Some(slack) => Segments::Snug(slack),
            None => Segments::Plain,
        })
    }

    fn describe(&self, policy: Policy) -> Option<(Traits, Choice)> {
        let Policy::Classic(segments) = policy else { return None };
        let plain = Traits { source: Source::Segments, collects: Collects::Garbage, keeps: Keeps::Freed, slack: None };
        let choice = Choice::default();
        Some(match segments {
            Segments::Plain => (plain, choice),
            Segments::Expandable => {
                (Traits { source: Source::Ranges, ..plain }, Choice { expandable_segments: true, ..choice })
            }
            Segments::Snug(slack) => {
                let slack = Some(slack);
                (Traits { collects: Collects::Surplus, slack, ..plain }, Choice { slack, ..choice })
            }
        })
    }
}
