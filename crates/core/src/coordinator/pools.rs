//! Private pools and captures: what the rest of the coordinator asks about them, and what the shell reports.
//!
//! A pool is *held* while it has references. A graph that was captured in it may run again at any time, so nothing of a
//! held pool goes back to the driver: its segments and pages stay, and its windows do not end. Once the last reference
//! is given up, its free memory goes back whenever that of the default pool does, and before another private pool gets
//! a segment or addresses.

use alloc::vec::Vec;

use millpond_backend::{StreamId, Tick};

use super::{Coordinator, Shards};
use crate::ids::{PoolId, ShardId};
use crate::looks;
use crate::settings::{Backing, PoolFlags, Settings};
use crate::stats::{PoolStats, StatByPool};

impl Coordinator {
    /// Creates a private pool with one reference, and returns its number.
    pub fn create_pool(&mut self) -> PoolId {
        let live = self.most_live();
        self.pools.create(live)
    }

    /// Creates a private pool with one reference whose segments come from a source of its own, and returns its number:
    /// PyTorch's `MemPool` with an allocator. Whatever the policy is, PyTorch's rules of plain segments hold in the
    /// pool. The shell asks the source for what [`Step::Reserve`](crate::Step::Reserve) asks for a shard of the pool,
    /// and gives it what [`Step::Release`](crate::Step::Release) gives back.
    pub fn create_pool_with_source(&mut self) -> PoolId {
        let pool = self.create_pool();
        self.pools.give_source(pool);
        pool
    }

    /// Returns whether the segments of a pool come from a source of its own.
    pub fn has_source(&self, pool: PoolId) -> bool {
        self.pools.has_source(pool)
    }

    /// Returns whether a pool exists. A private pool does as long as it has references, memory or shards.
    pub fn has_pool(&self, pool: PoolId) -> bool {
        self.pools.has(pool)
    }

    /// Adds a reference to a pool: PyTorch's `createOrIncrefPool` of a pool that exists. A reference to the default
    /// pool keeps nothing from being released.
    ///
    /// # Panics
    ///
    /// Panics if there is no such pool.
    pub fn hold_pool(&mut self, pool: PoolId) {
        self.pools.hold(pool);
    }

    /// Drops a reference to a pool: PyTorch's `releasePool`. After the last one, its free memory may be released, and
    /// its flags are forgotten.
    ///
    /// # Panics
    ///
    /// Panics if the pool has no reference.
    pub fn release_pool(&mut self, pool: PoolId, shards: &mut dyn Shards) {
        let before = self.pools.flags(pool);
        self.pools.let_go(pool);
        if self.pools.flags(pool) != before {
            self.tell_flags(pool, shards);
        }
        self.forget_pool(pool);
    }

    /// Sets the options of a private pool, until its last reference is dropped.
    ///
    /// # Panics
    ///
    /// Panics if there is no such pool.
    pub fn set_pool_flags(&mut self, pool: PoolId, flags: PoolFlags, shards: &mut dyn Shards) {
        self.pools.set_flags(pool, flags);
        self.tell_flags(pool, shards);
    }

    /// Returns the options of a pool.
    pub fn pool_flags(&self, pool: PoolId) -> PoolFlags {
        self.pools.flags(pool)
    }

    fn tell_flags(&self, pool: PoolId, shards: &mut dyn Shards) {
        let flags = self.pools.flags(pool);
        self.shards_of(pool).for_each(|id| shards.with(id, |shard| shard.memory.rules.set_flags(flags)));
    }

    /// Returns the number of references to a pool: PyTorch's `getPoolUseCount`. 0 if there is no such pool.
    pub fn pool_uses(&self, pool: PoolId) -> u64 {
        self.pools.uses(pool)
    }

    /// Returns the statistics of a pool, or `None` if it does not exist. Every block of the pool is visited.
    pub fn pool_stats(&self, pool: PoolId, shards: &mut dyn Shards) -> Option<PoolStats> {
        let reserved_bytes = self.pool_reserved(pool, shards)?;
        let (mut allocated_bytes, mut free_bytes) = (0, 0);
        for id in self.shards_of(pool) {
            shards.with(id, |shard| {
                allocated_bytes += shard.live_bytes();
                free_bytes += shard.memory.all_free().map(|(_, block)| block.size).sum::<u64>();
            });
        }
        Some(PoolStats { uses: self.pools.uses(pool), reserved_bytes, allocated_bytes, free_bytes })
    }

    /// Returns what is reserved for a pool, or `None` if it does not exist. Visits its shards, and no blocks.
    pub fn pool_reserved(&self, pool: PoolId, shards: &mut dyn Shards) -> Option<StatByPool> {
        let reserved = self.pools.reserved(pool)?;
        let small = self.shards_of(pool).map(|id| shards.with(id, |shard| shard.small_bytes())).sum();
        Some(super::stats::by_side(reserved, small))
    }

    /// Returns the private pools that exist.
    pub fn private_pools(&self) -> Vec<PoolId> {
        self.pools.private().collect()
    }

    /// Returns the shard of a stream in a pool, if it was opened. Under `paged` all streams of a pool have one.
    pub fn shard_of(&self, stream: StreamId, pool: PoolId) -> Option<ShardId> {
        self.shard_ids().find(|&id| self.pool_of(id) == pool && (self.is_shared(id) || self.stream_of(id) == stream))
    }

    /// Returns whether a shard is the home of all streams of its pool.
    pub(crate) fn is_shared(&self, id: ShardId) -> bool {
        self.backing_of(id) == Backing::Pages
    }

    /// Gives a shard of the stream that has no memory, and whose private pool has no references, to another private
    /// pool, so that programs that create pools repeatedly need only as many shards as they have pools at a time. A
    /// pool with a source gets only shards of such pools, because they have other rules. `is_over` says whether no
    /// handle of a pool is left by which a program could ask for memory there. Returns the shard, or `None` if there is
    /// none.
    ///
    /// # Panics
    ///
    /// Panics if the pool does not exist.
    pub fn reopen_shard(
        &mut self,
        stream: StreamId,
        pool: PoolId,
        is_over: impl Fn(PoolId) -> bool,
        shards: &mut dyn Shards,
    ) -> Option<ShardId> {
        let found = self.shard_ids().find(|&id| {
            let of = self.pool_of(id);
            let is_private = of != PoolId::DEFAULT && pool != PoolId::DEFAULT;
            let is_alike = self.pools.has_source(of) == self.pools.has_source(pool);
            let is_its = self.is_shared(id) || self.stream_of(id) == stream;
            let is_left = is_private && is_alike && is_its && self.pools.uses(of) == 0 && is_over(of);
            is_left && shards.with(id, |shard| shard.is_vacant())
        })?;
        let of = self.pool_of(found);
        self.shards[found.0 as usize].pool = pool;
        let flags = self.pools.flags(pool);
        shards.with(found, |shard| {
            shard.move_to(pool);
            shard.memory.rules.set_flags(flags);
        });
        self.forget_pool(of);
        Some(found)
    }

    /// Forgets a private pool if it has neither references nor memory nor shards.
    pub(crate) fn forget_pool(&mut self, pool: PoolId) {
        if self.shards_of(pool).next().is_none() {
            self.pools.forget(pool);
        }
    }

    /// Notes that a stream is being captured from now on, in a pool. `open` is its open tick. Until the capture has
    /// ended, the stream is neither polled nor waited for nor made to wait, and everything that its ticks from this one
    /// on cover counts as in use. In a private pool no stream takes memory that another one may still use, for as long
    /// as any stream is being captured there. Returns `false`, and nothing changes, if the stream is being captured
    /// already.
    ///
    /// # Panics
    ///
    /// Panics if the pool does not exist.
    pub fn begin_capture(&mut self, stream: StreamId, pool: PoolId, open: Tick) -> bool {
        if self.pending.is_captured(stream) {
            return false;
        }
        self.pools.begin_capture(pool);
        self.pending.begin_capture(stream, open);
        true
    }

    /// Returns whether a stream is being captured.
    pub fn is_captured(&self, stream: StreamId) -> bool {
        self.pending.is_captured(stream)
    }

    /// Notes that the capture of a stream in a pool has ended.
    pub fn end_capture(&mut self, stream: StreamId, pool: PoolId) {
        self.pending.end_capture(stream);
        self.pools.end_capture(pool);
    }

    /// Returns the streams of all shards that are not being captured, each once.
    pub fn streams(&self) -> Vec<StreamId> {
        looks::note(self.streams.len());
        self.streams.iter().copied().filter(|&stream| !self.pending.is_captured(stream)).collect()
    }

    /// Returns whether a stream that requests of a shard cannot wait for others on the device, nor take what they may
    /// still use: it is being captured, or another stream of its private pool is and may have it take part.
    pub(crate) fn is_capturing(&self, stream: StreamId, shard: ShardId) -> bool {
        self.pending.has_captures()
            && (self.pending.is_captured(stream) || self.pools.is_capturing(self.pool_of(shard)))
    }

    /// Returns the shards of a pool.
    pub(crate) fn shards_of(&self, pool: PoolId) -> impl Iterator<Item = ShardId> {
        self.shard_ids().filter(move |&id| self.pool_of(id) == pool)
    }

    /// Returns whether free memory of a shard may go back to the driver.
    pub(crate) fn may_release(&self, shard: ShardId) -> bool {
        let pool = self.pool_of(shard);
        !self.pools.is_held(pool) && !self.groups.is_closed(self.pools.group_of(pool))
    }

    /// Returns the shards whose free memory may go back to the driver.
    pub(crate) fn releasable_shards(&self) -> impl Iterator<Item = ShardId> {
        self.shard_ids().filter(|&id| self.may_release(id))
    }

    /// Returns the bytes that are reserved, or being asked for, without those of other pools: what the requests of a
    /// shard can be served from.
    pub(crate) fn reserved_for(&self, shard: ShardId) -> u64 {
        self.headroom.with_asked() - self.pools.reserved_elsewhere(self.pool_of(shard))
    }

    /// Returns the bytes live in the pool of a shard.
    pub(crate) fn live_in_pool(&self, shard: ShardId, shards: &mut dyn Shards) -> u64 {
        self.shards_of(self.pool_of(shard)).map(|id| shards.with(id, |shard| shard.live_bytes())).sum()
    }

    /// Returns the settings that hold in a pool.
    ///
    /// Memory that another allocator supplies comes in segments, and goes back to it whole. So the rules of `classic`
    /// hold in a pool with a source of its own, whatever the policy is: its requests climb the ladder of segments, of
    /// PyTorch's sizes, and its memory is neither mapped a second time nor used by other streams.
    pub(crate) fn settings_in(&self, pool: PoolId) -> &Settings {
        if self.has_source(pool) { &self.sourced } else { &self.settings }
    }

    /// Returns where the memory of a shard comes from.
    pub(crate) fn backing_of(&self, shard: ShardId) -> Backing {
        self.settings_in(self.pool_of(shard)).policy.backing()
    }
}
