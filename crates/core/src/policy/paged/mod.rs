//! The policy `paged`: a request that missed is served from pages that are spare, idle elsewhere, or new.
//!
//! One attempt ([`attempt`]) has these parts, in order: [`lend`] looks for a block of another stream that can serve the
//! request where it is; [`survey`] lists the pages that could move; the shard lists the windows in which the request
//! could be served; [`scheme`] calculates what each would cost and takes the cheapest; [`job`] claims what that needs,
//! has the driver calls made, and books what they changed. An attempt that cannot be served waits for the [`oldest`]
//! points and is made again, until nothing is left to wait for: [`climb`] is that ladder. [`sizes`] and [`rounds`]
//! determine how large pages are made, and how many are made before any move.

mod attempt;
mod climb;
mod job;
mod lend;
mod oldest;
mod rounds;
mod scheme;
mod sizes;
mod survey;

pub(crate) use climb::Climb;
pub(crate) use job::{Job, Work};

use self::rounds::Rounds;
use super::{Choice, Collects, Keeps, Policy, Room, Source, Traits, Variant};
use crate::stats::PageStats;

/// What `paged` does first when memory is short and all free memory may still be in use by the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Growth {
    /// The move of pages behind a device-side wait, which needs the least memory.
    Tight,
    /// The creation of pages. Streams never wait for each other.
    #[default]
    Balanced,
}

impl Growth {
    /// Returns the name that configurations use.
    pub const fn name(self) -> &'static str {
        match self {
            Growth::Tight => "tight",
            Growth::Balanced => "balanced",
        }
    }
}

/// The folder.
pub(super) struct Paged;

impl Room for Paged {
    fn name(&self) -> &'static str {
        "paged"
    }

    fn variants(&self) -> &'static [Variant] {
        const BALANCED: Variant = Variant { name: "paged", policy: Policy::Paged(Growth::Balanced) };
        const TIGHT: Variant = Variant { name: "tight", policy: Policy::Paged(Growth::Tight) };
        &[BALANCED, TIGHT]
    }

    fn choose(&self, choice: &Choice) -> Policy {
        Policy::Paged(choice.growth)
    }

    fn describe(&self, policy: Policy) -> Option<(Traits, Choice)> {
        let Policy::Paged(growth) = policy else { return None };
        let traits = Traits { source: Source::Pages, collects: Collects::Garbage, keeps: Keeps::Freed, slack: None };
        Some((traits, Choice { growth, ..Choice::default() }))
    }
}

/// What `paged` remembers about the whole device.
#[derive(Default)]
pub(crate) struct Paging {
    growth: Growth,
    /// The most bytes that were live when a request missed, including that request.
    high_live: u64,
    /// The largest request that missed, in bytes.
    largest: u64,
    rounds: Rounds,
    pub(crate) stats: PageStats,
}

impl Paging {
    /// Returns what is remembered at the beginning, under a policy that may be another one.
    pub(crate) fn new(policy: Policy) -> Self {
        let growth = if let Policy::Paged(growth) = policy { growth } else { Growth::default() };
        Self { growth, ..Self::default() }
    }
}
