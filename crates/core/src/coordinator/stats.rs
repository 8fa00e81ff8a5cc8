//! The statistics of the whole device, and how its peaks stay exact; what is reserved beyond the slack, and what pins
//! it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, StreamId};

use super::{Coordinator, Shards};
use crate::books::{Headroom, Highs};
use crate::ids::{PoolId, ScopeId, ShardBlock, ShardId, Side};
use crate::looks;
use crate::meter::{COUNTERS, Counter, EVERY_COUNTER, Flow, NONE, Peaks, each, has_shortage};
use crate::settings::Backing;
use crate::shard::Grant;
use crate::stats::{MemoryStats, PinnedBy, SlackStats, StatByPool};

/// The bytes that streams pin, of blocks and free memory that are added one after the other.
#[derive(Default)]
struct Pins {
    bytes: u64,
    /// By stream: the freed memory that waits for it, and the free memory that it was the last to use.
    by_stream: BTreeMap<StreamId, (u64, u64)>,
}

impl Pins {
    /// Adds freed memory that waits for work of some streams. A stream may be named several times.
    fn add(&mut self, bytes: u64, streams: impl Iterator<Item = StreamId>) {
        let streams = sorted(streams);
        if !streams.is_empty() {
            self.bytes += bytes;
        }
        streams.into_iter().for_each(|stream| self.by_stream.entry(stream).or_default().0 += bytes);
    }

    /// Adds free memory that some streams may still use. If that is one, it gets the memory again without any wait
    /// where `is_in_order`.
    fn add_free(&mut self, bytes: u64, streams: impl Iterator<Item = StreamId>, is_in_order: bool) {
        match sorted(streams)[..] {
            [stream] if is_in_order => self.by_stream.entry(stream).or_default().1 += bytes,
            ref streams => self.add(bytes, streams.iter().copied()),
        }
    }
}

fn sorted(streams: impl Iterator<Item = StreamId>) -> Vec<StreamId> {
    let mut streams: Vec<_> = streams.collect();
    streams.sort_unstable();
    streams.dedup();
    streams
}

impl Coordinator {
    /// Returns the most bytes of blocks that the program held at a time since the running peaks began.
    pub(crate) fn peaks_live(&self) -> u64 {
        self.peaks.of(Counter::AllocatedBytes as usize)[0]
    }

    /// Returns the most bytes of blocks that the program held at a time, whatever peaks were reset, since it began anew
    /// last.
    pub(crate) fn most_live(&self) -> u64 {
        let peak = self.peaks_live();
        if peak > self.forgotten_peak { self.most_live.max(peak) } else { self.most_live }
    }

    /// Notes that this number of bytes is live in the pool of a shard, for where that is not what the peaks tell: once
    /// there are private pools, or the program has begun anew.
    pub(crate) fn note_live(&mut self, shard: ShardId, live: u64) {
        if self.pools.has_private() {
            self.pools.note_live(self.pool_of(shard), live);
        }
        self.most_live = self.most_live.max(live);
    }

    /// Forgets how much was live, if the program that had it live is over: the cache is emptied, and no more is live
    /// than the slack of what was. The next one may need far less.
    pub(crate) fn begin_anew(&mut self, shards: &mut dyn Shards) {
        if self.backing != Backing::Pages {
            return;
        }
        self.settle_all(shards);
        let mut by_pool = BTreeMap::<PoolId, u64>::new();
        for id in self.shard_ids() {
            *by_pool.entry(self.pool_of(id)).or_default() += shards.with(id, |shard| shard.live_bytes());
        }
        let (most, live) = (self.most_live(), by_pool.values().sum());
        if live <= self.paging.governor.bound(most) - most {
            (self.most_live, self.forgotten_peak) = (live, self.peaks_live());
            self.pools.begin_anew(&by_pool);
        }
    }

    /// Makes a shard a holder of room. If its counters rose beyond its room, takes room from other holders, and raises
    /// the peaks by what is still missing. If the access does not wait and another shard is busy, what is missing stays
    /// so: the busy one may have it.
    ///
    /// Holders are asked in turn. One that has plenty gives a part, after which nothing is missing. Any other gives all
    /// and is no longer a holder. So a call makes at most one holder, and at most one that it visits stays a holder.
    /// Over many calls that is two visits each, plus one for each shard that was opened. Busy shards come on top.
    pub fn settle(&mut self, shard: ShardId, shards: &mut dyn Shards) {
        let (before, is_new) = shards.with(shard, |shard| (shard.meter.rooms(), shard.hold_room()));
        if is_new {
            self.holders.push_back(shard);
        }
        if !has_shortage(&before) {
            return;
        }
        shards.add_holders(&mut self.holders);
        let (mut rooms, mut passed_over) = (before, false);
        for _ in 0..self.holders.len() {
            if !has_shortage(&rooms) {
                break;
            }
            let Some(other) = self.holders.pop_front() else { break };
            let mut holds = true;
            if other != shard {
                looks::note(1);
                passed_over |= !shards.try_visit(other, &mut |other| holds = other.meter.give_room(&mut rooms));
            }
            if holds {
                self.holders.push_back(other);
            }
        }
        if !passed_over && has_shortage(&rooms) {
            self.peaks.cover(&mut rooms);
        }
        each(|row, counter| rooms[row][counter] -= before[row][counter]);
        shards.with(shard, |shard| shard.meter.add_room(&rooms));
    }

    /// Settles a shard if the grant has used up its room for peaks.
    pub(crate) fn settled(&mut self, shard: ShardId, mut grant: Grant, shards: &mut dyn Shards) -> Grant {
        if core::mem::take(&mut grant.unsettled) {
            self.settle(shard, shards);
        }
        grant
    }

    /// Settles every shard that is short of room, or has some that it does not hold.
    pub fn settle_all(&mut self, shards: &mut dyn Shards) {
        for id in self.shard_ids() {
            if !shards.with(id, |shard| shard.meter.is_settled()) {
                self.settle(id, shards);
            }
        }
    }

    /// Lowers the remembered peak of live bytes to the peak of a scope: what the program needed before the scope no
    /// longer counts.
    pub(crate) fn forget_beyond(&mut self, most: u64) {
        (self.most_live, self.forgotten_peak) = (most, 0);
        self.pools.forget_beyond(most);
    }

    /// Sets every peak to the current value, but for those of scopes.
    pub fn reset_peaks(&mut self, shards: &mut dyn Shards) {
        let running = self.highs(shards);
        self.scopes.reset(&running);
        self.restart_peaks(shards);
        self.shard_ids().for_each(|id| shards.with(id, |shard| shard.snug_reset()));
        self.pools.reset_peaks();
    }

    /// Opens a scope, whose peaks begin with what is there now. Visits every shard, and leaves none of them room: each
    /// settles again when its counters rise next, as after a reset.
    pub fn open_scope(&mut self, shards: &mut dyn Shards) -> ScopeId {
        let running = self.highs(shards);
        let scope = self.scopes.open(&running);
        self.restart_peaks(shards);
        scope
    }

    /// Returns all statistics now, with the peaks since a scope was opened. Visits every shard, and looks at each scope
    /// that was opened later and is open.
    ///
    /// # Panics
    ///
    /// If the scope is not open.
    pub fn stats_since(&mut self, scope: ScopeId, shards: &mut dyn Shards) -> MemoryStats {
        let running = self.highs(shards);
        let highs = self.scopes.since(scope, &running);
        self.stats_with(&highs, shards)
    }

    /// Ends a scope. Costs the same however many there are.
    ///
    /// # Panics
    ///
    /// If the scope is not open.
    pub fn close_scope(&mut self, scope: ScopeId) {
        self.scopes.close(scope);
    }

    /// Returns the running peaks, once every shard is settled.
    fn highs(&mut self, shards: &mut dyn Shards) -> Highs {
        self.settle_all(shards);
        Highs::new(self.peaks, &self.headroom)
    }

    /// Lets the running peaks begin anew with what is there now.
    fn restart_peaks(&mut self, shards: &mut dyn Shards) {
        self.most_live = self.most_live();
        self.forgotten_peak = 0;
        self.peaks = Peaks::default();
        for id in self.shard_ids() {
            let current = shards.with(id, |shard| shard.restart_peaks());
            self.peaks.add(&current);
        }
        self.headroom.reset_peaks();
    }

    /// Resets the totals: PyTorch's `reset_accumulated_memory_stats`.
    pub fn reset_totals(&mut self, shards: &mut dyn Shards) {
        for id in self.shard_ids() {
            shards.with(id, |shard| shard.meter.reset_totals());
        }
        self.headroom.reset_totals();
        self.pools.reset_totals();
        self.scalars = MemoryStats::default();
    }

    /// Returns all statistics now, with the peaks since they were reset.
    pub fn stats(&mut self, shards: &mut dyn Shards) -> MemoryStats {
        self.stats_since(self.scopes.device(), shards)
    }

    fn stats_with(&self, highs: &Highs, shards: &mut dyn Shards) -> MemoryStats {
        let [allocation, allocated_bytes, active, active_bytes, requested_bytes, split, split_bytes, oversize] =
            self.families(shards);
        let Headroom { reserved, segments: segment, oversize_segments, .. } = self.headroom;
        // Under `paged`, memory goes from side to side without any call: what small blocks have got now counts as
        // theirs, without a history.
        let small = self.shard_ids().map(|id| shards.with(id, |shard| shard.small_bytes())).sum();
        let mut stats = MemoryStats {
            allocation,
            allocated_bytes,
            segment,
            reserved_bytes: reserved,
            active,
            active_bytes,
            inactive_split: split,
            inactive_split_bytes: split_bytes,
            requested_bytes,
            oversize_allocations: oversize.all,
            oversize_segments,
            num_device_alloc: self.headroom.allocations,
            num_device_free: self.headroom.releases,
            max_split_size: self.settings.max_split_bytes,
            ..self.scalars
        };
        highs.put_into(&mut stats);
        stats.reserved_bytes = by_side(stats.reserved_bytes, small);
        stats
    }

    /// Returns what the shards count, summed up, without peaks.
    fn families(&self, shards: &mut dyn Shards) -> [StatByPool; COUNTERS] {
        let mut families = [StatByPool::default(); COUNTERS];
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                for (counter, family) in EVERY_COUNTER.into_iter().zip(&mut families) {
                    for side in Side::BOTH {
                        let Flow { came, went } = shard.meter.flow(side, counter);
                        family.change(side, |stat| {
                            stat.current += shard.meter.current(side, counter) as u64;
                            stat.allocated += came;
                            stat.freed += went;
                        });
                    }
                }
            });
        }
        families
    }

    /// Returns what is reserved beyond the slack, and what work in flight pins. Every block is visited. The last known
    /// progress of each stream counts.
    pub fn slack_stats(&mut self, shards: &mut dyn Shards) -> SlackStats {
        self.settle_all(shards);
        self.beyond_slack(shards)
    }

    /// Does the work of [`slack_stats`](Self::slack_stats) where all shards are settled.
    pub(crate) fn beyond_slack(&self, shards: &mut dyn Shards) -> SlackStats {
        let most_live_bytes = self.most_live();
        let is_bounded = self.backing == Backing::Pages;
        // Each pool has its own slack, as its memory serves no other.
        let bound_bytes = is_bounded.then(|| match self.pools.has_private() {
            false => self.paging.governor.bound(most_live_bytes),
            true => self.pools.live_peaks().map(|live| self.paging.governor.bound(live)).fold(0, u64::saturating_add),
        });
        // Without what came from sources of pools, which the policy has no say in.
        let reserved = self.reserved_bytes() - self.pools.reserved_from_sources();
        let pins = self.pins(shards);
        let pinned_by = |(stream, (bytes, own_bytes))| PinnedBy { stream, bytes, own_bytes };
        SlackStats {
            most_live_bytes,
            bound_bytes,
            beyond_bytes: bound_bytes.map_or(0, |bound| reserved.saturating_sub(bound)),
            pinned_bytes: pins.bytes,
            pinned_by: pins.by_stream.into_iter().map(pinned_by).collect(),
            sharing: self.paging.pace.sharing,
        }
    }

    fn pins(&self, shards: &mut dyn Shards) -> Pins {
        let mut pins = Pins::default();
        let mut waiters = self.pending.blocks();
        let is_ahead = |point: &Point| !self.pending.is_reached(*point);
        let is_in_order = self.reuse_anywhere() == Reuse::InOrder;
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                let waits_for_home = shard.memory.rules.reuse != Reuse::InOrder;
                for (at, block) in shard.memory.pending_blocks() {
                    let of_others = waiters.remove(&ShardBlock { shard: id, block: at }).unwrap_or_default();
                    let points = of_others.into_iter().chain(waits_for_home.then(|| block.last_point()));
                    pins.add(block.size, points.filter(is_ahead).map(|point| point.stream));
                }
                for (_, part) in shard.memory.guards.all() {
                    let streams = part.points.iter().filter(is_ahead).map(|point| point.stream);
                    pins.add_free(part.end - part.begin, streams, is_in_order);
                }
                for block in shard.memory.used_last(|point| is_ahead(&point)) {
                    pins.add_free(block.size, [block.user].into_iter(), is_in_order);
                }
            });
        }
        pins
    }

    /// P1: a peak is the sum of what is there and what room is left, and no room is below zero. P2: shards that hold no
    /// room have none, and each other one is a holder, once.
    pub(crate) fn check_peaks(&mut self, shards: &mut dyn Shards) {
        let rows = |id| shards.with(id, |shard| (shard.meter.current_rows(), shard.meter.rooms()));
        let rows: Vec<_> = self.shard_ids().map(rows).collect();
        self.peaks.check(&rows);
        shards.add_holders(&mut self.holders);
        let mut holders: Vec<_> = self.holders.iter().copied().collect();
        holders.sort_unstable();
        let holding = |&id: &ShardId| shards.with(id, |shard| shard.meter.holds_room());
        assert!(self.shard_ids().filter(holding).eq(holders), "shards that hold room, against {:?}", self.holders);
        for (id, (_, rooms)) in self.shard_ids().zip(&rows) {
            let is_bare = shards.with(id, |shard| shard.meter.holds_room() || *rooms == NONE);
            assert!(is_bare, "{id:?} has room that it does not hold: {rooms:?}");
        }
    }
}

/// Returns reserved bytes of which `small` more belong to the small side than were counted there.
pub(crate) fn by_side(mut reserved: StatByPool, small: u64) -> StatByPool {
    let StatByPool { small_pool, large_pool, .. } = &mut reserved;
    small_pool.current += small;
    large_pool.current -= small;
    // What was there before the totals were reset was not allocated since.
    let allocated = small.min(large_pool.allocated);
    small_pool.allocated += allocated;
    large_pool.allocated -= allocated;
    small_pool.peak = small_pool.peak.max(small_pool.current);
    reserved
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use millpond_backend::Tick;

    use super::*;
    use crate::coordinator::DeviceFacts;
    use crate::ids::{PoolId, ShardId};
    use crate::plan::{Outcome, Plan, Step};
    use crate::settings::Settings;
    use crate::shard::{Freed, Grant, Shard};
    use crate::units::MIB;

    /// Has the first shard get a new segment for a block.
    fn miss(coordinator: &mut Coordinator, shards: &mut Vec<Shard>, mib: u64) -> Grant {
        let want = coordinator.sizes().want(mib * MIB).expect("a size");
        let mut plan = Plan::allocate(ShardId(0), want, [0; 2]);
        loop {
            match coordinator.next(&mut plan, shards) {
                Step::Grant(grant) => return grant,
                Step::Reserve { .. } => coordinator.learn(&mut plan, Outcome::Reserved { address: 0 }, shards),
                step => panic!("{step:?}"),
            }
        }
    }

    /// Where memory is used again only once work on it is over, a freed block is pinned by its own stream too.
    #[test]
    fn a_waiting_block_is_pinned_by_every_stream_that_it_waits_for() {
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse: Reuse::AfterDone, pages: None, stream_wait: true };
        let mut coordinator = Coordinator::new(Settings::default(), facts);
        let mut shards = vec![coordinator.open_shard(StreamId(0), PoolId(0))];
        let [both, own] = [12, 20].map(|mib| miss(&mut coordinator, &mut shards, mib));
        let points = [3, 2].map(|tick| Point { stream: StreamId(1), tick: Tick(tick) });
        shards[0].record_stream(both.block, StreamId(1));
        shards[0].used_until(both.block, points[1]);
        shards[0].free(both.block, Tick(2), 0);
        coordinator.pend(ShardId(0), both.block, points, [0; 2], &mut shards);
        assert!(matches!(shards[0].free(own.block, Tick(7), 0), Freed::Settling { .. }));
        let mut told = |reached: [u64; 2]| {
            for (stream, tick) in (0..).map(StreamId).zip(reached) {
                coordinator.note_reached(stream, Tick(tick));
            }
            let stats = coordinator.slack_stats(&mut shards);
            assert_eq!((stats.bound_bytes, stats.beyond_bytes), (None, 0), "classic has no bound");
            let by = stats.pinned_by.iter().map(|by| (by.stream.0, by.bytes / MIB, by.own_bytes));
            (stats.pinned_bytes / MIB, by.collect::<Vec<_>>())
        };
        assert_eq!(told([1, 1]), (32, vec![(0, 32, 0), (1, 12, 0)]), "each byte once, whatever it waits for");
        assert_eq!(told([2, 2]), (32, vec![(0, 20, 0), (1, 12, 0)]));
        assert_eq!(told([6, 3]), (20, vec![(0, 20, 0)]));
        assert_eq!(told([7, 3]), (0, vec![]), "reached, though not free yet");
    }
}
