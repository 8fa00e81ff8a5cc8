//! The statistics of the whole device, and how its peaks stay exact.

use alloc::collections::BTreeMap;

use super::{Coordinator, Shards};
use crate::books::Peaks;
use crate::ids::{PoolId, ShardId, Side};
use crate::looks;
use crate::meter::{COUNTERS, Counter, EVERY_COUNTER, NONE, each, has_shortage};
use crate::policy::Source;
use crate::stats::{MemoryStats, StatByPool};

/// PyTorch's counters of what requests led to.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scalars {
    pub(crate) num_alloc_retries: u64,
    pub(crate) num_ooms: u64,
    pub(crate) num_sync_all_streams: u64,
    pub(crate) num_oom_rejections: u64,
}

impl Coordinator {
    /// Returns the most bytes of blocks that the program held at a time since the peaks were reset last.
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
        if self.traits.source != Source::Pages {
            return;
        }
        self.settle_all(shards);
        let mut by_pool = BTreeMap::<PoolId, u64>::new();
        for id in self.shard_ids() {
            *by_pool.entry(self.pool_of(id)).or_default() += shards.with(id, |shard| shard.live_bytes());
        }
        let (most, live) = (self.most_live(), by_pool.values().sum());
        if live <= self.paging.bound(most) - most {
            (self.most_live, self.forgotten_peak) = (live, self.peaks_live());
            self.pools.begin_anew(&by_pool);
        }
    }

    /// Returns the reserved bytes by side. Under `paged`, memory goes from side to side without any call: what small
    /// blocks have got now counts as theirs, without a history.
    fn reserved_by_side(&self, reserved: StatByPool, shards: &mut dyn Shards) -> StatByPool {
        by_side(reserved, self.shard_ids().map(|id| shards.with(id, |shard| shard.small_bytes())).sum())
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

    /// Settles every shard that is short of room, or has some that it does not hold.
    pub fn settle_all(&mut self, shards: &mut dyn Shards) {
        for id in self.shard_ids() {
            if !shards.with(id, |shard| shard.is_settled()) {
                self.settle(id, shards);
            }
        }
    }

    /// Sets every peak to what is there now.
    pub fn reset_peaks(&mut self, shards: &mut dyn Shards) {
        self.settle_all(shards);
        self.most_live = self.most_live();
        self.forgotten_peak = 0;
        self.peaks = Peaks::new();
        for id in self.shard_ids() {
            let current = shards.with(id, |shard| shard.reset_peaks());
            self.peaks.add(&current);
        }
        self.headroom.reset_peaks();
        self.pools.reset_peaks();
    }

    /// Forgets what came and went: PyTorch's `reset_accumulated_memory_stats`.
    pub fn reset_totals(&mut self, shards: &mut dyn Shards) {
        for id in self.shard_ids() {
            shards.with(id, |shard| shard.meter.reset_totals());
        }
        self.headroom.reset_totals();
        self.pools.reset_totals();
        self.scalars = Scalars::default();
    }

    /// Returns all statistics now.
    pub fn stats(&mut self, shards: &mut dyn Shards) -> MemoryStats {
        self.settle_all(shards);
        let [allocation, allocated_bytes, active, active_bytes, requested_bytes, split, split_bytes, oversize] =
            self.families(shards);
        let (reserved, segment, oversize_segments) = self.headroom.stats();
        let reserved_bytes = self.reserved_by_side(reserved, shards);
        let (num_device_alloc, num_device_free) = self.headroom.driver_counts();
        let Scalars { num_alloc_retries, num_ooms, num_sync_all_streams, num_oom_rejections } = self.scalars;
        MemoryStats {
            allocation,
            allocated_bytes,
            segment,
            reserved_bytes,
            active,
            active_bytes,
            inactive_split: split,
            inactive_split_bytes: split_bytes,
            requested_bytes,
            oversize_allocations: oversize.all,
            oversize_segments,
            num_alloc_retries,
            num_ooms,
            num_sync_all_streams,
            num_device_alloc,
            num_device_free,
            num_oom_rejections,
            max_split_size: self.settings.max_split_bytes,
        }
    }

    /// Returns what the shards count, summed up, with the device's peaks.
    fn families(&self, shards: &mut dyn Shards) -> [StatByPool; COUNTERS] {
        let mut families = [StatByPool::default(); COUNTERS];
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                for (counter, family) in EVERY_COUNTER.into_iter().zip(&mut families) {
                    for side in Side::BOTH {
                        let (came, went) = shard.meter.totals(side, counter);
                        family.change(side, |stat| {
                            stat.current += shard.meter.current(side, counter) as u64;
                            stat.allocated += came;
                            stat.freed += went;
                        });
                    }
                }
            });
        }
        for (counter, family) in families.iter_mut().enumerate() {
            [family.all.peak, family.small_pool.peak, family.large_pool.peak] = self.peaks.of(counter);
        }
        families
    }

    /// P1: a peak is the sum of what is there and what room is left, and no room is below zero. P2: shards that hold no
    /// room have none, and each other one is a holder, once.
    pub(super) fn check_peaks(&mut self, shards: &mut dyn Shards) {
        let rows = |id| shards.with(id, |shard| (shard.meter.current_rows(), shard.meter.rooms()));
        let rows: alloc::vec::Vec<_> = self.shard_ids().map(rows).collect();
        self.peaks.check(&rows);
        shards.add_holders(&mut self.holders);
        let mut holders: alloc::vec::Vec<_> = self.holders.iter().copied().collect();
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
pub(super) fn by_side(mut reserved: StatByPool, small: u64) -> StatByPool {
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
