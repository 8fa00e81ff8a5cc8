//! The policy `paged`: a request that missed is served from memory that is free anywhere at home, or from new pages.
//!
//! The streams of a pool have one home, and every page has one place there for its whole life. A request that gets no
//! free block there at once comes here. One attempt ([`attempt`]) asks the streams how far they are, looks for a free
//! block once more, and takes the first way ([`ways`]) that serves the request: a free block, listed as [`tiles`], is
//! used behind waits, the home grows within the slack, a window that was [`kept`] is used again, [`pieces`] of free
//! memory are [gathered](gather) in a new window. A [`job`] claims what that needs, has the driver calls made, and
//! books what they changed. An attempt that cannot be served waits for the oldest points and is made again, until
//! nothing is left to wait for ([`climb`]). [`pace`] finds out whether streams run side by side. [`sizes`] determines
//! how large pages are made, and how many are made before anything else.

mod attempt;
mod gather;
mod idle;
mod job;
mod kept;
mod pace;
mod pieces;
mod sizes;
mod tiles;
mod ways;

pub(crate) use attempt::{Knows, Times};
pub(crate) use job::Job;
pub(crate) use sizes::least as least_page_bytes;

use alloc::vec::Vec;

use super::Policy;
use crate::books::Windows;
use crate::ids::{BlockId, ShardId};
use crate::stats::PageStats;

/// What `paged` does first when memory is short and free memory may still be in use by the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Growth {
    /// The use of free memory behind a device-side wait, which needs the least memory.
    Tight,
    /// The creation of pages, up to a cap. Beyond it, streams wait for each other.
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

/// What `paged` remembers about the whole device.
#[derive(Default)]
pub(crate) struct Paging {
    growth: Growth,
    slack: sizes::Slack,
    pub(crate) windows: Windows,
    waited: tiles::Waited,
    pub(crate) pace: pace::Pace,
    /// Addresses that windows have lost, whose pages are being unmapped: the shard and the block.
    ending: Vec<(ShardId, BlockId)>,
    pub(crate) stats: PageStats,
}

impl Paging {
    /// Returns what is remembered at the beginning, under a policy that may be another one.
    pub(crate) fn new(policy: Policy) -> Self {
        let (growth, slack) = match policy {
            Policy::Paged { growth, slack } => (growth, slack),
            _ => (Growth::default(), Policy::DEFAULT_SLACK),
        };
        Self { growth, slack: sizes::Slack::new(slack), ..Self::default() }
    }

    /// Returns the number of reserved bytes that the slack allows, where this many bytes were live at most.
    pub(crate) fn bound(&self, most_live: u64) -> u64 {
        self.slack.bound(most_live)
    }
}
