//! The release of memory: what is to be released is chosen, waited for, and given to the driver one call at a time.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use millpond_backend::Point;

use super::calls::Purpose;
use super::pending::raise;
use super::plan::{Awaited, Goal, Plan, Rung};
use super::step::{PageCall, Step};
use super::{Coordinator, Shards};
use crate::ids::{BlockId, PageId, SegmentId, ShardId, Side, Slot};
use crate::plant::Plant;
use crate::segment::Role;
use crate::size::Want;

/// A claimed free block that is to be released: a whole segment, or the pages inside a block of an expandable one.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    shard: ShardId,
    block: BlockId,
    /// Whether the stream was synchronised, which is required before pages are unmapped.
    synchronized: bool,
}

/// A release in progress. Its candidates are claimed, so that no other plan can take them meanwhile.
#[derive(Debug)]
pub(super) struct Sweep {
    candidates: VecDeque<Candidate>,
    /// Whether to wait for the candidates' last uses first.
    waits: bool,
    /// The number of reserved bytes at which to stop, or 0 to release all candidates.
    down_to: u64,
    /// Whether spare pages are released as well.
    spare: bool,
    /// The range that the last unmap left without memory.
    empty_range: Option<(ShardId, Slot, SegmentId)>,
}

impl Sweep {
    fn new(blocks: Vec<(ShardId, BlockId)>, waits: bool, down_to: u64) -> Option<Self> {
        let candidate = |(shard, block)| Candidate { shard, block, synchronized: false };
        let candidates: VecDeque<_> = blocks.into_iter().map(candidate).collect();
        (!candidates.is_empty()).then(|| Self { candidates, waits, ..Self::empty(down_to) })
    }

    fn empty(down_to: u64) -> Self {
        Self { candidates: VecDeque::new(), waits: false, down_to, spare: false, empty_range: None }
    }
}

impl Coordinator {
    /// Chooses everything cached: unsplit free segments and whole free pages, the large side first (PyTorch's
    /// `release_cached_blocks`). A trim takes the largest first and stops at its goal.
    pub(super) fn sweep_all(&mut self, plan: &mut Plan, shards: &mut impl Shards) {
        let mut blocks = Vec::new();
        for side in [Side::Large, Side::Small] {
            for id in self.shard_ids() {
                blocks.extend(self.claim_releasable(id, side, shards));
            }
        }
        let down_to = match plan.goal {
            Goal::Trim(bytes) => {
                blocks
                    .sort_by_key(|&(id, block)| core::cmp::Reverse(shards.with(id, |shard| shard.blocks[block].size)));
                bytes
            }
            _ => 0,
        };
        let mut sweep = Sweep::new(blocks, true, down_to);
        if !self.pages.spare.is_empty() {
            let sweep = sweep.get_or_insert_with(|| Sweep::empty(down_to));
            sweep.spare = true;
        }
        plan.sweep = sweep;
    }

    fn claim_releasable(&self, id: ShardId, side: Side, shards: &mut impl Shards) -> Vec<(ShardId, BlockId)> {
        shards.with(id, |shard| {
            let goes = |block: BlockId| shard.is_whole_segment(block) || shard.whole_pages(block).is_some();
            let blocks: Vec<_> = shard.free_blocks(side).map(|(block, _)| block).filter(|&b| goes(b)).collect();
            blocks.iter().for_each(|&block| shard.claim(block));
            blocks.into_iter().map(|block| (id, block)).collect()
        })
    }

    /// Chooses what `direct` gives back before it takes more: everything idle, without waiting.
    pub(super) fn sweep_idle(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Option<Step> {
        let holders: Vec<_> = self
            .shard_ids()
            .filter(|&id| shards.with(id, |shard| shard.pools.iter().any(|pool| !pool.free.is_empty())))
            .collect();
        if holders.is_empty() {
            return None;
        }
        let streams = holders.iter().map(|&id| self.stream_of(id)).collect();
        let mut blocks = Vec::new();
        for id in holders {
            for side in Side::BOTH {
                blocks.extend(self.claim_releasable(id, side, shards));
            }
        }
        plan.sweep = Sweep::new(blocks, false, 0);
        Some(plan.awaits(Awaited::Points, Step::Poll(streams)))
    }

    /// Chooses the smallest oversize block that is large enough, or else the largest ones until their sum is (PyTorch's
    /// `release_available_cached_blocks`). Returns whether they suffice.
    pub(super) fn sweep_oversize(
        &mut self,
        plan: &mut Plan,
        id: ShardId,
        want: Want,
        shards: &mut impl Shards,
    ) -> bool {
        let max_split = self.settings.max_split();
        let needed = want.rounded.max(max_split);
        let (blocks, enough) = shards.with(id, |shard| {
            let plain = |block: &BlockId| shard.is_whole_segment(*block);
            let (free, size_of) = (&shard.pools[want.side.index()].free, |block| shard.blocks[block].size);
            let entry_of = |block| shard.entry(block);
            let (mut blocks, mut sum) = (Vec::new(), 0);
            if let Some(block) = free.best_fit(needed, size_of).filter(plain) {
                blocks.push(block);
                sum = size_of(block);
            } else {
                let mut at = free.last_below(needed, entry_of);
                while let Some(block) = at.filter(|&block| sum < needed && size_of(block) >= max_split) {
                    if plain(&block) {
                        blocks.push(block);
                        sum += size_of(block);
                    }
                    at = free.before(&entry_of(block), entry_of);
                }
            }
            blocks.iter().for_each(|&block| shard.claim(block));
            (blocks, sum >= needed)
        });
        plan.sweep = Sweep::new(blocks.into_iter().map(|block| (id, block)).collect(), true, 0);
        enough
    }

    /// Chooses as PyTorch's garbage collection does: in passes, every unsplit free block of the large side that is at
    /// least as old as the mean of those left. A pass is finished even when the goal is reached within it.
    pub(super) fn sweep_garbage(&mut self, plan: &mut Plan, shards: &mut impl Shards) {
        let Some(goal) = self.gc_goal() else { return };
        let Some(excess) = self.reserved.all.current.checked_sub(goal).filter(|&excess| excess > 0) else { return };
        let now = plan.clocks[Side::Large.index()];
        // Each row holds the age, the bytes, the shard and the block.
        let mut left: Vec<(u64, u64, ShardId, BlockId)> = Vec::new();
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                let free = shard.free_blocks(Side::Large);
                let garbage = free.filter_map(|(block, b)| Some((block, b.age, shard.garbage_bytes(block)?)));
                // Other threads may have freed blocks since the plan began: their age is 0.
                left.extend(garbage.map(|(block, age, bytes)| (now.saturating_sub(age), bytes, id, block)));
            });
        }
        let mut chosen = Vec::new();
        let mut freed = 0;
        while freed < excess && !left.is_empty() {
            let (sum, count) = (left.iter().map(|row| u128::from(row.0)).sum::<u128>(), left.len() as u128);
            // age >= sum / count, without a division. The mean is fixed for the pass.
            left.retain(|&(age, bytes, id, block)| {
                let stays = u128::from(age) * count < sum;
                if !stays {
                    freed += bytes;
                    chosen.push((id, block));
                }
                stays
            });
        }
        // Between two looks at a shard another thread may have taken a block, which is then in use and stays.
        chosen.retain(|&(id, block)| {
            shards.with(id, |shard| {
                let stays_free = shard.garbage_bytes(block).is_some();
                if stays_free {
                    shard.claim(block);
                }
                stays_free
            })
        });
        plan.sweep = Sweep::new(chosen, true, 0);
    }

    /// Chooses whole idle segments, the largest first, until the segment that a request needs stays within the slack.
    pub(super) fn sweep_surplus(&mut self, plan: &mut Plan, of: ShardId, want: Want, shards: &mut impl Shards) {
        let bytes = self.segment_for(of, &want, shards).0;
        let (mut bound, mut idle) = (0_u64, Vec::new());
        for id in self.shard_ids() {
            bound = bound.saturating_add(shards.with(id, |shard| shard.snug_bound((id == of).then_some(&want))));
            idle.append(&mut self.claim_releasable(id, Side::Large, shards));
        }
        let size =
            |(id, block): &(ShardId, BlockId), shards: &mut _| Shards::with(shards, *id, |s| s.blocks[*block].size);
        idle.sort_by_key(|one| core::cmp::Reverse(size(one, shards)));
        let mut excess = (self.reserved.all.current + self.reserving + bytes).saturating_sub(bound);
        idle.retain(|one| {
            let goes = excess > 0;
            excess = excess.saturating_sub(size(one, shards));
            if !goes {
                self.unclaim(plan, one.0, one.1, shards);
            }
            goes
        });
        plan.sweep = Sweep::new(idle, true, 0);
    }

    /// Returns the next step of the plan's sweep, or `None` if it has none or the sweep is over.
    pub(super) fn next_of_sweep(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Option<Step> {
        let mut sweep = plan.sweep.take()?;
        let step = self.sweep_on(plan, &mut sweep, shards);
        if step.is_some() {
            plan.sweep = Some(sweep);
        }
        step
    }

    fn sweep_on(&mut self, plan: &mut Plan, sweep: &mut Sweep, shards: &mut impl Shards) -> Option<Step> {
        // Other plans may have mapped memory in the range since.
        if let Some((shard, slot, id)) = sweep.empty_range.take()
            && shards.with(shard, |shard| shard.forget_empty(slot, id))
        {
            return Some(self.releases(plan, shard, slot, Step::ReleaseRange { shard, slot }));
        }
        if core::mem::take(&mut sweep.waits) {
            let points = self.last_uses(sweep, shards);
            if !points.is_empty() {
                return Some(plan.awaits(Awaited::Points, Step::Wait(points)));
            }
        }
        if core::mem::take(&mut sweep.spare)
            && let Some(step) = self.releases_spare(plan, sweep.down_to, shards)
        {
            return Some(step);
        }
        while let Some(candidate) = sweep.candidates.front_mut() {
            let Candidate { shard, block, synchronized } = *candidate;
            let done = self.reserved.all.current <= sweep.down_to && sweep.down_to > 0;
            let has_pages = shards.with(shard, |s| s.whole_pages(block).is_some());
            if has_pages && !self.settings.is_paged() && !synchronized && !done {
                // PyTorch synchronises the stream before it unmaps.
                candidate.synchronized = true;
                let stream = self.stream_of(shard);
                return Some(plan.awaits(Awaited::Points, Step::Synchronize(stream)));
            }
            sweep.candidates.pop_front();
            let last_use = shards.with(shard, |s| Point { stream: s.stream, tick: s.blocks[block].last_use.tick() });
            if done || !self.is_reached(last_use) {
                // Work that was never submitted may still use it: it stays cached.
                self.unclaim(plan, shard, block, shards);
                continue;
            }
            let step = if has_pages {
                self.unmaps(plan, shard, block, sweep.down_to, shards)
            } else {
                self.releases_segment(plan, shard, block, shards)
            };
            if step.is_some() {
                return step;
            }
        }
        None
    }

    fn releases(&mut self, plan: &mut Plan, shard: ShardId, slot: Slot, step: Step) -> Step {
        plan.awaits(Awaited::Release { shard, slot }, step)
    }

    fn releases_segment(
        &mut self,
        plan: &mut Plan,
        shard: ShardId,
        block: BlockId,
        shards: &mut impl Shards,
    ) -> Option<Step> {
        let (slot, bytes, side) = shards.with(shard, |s| {
            let b = &s.blocks[block];
            let (slot, bytes, side) = (b.slot, b.size, b.side);
            s.forget(slot);
            (slot, bytes, side)
        });
        self.book_released(side, bytes);
        self.book_segment(side, bytes, false);
        if self.settings.planted().is(Plant::LeakedSegment) {
            return None;
        }
        Some(self.releases(plan, shard, slot, Step::Release { shard, slot, bytes }))
    }

    /// Unmaps and releases pages in a claimed block, up to the number of bytes to release. `None` means that no page
    /// may go.
    fn unmaps(
        &mut self,
        plan: &mut Plan,
        shard: ShardId,
        block: BlockId,
        down_to: u64,
        shards: &mut impl Shards,
    ) -> Option<Step> {
        let excess = if down_to > 0 { self.reserved.all.current - down_to } else { u64::MAX };
        let (offset, bytes, pages) = self.first_to_go(shard, block, excess, shards).or_else(|| {
            self.unclaim(plan, shard, block, shards);
            None
        })?;
        let clocks = plan.clocks;
        let block = shards.with(shard, |s| {
            let side = s.blocks[block].side;
            s.carve(block, offset, bytes, clocks[side.index()])
        });
        let calls = pages.into_iter().flat_map(|page| self.calls_to_release(page, shards)).collect();
        Some(self.make(plan, Purpose::GiveUp { shard, block, bytes }, calls))
    }

    /// Returns the offset, the bytes and the pages of the first run of pages in a claimed block that no work uses
    /// through an old mapping. The run ends with the page that reaches `excess` bytes.
    fn first_to_go(
        &self,
        shard: ShardId,
        block: BlockId,
        excess: u64,
        shards: &mut impl Shards,
    ) -> Option<(u64, u64, Vec<PageId>)> {
        let whole: Vec<_> = shards.with(shard, |s| s.pages_in(block).collect());
        let (mut offset, mut bytes, mut pages) = (0, 0, Vec::new());
        for (at, mapping) in whole {
            if bytes >= excess {
                break;
            }
            if self.shadows_may_go(mapping.page, shards) {
                if pages.is_empty() {
                    offset = at;
                }
                bytes += mapping.bytes;
                pages.push(mapping.page);
            } else if !pages.is_empty() {
                break;
            }
        }
        (!pages.is_empty()).then_some((offset, bytes, pages))
    }

    /// Returns whether the old mappings of a page can be unmapped: all work through them is over, and no other plan is
    /// unmapping them.
    fn shadows_may_go(&self, page: PageId, shards: &mut impl Shards) -> bool {
        self.pages[page].shadows.iter().all(|shadow| {
            let at = shadow.place;
            let role = shards.with(at.shard, |s| s.segments[at.slot].mappings[&at.offset].role);
            role == Role::Shadow && self.is_reached(shadow.until)
        })
    }

    /// Releases spare pages that may go, up to the number of bytes to release.
    fn releases_spare(&mut self, plan: &mut Plan, down_to: u64, shards: &mut impl Shards) -> Option<Step> {
        let mut calls = Vec::new();
        let mut left = self.reserved.all.current;
        for page in core::mem::take(&mut self.pages.spare) {
            if (down_to > 0 && left <= down_to) || !self.shadows_may_go(page, shards) {
                self.pages.spare.push(page);
                continue;
            }
            left -= self.pages[page].bytes;
            calls.append(&mut self.calls_to_release(page, shards));
        }
        (!calls.is_empty()).then(|| self.make(plan, Purpose::GiveUpSpare, calls))
    }

    /// Books the release of spare pages.
    pub(super) fn spare_released(&mut self, plan: &mut Plan, calls: &[PageCall], shards: &mut impl Shards) {
        for call in calls {
            if let PageCall::Release { page } = *call {
                let (bytes, side) = (self.pages[page].bytes, self.pages[page].side);
                self.book_released(side, bytes);
            }
        }
        self.pages_released(calls, shards);
        self.note_progress(plan);
    }

    /// Notes that the driver has taken a segment or a range back.
    pub(super) fn released(&mut self, plan: &mut Plan, shard: ShardId, slot: Slot, shards: &mut impl Shards) {
        shards.with(shard, |shard| shard.unpromise(slot));
        self.note_progress(plan);
    }

    /// Books pages that the driver has unmapped and released.
    pub(super) fn unmapped(
        &mut self,
        plan: &mut Plan,
        shard: ShardId,
        block: BlockId,
        bytes: u64,
        shards: &mut impl Shards,
    ) {
        let (side, empty) = shards.with(shard, |s| {
            let (side, slot) = (s.blocks[block].side, s.blocks[block].slot);
            let empty = s.unmapped(block) && s.segments[slot].mappings.is_empty();
            (side, empty.then(|| (shard, slot, s.segments[slot].id)))
        });
        self.book_released(side, bytes);
        self.note_progress(plan);
        if let Some(sweep) = &mut plan.sweep {
            sweep.empty_range = empty;
        }
    }

    /// Returns the last uses of candidates that are not known to be over. The pages of `classic`'s expandable segments
    /// are left out: their release waits for the whole stream instead.
    fn last_uses(&self, sweep: &Sweep, shards: &mut impl Shards) -> Vec<Point> {
        let mut points = Vec::new();
        for &Candidate { shard, block, .. } in &sweep.candidates {
            let (last_use, pages) = shards.with(shard, |shard| {
                let pages: Vec<_> = shard.pages_in(block).map(|(_, mapping)| mapping.page).collect();
                (Point { stream: shard.stream, tick: shard.blocks[block].last_use.tick() }, pages)
            });
            if pages.is_empty() || self.settings.is_paged() {
                points.push(last_use);
                points.extend(pages.iter().flat_map(|&page| &self.pages[page].shadows).map(|shadow| shadow.until));
            }
        }
        if sweep.spare {
            let shadows = self.pages.spare.iter().flat_map(|&page| &self.pages[page].shadows);
            points.extend(shadows.map(|shadow| shadow.until));
        }
        let mut outstanding = Vec::new();
        for point in points {
            if !self.is_reached(point) {
                raise(&mut outstanding, point);
            }
        }
        outstanding
    }

    fn unclaim(&self, plan: &Plan, shard: ShardId, block: BlockId, shards: &mut impl Shards) {
        let clocks = plan.clocks;
        shards.with(shard, |shard| {
            let side = shard.blocks[block].side;
            shard.unclaim(block, clocks[side.index()]);
        });
    }

    /// Ends a plan early: what it has claimed goes back. The next step is [`Step::Done`], or begins to undo what is
    /// half done.
    pub fn abandon(&mut self, plan: &mut Plan, shards: &mut impl Shards) {
        plan.rung = Rung::End;
        self.abandon_job(plan, shards);
        if let Some(sweep) = plan.sweep.take() {
            for candidate in &sweep.candidates {
                self.unclaim(plan, candidate.shard, candidate.block, shards);
            }
        }
        self.keep_count(plan, None);
    }
}
