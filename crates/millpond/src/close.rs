//! The end of an allocator: its memory is returned to the driver.

use std::collections::BTreeMap;

use millpond_backend::{Backend, Left, LeftMapping, LeftPage, Point};
use millpond_core::Holding;

use crate::raw::calls;
use crate::state::{Lane, LockedShards, State};
use crate::sync::Ordering;

impl<B: Backend> Drop for State<B> {
    /// Waits until the device is done with each stream's memory, then releases it.
    ///
    /// Work that was recorded and not submitted may still touch memory, and the state of a device that fails is
    /// unknown. Memory that these concern is left with the device, which releases it when the work is done.
    fn drop(&mut self) {
        let mut points = self.finish_points();
        let (holdings, mappings) = {
            let coordinator = self.coordinator.lock();
            (coordinator.holdings(&mut LockedShards(self)), coordinator.mappings())
        };
        let used = |lane: &Lane<B>| {
            holdings.iter().any(|holding| holding.shard == lane.shard)
                || mappings.iter().flat_map(|(_, places)| places).any(|place| place.shard == lane.shard)
        };
        let left: BTreeMap<_, _> = self
            .lanes()
            .filter(|&lane| used(lane))
            .filter_map(|lane| Some((lane.shard, self.used_until(lane)?)))
            .collect();
        points.extend(left.values().flatten().copied());
        let mut pages_left = Vec::new();
        // The ranges that pages are left in, each with its place among those that are left.
        let mut ranges_left = BTreeMap::new();
        for (page, places) in mappings {
            if places.iter().any(|place| left.contains_key(&place.shard)) {
                ranges_left.extend(places.iter().map(|place| ((place.shard, place.slot), 0)));
                pages_left.push((page, places));
            } else {
                self.release_page(page, &places);
            }
        }
        let (mut segments, mut ranges) = (Vec::new(), Vec::new());
        for Holding { shard, slot, is_range } in holdings {
            let at = (shard, slot);
            if !left.contains_key(&shard) && !ranges_left.contains_key(&at) {
                self.release(shard, slot, is_range);
            } else if let Some(source) = self.sources.take(at) {
                // It goes back to its source, which the device does not know: both stay.
                std::mem::forget((source, self.lane(shard).lock().take_segment(slot)));
            } else {
                let to = if is_range { &mut ranges } else { &mut segments };
                ranges_left.insert(at, to.len());
                to.push(self.lane(shard).lock().take_segment(slot));
            }
        }
        self.leave_aside();
        if left.is_empty() {
            return;
        }
        let pages = pages_left.into_iter().map(|(page, places)| {
            let mapped = places.iter().map(|place| {
                let range = ranges_left[&(place.shard, place.slot)];
                LeftMapping::new(range, place.offset, self.lane(place.shard).stream)
            });
            LeftPage::new(self.pages.take(page), mapped.collect())
        });
        let mut left = Left::new(newest(&points));
        left.pages = pages.collect();
        (left.segments, left.ranges) = (segments, ranges);
        left.is_addressed = self.is_addressed.load(Ordering::Relaxed);
        calls::leave(&self.backend, left);
    }
}

/// Returns the newest point of each stream.
fn newest(points: &[Point]) -> Vec<Point> {
    let mut ticks = BTreeMap::new();
    for &Point { stream, tick } in points {
        let newest = ticks.entry(stream).or_insert(tick);
        *newest = tick.max(*newest);
    }
    ticks.into_iter().map(|(stream, tick)| Point { stream, tick }).collect()
}

impl<B: Backend> State<B> {
    /// Waits for the points that freed blocks wait for, and retires what was reached. Returns those that were not.
    fn finish_points(&self) -> Vec<Point> {
        let mut points = self.coordinator.lock().outstanding(&mut LockedShards(self));
        let reached: Vec<_> = points.iter().filter_map(|&point| self.wait(point).ok()).collect();
        points.retain(|point| !reached.iter().any(|to| to.stream == point.stream && to.tick >= point.tick));
        let mut coordinator = self.coordinator.lock();
        for point in reached {
            coordinator.note_reached(point.stream, point.tick);
        }
        coordinator.retire_ready(self.clocks(), &mut LockedShards(self));
        points
    }

    /// Waits until the device is done with all memory of a lane. Returns `None` if it is; else the points up to which
    /// it is used, as far as they are not reached.
    fn used_until(&self, lane: &Lane<B>) -> Option<Vec<Point>> {
        let (uses, waits) = {
            let state = lane.lock();
            (state.shard.last_uses(), state.shard.has_pending())
        };
        let is_over = |point: &Point| self.wait(self.mark(point.stream)).is_ok_and(|at| at.tick >= point.tick);
        let left: Vec<_> = uses.iter().filter(|point| !is_over(point)).collect();
        (waits || !left.is_empty()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use millpond_backend::{StreamId, Tick};

    use super::*;

    #[test]
    fn of_each_stream_the_newest_point_stays() {
        let at = |stream, tick| Point { stream: StreamId(stream), tick: Tick(tick) };
        assert_eq!(newest(&[at(1, 2), at(0, 5), at(0, 3), at(1, 4)]), [at(0, 5), at(1, 4)]);
        assert_eq!(newest(&[]), []);
    }
}
