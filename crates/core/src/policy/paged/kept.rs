//! Windows that are kept and could serve a request again.

use alloc::vec::Vec;

use super::idle::{IdlePages, Run, memory_of};
use crate::books::WindowId;
use crate::coordinator::Coordinator;
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
        let (id, offset) = idle.oldest_run(self.paging.windows.at_least(shard, bytes), bytes)?;
        let stretches = memory_of(&self.paging.windows[id], offset, bytes);
        Some((id, Run { offset, stretches }))
    }

    /// Returns the windows of a shard whose last bytes are free, with the number of these bytes, most bytes first, and
    /// of those with equally many the oldest.
    pub(super) fn free_rears(&self, shard: ShardId, idle: &IdlePages) -> Vec<(WindowId, u64)> {
        let windows = self.paging.windows.at_least(shard, 0);
        let mut rears: Vec<_> = windows.map(|(id, window)| (id, idle.rear(window))).filter(|rear| rear.1 > 0).collect();
        rears.sort_by_key(|&(_, bytes)| core::cmp::Reverse(bytes));
        rears
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
