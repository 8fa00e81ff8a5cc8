//! The device's peaks, and the statistics as a whole.

use super::{Coordinator, Shards};
use crate::ids::{ShardId, Side};
use crate::meter::{EVERY_LANE, LANES, Meter, ROWS, Row, each, has_shortage};
use crate::stats::{MemoryStats, StatByPool};

impl Coordinator {
    /// Settles a shard whose counters rose beyond its room: takes room from the other shards, and raises the peaks by
    /// what is missing. If the access does not wait and another shard is busy, the shortage remains, because the busy
    /// shard may have the room.
    pub fn settle(&mut self, shard: ShardId, shards: &mut impl Shards) {
        let before = shards.with(shard, |shard| shard.meter.rooms());
        let mut rooms = before;
        let mut passed_over = false;
        for other in self.shard_ids() {
            if !has_shortage(&rooms) {
                break;
            }
            if other != shard {
                let shared = shards.try_with(other, |other| share_room(&mut other.meter, &mut rooms));
                passed_over |= shared.is_none();
            }
        }
        if !passed_over {
            each(|row, lane| {
                self.peaks[row][lane] += (-rooms[row][lane]).max(0);
                rooms[row][lane] = rooms[row][lane].max(0);
            });
        }
        each(|row, lane| rooms[row][lane] -= before[row][lane]);
        shards.with(shard, |shard| shard.meter.add_room(&rooms));
    }

    /// Settles every shard that is short of room.
    pub fn settle_all(&mut self, shards: &mut impl Shards) {
        for id in self.shard_ids() {
            if !shards.with(id, |shard| shard.meter.is_settled()) {
                self.settle(id, shards);
            }
        }
    }

    /// Sets every peak to the present value of its counter.
    pub fn reset_peaks(&mut self, shards: &mut impl Shards) {
        self.peaks = [[0; LANES]; ROWS];
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                add(&mut self.peaks, &shard.meter.current_rows());
                shard.meter.reset_room();
                shard.snug_reset();
            });
        }
        for stats in [&mut self.reserved, &mut self.segments] {
            for stat in [&mut stats.all, &mut stats.small_pool, &mut stats.large_pool] {
                stat.reset_peak();
            }
        }
        self.oversize_segments.reset_peak();
    }

    /// Resets the totals of what was allocated and freed, like PyTorch's `reset_accumulated_memory_stats`.
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

    /// Returns all statistics as they are now.
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

    /// Verifies P1: a peak is the sum of the present values and the room left of all shards, and no room is below zero.
    pub(super) fn check_peaks(&self, shards: &mut impl Shards) {
        let mut sums = [[0; LANES]; ROWS];
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                assert!(shard.meter.is_settled(), "{id:?} has room below zero: {:?}", shard.meter.rooms());
                add(&mut sums, &shard.meter.current_rows());
                add(&mut sums, &shard.meter.rooms());
            });
        }
        assert_eq!(sums, self.peaks, "what is there plus room, against the peaks (all, small, large)");
    }
}

fn add(rows: &mut [Row; ROWS], more: &[Row; ROWS]) {
    each(|row, lane| rows[row][lane] += more[row][lane]);
}

/// Covers the shortage in `rooms` out of another shard's room, and then divides the rest of both equally in every lane.
/// Two streams that rise in turns then seldom have to settle, and not for each lane separately.
fn share_room(meter: &mut Meter, rooms: &mut [Row; ROWS]) {
    let theirs = meter.rooms();
    let mut taken = [[0; LANES]; ROWS];
    each(|row, lane| {
        let (room, theirs) = (&mut rooms[row][lane], theirs[row][lane]);
        let covers = (-*room).min(theirs).max(0);
        let shares = (theirs - covers - (*room + covers)).max(0) >> 1;
        // Where both together are short, there is nothing to divide.
        let takes = if *room + covers < 0 { covers } else { covers + shares };
        *room += takes;
        taken[row][lane] = -takes;
    });
    meter.add_room(&taken);
}
