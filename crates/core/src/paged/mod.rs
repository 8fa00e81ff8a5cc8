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

mod gather;
mod idle;
mod job;
mod kept;
mod knows;
mod pieces;
mod taker;
mod tiles;
mod ways;

use crate::coordinator::{Coordinator, Shards};

pub(crate) use job::{Job, Way};
pub(crate) use knows::{Knows, Lacks, Times};
pub(crate) use taker::Taker;

/// What serves requests that missed: the books of the coordinator, and the shards.
pub(crate) struct Pager<'a> {
    pub(crate) core: &'a mut Coordinator,
    pub(crate) shards: &'a mut dyn Shards,
}
