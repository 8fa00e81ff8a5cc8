//! Blocks that wait for points: noting them, and making them free.

use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, StreamId, Tick};

use super::{Coordinator, Shards};
use crate::books::Points;
use crate::ids::{BlockId, PoolId, ShardId};
use crate::plant::Plant;
use crate::settings::RecordStream;
use crate::shard::Shard;

impl Coordinator {
    /// Notes that a freed block waits for these points: the marks of the streams it was used on, and the points it was
    /// used up to. At home it is free at once, for whoever comes after these points, unless it is
    /// [held](RecordStream::Hold) until they are reached.
    pub fn pend(
        &mut self,
        shard: ShardId,
        block: BlockId,
        points: impl IntoIterator<Item = Point>,
        clocks: [u64; 2],
        shards: &mut dyn Shards,
    ) {
        if !self.is_shared(shard) || self.settings.record_stream == RecordStream::Hold {
            for point in points {
                self.pending.pend(shard, block, point);
            }
            if !shards.with(shard, |shard| shard.meter.is_settled()) {
                self.settle(shard, shards);
            }
            return;
        }
        let points: Points = points.into_iter().filter(|point| !self.pending.is_reached(*point)).collect();
        let clock = clocks[1];
        if shards.with(shard, |shard| shard.guard(block, points, clock)) {
            self.settle(shard, shards);
        }
    }

    /// Returns the number of waits that are outstanding.
    pub fn waiters(&self) -> usize {
        self.pending.waiters
    }

    /// Returns the streams that freed memory waits for, each once, without those that are being captured.
    pub fn streams_waited_for(&self, shards: &mut dyn Shards) -> Vec<StreamId> {
        let mut streams = self.pending.waited_for();
        for id in self.shard_ids() {
            shards.with(id, |shard| streams.extend(shard.memory.guards.points().map(|point| point.stream)));
        }
        streams.sort_unstable();
        streams.dedup();
        streams.retain(|&stream| !self.pending.is_captured(stream));
        streams
    }

    /// Notes that a stream was seen to have reached a tick. Ticks known to be reached never fall.
    pub fn note_reached(&mut self, stream: StreamId, tick: Tick) {
        self.pending.note_reached(stream, tick);
    }

    /// Retires every pending block whose points are reached: PyTorch's `process_events`, stream by stream, each in
    /// order from the front. Does nothing while a plan is about to be refused: it waits for the same points, and looks
    /// at what they free before others do.
    pub fn retire_ready(&mut self, clocks: [u64; 2], shards: &mut dyn Shards) {
        if !self.turns.is_closed() {
            self.retire(clocks, shards);
        }
    }

    /// [`retire_ready`](Self::retire_ready) for a plan.
    pub(crate) fn retire(&mut self, clocks: [u64; 2], shards: &mut dyn Shards) {
        self.retire_pending(clocks, shards);
        for id in self.shard_ids().filter(|&id| self.is_shared(id)) {
            self.tell_news(id, shards, |_| ());
        }
    }

    /// Updates a home with how far streams have come since the last time, and then looks at it. Costs a look at each
    /// time that one has come further, or at each stream if those are fewer.
    pub(crate) fn tell_news<R>(&self, home: ShardId, shards: &mut dyn Shards, then: impl FnOnce(&mut Shard) -> R) -> R {
        let early = self.early();
        shards.with(home, |home| {
            let news = self.pending.news(home.memory.guards.seen.news);
            let news = news.map(|point| Point { tick: Tick(point.tick.0.saturating_add(early)), ..point });
            home.memory.guards.see_reached(news, self.pending.changes());
            then(home)
        })
    }

    /// Does what [`retire`](Self::retire) does for blocks that wait for points, without telling homes of it.
    pub(crate) fn retire_pending(&mut self, clocks: [u64; 2], shards: &mut dyn Shards) {
        let early = self.early();
        for stream in self.pending.waited_for() {
            let usable = Tick(self.pending.reached(stream).0.saturating_add(early));
            while let Some(waiter) = self.pending.take_ready(stream, usable) {
                if shards.with(waiter.shard, |shard| shard.point_reached(waiter.block, clocks)) {
                    self.settle(waiter.shard, shards);
                }
            }
        }
        if self.facts.reuse != Reuse::InOrder {
            self.retire_own(clocks, shards);
        }
    }

    /// Returns the number of ticks by which a planted bug takes points for reached too early.
    fn early(&self) -> u64 {
        u64::from(self.settings.planted().is(Plant::OffByOneTick))
    }

    /// Retires the blocks of all shards that wait for their shard's own stream, as far as that has come.
    fn retire_own(&mut self, clocks: [u64; 2], shards: &mut dyn Shards) {
        for id in self.shard_ids() {
            let usable = self.pending.reached(self.stream_of(id));
            // Garbage collection's clock differs by side; blocks that settle take the large one's, the only one read.
            if shards.with(id, |shard| shard.retire_own(usable, clocks[1])) {
                self.settle(id, shards);
            }
        }
    }

    /// Returns the number of blocks that were freed so far, in all shards but one.
    pub(crate) fn frees(&self, but: Option<ShardId>, shards: &mut dyn Shards) -> u64 {
        let others = self.shard_ids().filter(|&id| Some(id) != but);
        others.map(|id| shards.with(id, |shard| shard.frees())).sum()
    }

    /// Returns the last point outstanding on each stream, those that blocks wait for on their home streams included.
    pub fn outstanding(&self, shards: &mut dyn Shards) -> Vec<Point> {
        self.with_those_of(self.shard_ids(), self.pending.last(), shards)
    }

    /// Returns the last point on each stream that memory of a pool waits for.
    pub(crate) fn outstanding_in(&self, pool: PoolId, shards: &mut dyn Shards) -> Vec<Point> {
        let waiting = self.pending.blocks().into_iter().filter(|(at, _)| self.pool_of(at.shard) == pool);
        self.with_those_of(self.shards_of(pool), waiting.flat_map(|(_, points)| points).collect(), shards)
    }

    /// Adds what blocks of some shards wait for on their home streams, and their guards, to some points.
    fn with_those_of(
        &self,
        of: impl Iterator<Item = ShardId>,
        mut points: Points,
        shards: &mut dyn Shards,
    ) -> Vec<Point> {
        for id in of {
            shards.with(id, |shard| {
                let settling = shard.memory.settling_until().into_iter();
                settling.chain(shard.memory.guards.points()).for_each(|point| points.max(point));
            });
        }
        points.into_vec()
    }
}
