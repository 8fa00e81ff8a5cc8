//! Blocks that wait for points, by the stream of the point.

use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, StreamId, Tick};

use super::{Coordinator, Shards, Waiter};
use crate::ids::{BlockId, ShardId};
use crate::plant::Plant;

impl Coordinator {
    /// Makes a freed block wait for these points: the marks of the streams that it was used on, and the points that it
    /// was used up to.
    pub fn pend(&mut self, shard: ShardId, block: BlockId, points: impl IntoIterator<Item = Point>) {
        for point in points {
            self.know_stream(point.stream);
            let queue = &mut self.queues[point.stream.0 as usize];
            // Marks rise, so a new waiter nearly always belongs at the end. A point given by the user may be older.
            let at = match queue.back() {
                Some(last) if last.tick > point.tick => queue.partition_point(|waiter| waiter.tick <= point.tick),
                _ => queue.len(),
            };
            queue.insert(at, Waiter { tick: point.tick, shard, block });
            self.waiters += 1;
        }
    }

    /// Returns the number of waits that are outstanding.
    pub fn waiters(&self) -> usize {
        self.waiters
    }

    /// Returns the streams that blocks wait for.
    pub fn streams_waited_for(&self) -> Vec<StreamId> {
        let waited = self.queues.iter().enumerate().filter(|(_, queue)| !queue.is_empty());
        waited.map(|(stream, _)| StreamId(stream as u32)).collect()
    }

    /// Notes that a stream was seen to have reached a tick. What is known as reached never falls.
    pub fn note_reached(&mut self, stream: StreamId, tick: Tick) {
        self.know_stream(stream);
        let known = &mut self.reached[stream.0 as usize];
        *known = tick.max(*known);
    }

    /// Retires every pending block whose points are reached, like PyTorch's `process_events`: stream by stream, each in
    /// order from the front. Does nothing while a plan is about to be refused: that plan waits for the same points, and
    /// is the first to look at what they free.
    pub fn retire_ready(&mut self, clocks: [u64; 2], shards: &mut impl Shards) {
        if !self.is_closed() {
            self.retire(clocks, shards);
        }
    }

    /// Does the work of [`retire_ready`](Self::retire_ready) for a plan.
    pub(super) fn retire(&mut self, clocks: [u64; 2], shards: &mut impl Shards) {
        let early = u64::from(self.settings.planted().is(Plant::OffByOneTick));
        for stream in 0..self.queues.len() {
            while let Some(waiter) = self.queues[stream].front().copied() {
                if waiter.tick.0 > self.reached[stream].0 + early {
                    break;
                }
                self.queues[stream].pop_front();
                self.waiters -= 1;
                let unsettled = shards.with(waiter.shard, |shard| {
                    let side = shard.blocks[waiter.block].side;
                    shard.point_reached(waiter.block, clocks[side.index()])
                });
                if unsettled {
                    self.settle(waiter.shard, shards);
                }
            }
        }
        if self.facts.reuse != Reuse::InOrder {
            self.settle_homes(clocks, shards);
        }
    }

    fn settle_homes(&mut self, clocks: [u64; 2], shards: &mut impl Shards) {
        for id in self.shard_ids() {
            let usable = self.reached[self.stream_of(id).0 as usize];
            // The clock of garbage collection differs by side. Blocks that settle take that of the large side, the only
            // one that is read.
            if shards.with(id, |shard| shard.settle_home(usable, clocks[1])) {
                self.settle(id, shards);
            }
        }
    }

    /// Returns the last point outstanding on each stream, including those that blocks wait for on their home streams.
    pub fn outstanding(&self, shards: &mut impl Shards) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::new();
        for (stream, queue) in self.queues.iter().enumerate() {
            if let Some(last) = queue.back() {
                points.push(Point { stream: StreamId(stream as u32), tick: last.tick });
            }
        }
        for id in self.shard_ids() {
            if let Some(point) = shards.with(id, |shard| shard.settling_until()) {
                raise(&mut points, point);
            }
        }
        points
    }
}

/// Adds a point to a list that holds at most one for each stream.
pub(super) fn raise(points: &mut Vec<Point>, point: Point) {
    match points.iter_mut().find(|known| known.stream == point.stream) {
        Some(known) => known.tick = known.tick.max(point.tick),
        None => points.push(point),
    }
}
