//! Private pools: memory that is a graph's, or a part of the program's, alone.

use std::fmt;

use millpond_backend::{Backend, StreamId};
use millpond_core::settings::PoolFlags;
use millpond_core::stats::{PoolStats, StatByPool};
use millpond_core::{Plan, PoolId};

use crate::allocator::Allocator;
use crate::bond::Bond;
use crate::error::Error;
use crate::raw::source::SegmentSource;
use crate::state::{Handle, LaneRef, LockedShards};
use crate::stream::Stream;
use crate::sync::Arc;

mod capture;
mod checkpoint;
mod exact;

pub use capture::Capture;

/// A reference to a private pool: PyTorch's `MemPool`, and the pool of a CUDA graph. Cloning it adds a reference, and
/// dropping it takes one away.
///
/// Blocks of a pool are never given to requests of another one. As long as a pool has a reference, nothing of it goes
/// back to the driver: [`Allocator::empty_cache`], [`Allocator::trim`], garbage collection and the attempts before an
/// out-of-memory error leave its memory where it is, with its addresses, because a graph that was captured there may
/// run again. After the last reference, its free memory is released whenever that of the default pool is, and before
/// another private pool takes memory from the driver. Buffers of a pool outlive the references to it.
///
/// ```
/// use millpond::Allocator;
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::new(Sim::new());
/// let stream = allocator.create_stream()?;
/// let pool = allocator.create_pool()?;
/// let graph = pool.stream(stream.id())?;
/// drop(graph.allocate(4 << 20)?);
/// allocator.empty_cache()?;
/// assert_eq!(allocator.memory_reserved(), 4 << 20, "the pool keeps its memory");
///
/// let id = pool.id();
/// drop(pool);
/// allocator.empty_cache_of(id)?;
/// assert_eq!(allocator.memory_reserved(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pool<B: Backend> {
    handle: Arc<Handle<B>>,
    bond: Bond<B>,
}

impl<B: Backend> Pool<B> {
    /// Creates a reference that is counted already.
    fn counted(handle: &Arc<Handle<B>>, bond: Bond<B>) -> Self {
        Self { handle: Arc::clone(handle), bond }
    }

    /// Adds a reference to the pool of a bond.
    fn held(handle: &Arc<Handle<B>>, bond: Bond<B>) -> Self {
        handle.state.coordinator.lock().hold_pool(bond.pool());
        Self::counted(handle, bond)
    }

    /// Returns whether it is a pool of this allocator.
    #[cfg(not(loom))]
    pub(crate) fn is_of(&self, state: &crate::state::State<B>) -> bool {
        std::ptr::eq(&*self.handle.state, state)
    }

    /// Returns its number, which no other pool of this allocator ever has.
    pub fn id(&self) -> PoolId {
        self.bond.pool()
    }

    /// Returns a stream on which buffers are allocated in this pool. It is the same queue of work as the stream of that
    /// number in every other pool. Takes a lock that all streams share, so keep the result.
    ///
    /// The stream does not keep the pool alive. Without references to the pool, its streams still serve requests, but
    /// free memory may be released.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownStream`] if the device has no such stream; [`Error::SetAside`] if a cache of page-locked memory
    /// has set it aside.
    pub fn stream(&self, id: StreamId) -> Result<Stream<B>, Error<B::Error>> {
        let state = &self.handle.state;
        state.expect_open(id)?;
        let lane = LaneRef::new(state.lane_of(id, self.bond.pool()));
        Ok(Stream::new(Arc::clone(&self.handle), lane, id).leased(state.lease(id)).within(self.bond.clone()))
    }

    /// Sets the options of the pool, until its last reference is dropped: `use_on_oom` and `no_split` of PyTorch's
    /// `MemPool`. Takes the lock of each stream of the pool.
    ///
    /// ```
    /// use millpond::settings::PoolFlags;
    /// use millpond::{Allocator, Error};
    /// use millpond_sim::Sim;
    ///
    /// let allocator = Allocator::builder(Sim::new()).limit(64 << 20).build()?;
    /// let stream = allocator.create_stream()?;
    /// let pool = allocator.create_pool()?;
    /// drop(pool.stream(stream.id())?.allocate(48 << 20)?);
    /// assert!(matches!(stream.allocate(48 << 20), Err(Error::OutOfMemory(_))), "the pool keeps it");
    /// pool.set_flags(PoolFlags { use_on_oom: true, ..PoolFlags::default() });
    /// assert!(stream.allocate(48 << 20).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_flags(&self, flags: PoolFlags) {
        let state = &self.handle.state;
        state.coordinator.lock().set_pool_flags(self.bond.pool(), flags, &mut LockedShards(state));
    }

    /// Returns the options of the pool.
    pub fn flags(&self) -> PoolFlags {
        self.handle.state.coordinator.lock().pool_flags(self.bond.pool())
    }

    /// Returns the number of references to the pool, captures among them: PyTorch's `use_count`.
    pub fn use_count(&self) -> u64 {
        self.handle.state.coordinator.lock().pool_uses(self.bond.pool())
    }
}

impl<B: Backend> Clone for Pool<B> {
    fn clone(&self) -> Self {
        Self::held(&self.handle, self.bond.clone())
    }
}

impl<B: Backend> Drop for Pool<B> {
    fn drop(&mut self) {
        let state = &self.handle.state;
        state.coordinator.lock().release_pool(self.bond.pool(), &mut LockedShards(state));
    }
}

impl<B: Backend> fmt::Debug for Pool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.id().0).finish()
    }
}

/// Private pools.
impl<B: Backend> Allocator<B> {
    /// Creates a private pool and returns its first reference. Reserves no memory.
    ///
    /// # Errors
    ///
    /// [`Error::NoStreams`] if this is a cache of page-locked memory.
    pub fn create_pool(&self) -> Result<Pool<B>, Error<B::Error>> {
        let state = self.state();
        state.expect_streams()?;
        let mut coordinator = state.coordinator.lock();
        let bond = state.bonds.bind(coordinator.create_pool(), None);
        Ok(Pool::counted(self.handle(), bond))
    }

    /// Creates a private pool whose segments come from another allocator, and returns its first reference: PyTorch's
    /// `MemPool` with an allocator. Requests nothing from the source yet.
    ///
    /// Whatever the policy is, PyTorch's rules of plain segments hold in the pool: a segment has 2 MiB, 20 MiB or the
    /// size of the request, blocks are cut from it, and no other stream gets them. The pool releases its memory to the
    /// source, at the times that [`Pool`] describes. Its bytes count like those of other pools, towards the limit too.
    ///
    /// # Errors
    ///
    /// [`Error::NoStreams`] if this is a cache of page-locked memory.
    pub fn create_pool_from(&self, source: impl SegmentSource<B>) -> Result<Pool<B>, Error<B::Error>> {
        let state = self.state();
        state.expect_streams()?;
        let mut coordinator = state.coordinator.lock();
        // The standard library's: that of the tests of interleavings holds no trait objects.
        let source = std::sync::Arc::new(source);
        let bond = state.bonds.bind(coordinator.create_pool_with_source(), Some(source));
        Ok(Pool::counted(self.handle(), bond))
    }

    /// Returns one more reference to a private pool, which may have none now: PyTorch's `createOrIncrefPool` of a pool
    /// that exists.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownPool`] for the default pool, and for a number that no pool has, or that of a pool that had
    /// neither references nor memory left and is gone. A pool with a source is gone once no handle of it is left and
    /// its last segment went back, even if it still counts among [`pools`](Self::pools).
    pub fn pool(&self, id: PoolId) -> Result<Pool<B>, Error<B::Error>> {
        let state = self.state();
        let mut coordinator = state.coordinator.lock();
        if id == PoolId::DEFAULT || !coordinator.has_pool(id) {
            return Err(Error::UnknownPool { pool: id });
        }
        let bond = match (state.bonds.existing(id), coordinator.has_source(id)) {
            (Some(bond), _) => bond,
            (None, false) => state.bonds.bind(id, None),
            (None, true) => match state.sources.of(id) {
                Some(source) => state.bonds.bind(id, Some(source)),
                None => return Err(Error::UnknownPool { pool: id }),
            },
        };
        coordinator.hold_pool(id);
        Ok(Pool::counted(self.handle(), bond))
    }

    /// Returns the numbers of all private pools that have references, memory or streams, in order.
    pub fn pools(&self) -> Vec<PoolId> {
        self.state().coordinator.lock().private_pools()
    }

    /// Returns the statistics of the default pool or a private one; `None` if there is no such pool. Walks over the
    /// blocks of the pool.
    pub fn pool_stats(&self, id: PoolId) -> Option<PoolStats> {
        let state = self.state();
        state.coordinator.lock().pool_stats(id, &mut LockedShards(state))
    }

    /// Returns the bytes that are reserved for the default pool or a private one; `None` if there is no such pool.
    /// Cheaper than [`pool_stats`](Self::pool_stats), because it visits no blocks.
    pub fn pool_reserved(&self, id: PoolId) -> Option<StatByPool> {
        let state = self.state();
        state.coordinator.lock().pool_reserved(id, &mut LockedShards(state))
    }

    /// Returns all cached memory of one pool to the driver, as [`empty_cache`](Self::empty_cache) does for all. Waits
    /// only for the work that uses that memory. Does nothing while the pool has references: PyTorch's `emptyCache` of a
    /// pool.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if a driver call fails. What was not released stays cached.
    pub fn empty_cache_of(&self, id: PoolId) -> Result<(), Error<B::Error>> {
        let state = self.state();
        state.run(&mut Plan::empty_pool(id, state.clocks())).map(drop)
    }
}
