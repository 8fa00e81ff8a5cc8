//! Giving memory back: choosing what goes, waiting until it may, and seeing it off, one driver call at a time.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use millpond_backend::Point;

use super::pending::raise;
use super::plan::{Awaited, Goal, Plan, Step};
use super::{Coordinator, Shards};
use crate::ids::{BlockId, ShardId, Side, Slot};
use crate::plant::Plant;
use crate::size::Want;

/// A claimed free block that is to go: a whole segment, or the pages inside a block of an expandable one.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    shard: ShardId,
    block: BlockId,
    /// The stream was synchronised, as must be before pages are unmapped.
    synchronized: bool,
}

/// A release in progress. Its candidates are claimed, so nobody else can take them meanwhile.
#[derive(Debug)]
pub(super) struct Sweep {
    candidates: VecDeque<Candidate>,
    /// Wait for the candidates' last uses first.
    waits: bool,
    /// Stop once no more than so many bytes are reserved.
    down_to: u64,
    /// The range that the last unmap left without memory.
    empty_range: Option<(ShardId, Slot)>,
}

impl Sweep {
    fn new(blocks: Vec<(ShardId, BlockId)>, waits: bool, down_to: u64) -> Option<Self> {
        let candidate = |(shard, block)| Candidate { shard, block, synchronized: false };
        let candidates: VecDeque<_> = blocks.into_iter().map(candidate).collect();
        (!candidates.is_empty()).then_some(Self { candidates, waits, down_to, empty_range: None })
    }
}

impl Coordinator {
    /// Everything cached: unsplit free segments and whole free pages, the large side first (PyTorch's
    /// `release_cached_blocks`). A trim takes the largest first and stops when it is there.
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
        self.begin(plan, Sweep::new(blocks, true, down_to));
    }

    fn claim_releasable(&self, id: ShardId, side: Side, shards: &mut impl Shards) -> Vec<(ShardId, BlockId)> {
        shards.with(id, |shard| {
            let goes = |block: BlockId| shard.is_whole_segment(block) || shard.whole_pages(block).is_some();
            let blocks: Vec<_> = shard.free_blocks(side).map(|(block, _)| block).filter(|&b| goes(b)).collect();
            blocks.iter().for_each(|&block| shard.claim(block));
            blocks.into_iter().map(|block| (id, block)).collect()
        })
    }

    /// What `direct` gives back before it takes more: everything idle, without waiting.
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
        self.begin(plan, Sweep::new(blocks, false, 0));
        Some(plan.awaits(Awaited::Points, Step::Poll(streams)))
    }

    /// PyTorch's `release_available_cached_blocks`: the smallest oversize block that is large enough, or else the
    /// largest ones until their sum is. Answers whether they suffice.
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
        self.begin(plan, Sweep::new(blocks.into_iter().map(|block| (id, block)).collect(), true, 0));
        enough
    }

    /// PyTorch's garbage collection: in passes, every unsplit free block of the large side that is at least as old as
    /// the mean of those left; a pass is finished even when the goal is reached within it.
    pub(super) fn sweep_garbage(&mut self, plan: &mut Plan, shards: &mut impl Shards) {
        let Some(goal) = self.gc_goal() else { return };
        let Some(excess) = self.reserved.all.current.checked_sub(goal).filter(|&excess| excess > 0) else { return };
        let now = plan.clocks[Side::Large.index()];
        // (age, bytes, shard, block)
        let mut left: Vec<(u64, u64, ShardId, BlockId)> = Vec::new();
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                let whole = shard.free_blocks(Side::Large).filter(|&(block, _)| shard.is_whole_segment(block));
                // Other threads may have freed blocks since the plan began: those are of age 0.
                left.extend(whole.map(|(block, b)| (now.saturating_sub(b.age), b.size, id, block)));
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
        // Between two looks at a shard another thread may have taken a block: that one is in use, and stays.
        chosen.retain(|&(id, block)| {
            shards.with(id, |shard| {
                let stays_free = shard.is_whole_segment(block);
                if stays_free {
                    shard.claim(block);
                }
                stays_free
            })
        });
        self.begin(plan, Sweep::new(chosen, true, 0));
    }

    /// From here on others know that memory may come back.
    fn begin(&mut self, plan: &mut Plan, sweep: Option<Sweep>) {
        self.releasing += u32::from(sweep.is_some());
        plan.sweep = sweep;
    }

    /// The next step of the plan's sweep, or `None` when it has none or it is over.
    pub(super) fn next_of_sweep(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Option<Step> {
        let mut sweep = plan.sweep.take()?;
        let step = self.sweep_on(plan, &mut sweep, shards);
        if step.is_some() {
            plan.sweep = Some(sweep);
        } else {
            self.releasing -= 1;
        }
        step
    }

    fn sweep_on(&mut self, plan: &mut Plan, sweep: &mut Sweep, shards: &mut impl Shards) -> Option<Step> {
        if let Some((shard, slot)) = sweep.empty_range.take() {
            shards.with(shard, |shard| shard.forget(slot));
            return Some(self.releases(plan, shard, slot, Step::ReleaseRange { shard, slot }));
        }
        if core::mem::take(&mut sweep.waits) {
            let points = self.last_uses(sweep, shards);
            if !points.is_empty() {
                return Some(plan.awaits(Awaited::Points, Step::Wait(points)));
            }
        }
        while let Some(candidate) = sweep.candidates.front_mut() {
            let Candidate { shard, block, synchronized } = *candidate;
            let done = self.reserved.all.current <= sweep.down_to && sweep.down_to > 0;
            let (pages, slot) = shards.with(shard, |s| (s.whole_pages(block), s.blocks[block].slot));
            if pages.is_some() && !synchronized && !done {
                candidate.synchronized = true;
                let stream = self.stream_of(shard);
                return Some(plan.awaits(Awaited::Points, Step::Synchronize(stream)));
            }
            sweep.candidates.pop_front();
            let last_use = shards.with(shard, |s| Point { stream: s.stream, tick: s.blocks[block].tick });
            if done || !self.is_reached(last_use) {
                // Work that was never submitted may still touch it: it stays cached.
                self.unclaim(plan, shard, block, shards);
                continue;
            }
            return Some(match pages {
                Some((offset, bytes)) => self.unmaps(plan, shard, block, (offset, bytes), sweep.down_to, shards),
                None => {
                    let (bytes, side) = shards.with(shard, |s| (s.blocks[block].size, s.blocks[block].side));
                    shards.with(shard, |s| s.forget(slot));
                    self.book_released(side, bytes);
                    self.book_segment(side, bytes, false);
                    if self.settings.planted().is(Plant::LeakedSegment) {
                        continue;
                    }
                    self.releases(plan, shard, slot, Step::Release { shard, slot, bytes })
                }
            });
        }
        None
    }

    fn releases(&mut self, plan: &mut Plan, shard: ShardId, slot: Slot, step: Step) -> Step {
        plan.awaits(Awaited::Release { shard, slot }, step)
    }

    fn unmaps(
        &mut self,
        plan: &mut Plan,
        shard: ShardId,
        block: BlockId,
        (offset, mut bytes): (u64, u64),
        down_to: u64,
        shards: &mut impl Shards,
    ) -> Step {
        let clocks = plan.clocks;
        let reserved = self.reserved.all.current;
        let (block, slot, bytes, page_bytes) = shards.with(shard, |s| {
            let b = &s.blocks[block];
            let (slot, side) = (b.slot, b.side);
            let page = s.segments[slot].page_bytes;
            if down_to > 0 {
                bytes = bytes.min((reserved - down_to).div_ceil(page) * page);
            }
            (s.carve(block, offset, bytes, clocks[side.index()]), slot, bytes, page)
        });
        let step = Step::Unmap { shard, slot, offset, bytes, page_bytes };
        plan.awaits(Awaited::Unmap { shard, block, bytes }, step)
    }

    /// The driver has taken a segment or a range back.
    pub(super) fn released(&mut self, shard: ShardId, slot: Slot, shards: &mut impl Shards) {
        shards.with(shard, |shard| shard.unpromise(slot));
        self.releases_ended += 1;
    }

    /// The driver has unmapped and released pages.
    pub(super) fn unmapped(
        &mut self,
        plan: &mut Plan,
        shard: ShardId,
        block: BlockId,
        bytes: u64,
        shards: &mut impl Shards,
    ) {
        let (side, slot, empty) = shards.with(shard, |s| {
            let (side, slot) = (s.blocks[block].side, s.blocks[block].slot);
            (side, slot, s.unmapped(block))
        });
        self.book_released(side, bytes);
        self.releases_ended += 1;
        if let Some(sweep) = &mut plan.sweep
            && empty
        {
            sweep.empty_range = Some((shard, slot));
        }
    }

    /// The last uses of plain candidates that are not known to be over. Pages wait for their whole stream instead.
    fn last_uses(&self, sweep: &Sweep, shards: &mut impl Shards) -> Vec<Point> {
        let mut points = Vec::new();
        for candidate in &sweep.candidates {
            let last_use = shards.with(candidate.shard, |shard| {
                let plain = shard.whole_pages(candidate.block).is_none();
                plain.then(|| Point { stream: shard.stream, tick: shard.blocks[candidate.block].tick })
            });
            if let Some(point) = last_use.filter(|&point| !self.is_reached(point)) {
                raise(&mut points, point);
            }
        }
        points
    }

    fn unclaim(&self, plan: &Plan, shard: ShardId, block: BlockId, shards: &mut impl Shards) {
        let clocks = plan.clocks;
        shards.with(shard, |shard| {
            let side = shard.blocks[block].side;
            shard.unclaim(block, clocks[side.index()]);
        });
    }

    /// A plan ends before its time: what it has claimed goes back.
    pub(super) fn abandon(&mut self, plan: &mut Plan, shards: &mut impl Shards) {
        if let Some(sweep) = plan.sweep.take() {
            self.releasing -= 1;
            for candidate in &sweep.candidates {
                self.unclaim(plan, candidate.shard, candidate.block, shards);
            }
        }
    }
}
