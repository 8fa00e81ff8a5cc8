//! Blocks that wait for points: noting them, and making them free.

use alloc::vec::Vec;

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};

use super::{Coordinator, Shards};
use crate::books::Points;
use crate::ids::{BlockId, PoolId, ShardId};
use crate::last_use::LastUse;
use crate::plant::Plant;
use crate::policy::Source;
use crate::shard::Return;

impl Coordinator {
    /// Notes that a freed block waits for these points: the marks of the streams it was used on, and the points it was
    /// used up to.
    ///
    /// Where the block has pages with homes, and streams can wait for each other on the device, it is free at once, for
    /// whoever comes after these points.
    pub fn pend(
        &mut self,
        shard: ShardId,
        block: BlockId,
        points: impl IntoIterator<Item = Point>,
        clocks: [u64; 2],
        shards: &mut dyn Shards,
    ) {
        // Free memory of a segment serves only its own stream, so no other stream has to come after the points.
        if !self.guards() || !shards.with(shard, |shard| shard.is_paged(block)) {
            for point in points {
                self.pending.pend(shard, block, point);
            }
            if !shards.with(shard, |shard| shard.is_settled()) {
                self.settle(shard, shards);
            }
            return;
        }
        let home = self.stream_of(shard);
        let ahead = |point: &Point| point.stream != home && !self.pending.is_reached(*point);
        let points: Points = points.into_iter().filter(ahead).collect();
        let clock = clocks[1];
        let (unsettled, returns) =
            shards.with(shard, |shard| (shard.guard(block, points, clock), shard.take_returns()));
        if unsettled {
            self.settle(shard, shards);
        }
        return_home(returns, clocks, shards);
    }

    /// Returns whether freed blocks are free at once for whoever waits for their points.
    pub(crate) fn guards(&self) -> bool {
        let in_order = |pages: PageCaps| pages.alias_reuse == Reuse::InOrder;
        let is_ordered = self.facts.reuse == Reuse::InOrder && self.facts.pages.is_some_and(in_order);
        self.traits.source == Source::Pages && is_ordered
    }

    /// Returns the number of waits that are outstanding.
    pub fn waiters(&self) -> usize {
        self.pending.waiters()
    }

    /// Returns the streams that freed memory waits for, each once, without those that are being captured.
    pub fn streams_waited_for(&self, shards: &mut dyn Shards) -> Vec<StreamId> {
        let mut streams = self.pending.waited_for();
        for id in self.shard_ids() {
            shards.with(id, |shard| streams.extend(shard.guard_points().map(|point| point.stream)));
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
        if !self.is_closed() {
            self.retire(clocks, shards);
        }
    }

    /// [`retire_ready`](Self::retire_ready) for a plan.
    pub(crate) fn retire(&mut self, clocks: [u64; 2], shards: &mut dyn Shards) {
        self.retire_pending(clocks, shards);
        if self.guards() {
            for id in self.shard_ids() {
                shards.with(id, |shard| shard.prune_guards(|point| self.is_over(point)));
            }
        }
    }

    /// Does the same without a look at guarded memory.
    pub(crate) fn retire_pending(&mut self, clocks: [u64; 2], shards: &mut dyn Shards) {
        let early = self.early();
        for stream in 0..self.pending.streams() {
            let usable = Tick(self.pending.reached(StreamId(stream as u32)).0.saturating_add(early));
            while let Some(waiter) = self.pending.take_ready(stream, usable) {
                let (unsettled, returns) = shards
                    .with(waiter.shard, |shard| (shard.point_reached(waiter.block, clocks), shard.take_returns()));
                if unsettled {
                    self.settle(waiter.shard, shards);
                }
                return_home(returns, clocks, shards);
            }
        }
        if self.facts.reuse != Reuse::InOrder {
            self.settle_homes(clocks, shards);
        }
    }

    /// Returns whether a guard of free memory is over: its point is reached.
    pub(crate) fn is_over(&self, point: Point) -> bool {
        self.pending.reached(point.stream).0.saturating_add(self.early()) >= point.tick.0
    }

    /// Returns the number of ticks by which a planted bug takes points for reached too early.
    fn early(&self) -> u64 {
        u64::from(self.settings.planted().is(Plant::OffByOneTick))
    }

    fn settle_homes(&mut self, clocks: [u64; 2], shards: &mut dyn Shards) {
        for id in self.shard_ids() {
            let usable = self.pending.reached(self.stream_of(id));
            // Garbage collection's clock differs by side; blocks that settle take the large one's, the only one read.
            let settled = shards.with(id, |shard| (shard.settle_home(usable, clocks[1]), shard.take_returns()));
            let (unsettled, returns) = settled;
            if unsettled {
                self.settle(id, shards);
            }
            return_home(returns, clocks, shards);
        }
    }

    /// Returns the last point outstanding on each stream, those that blocks wait for on their home streams included.
    pub fn outstanding(&self, shards: &mut dyn Shards) -> Vec<Point> {
        self.with_those_of(self.shard_ids(), self.pending.last(), shards)
    }

    /// Returns the last point on each stream that memory of a pool waits for.
    pub(crate) fn outstanding_in(&self, pool: PoolId, shards: &mut dyn Shards) -> Vec<Point> {
        let waiting = self.pending.blocks().into_iter().filter(|((shard, _), _)| self.pool_of(*shard) == pool);
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
                shard.settling_until().into_iter().chain(shard.guard_points()).for_each(|point| points.max(point));
            });
        }
        points.into_vec()
    }
}

/// Gives memory back to the shards that have its home. What another stream did there through a window is over, or comes
/// before the points.
fn return_home(returns: Vec<Return>, clocks: [u64; 2], shards: &mut dyn Shards) {
    for (piece, points) in returns {
        let over = (LastUse::at(Tick::ZERO), true);
        shards.with(piece.shard, |shard| shard.comes_home_guarded(piece.block, over, points, clocks[1]));
    }
}
