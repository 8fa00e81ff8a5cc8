//! The oldest points that freed memory waits for.

use super::tiles::{Taker, When};
use crate::books::Points;
use crate::coordinator::{Coordinator, Shards};

impl Coordinator {
    /// Returns for each stream the first point that freed memory waits for, whether inside its block or as the last use
    /// of memory that could be gathered, or as a guard. Leaves out what does not keep `taker` from using free memory,
    /// and held pools that are not the taker's, whose memory neither serves it nor goes back.
    pub(super) fn oldest_points(&self, taker: Taker, shards: &mut dyn Shards) -> Points {
        let mut points = Points::default();
        let lower = |points: &mut Points, point| {
            if !self.pending.is_reached(point) {
                points.min(point);
            }
        };
        self.pending.first().iter().for_each(|point| lower(&mut points, point));
        let granularity = self.granularity();
        let of = self.pool_of(taker.shard);
        for id in self.shard_ids().filter(|&id| self.pool_of(id) == of || self.may_release(id)) {
            shards.with(id, |shard| {
                shard.settling_from().into_iter().for_each(|point| lower(&mut points, point));
                let free = shard.free_with_pages(granularity).map(|block| shard.last_point(block));
                for point in shard.guard_points().chain(free) {
                    if self.when(taker, point) > When::Now {
                        lower(&mut points, point);
                    }
                }
            });
        }
        points
    }
}
