//! The end of an allocator: its memory is returned to the driver.

use millpond_backend::Backend;
use millpond_core::ShardId;

use crate::lane::Lane;
use crate::state::{LockedShards, State};

impl<B: Backend> Drop for State<B> {
    /// Waits until the device is done with each stream's memory, then releases it.
    ///
    /// Work that was recorded and never submitted may still touch memory, and the state of a device that fails is
    /// unknown. Memory that these concern is left to the driver, which reclaims it with the device.
    fn drop(&mut self) {
        self.finish_points();
        let (holdings, mappings) = {
            let coordinator = self.coordinator.lock();
            (coordinator.holdings(&mut LockedShards(self)), coordinator.mappings())
        };
        let used = |lane: &Lane<B>| {
            holdings.iter().any(|&(shard, ..)| shard == lane.shard)
                || mappings.iter().flat_map(|(_, places)| places).any(|place| place.shard == lane.shard)
        };
        let left: Vec<_> =
            self.lanes().filter(|&lane| used(lane) && !self.is_done_with(lane)).map(|l| l.shard).collect();
        let is_left = |shard: &ShardId| left.contains(shard);
        let mut ranges_left = Vec::new();
        for (page, places) in mappings {
            if places.iter().any(|place| is_left(&place.shard)) {
                std::mem::forget(self.pages.take(page));
                ranges_left.extend(places.iter().map(|place| (place.shard, place.slot)));
            } else {
                self.release_page(page, &places);
            }
        }
        for (shard, slot, is_range) in holdings {
            if is_left(&shard) || ranges_left.contains(&(shard, slot)) {
                std::mem::forget(self.lane(shard).lock().take_segment(slot));
                // The source of memory that is left is not over, either.
                std::mem::forget(self.sources.take((shard, slot)));
            } else {
                self.release(shard, slot, is_range);
            }
        }
    }
}

impl<B: Backend> State<B> {
    /// Waits for the points that freed blocks wait for, and retires what was reached.
    fn finish_points(&self) {
        let points = self.coordinator.lock().outstanding(&mut LockedShards(self));
        let reached: Vec<_> = points.into_iter().filter_map(|point| self.wait(point).ok()).collect();
        let mut coordinator = self.coordinator.lock();
        for point in reached {
            coordinator.note_reached(point.stream, point.tick);
        }
        coordinator.retire_ready(self.clocks(), &mut LockedShards(self));
    }

    /// Returns whether the device is done with all memory of a lane.
    fn is_done_with(&self, lane: &Lane<B>) -> bool {
        let (last_use, waits) = {
            let state = lane.lock();
            (state.shard.last_use(), state.shard.has_pending())
        };
        !waits && self.wait(self.mark(lane.stream)).is_ok_and(|point| point.tick >= last_use)
    }
}
