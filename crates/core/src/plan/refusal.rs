//! What is reported of a request that is refused.

use alloc::collections::BTreeSet;

use millpond_backend::Reuse;

use super::step::{FreeRange, Pin, Relief, Report};
use super::{Allocation, Run};
use crate::ids::{PageId, PoolId, ShardId, Side};
use crate::settings::Backing;
use crate::shard::{BlockState, SegmentView};
use crate::size::Want;
use crate::units::align_up;

/// What a refused request lacks. Sizes are in bytes.
#[derive(Clone, Copy, Debug)]
struct Lack {
    reserved: u64,
    /// What the request takes at most from the driver.
    needed: u64,
    /// The most that may be reserved, where that is the reason; `None` where the driver or a source has refused.
    bound: Option<u64>,
}

impl Lack {
    /// Returns whether the request has room once this number of bytes came free.
    fn is_met_by(&self, bytes: u64) -> bool {
        match self.bound {
            Some(bound) => self.reserved.saturating_sub(bytes).saturating_add(self.needed) <= bound,
            None => bytes >= self.needed,
        }
    }

    fn relief(&self, bytes: u64) -> Relief {
        Relief { bytes, serves: self.is_met_by(bytes) }
    }
}

impl Run<'_> {
    /// Builds the report of a refusal. It walks every block, a cost that an out-of-memory error justifies.
    pub(crate) fn report(&mut self, rejected: bool) -> Report {
        let Allocation { shard, want } = self.plan.request.allocation();
        let layout = self.core.layout(self.shards);
        let (stream, pool) = (self.requester_of().stream, self.core.pool_of(shard));
        let is_shared = self.core.is_shared(shard);
        let ledger = self.core.ledger(self.shards);
        let largest = |usable: bool| {
            let is_its = |view: &SegmentView| is_shared || (view.stream, view.side) == (stream, want.side);
            let is_own = |view: &&SegmentView| view.pool == pool && is_its(view);
            let views = layout.iter().filter(|view| !usable || is_own(view));
            views.filter_map(largest_free).max_by_key(|range| range.bytes)
        };
        let active = layout.iter().flat_map(|view| &view.blocks);
        let allocated = active.filter(|block| block.state == BlockState::ActiveAllocated);
        let allocated: u64 = allocated.map(|block| block.size).sum();
        let total_bytes = self.core.headroom.total_bytes;
        let most = self.core.limit().map_or(total_bytes, |limit| limit.min(total_bytes));
        let moves_pages = self.core.backing_of(shard) == Backing::Pages;
        let mut report = Report {
            requested_bytes: want.requested,
            tried_bytes: match moves_pages {
                true => want.rounded.next_multiple_of(self.core.paging.governor.page_unit()),
                false => self.core.needed_for(shard, &want, self.shards),
            },
            stream,
            pool,
            limit_bytes: self.core.limit(),
            total_bytes,
            allocated_bytes: allocated,
            reserved_bytes: self.core.reserved_bytes(),
            ledger,
            largest_free: largest(false),
            largest_usable: largest(true),
            empty_cache_frees: ledger.ready_bytes,
            unreached_bytes: self.unreached_bytes(),
            waiting_frees: ledger.waiting_bytes,
            by_waiting: Relief::default(),
            fits_after_waits: false,
            by_dropping_pools: Relief::default(),
            unreached_in_pools: 0,
            by_emptying: Relief::default(),
            in_private_pools: layout.iter().filter(|view| view.pool != PoolId::DEFAULT).map(free_bytes).sum(),
            slack: self.core.beyond_slack(self.shards),
            reuses_in_order: self.core.reuse_anywhere() == Reuse::InOrder,
            moves_pages,
            has_source: self.core.has_source(pool),
            refused_addresses: self.plan.refused_addresses.filter(|_| want.rounded <= most.saturating_sub(allocated)),
            rejected,
        };
        let lack = self.lack_of(&report, shard, want);
        if rejected {
            report.by_emptying = lack.relief(report.empty_cache_frees);
        } else {
            report.by_waiting = self.relief_by_waiting(shard, &lack, &layout, report.idle_bytes());
            report.fits_after_waits = self.fits_after_waits(shard, want, &layout);
            (report.by_dropping_pools, report.unreached_in_pools) = self.relief_by_pools(shard, &lack);
        }
        report
    }

    /// Returns what a refused request lacks.
    fn lack_of(&self, report: &Report, shard: ShardId, want: Want) -> Lack {
        let total = report.total_bytes;
        let limit = report.limit_bytes.filter(|_| report.beyond_limit_bytes() > 0).map(|limit| limit.min(total));
        Lack {
            reserved: report.reserved_bytes,
            // Where an expandable segment grows, free memory in front counts, which goes back with all other.
            needed: match self.core.backing_of(shard) {
                Backing::Ranges => report.tried_bytes.max(align_up(want.rounded, self.core.granularity())),
                _ => report.tried_bytes,
            },
            bound: if report.rejected { Some(self.core.throw_above().min(limit.unwrap_or(total))) } else { limit },
        }
    }

    /// Returns the number of bytes in free pages and in free segments whose last use is not known to be over. Those of
    /// held pools would not go back in any case.
    fn unreached_bytes(&mut self) -> u64 {
        let in_shard = |id| {
            self.shards.with(id, |shard| shard.memory.unreached_bytes(|point| self.core.pending.is_reached(point)))
        };
        self.core.releasable_shards().map(in_shard).sum()
    }

    /// Returns what comes free once nothing waits for the device any more: the segments and pages in which no block is
    /// live, without `idle`, those that are free now. Each block of the layout is visited, and once more each live one.
    fn relief_by_waiting(&self, of: ShardId, lack: &Lack, layout: &[SegmentView], idle: u64) -> Relief {
        let own = self.core.pool_of(of);
        let counts = |pool: PoolId| {
            let is_of_use = lack.bound.is_some() || self.is_supplied_alike(pool, own);
            let is_gathered = pool == own && self.core.backing_of(of) == Backing::Pages;
            is_of_use && (!self.core.pools.is_held(pool) || is_gathered)
        };
        let pinned: BTreeSet<PageId> = layout.iter().flat_map(live_pages).collect();
        let unpinned = layout.iter().filter(|view| counts(view.pool)).map(|view| unpinned_bytes(view, &pinned));
        let bytes = unpinned.sum::<u64>() + self.core.pages.spare_bytes();
        Relief { bytes: bytes.saturating_sub(idle), serves: lack.is_met_by(bytes) }
    }

    /// Returns what other pools give back once they have no references any more, and how much of it is not known to be
    /// over with: of that the part that work uses which was never submitted stays.
    fn relief_by_pools(&mut self, of: ShardId, lack: &Lack) -> (Relief, u64) {
        let own = self.core.pool_of(of);
        let (mut bytes, mut unreached) = (0, 0);
        for id in self.core.shard_ids().filter(|&id| !self.core.may_release(id)) {
            let pool = self.core.pool_of(id);
            if pool != own && (lack.bound.is_some() || self.is_supplied_alike(pool, own)) {
                self.shards.with(id, |shard| {
                    bytes += shard.ledger().ready_bytes;
                    unreached += shard.memory.unreached_bytes(|point| self.core.pending.is_reached(point));
                });
            }
        }
        (lack.relief(bytes), unreached)
    }

    /// Returns whether memory that one pool gives back is there for another one: from the driver, or from its own
    /// source.
    fn is_supplied_alike(&self, pool: PoolId, own: PoolId) -> bool {
        pool == own || !(self.core.has_source(pool) || self.core.has_source(own))
    }

    /// Returns whether the request is served from the memory of its own stream once nothing waits any more, where
    /// nothing but the size of a block decides that.
    fn fits_after_waits(&self, of: ShardId, want: Want, layout: &[SegmentView]) -> bool {
        let (stream, pool, is_shared) = (self.core.stream_of(of), self.core.pool_of(of), self.core.is_shared(of));
        let settings = self.core.settings_in(pool);
        let policy = settings.policy;
        let decides_by_size =
            policy.caches() && policy.slack_of_segments().is_none() && settings.max_split() == u64::MAX;
        let own = layout.iter().filter(|view| view.pool == pool && (is_shared || view.stream == stream));
        decides_by_size && own.filter(|view| is_home(view)).any(|view| longest_run(view, want.side) >= want.rounded)
    }
}

fn free_bytes(view: &SegmentView) -> u64 {
    view.blocks.iter().filter(|block| block.state == BlockState::Inactive).map(|block| block.size).sum()
}

fn largest_free(view: &SegmentView) -> Option<FreeRange> {
    let free = view.blocks.iter().enumerate().filter(|(_, block)| block.state == BlockState::Inactive);
    let (at, block) = free.max_by_key(|(_, block)| block.size)?;
    let neighbours = [at.checked_sub(1), Some(at + 1)];
    let pins = neighbours.into_iter().flatten().filter_map(|at| view.blocks.get(at)).filter_map(|b| {
        let waiting = match b.state {
            BlockState::ActiveAllocated => false,
            BlockState::ActivePendingFree => true,
            BlockState::Inactive | BlockState::Unmapped => return None,
        };
        Some(Pin { offset: b.offset, size: b.size, requested: b.requested, waiting })
    });
    Some(FreeRange {
        stream: view.stream,
        segment: view.id,
        offset: block.offset,
        bytes: block.size,
        pinned_by: pins.collect(),
    })
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
