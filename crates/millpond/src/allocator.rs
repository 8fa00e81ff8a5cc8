//! The allocator's handle: streams, limits and cache control.

use std::fmt;

use millpond_backend::{Backend, ClassId, Point, StreamId};
use millpond_core::settings::Settings;
use millpond_core::{Plan, PoolId};

use crate::buffer::Buffer;
use crate::error::Error;
use crate::events::Event;
use crate::notes::ring::Mark;
use crate::state::{Handle, Lane, LaneRef, LockedShards, State};
use crate::stream::Stream;
use crate::sync::Arc;

/// A caching allocator over one memory class of one device. Cheap to clone; clones are the same allocator.
///
/// Several allocators, of one device or of several, are independent of each other. When the last handle and the last
/// buffer are dropped, all memory is returned to the driver, once the device is done with it. Where the application's
/// submit closes ticks, recorded work that was not submitted may still touch memory. The device keeps that memory until
/// the work is done. It finishes what it recorded itself, where it can: on Vulkan the memory is back when the drop
/// returns. Where an engine submits around the device, it may have recorded work with a raw handle or an address of the
/// memory, so the memory waits for the next submit of its stream, or until the device is told to give it back.
///
/// ```
/// use millpond::Allocator;
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::new(Sim::new());
/// let stream = allocator.create_stream()?;
/// drop(stream.allocate(1 << 20)?);
/// assert_eq!((allocator.memory_allocated(), allocator.memory_reserved()), (0, 2 << 20), "cached");
/// allocator.empty_cache()?;
/// assert_eq!(allocator.memory_reserved(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Allocator<B: Backend> {
    handle: Arc<Handle<B>>,
}

impl<B: Backend> Allocator<B> {
    pub(crate) fn from_state(state: State<B>) -> Self {
        Self { handle: Arc::new(Handle::new(state)) }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle<B>> {
        &self.handle
    }

    /// Returns the allocator of a handle.
    #[cfg(not(loom))]
    pub(crate) fn of(handle: &Arc<Handle<B>>) -> Self {
        Self { handle: Arc::clone(handle) }
    }

    pub(crate) fn state(&self) -> &State<B> {
        &self.handle.state
    }

    #[cfg(not(loom))]
    pub(crate) fn shared_state(&self) -> &Arc<State<B>> {
        &self.handle.state
    }

    /// Returns the backend.
    pub fn backend(&self) -> &B {
        &self.state().backend
    }

    /// Returns the class of memory that it serves.
    pub fn class(&self) -> ClassId {
        self.state().class
    }

    /// Returns a copy of the settings.
    pub fn settings(&self) -> Settings {
        self.state().coordinator.lock().settings().clone()
    }

    /// Returns the keys of the configuration that were accepted but have no effect, in the order in which they were
    /// given. PyTorch has them for parts that Millpond lacks: see [`Builder::ignored`](crate::Builder::ignored).
    pub fn ignored_settings(&self) -> &[&'static str] {
        &self.state().ignored
    }

    /// Returns a stream of the device that no handle uses: a new one, or one whose handles are all dropped, as PyTorch
    /// takes its streams from a pool. A reused stream runs its earlier work first, and is served from the memory that
    /// its buffers left in the cache.
    ///
    /// A stream is released with its last handle, which includes handles from [`stream`](Self::stream) and
    /// [`Pool::stream`](crate::Pool::stream). A number alone does not keep a stream from being returned here again.
    /// Neither do handles of another allocator over a clone of the backend.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], for example when the device has no further queue; [`Error::NoStreams`] if this is a cache of
    /// page-locked memory.
    pub fn create_stream(&self) -> Result<Stream<B>, Error<B::Error>> {
        self.state().expect_streams()?;
        let lease = self.state().create_stream()?;
        Ok(self.open(lease.id()).leased(Some(lease)))
    }

    /// Returns a stream that was opened with the backend before, for example an engine's own. Takes a lock that all
    /// streams share, so keep the result.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownStream`] if the device has no such stream; [`Error::SetAside`] if a cache of page-locked memory
    /// has set it aside; [`Error::NoStreams`] if this is such a cache. Nothing is kept for the stream then.
    pub fn stream(&self, id: StreamId) -> Result<Stream<B>, Error<B::Error>> {
        self.state().expect_open(id)?;
        Ok(self.open(id).leased(self.state().lease(id)))
    }

    /// Returns the stream without checking who may use it.
    pub(crate) fn open(&self, id: StreamId) -> Stream<B> {
        Stream::new(Arc::clone(&self.handle), LaneRef::new(self.state().lane_of(id, PoolId::DEFAULT)), id)
    }

    /// Allocates on a stream, like [`Stream::allocate`], after checking that the stream is this allocator's.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if the stream is another allocator's, and the errors of [`Stream::allocate`].
    #[track_caller]
    pub fn allocate(&self, bytes: u64, stream: &Stream<B>) -> Result<Buffer<B>, Error<B::Error>> {
        self.state().expect_own("stream", stream.lane().owner())?;
        stream.allocate(bytes)
    }

    /// Frees a buffer, as dropping it does, after checking that it is this allocator's. A buffer of another allocator
    /// is returned unchanged.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] with the buffer, if it is another allocator's.
    pub fn free(&self, buffer: Buffer<B>) -> Result<(), (Error<B::Error>, Buffer<B>)> {
        match self.state().expect_own("buffer", buffer.lane().owner()) {
            Ok(()) => Ok(()),
            Err(error) => Err((error, buffer)),
        }
    }

    /// Returns whether everything up to a point is complete. Never blocks. Where the application closes ticks (Vulkan,
    /// wgpu), work is never reached before its stream is [submitted](Stream::submit).
    ///
    /// # Errors
    ///
    /// [`Error::UnknownStream`] if the device has no such stream; [`Error::Driver`] if a driver call fails.
    pub fn reached(&self, point: Point) -> Result<bool, Error<B::Error>> {
        let backend = self.backend_with(point.stream)?;
        let tick = self.state().closing(point.stream, |_| backend.reached(point.stream));
        let tick = tick.map_err(|e| Error::of_driver("reached", e))?;
        self.state().note_reached(Point { tick, ..point });
        Ok(tick >= point.tick)
    }

    /// Blocks until everything up to a point is complete. [`when_reached`](Self::when_reached) can be awaited instead.
    ///
    /// # Errors
    ///
    /// [`Error::NotReached`] if all submitted work of the stream is complete and the point is not reached: it covers
    /// work that was not [submitted](Stream::submit). [`Error::UnknownStream`] if the device has no such stream;
    /// [`Error::Driver`] if a driver call fails.
    pub fn wait(&self, point: Point) -> Result<(), Error<B::Error>> {
        let backend = self.backend_with(point.stream)?;
        let reached = self.state().closing(point.stream, |_| backend.wait(point));
        let reached = reached.map_err(|e| Error::of_driver("wait", e))?;
        self.state().waited_for(point, reached)
    }

    /// Returns the backend, if it has the stream.
    fn backend_with(&self, stream: StreamId) -> Result<&B, Error<B::Error>> {
        let backend = self.backend();
        if backend.has_stream(stream) { Ok(backend) } else { Err(Error::UnknownStream { stream }) }
    }

    /// Returns all cached memory to the driver: waits for all outstanding points, then releases every segment and every
    /// page that nothing pins. Private pools with references ([`Pool`](crate::Pool)) keep theirs. This is PyTorch's
    /// `empty_cache`.
    ///
    /// Where the application submits, as on Vulkan and wgpu, [submit](Stream::submit) the streams first. Memory that
    /// was freed since the last submit of its stream stays, because work that is not submitted may use it.
    ///
    /// Under `paged` this also forgets the old peak, if no more than the slack of it is still live. From then on the
    /// reserved bytes are bounded by the new program's own peak.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if a driver call fails. What was not released stays cached.
    pub fn empty_cache(&self) -> Result<(), Error<B::Error>> {
        self.note(Event::EmptyCache, || Mark::EmptyCache);
        let state = self.state();
        state.run(&mut Plan::empty_cache(state.clocks())).map(drop)
    }

    /// Returns cached memory to the driver until at most `bytes` are reserved or nothing more can be released. The
    /// largest free segments and pages are released first, but none of private pools with references. Returns the bytes
    /// that are still reserved. As before [`empty_cache`](Self::empty_cache), submit the streams first.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if a driver call fails. What was not released stays cached.
    pub fn trim(&self, bytes: u64) -> Result<u64, Error<B::Error>> {
        self.note(Event::Trim { bytes }, || Mark::Trim(bytes));
        let state = self.state();
        if self.memory_reserved() > bytes {
            state.run(&mut Plan::trim(bytes, state.clocks()))?;
        }
        Ok(self.memory_reserved())
    }

    /// Polls the device and retires freed blocks whose points are reached. Every allocation does this too; call it to
    /// bring the statistics up to date. To give memory back at once, call [`empty_cache`](Self::empty_cache) or
    /// [`trim`](Self::trim).
    ///
    /// With [`release_idle_after`](crate::Builder::release_idle_after), memory that nothing has needed for that long
    /// goes back, too. Returns the bytes that did, which is 0 otherwise.
    ///
    /// Under the `direct` policy, which caches nothing, what is free and idle then goes back to the driver. Each free
    /// does this itself. But where the application closes ticks, the last use of a freed block is complete only after a
    /// later submit.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if a driver call fails.
    pub fn poll(&self) -> Result<u64, Error<B::Error>> {
        let state = self.state();
        state.retire_ready()?;
        state.retire_homes()?;
        state.run_idle()?;
        state.release_unneeded(state.opened.elapsed())
    }

    /// Does what [`poll`](Self::poll) does under `direct`, without polling the device. A replay uses it to make as many
    /// driver calls as on a device that needs no submits.
    #[doc(hidden)]
    pub fn release_idle(&self) -> Result<(), Error<B::Error>> {
        self.state().run_idle()
    }

    /// Limits the reserved bytes; `None` lifts the limit. A limit below the reserved bytes releases nothing.
    pub fn set_limit(&self, bytes: Option<u64>) {
        let mut coordinator = self.state().coordinator.lock();
        coordinator.set_limit(bytes);
        self.state().publish(&coordinator);
    }

    /// Limits the reserved bytes to a share of the device's memory, from 0 to 1 (PyTorch's
    /// `set_per_process_memory_fraction`). 1 lifts the limit.
    ///
    /// # Panics
    ///
    /// If the share is outside that range.
    pub fn set_memory_fraction(&self, fraction: f64) {
        let mut coordinator = self.state().coordinator.lock();
        coordinator.set_memory_fraction(fraction);
        self.state().publish(&coordinator);
    }

    /// Returns the limit on reserved bytes, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.state().coordinator.lock().limit()
    }

    /// Returns the bytes in buffers, after rounding (`torch.cuda.memory_allocated`).
    ///
    /// Takes no lock. It reads one number for each stream in each pool; under `paged`, one for each pool. While other
    /// threads work, these numbers come from different moments, so their sum may be more than was ever allocated at
    /// one time.
    pub fn memory_allocated(&self) -> u64 {
        self.state().lanes().map(Lane::allocated).sum()
    }

    /// Returns the bytes reserved from the driver (`torch.cuda.memory_reserved`).
    pub fn memory_reserved(&self) -> u64 {
        self.state().coordinator.lock().reserved_bytes()
    }

    /// Returns the bytes of paused groups that went back to the driver, and are needed again when these are resumed.
    pub fn memory_paused(&self) -> u64 {
        self.state().coordinator.lock().paused_bytes()
    }

    /// Checks every invariant of the allocator. Walks over every block; it is meant for tests and for debugging. Other
    /// threads must not use the allocator meanwhile.
    ///
    /// # Panics
    ///
    /// If an invariant does not hold, with its numbers.
    pub fn check(&self) {
        let state = self.state();
        state.coordinator.lock().check(&mut LockedShards(state));
        for lane in state.lanes() {
            let (counted, held) = (lane.allocated(), lane.lock().shard.tidied().live_bytes());
            assert_eq!(counted, held, "bytes handed out in {:?}, as counted and as there are", lane.shard);
        }
    }

    fn note(&self, event: Event, mark: impl FnOnce() -> Mark) {
        let state = self.state();
        if state.sinks.is_told() {
            state.sinks.tell(&event);
        }
        state.mark_event(mark);
    }
}

impl<B: Backend> Clone for Allocator<B> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

impl<B: Backend> fmt::Debug for Allocator<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator")
            .field("device", &self.backend().caps().name)
            .field("reserved_bytes", &self.memory_reserved())
            .finish()
    }
}
