//! What a request that missed has to know of every stream, in one visit of each.

use millpond_backend::Point;

use super::Shard;
use crate::ids::Side;
use crate::last_use::LastUse;

/// What one visit of a shard tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Survey {
    /// The bytes of blocks that the program holds, after rounding.
    pub(crate) live_bytes: u64,
    /// The number of blocks that were freed so far.
    pub(crate) frees: u64,
    /// Whether other streams were seen to be behind with work on free memory of the shard.
    pub(crate) is_guarded: bool,
    /// Whether the shard's own stream was seen to be behind with work on free memory of the large side.
    pub(crate) is_in_use: bool,
}

impl Shard {
    /// Forgets the guards whose points are reached, and returns what the shard looks like then. The device is known to
    /// be behind some points that are not reached, as the streams were asked.
    pub(crate) fn survey(&mut self, is_reached: impl Fn(Point) -> bool, is_behind: impl Fn(Point) -> bool) -> Survey {
        self.prune_guards(&is_reached);
        let is_guarded = self.guard_points().any(&is_behind);
        self.goes_past = is_guarded;
        Survey {
            live_bytes: self.live_bytes(),
            frees: self.frees(),
            is_guarded,
            is_in_use: self.is_in_use(is_reached, is_behind),
        }
    }

    /// Notes that a loan is made in the pool. Until the streams are asked again, small requests do not go past guarded
    /// memory, and miss instead: not before each loan are the streams asked, and where small blocks lie would depend on
    /// when they were. A program that repeats itself would not find the same places again.
    pub(crate) fn note_loan(&mut self) {
        self.goes_past = false;
    }

    /// Returns whether the shard's own stream is behind with work on some free block of the large side. Looks at the
    /// blocks only where the stream has not reached the latest use that any of them ever had.
    fn is_in_use(&self, is_reached: impl Fn(Point) -> bool, is_behind: impl Fn(Point) -> bool) -> bool {
        let point = |last_use: LastUse| Point { stream: self.stream, tick: last_use.tick() };
        let mut free = self.pools[Side::Large.index()].free.iter();
        !is_reached(point(self.latest_free)) && free.any(|id| is_behind(point(self.blocks[id].last_use)))
    }
}
