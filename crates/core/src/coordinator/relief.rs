//! What would make room for a request that is refused, as far as that is certain.

use alloc::collections::BTreeSet;

use super::{Coordinator, Shards};
use crate::ids::{PageId, PoolId, ShardId, Side};
use crate::policy::Source;
use crate::shard::{BlockState, SegmentView};
use crate::size::Want;

/// Something that would make room for a refused request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Relief {
    /// The bytes that come free by it, in whole segments and pages.
    pub bytes: u64,
    /// Whether the request is served then for certain, if nothing else changes and the driver gives what it has got
    /// back. `false` where that cannot be known.
    pub serves: bool,
}

/// What a refused request lacks. Sizes are in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lack {
    pub(super) reserved: u64,
    /// What the request takes at most from the driver.
    pub(super) needed: u64,
    /// The most that may be reserved, where that is the reason; `None` where the driver or a source has refused.
    pub(super) bound: Option<u64>,
}

impl Lack {
    /// Returns whether the request has room once this number of bytes came free.
    fn is_met_by(&self, bytes: u64) -> bool {
        match self.bound {
            Some(bound) => self.reserved.saturating_sub(bytes).saturating_add(self.needed) <= bound,
            None => bytes >= self.needed,
        }
    }

    pub(super) fn relief(&self, bytes: u64) -> Relief {
        Relief { bytes, serves: self.is_met_by(bytes) }
    }
}

impl Coordinator {
    /// Returns what comes free once nothing waits for the device any more: the segments and pages in which no block is
    /// live, without `idle`, those that are free now. Each block of the layout is visited, and once more each live one.
    pub(super) fn relief_by_waiting(&self, of: ShardId, lack: &Lack, layout: &[SegmentView], idle: u64) -> Relief {
        let own = self.pool_of(of);
        let counts = |pool: PoolId| {
            let is_of_use = lack.bound.is_some() || self.is_supplied_alike(pool, own);
            let is_gathered = pool == own && self.traits_of(of).source == Source::Pages;
            is_of_use && (!self.pools.is_held(pool) || is_gathered)
        };
        let pinned: BTreeSet<PageId> = layout.iter().flat_map(live_pages).collect();
        let unpinned = layout.iter().filter(|view| counts(view.pool)).map(|view| unpinned_bytes(view, &pinned));
        let bytes = unpinned.sum::<u64>() + self.pages.spare_bytes();
        Relief { bytes: bytes.saturating_sub(idle), serves: lack.is_met_by(bytes) }
    }

    /// Returns what other pools give back once they have no references any more, and how much of it is not known to be
    /// over with: of that the part that work uses which was never submitted stays.
    pub(super) fn relief_by_pools(&self, of: ShardId, lack: &Lack, shards: &mut dyn Shards) -> (Relief, u64) {
        let own = self.pool_of(of);
        let (mut bytes, mut unreached) = (0, 0);
        for id in self.shard_ids().filter(|&id| !self.may_release(id)) {
            let pool = self.pool_of(id);
            if pool != own && (lack.bound.is_some() || self.is_supplied_alike(pool, own)) {
                shards.with(id, |shard| {
                    bytes += shard.ledger().ready_bytes;
                    unreached += shard.unreached_bytes(|point| self.pending.is_reached(point));
                });
            }
        }
        (lack.relief(bytes), unreached)
    }

    /// Returns whether memory that one pool gives back is there for another one: from the driver, or from its own
    /// source.
    fn is_supplied_alike(&self, pool: PoolId, own: PoolId) -> bool {
        pool == own || !(self.has_source(pool) || self.has_source(own))
    }

    /// Returns whether the request is served from the memory of its own stream once nothing waits any more, where
    /// nothing but the size of a block decides that.
    pub(super) fn fits_after_waits(&self, of: ShardId, want: Want, layout: &[SegmentView]) -> bool {
        let (stream, pool, is_shared) = (self.stream_of(of), self.pool_of(of), self.is_shared(of));
        let settings = self.settings_in(pool);
        let policy = settings.policy;
        let decides_by_size =
            policy.caches() && policy.slack_of_segments().is_none() && settings.max_split() == u64::MAX;
        let own = layout.iter().filter(|view| view.pool == pool && (is_shared || view.stream == stream));
        decides_by_size && own.filter(|view| is_home(view)).any(|view| longest_run(view, want.side) >= want.rounded)
    }
}

/// Returns the pages that live blocks of a segment are in.
fn live_pages(view: &SegmentView) -> impl Iterator<Item = PageId> {
    let live = view.blocks.iter().filter(|block| block.state == BlockState::ActiveAllocated);
    live.flat_map(|block| {
        let end = block.offset + block.size;
        let first = view.pages.partition_point(|page| page.offset + page.bytes <= block.offset);
        view.pages[first..].iter().take_while(move |page| page.offset < end).map(|page| page.page)
    })
}

/// Returns the bytes of a segment that could go back if nothing waited: of a range the pages that are not pinned, or
/// all of it if no block is live.
fn unpinned_bytes(view: &SegmentView, pinned: &BTreeSet<PageId>) -> u64 {
    if view.page_bytes > 0 {
        let free = view.pages.iter().filter(|page| page.is_home && !pinned.contains(&page.page));
        return free.map(|page| page.bytes).sum();
    }
    let is_live = view.blocks.iter().any(|block| block.state == BlockState::ActiveAllocated);
    if is_live { 0 } else { view.bytes }
}

/// Returns whether memory has its home in a segment: not in a window.
fn is_home(view: &SegmentView) -> bool {
    view.pages.iter().all(|page| page.is_home)
}

/// Returns the bytes of the longest run of blocks of a side that are free, or are so once nothing waits.
fn longest_run(view: &SegmentView, side: Side) -> u64 {
    let (mut longest, mut run) = (0, 0);
    for block in &view.blocks {
        let joins = matches!(block.state, BlockState::Inactive | BlockState::ActivePendingFree) && block.side == side;
        run = if joins { run + block.size } else { 0 };
        longest = longest.max(run);
    }
    longest
}
