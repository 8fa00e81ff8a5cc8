//! The end of an allocator: everything goes back to the driver.

use millpond_backend::Backend;

use crate::lane::Lane;
use crate::state::{LockedShards, State};

impl<B: Backend> Drop for State<B> {
    /// Waits until the device is done with each stream's memory, then releases it.
    ///
    /// Work that was recorded and never submitted may still touch memory, and a device that fails may do anything: what
    /// they concern is left to the driver, which takes it with the device.
    fn drop(&mut self) {
        self.finish_points();
        let holdings = self.coordinator.lock().holdings(&mut LockedShards(self));
        for lane in self.lanes() {
            let own: Vec<_> = holdings.iter().filter(|&&(shard, ..)| shard == lane.shard).collect();
            if own.is_empty() {
                continue;
            }
            if !self.is_done_with(lane) {
                let mut state = lane.lock();
                std::mem::forget((std::mem::take(&mut state.segments), std::mem::take(&mut state.pages)));
                continue;
            }
            for &&(_, slot, is_range) in &own {
                self.release_pages(lane, slot);
                self.release(lane.shard, slot, is_range);
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

    /// The device is done with all memory of a lane.
    fn is_done_with(&self, lane: &Lane<B>) -> bool {
        let (last_use, waits) = {
            let state = lane.lock();
            (state.shard.last_use(), state.shard.has_pending())
        };
        !waits && self.wait(self.mark(lane.stream)).is_ok_and(|point| point.tick >= last_use)
    }
}
