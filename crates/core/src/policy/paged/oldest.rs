//! The oldest points that freed memory waits for.

use crate::books::Points;
use crate::coordinator::{Coordinator, Shards};

impl Coordinator {
    /// Returns for each stream the first point that freed memory waits for, whether inside its block or as the last use
    /// of a page that could move.
    pub(super) fn oldest_points(&self, shards: &mut impl Shards) -> Points {
        let mut points = Points::default();
        let mut lower = |point| {
            if !self.pending.is_reached(point) {
                points.min(point);
            }
        };
        self.pending.first().iter().for_each(&mut lower);
        let granularity = self.granularity();
        for id in self.shard_ids() {
            shards.with(id, |shard| {
                shard.settling_from().into_iter().for_each(&mut lower);
                let free = shard.free_with_pages(granularity);
                free.for_each(|(block, ..)| lower(shard.last_point(block)));
            });
        }
        points
    }
}
