//! Checkpoints of private pools: PyTorch's `getCheckpointState` and `setCheckpointPoolState`.

use std::panic::Location;

use millpond_backend::{Backend, Point};
use millpond_core::{BlockId, Checkpoint, Coordinator, Obstacle, Restored, ShardBlock, ShardId, Shards};

use super::Pool;
use crate::buffer::{Buffer, EMPTY};
use crate::error::Error;
use crate::notes::note::{Asked, Site};
use crate::raw::number::RawBuffer;
use crate::state::{HeldShards, LaneRef, LockedShards, State};
use crate::sync::wait_until;

/// The number of times that a pool is waited for before that counts as in vain: what another thread frees meanwhile may
/// make one more wait necessary.
pub(super) const WAITS_MOST: usize = 8;

/// Checkpoints, for programs that record several graphs in one pool.
impl<B: Backend> Pool<B> {
    /// Returns which blocks of the pool are handed out now, and where: PyTorch's `getCheckpointState`.
    ///
    /// Visits every block of the pool while holding the locks of all streams, so the result was live at one moment.
    pub fn checkpoint(&self) -> Checkpoint {
        let state = self.state();
        let coordinator = state.coordinator.lock();
        let mut shards = HeldShards::new(state);
        shards.hold();
        coordinator.checkpoint(self.id(), &mut shards)
    }

    /// Frees buffers of the pool, and hands out exactly what was live at a checkpoint, at the same addresses: PyTorch's
    /// `setCheckpointPoolState`. On success `buffers` has the new ones, in no particular order, and each has the length
    /// and the stream that it had then.
    ///
    /// A graph that was captured before the checkpoint writes to these addresses when it runs again. What is captured
    /// in the pool after this call uses none of them. The content of the memory is what the device left there.
    ///
    /// Hold the pool from the checkpoint on: without a reference its memory may go back to the driver. Buffers of the
    /// pool that are not passed stay as they are; the checkpoint must have nothing where they lie. This waits on the
    /// host for work that uses the memory on other streams.
    ///
    /// ```
    /// use millpond::Allocator;
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::new(Sim::new());
    /// let pool = allocator.create_pool()?;
    /// let graph = pool.stream(allocator.create_stream()?.id())?;
    /// let output = graph.allocate(3 << 20)?;
    /// let address = output.address();
    /// let checkpoint = pool.checkpoint();
    /// drop(output);
    ///
    /// let mut buffers = vec![graph.allocate(1 << 20)?]; // of a graph that is not needed any more
    /// pool.restore(&checkpoint, &mut buffers)?;
    /// assert_eq!(buffers[0].address(), address);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotRestorable`] if the checkpoint is one of another pool, memory of it went back to the driver, a
    /// buffer that was not passed is in the way, or a stream is being captured in the pool: nothing has changed then.
    /// If another thread uses the pool at the same time it may come later: the passed buffers are freed then
    /// and `buffers` is empty, as after [`Error::Driver`] and [`Error::NotReached`], of waits.
    #[track_caller]
    pub fn restore(&self, to: &Checkpoint, buffers: &mut Vec<Buffer<B>>) -> Result<(), Error<B::Error>> {
        let named = |buffer: &Buffer<B>| (buffer.lane().shard, buffer.held().block);
        self.expect_restorable(to, buffers.iter().map(named))?;
        buffers.clear();
        *buffers = self.hand_out_again(to, Location::caller())?;
        Ok(())
    }

    /// Checks whether [`restore`](Self::restore) could succeed, apart from waits, once the buffers with these numbers
    /// are freed. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NotRestorable`] if it could not.
    pub fn may_restore_raw(&self, to: &Checkpoint, leaving: &[RawBuffer]) -> Result<(), Error<B::Error>> {
        self.expect_restorable(to, leaving.iter().map(|raw| raw.named()))
    }

    fn expect_restorable(
        &self,
        to: &Checkpoint,
        leaving: impl Iterator<Item = (ShardId, BlockId)>,
    ) -> Result<(), Error<B::Error>> {
        self.state().expect_running(self.id())?;
        let leaving = leaving.filter(|&(_, block)| block != EMPTY);
        let leaving: Vec<_> = leaving.map(|(shard, block)| ShardBlock { shard, block }).collect();
        let state = self.state();
        let coordinator = state.coordinator.lock();
        let mut shards = HeldShards::new(state);
        shards.hold();
        let found = coordinator.may_restore(self.id(), to, &leaving, &mut shards);
        found.map_err(|why| self.not_restorable(why))
    }

    fn not_restorable(&self, why: Obstacle) -> Error<B::Error> {
        Error::NotRestorable { pool: self.id(), why: Box::new(why) }
    }

    /// Hands out what a checkpoint has, once what uses it is over.
    fn hand_out_again(&self, to: &Checkpoint, site: Site) -> Result<Vec<Buffer<B>>, Error<B::Error>> {
        let state = self.state();
        for _ in 0..WAITS_MOST {
            let attempt = {
                let mut coordinator = state.coordinator.lock();
                let mut shards = HeldShards::new(state);
                shards.hold();
                let attempt = coordinator.restore(self.id(), to, &mut shards);
                state.publish(&coordinator);
                attempt
            };
            match attempt {
                Ok(restored) => return Ok(restored.iter().map(|block| self.buffer_of(block, site)).collect()),
                Err(Obstacle::InUse(points)) if points.is_empty() => wait_for_others(state),
                Err(Obstacle::InUse(points)) => wait_for(state, &points)?,
                Err(why) => return Err(self.not_restorable(why)),
            }
        }
        Err(self.not_restorable(Obstacle::Busy))
    }

    /// Makes a buffer of a block that was handed out. The pool's handle keeps the allocator alive meanwhile.
    fn buffer_of(&self, block: &Restored, site: Site) -> Buffer<B> {
        let (state, lane) = (self.state(), self.state().lane(block.shard));
        let asked = Asked { stream: block.stream, site };
        {
            let mut held = lane.lock();
            held.hold(&self.handle.state);
            lane.count_out(block.grant.size);
            held.granted(&asked, block.want.requested, &block.grant);
        }
        if state.sinks.is_told() {
            state.tell_grant(lane, block.stream, block.want.requested, &block.grant);
        }
        Buffer::new(LaneRef::new(lane), block.stream, &block.want, &block.grant)
    }

    fn state(&self) -> &State<B> {
        &self.handle.state
    }
}

/// Lets other threads go on by whom freed blocks become free whose points are reached or not known yet. A plan that is
/// about to be refused looks at such blocks first, so the end of its turn is waited for; a thread that is freeing a
/// block is about to take the coordinator's lock.
fn wait_for_others<B: Backend>(state: &State<B>) {
    std::thread::yield_now();
    let coordinator = state.coordinator.lock();
    let turn = coordinator.turn();
    let is_over = |coordinator: &Coordinator| turn.is_none() || coordinator.turn() != turn;
    let mut coordinator = wait_until(&state.released, coordinator, is_over);
    coordinator.retire_ready(state.clocks(), &mut LockedShards(state));
    state.publish(&coordinator);
}

/// Waits on the host for points, and makes free what was waiting for them.
pub(super) fn wait_for<B: Backend>(state: &State<B>, points: &[Point]) -> Result<(), Error<B::Error>> {
    let mut reached = Vec::new();
    for &point in points {
        let now = state.wait(point)?;
        if now.tick < point.tick {
            return Err(Error::NotReached { point, reached: now.tick });
        }
        reached.push(now);
    }
    let mut coordinator = state.coordinator.lock();
    for point in reached {
        coordinator.note_reached(point.stream, point.tick);
    }
    coordinator.retire_ready(state.clocks(), &mut LockedShards(state));
    state.publish(&coordinator);
    Ok(())
}
