//! Windows that are kept and could serve a request again.

use alloc::vec::Vec;

use super::idle::{IdlePages, Run, memory_of};
use crate::books::WindowId;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{Place, ShardId};

/// A stretch of free memory at a home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stretch {
    pub(super) home: Place,
    pub(super) bytes: u64,
}

impl Coordinator {
    /// Returns a part of a kept window of a shard that is long enough and whose memory is free, in the oldest window
    /// that has one. A window that was lengthened is as old there as its pages.
    ///
    /// The oldest one, so that a program that repeats itself makes no new windows: a request that comes again in the
    /// same state of the memory finds all windows that there were the last time, and takes the same part, or the one
    /// that was made for it. Windows that were made later in the last round do not change that.
    pub(super) fn kept_window(&self, shard: ShardId, bytes: u64, idle: &IdlePages) -> Option<(WindowId, Run)> {
        let (id, offset) = idle.oldest_run(&self.paging.windows, shard, bytes)?;
        let stretches = memory_of(&self.paging.windows[id], offset, bytes);
        Some((id, Run { offset, stretches }))
    }

    /// Returns the window of a shard with the most free bytes at its end that are fewer than `bytes`, of those that can
    /// be lengthened by the rest, and the oldest of those with equally many. Also returns these bytes, and the vacant
    /// addresses behind it.
    pub(super) fn longest_rear(
        &self,
        shard: ShardId,
        bytes: u64,
        idle: &IdlePages,
        shards: &mut dyn Shards,
    ) -> Option<((WindowId, u64), u64)> {
        let windows = &self.paging.windows;
        let mut best: Option<((WindowId, u64), u64)> = None;
        shards.with(shard, |shard| {
            for (id, last) in windows.ending_with(shard.id(), |page| idle.is_free_at_end(page)) {
                let most = best.map_or(0, |((_, rear), _)| rear);
                let rear = idle.rear_of(last).unwrap_or_else(|| idle.rear(&windows[id]));
                if rear <= most || rear >= bytes {
                    continue;
                }
                let window = &windows[id];
                if let Some((_, room)) = shard.room_behind(window.head, window.end())
                    && rear + room >= bytes
                {
                    best = Some(((id, rear), room));
                }
            }
        });
        best
    }
}

/// Adds a stretch behind others, joined with the last one if it goes on there.
pub(super) fn add(stretches: &mut Vec<Stretch>, next: Stretch) {
    if let Some(last) = stretches.last_mut()
        && (last.home.shard, last.home.slot) == (next.home.shard, next.home.slot)
        && last.home.offset + last.bytes == next.home.offset
    {
        last.bytes += next.bytes;
    } else {
        stretches.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Slot;

    #[test]
    fn stretches_join_only_where_they_follow_each_other_in_one_range() {
        let at = |shard, slot, offset| Place { shard: ShardId(shard), slot: Slot(slot), offset };
        let all = [(at(0, 1, 0), 10), (at(0, 1, 10), 5), (at(1, 1, 15), 5), (at(1, 2, 20), 5), (at(1, 2, 30), 5)];
        let mut stretches = Vec::new();
        all.into_iter().for_each(|(home, bytes)| add(&mut stretches, Stretch { home, bytes }));
        let places: Vec<_> = stretches.iter().map(|stretch| (stretch.home, stretch.bytes)).collect();
        assert_eq!(places, [(at(0, 1, 0), 15), all[2], all[3], all[4]]);
    }
}
