//! The device's peaks, and the statistics as a whole.

use super::{Coordinator, Shards};
use crate::ids::{ShardId, Side};
use crate::meter::{EVERY_LANE, LANES, ROWS, Row};
use crate::stats::{MemoryStats, StatByPool};

impl Coordinator {
    /// A shard's counters rose beyond its room: takes room from the others, and raises the peaks by what is missing. If
    /// the access does not wait and another shard is busy, what is missing stays so: the busy one may have it.
    pub fn settle(&mut self, shard: ShardId, shards: &mut impl Shards) {
        let mut missing = shards.with(shard, |shard| take_missing(&mut shard.meter.room));
        let mut passed_over = false;
        for other in self.shard_ids() {
            if missing.iter().flatten().all(|&m| m == 0) {
                break;
            }
            if other != shard {
                match shards.try_with(other, |other| give_room(&mut other.meter.room, &mut missing)) {
                    Some(given) => shards.with(shard, |shard| add(&mut shard.meter.room, &given)),
                    None => passed_over = true,
                }
            }
        }
        if passed_over {
            missing.iter_mut().flatten().for_each(|missing| *missing = -*missing);
            shards.with(shard, |shard| add(&mut shard.meter.room, &missing));
        } else {
            add(&mut self.peaks, &missing);
        }
    }

    /// Settles every shard that is short of room.
    pub fn settle_all(&mut self, shards: &mut impl Shards) {
        for id in self.shard_ids() {
            if !shards.with(id, |shard| shard.meter.is_settled()) {
                self.settle(id, shards);
            }
        }
    }

    /// Sets every peak to what is there now.
    pub fn reset_peaks(&mut self, shards: &mut impl Shards) {
        self.peaks = [[0; LANES]; ROWS];
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                add(&mut self.peaks, &shard.meter.current_rows());
                shard.meter.reset_room();
            });
        }
        for stats in [&mut self.reserved, &mut self.segments] {
            for stat in [&mut stats.all, &mut stats.small_pool, &mut stats.large_pool] {
                stat.reset_peak();
            }
        }
        self.oversize_segments.reset_peak();
    }

    /// Forgets what came and went: PyTorch's `reset_accumulated_memory_stats`.
    pub fn reset_totals(&mut self, shards: &mut impl Shards) {
        for id in self.shard_ids() {
            shards.with(id, |shard| shard.meter.reset_totals());
        }
        for stats in [&mut self.reserved, &mut self.segments] {
            for stat in [&mut stats.all, &mut stats.small_pool, &mut stats.large_pool] {
                stat.reset_totals();
            }
        }
        self.oversize_segments.reset_totals();
        self.scalars = super::Scalars::default();
    }

    /// All statistics now.
    pub fn stats(&mut self, shards: &mut impl Shards) -> MemoryStats {
        self.settle_all(shards);
        let mut families = [StatByPool::default(); LANES];
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                for (lane, family) in EVERY_LANE.into_iter().zip(&mut families) {
                    for side in Side::BOTH {
                        let current = shard.meter.current(side, lane) as u64;
                        let (allocated, freed) = shard.meter.totals(side, lane);
                        super::both(family, side, |stat| {
                            stat.current += current;
                            stat.allocated += allocated;
                            stat.freed += freed;
                        });
                    }
                }
            });
        }
        for (lane, family) in families.iter_mut().enumerate() {
            let peaks = [&mut family.all, &mut family.small_pool, &mut family.large_pool];
            for (stat, row) in peaks.into_iter().zip(&self.peaks) {
                stat.peak = row[lane] as u64;
            }
        }
        let [allocation, allocated_bytes, active, active_bytes, requested_bytes, split, split_bytes, oversize] =
            families;
        MemoryStats {
            allocation,
            allocated_bytes,
            segment: self.segments,
            reserved_bytes: self.reserved,
            active,
            active_bytes,
            inactive_split: split,
            inactive_split_bytes: split_bytes,
            requested_bytes,
            oversize_allocations: oversize.all,
            oversize_segments: self.oversize_segments,
            num_alloc_retries: self.scalars.num_alloc_retries,
            num_ooms: self.scalars.num_ooms,
            num_sync_all_streams: self.scalars.num_sync_all_streams,
            num_device_alloc: self.scalars.num_device_alloc,
            num_device_free: self.scalars.num_device_free,
            num_oom_rejections: self.scalars.num_oom_rejections,
            max_split_size: self.settings.max_split_bytes,
        }
    }

    /// P1: a peak is the sum of what is there and what room is left, and no room is below zero.
    pub(super) fn check_peaks(&self, shards: &mut impl Shards) {
        let mut sums = [[0; LANES]; ROWS];
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                assert!(shard.meter.is_settled(), "{id:?} has room below zero: {:?}", shard.meter.room);
                add(&mut sums, &shard.meter.current_rows());
                add(&mut sums, &shard.meter.room);
            });
        }
        assert_eq!(sums, self.peaks, "what is there plus room, against the peaks (all, small, large)");
    }
}

fn add(rows: &mut [Row; ROWS], more: &[Row; ROWS]) {
    for (row, more) in rows.iter_mut().flatten().zip(more.iter().flatten()) {
        *row += more;
    }
}

/// Sets rooms below zero to zero and answers what they lacked.
fn take_missing(rooms: &mut [Row; ROWS]) -> [Row; ROWS] {
    let mut missing = [[0; LANES]; ROWS];
    for (room, missing) in rooms.iter_mut().flatten().zip(missing.iter_mut().flatten()) {
        *missing = (-*room).max(0);
        *room = (*room).max(0);
    }
    missing
}

/// Takes what is missing from another shard's rooms, and half of what is left there as well, so that two streams that
/// rise in turns do not come back every time. Answers what the taker may keep as room.
fn give_room(rooms: &mut [Row; ROWS], missing: &mut [Row; ROWS]) -> [Row; ROWS] {
    let mut kept = [[0; LANES]; ROWS];
    let pairs = rooms.iter_mut().flatten().zip(missing.iter_mut().flatten()).zip(kept.iter_mut().flatten());
    for ((room, missing), kept) in pairs {
        if *missing > 0 && *room > 0 {
            let covers = (*room).min(*missing);
            *missing -= covers;
            *kept = (*room - covers) / 2;
            *room -= covers + *kept;
        }
    }
    kept
}
