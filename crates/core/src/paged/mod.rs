//! The policy `paged`: a request that missed is served from memory that is free anywhere at home, or from new pages.
//!
//! The streams of a pool have one home, and every page has one place there for its whole life. A request that gets no
//! free block there at once comes here. The plan's attempt has the streams asked how far they are, and takes the
//! first way ([`ways`]) that serves the request: a free block, listed as [`tiles`], is used after waits, the home
//! grows within the slack, a window that was [`kept`] is used again, or [`pieces`] of free memory are
//! [gathered](gather) in a new window. A [`job`] claims what that needs, says which driver calls to make, and books
//! what they changed. How much is created before anything else, and how large its pages are, is the
//! [governor's](crate::governor).

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
