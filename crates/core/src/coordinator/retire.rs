//! Blocks that wait for points: noting them, and making them free.

use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, StreamId, Tick};

use super::{Coordinator, Shards};
use crate::ids::{BlockId, ShardId};
use crate::plant::Plant;

impl Coordinator {
    /// Notes that a freed block waits for these points: the marks of the streams it was used on, and the points it was
    /// used up to.
    pub fn pend(&mut self, shard: ShardId, block: BlockId, points: impl IntoIterator<Item = Point>) {
        for point in points {
            self.pending.pend(shard, block, point);
        }
    }

    /// Returns the number of waits that are outstanding.
    pub fn waiters(&self) -> usize {
        self.pending.waiters()
    }

    /// Returns the streams that blocks wait for.
    pub fn streams_waited_for(&self) -> Vec<StreamId> {
        self.pending.waited_for()
    }

    /// Notes that a stream was seen to have reached a tick. Ticks known to be reached never fall.
    pub fn note_reached(&mut self, stream: StreamId, tick: Tick) {
        self.pending.note_reached(stream, tick);
    }

    /// Retires every pending block whose points are reached: PyTorch's `process_events`, stream by stream, each in
    /// order from the front. Does nothing while a plan is about to be refused: it waits for the same points, and looks
    /// at what they free before others do.
    pub fn retire_ready(&mut self, clocks: [u64; 2], shards: &mut impl Shards) {
        if !self.is_closed() {
            self.retire(clocks, shards);
        }
    }

    /// [`retire_ready`](Self::retire_ready) for a plan.
    pub(crate) fn retire(&mut self, clocks: [u64; 2], shards: &mut impl Shards) {
        let early = u64::from(self.settings.planted().is(Plant::OffByOneTick));
        for stream in 0..self.pending.streams() {
            let usable = Tick(self.pending.reached(StreamId(stream as u32)).0.saturating_add(early));
            while let Some(waiter) = self.pending.take_ready(stream, usable) {
                if shards.with(waiter.shard, |shard| shard.point_reached(waiter.block, clocks)) {
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
            let usable = self.pending.reached(self.stream_of(id));
            // Garbage collection's clock differs by side; blocks that settle take the large one's, the only one read.
            if shards.with(id, |shard| shard.settle_home(usable, clocks[1])) {
                self.settle(id, shards);
            }
        }
    }

    /// Returns the last point outstanding on each stream, those that blocks wait for on their home streams included.
    pub fn outstanding(&self, shards: &mut impl Shards) -> Vec<Point> {
        let mut points = self.pending.last();
        for id in self.shard_ids() {
            if let Some(point) = shards.with(id, |shard| shard.settling_until()) {
                points.max(point);
            }
        }
        points.into_vec()
    }
}
