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
    /// Whether other streams may still use free memory of the shard.
    pub(crate) is_guarded: bool,
    /// Whether the shard's own stream may still use free memory of the large side.
    pub(crate) is_in_use: bool,
}

impl Shard {
    /// Forgets the guards whose points are reached, and returns what the shard looks like then.
    pub(crate) fn survey(&mut self, is_reached: impl Fn(Point) -> bool) -> Survey {
        self.prune_guards(&is_reached);
        Survey {
            live_bytes: self.live_bytes(),
            frees: self.frees(),
            is_guarded: self.guard_points().next().is_some(),
            is_in_use: self.is_in_use(is_reached),
        }
    }

    /// Returns whether the shard's own stream has not reached the last use of some free block of the large side. Looks
    /// at the blocks only where the stream has not reached the latest use that any of them ever had.
    fn is_in_use(&self, is_reached: impl Fn(Point) -> bool) -> bool {
        let is_ahead = |last_use: LastUse| !is_reached(Point { stream: self.stream, tick: last_use.tick() });
        let mut free = self.pools[Side::Large.index()].free.iter();
        is_ahead(self.latest_free) && free.any(|id| is_ahead(self.blocks[id].last_use))
    }
}
