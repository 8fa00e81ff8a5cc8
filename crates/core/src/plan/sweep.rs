//! The release of memory. PyTorch's garbage and its oversize segments, what is reserved beyond the slack, or what is
//! idle is chosen; what was chosen is waited for, and given to the driver one call at a time.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::phase::{Asked, Phase, Purpose, Rung, Stage, Sweep, Turned};
use super::step::Step;
use super::{Allocation, Goal, Run};
use crate::block::Block;
use crate::books::{PageCall, Points};
use crate::ids::{Place, PoolId, ShardBlock, ShardId, Side};
use crate::memory::{Garbage, Oversize};
use crate::plant::Plant;
use crate::segment::Mapping;

impl Run<'_> {
    /// Has a sweep go on.
    pub(crate) fn sweep_on(&mut self, mut sweep: Box<Sweep>) -> Turned {
        match sweep.stage {
            Stage::Wait => {
                sweep.stage = Stage::Spare;
                let points = self.last_uses(&sweep);
                let phase = Phase::Sweep(sweep);
                if points.is_empty() { phase.turn() } else { phase.after(Step::Wait(points.into_vec())) }
            }
            Stage::Spare => {
                sweep.stage = Stage::Next;
                let (mut calls, mut left) = (Vec::new(), self.excess(&sweep));
                for page in if sweep.with_spare { self.core.pages.take_spare() } else { Vec::new() } {
                    if left == 0 {
                        self.core.pages.put_aside(page);
                        continue;
                    }
                    left = left.saturating_sub(self.core.pages[page].bytes);
                    calls.append(&mut self.pager().calls_to_release(page));
                }
                match calls.is_empty() {
                    true => Phase::Sweep(sweep).turn(),
                    false => Phase::call(calls, Purpose::GiveUp { of: None, sweep }),
                }
            }
            Stage::Emptied { shard, slot, id } => {
                sweep.stage = Stage::Next;
                if let Some(bytes) = self.shards.with(shard, |shard| shard.memory.forget_empty(slot, id)) {
                    self.core.ranges.lose(bytes);
                    return Asked::Release { shard, slot, sweep }.by(Step::ReleaseRange { shard, slot });
                }
                Phase::Sweep(sweep).turn()
            }
            Stage::Next | Stage::Synchronized => self.release_next(sweep),
        }
    }

    /// Releases the first candidate, or gives its claim back if it may not go.
    fn release_next(&mut self, mut sweep: Box<Sweep>) -> Turned {
        let Some(&ShardBlock { shard, block }) = sweep.candidates.front() else { return sweep.then.turn() };
        let excess = self.excess(&sweep);
        let done = excess == 0;
        let has_pages = self.shards.with(shard, |s| s.memory.has_whole_pages(block));
        let is_captured = self.core.pending.is_captured(self.core.stream_of(shard));
        if has_pages && self.synchronizes() && sweep.stage == Stage::Next && !done && !is_captured {
            // PyTorch unmaps once the stream has come to an end.
            sweep.stage = Stage::Synchronized;
            return Phase::Sweep(sweep).after(Step::Synchronize(self.core.stream_of(shard)));
        }
        sweep.stage = Stage::Next;
        sweep.candidates.pop_front();
        let last_uses: Points = self.shards.with(shard, |s| s.memory.last_points(block).collect());
        let is_unsynchronized = is_captured && has_pages && self.synchronizes();
        if done || is_unsynchronized || !last_uses.iter().all(|point| self.core.pending.is_reached(point)) {
            // Work that was never submitted, or is being captured, may still touch it: it stays cached.
            self.shards.with(shard, |s| s.memory.unclaim(block, self.plan.request.clocks));
            return Phase::Sweep(sweep).turn();
        }
        if has_pages {
            // As many neighbouring pages as are to go that are in no window that is ending.
            let whole: Vec<_> = self.shards.with(shard, |s| s.memory.pages_in(block).collect());
            // What was done through windows comes before the last use of the page.
            let is_ending = |at: &Place| self.core.paging.windows.at(*at).is_none();
            let may_go = |page: &(u64, Mapping)| !self.core.pages[page.1.page].windows.iter().any(is_ending);
            let mut run = whole.into_iter().skip_while(|page| !may_go(page)).take_while(may_go);
            let Some((offset, first)) = run.next() else {
                self.shards.with(shard, |s| s.memory.unclaim(block, self.plan.request.clocks));
                return Phase::Sweep(sweep).turn();
            };
            let (mut bytes, mut pages) = (first.bytes, [first.page].to_vec());
            while bytes < excess
                && let Some((_, next)) = run.next()
            {
                bytes += next.bytes;
                pages.push(next.page);
            }
            let block = self.shards.with(shard, |s| {
                let block = s.memory.carve(block, offset, bytes, self.plan.request.clocks);
                s.memory.guards.take(&mut s.memory.blocks[block]);
                block
            });
            let calls = pages.into_iter().flat_map(|page| self.pager().calls_to_release(page)).collect();
            return Phase::call(calls, Purpose::GiveUp { of: Some(ShardBlock { shard, block }), sweep });
        }
        let Block { slot, size: bytes, side, .. } = self.shards.with(shard, |s| s.memory.forget_whole(block));
        self.core.headroom.lose_segment(side, bytes);
        self.plan.released += bytes;
        self.core.pools.lose(self.core.pool_of(shard), side, bytes);
        if self.core.settings.planted().is(Plant::LeakedSegment) {
            return Phase::Sweep(sweep).turn();
        }
        Asked::Release { shard, slot, sweep }.by(Step::Release { shard, slot, bytes })
    }

    /// Notes that the driver has released spare pages, or unmapped and released the pages of a claimed block.
    pub(crate) fn given_up(&mut self, of: Option<ShardBlock>, mut sweep: Box<Sweep>, calls: &[PageCall]) -> Box<Sweep> {
        if of.is_none() {
            for call in calls {
                if let PageCall::Release { page } = *call {
                    let page = &self.core.pages[page];
                    self.core.headroom.lose(page.side, page.bytes);
                    self.plan.released += page.bytes;
                }
            }
        }
        self.pager().pages_released(calls);
        if let Some(ShardBlock { shard, block }) = of {
            let (given, emptied) =
                self.shards.with(shard, |s| (s.memory.blocks[block].clone(), s.memory.unmapped_pages(block)));
            self.core.headroom.lose(given.side, given.size);
            self.plan.released += given.size;
            if let Some(id) = emptied {
                sweep.stage = Stage::Emptied { shard, slot: given.slot, id };
            }
        }
        self.core.turns.note_progress(&mut self.plan.standing);
        sweep
    }

    /// Returns the number of bytes that a sweep is still to release. A plan that gives back what is not needed ends
    /// with the next capture, as the driver refuses some calls meanwhile, and the capture may be lost by them.
    fn excess(&self, sweep: &Sweep) -> u64 {
        let is_unneeded = matches!(self.plan.request.goal, Goal::TrimIdle(_));
        let ends = is_unneeded && self.core.pending.has_captures();
        if ends { 0 } else { sweep.excess(self.core.reserved_bytes()) }
    }

    /// Returns whether a stream has to come to an end before its pages are unmapped. A plan that waits for nothing
    /// takes those alone whose last use is over.
    fn synchronizes(&self) -> bool {
        self.core.backing.synchronizes() && !matches!(self.plan.request.goal, Goal::TrimIdle(_))
    }

    /// Returns the last uses of what is to be released that are not known to be over. The pages of classic's expandable
    /// segments wait for their whole stream instead.
    fn last_uses(&mut self, sweep: &Sweep) -> Points {
        let mut points = Points::default();
        let mut add = |point| {
            if !self.core.pending.is_reached(point) {
                points.max(point);
            }
        };
        for &ShardBlock { shard, block } in &sweep.candidates {
            let (last_use, has_pages) = self.shards.with(shard, |shard| {
                shard.memory.guards.points_of(&shard.memory.blocks[block]).iter().for_each(&mut add);
                (shard.memory.blocks[block].last_point(), shard.memory.has_whole_pages(block))
            });
            if !has_pages || !self.synchronizes() {
                add(last_use);
            }
        }
        points
    }

    /// Chooses everything cached: unsplit free segments and whole free pages, the large side first (PyTorch's
    /// `release_cached_blocks`). A trim takes the largest first and stops at its goal. Nothing of a held pool goes.
    pub(crate) fn sweep_all(&mut self) -> Sweep {
        self.core.ranges.forget_refusals();
        let only = if let Goal::EmptyPool(pool) = self.plan.request.goal { Some(pool) } else { None };
        let concerns = |id: &ShardId| only.is_none_or(|pool| self.core.pool_of(*id) == pool);
        let ids: Vec<_> = self.core.releasable_shards().filter(concerns).collect();
        let each = [Side::Large, Side::Small].into_iter().flat_map(|side| ids.iter().map(move |&id| (id, side)));
        let mut blocks: Vec<_> = each.flat_map(|(id, side)| self.claim_releasable(id, side)).collect();
        let down_to = match self.plan.request.goal {
            Goal::Trim(bytes) => {
                blocks.sort_by_key(|&block| Reverse(self.size_of(block)));
                bytes
            }
            _ => 0,
        };
        // Spare pages have no home, and so belong to no pool.
        let with_spare = only.is_none() && self.core.pages.spare().next().is_some();
        Sweep { with_spare, down_to, ..Sweep::waiting(blocks) }
    }

    /// Has pools that nothing holds give back what is idle of them, before another private pool gets a segment or a
    /// range, so that pools that come and go keep no more than those that are there: PyTorch's `MemPool` gives memory
    /// back when it ends. Where addresses are scarce, every request has them do so, and also pools in which a stream
    /// was captured, whose last run no tick covers. Otherwise expandable segments stay, as a whole stream would have
    /// to be waited for, and all does while a stream is captured. Happens once of each kind in a plan. Costs a look at
    /// each shard if there is such a pool.
    pub(crate) fn empty_pools_that_are_over(&mut self, is_scarce: bool, attempt: Rung) -> Option<Turned> {
        let own = self.core.pool_of(self.plan.request.allocation().shard);
        let is_at_hand = !self.core.backing.synchronizes() && !self.core.pending.has_captures();
        let may = is_scarce || (own != PoolId::DEFAULT && self.core.pools.has_over() && is_at_hand);
        if !may || self.plan.request.is_cached_only() || self.plan.emptied_pools >= Some(is_scarce) {
            return None;
        }
        self.plan.emptied_pools = Some(is_scarce);
        let is_over = |id: &ShardId| {
            let pool = self.core.pool_of(*id);
            let is_alike = self.core.pools.has_source(pool) == self.core.pools.has_source(own);
            ![PoolId::DEFAULT, own].contains(&pool) && is_alike && (is_scarce || !self.core.pools.was_captured(pool))
        };
        let over: Vec<_> = self.core.releasable_shards().filter(is_over).collect();
        let sweep = Sweep::idle(self.claim_all_releasable(&over));
        let streams: Vec<_> = self.last_uses(&sweep).iter().map(|point| point.stream).collect();
        let next = sweep.then(attempt);
        Some(if streams.is_empty() { next.turn() } else { next.after(Step::Poll(streams)) })
    }
}

impl Run<'_> {
    /// Claims every free block of a shard's side that is a whole segment or has whole pages inside it.
    fn claim_releasable(&mut self, id: ShardId, side: Side) -> Vec<ShardBlock> {
        self.shards.with(id, |shard| shard.memory.claim_releasable(side))
    }

    /// Claims such blocks of both sides of several shards.
    fn claim_all_releasable(&mut self, ids: &[ShardId]) -> Vec<ShardBlock> {
        let each = ids.iter().flat_map(|&id| Side::BOTH.map(|side| (id, side)));
        each.flat_map(|(id, side)| self.claim_releasable(id, side)).collect()
    }

    /// Returns the bytes of a block.
    fn size_of(&mut self, of: ShardBlock) -> u64 {
        self.shards.with(of.shard, |shard| shard.size_of(of.block))
    }

    /// Chooses idle memory until no more than this number of bytes are reserved: of one pool, or of all that nothing
    /// holds. What is in use stays. Costs a look at each free block.
    pub(crate) fn sweep_idle(&mut self, down_to: u64, of: Option<PoolId>) -> Sweep {
        let concerns = |id: &ShardId| of.is_none_or(|pool| self.core.pool_of(*id) == pool);
        let ids: Vec<_> = self.core.releasable_shards().filter(concerns).collect();
        let with_spare = self.core.pages.spare().next().is_some();
        Sweep { with_spare, down_to, stage: Stage::Spare, ..Sweep::idle(self.claim_all_releasable(&ids)) }
    }

    /// Chooses PyTorch's garbage: in passes, every unsplit free block of the large side that is at least as old as the
    /// mean of those left; a pass is finished even when the goal is reached within it. Only the default pool has
    /// garbage.
    pub(crate) fn sweep_garbage(&mut self) -> Sweep {
        let excess = self.core.gc_goal().map_or(0, |goal| self.core.reserved_bytes().saturating_sub(goal));
        if excess == 0 {
            return Sweep::waiting(Vec::new());
        }
        let now = self.plan.request.clocks[Side::Large.index()];
        let mut left: Vec<Garbage> = Vec::new();
        for id in self.core.shards_of(PoolId::DEFAULT) {
            self.shards.with(id, |shard| left.extend(shard.memory.garbage(now)));
        }
        let mut chosen = Vec::new();
        let mut freed = 0;
        while freed < excess && !left.is_empty() {
            let (sum, count) = (left.iter().map(|garbage| u128::from(garbage.age)).sum::<u128>(), left.len() as u128);
            // age >= sum / count, without a division. The mean is fixed for the pass.
            left.retain(|&Garbage { age, bytes, block }| {
                let stays = u128::from(age) * count < sum;
                if !stays {
                    freed += bytes;
                    chosen.push(block);
                }
                stays
            });
        }
        // Between two looks at a shard another thread may have taken a block: that one is in use, and stays.
        chosen.retain(|at| self.shards.with(at.shard, |shard| shard.memory.claim_garbage(at.block)));
        Sweep::waiting(chosen)
    }

    /// Releases what PyTorch's `release_available_cached_blocks` releases for a request, and goes on with `next` if
    /// that is enough for it. Nothing of a held pool is released.
    pub(crate) fn sweep_oversize(&mut self, next: Rung) -> Turned {
        let Allocation { shard: id, want } = self.plan.request.allocation();
        if !self.core.may_release(id) {
            return Rung::Flush.turn();
        }
        let max_split = self.core.settings_in(self.core.pool_of(id)).max_split();
        let Oversize { blocks, suffice } = self.shards.with(id, |shard| shard.memory.claim_oversize(&want, max_split));
        Sweep::waiting(blocks).then(if suffice { next } else { Rung::Flush }).turn()
    }

    /// Chooses whole idle segments, the largest first, until the segment that a request needs stays within the slack.
    pub(crate) fn sweep_surplus(&mut self) -> Sweep {
        let Allocation { shard: of, want } = self.plan.request.allocation();
        let bytes = self.core.segment_for(of, &want, self.shards).bytes;
        let (mut bound, mut idle) = (0_u64, Vec::new());
        for id in self.core.shard_ids() {
            bound = bound.saturating_add(self.shards.with(id, |shard| shard.snug_bound((id == of).then_some(&want))));
            if self.core.may_release(id) && !self.core.has_source(self.core.pool_of(id)) {
                idle.append(&mut self.claim_releasable(id, Side::Large));
            }
        }
        let mut sized: Vec<_> = idle.into_iter().map(|at| (self.size_of(at), at)).collect();
        sized.sort_by_key(|(size, _)| Reverse(*size));
        let reserved = self.core.headroom.with_asked() - self.core.pools.reserved_from_sources();
        let mut excess = (reserved + bytes).saturating_sub(bound);
        let mut chosen = Vec::new();
        for (size, at) in sized {
            if excess > 0 {
                chosen.push(at);
            } else {
                self.shards.with(at.shard, |shard| shard.memory.unclaim(at.block, self.plan.request.clocks));
            }
            excess = excess.saturating_sub(size);
        }
        Sweep::waiting(chosen)
    }

    /// Releases what is idle, the largest blocks first, until no more than `bytes` are reserved. Other plans and hits
    /// see none of it claimed but what will go. Costs a look at each free block, and at each page in them.
    pub(crate) fn trim_idle(&mut self, bytes: u64, next: Rung) -> Turned {
        // Nothing is handed out between the look at a block and its claim.
        self.shards.hold();
        let mut blocks = Vec::new();
        for id in self.core.shard_ids().filter(|&id| self.core.is_trimmed(id)) {
            self.shards
                .with(id, |shard| Side::BOTH.iter().for_each(|side| blocks.extend(shard.memory.releasable(*side))));
        }
        blocks.sort_by_key(|(_, bytes)| Reverse(*bytes));
        let mut left = self.core.reserved_bytes().saturating_sub(bytes).saturating_sub(self.core.pages.spare_bytes());
        let is_wanted = |(_, bytes): &(ShardBlock, u64)| {
            let wanted = left > 0;
            left = left.saturating_sub(*bytes);
            wanted
        };
        let chosen: Vec<_> = blocks.into_iter().take_while(is_wanted).map(|(block, _)| block).collect();
        chosen.iter().for_each(|at| self.shards.with(at.shard, |shard| shard.memory.claim(at.block)));
        let with_spare = self.core.pages.spare().next().is_some();
        let sweep = Sweep { with_spare, down_to: bytes, stage: Stage::Spare, ..Sweep::idle(chosen) };
        let streams: Vec<_> = self.last_uses(&sweep).iter().map(|point| point.stream).collect();
        let next = sweep.then(next);
        match next {
            Phase::Sweep(_) if !streams.is_empty() => next.after(Step::Poll(streams)),
            _ => next.turn(),
        }
    }

    /// Releases everything that could go, of which what is still in use stays, once its streams were asked how far they
    /// are: what `direct` gives back before it takes more, but for held pools.
    pub(crate) fn release_idle(&mut self, next: Rung) -> Turned {
        let holders: Vec<_> = self
            .core
            .releasable_shards()
            .filter(|&id| self.shards.with(id, |shard| shard.memory.all_free().next().is_some()))
            .collect();
        if holders.is_empty() {
            return next.turn();
        }
        let blocks = self.claim_all_releasable(&holders);
        let mut streams = Vec::new();
        for stream in holders.into_iter().map(|id| self.core.stream_of(id)) {
            if !streams.contains(&stream) {
                streams.push(stream);
            }
        }
        Sweep::idle(blocks).then(next).after(Step::Poll(streams))
    }
}
