//! The allocator's handle: streams, limits, cache control and statistics.

use millpond::events::Sink;
use millpond::settings::Settings;
use millpond::{
    Allocator, BeyondDevice, DriverActivity, Error, MemoryStats, PageStats, SegmentView, SlackStats, Usage, WasteLedger,
};
use millpond_backend::{Backend, BackendError, Caps, ClassId, Fault, Point, StreamId};

use crate::buffer::AnyBuffer;
use crate::builder::AnyBuilder;
use crate::device::AnyDevice;
use crate::error::AnyError;
use crate::macros::{erase, erased, on, on_both};
use crate::pinned::AnyPinned;
use crate::stream::{AnyStream, other_backend};

erased! {
    /// A caching allocator over one memory class of one device: the erased form of [`Allocator`]. Cheap to clone;
    /// clones are the same allocator.
    ///
    /// An allocator that was made with the typed API is converted with [`From`]. The statistics, points, events and
    /// settings are those of the typed API.
    #[derive(Clone, Debug)]
    AnyAllocator:
    Allocator<millpond_sim::Sim>, Allocator<millpond_cuda::Cuda>,
    Allocator<millpond_vulkan::Vulkan>, Allocator<millpond_wgpu::Wgpu>
}

/// Creating, streams and buffers.
impl AnyAllocator {
    /// Creates an allocator for the device's own memory, with default settings. It reads no environment variable:
    /// [`AnyBuilder::environment`] does.
    pub fn new(device: AnyDevice) -> Self {
        erase!(device, AnyDevice(device) => AnyAllocator(Allocator::new(device)))
    }

    /// Returns a builder, with which an allocator is configured.
    pub fn builder(device: AnyDevice) -> AnyBuilder {
        erase!(device, AnyDevice(device) => AnyBuilder(Allocator::builder(device)))
    }

    /// Returns the device, for further allocators on it.
    pub fn device(&self) -> AnyDevice {
        erase!(self, AnyAllocator(allocator) => AnyDevice(allocator.backend().clone()))
    }

    /// Returns the device's facts: its name, its classes of memory, and what it can do.
    pub fn caps(&self) -> &Caps {
        on!(self, AnyAllocator(allocator) => allocator.backend().caps())
    }

    /// Returns the class of memory that it serves.
    pub fn class(&self) -> ClassId {
        on!(self, AnyAllocator(allocator) => allocator.class())
    }

    /// Returns a copy of the settings.
    pub fn settings(&self) -> Settings {
        on!(self, AnyAllocator(allocator) => allocator.settings())
    }

    /// Opens a new stream on the device.
    ///
    /// # Errors
    ///
    /// The errors of [`Allocator::create_stream`].
    pub fn create_stream(&self) -> Result<AnyStream, AnyError> {
        Ok(erase!(self, AnyAllocator(allocator) => AnyStream(allocator.create_stream()?)))
    }

    /// Returns a stream that was opened with the device before, for example an engine's own. Takes a lock that all
    /// streams share, so keep the result.
    ///
    /// # Errors
    ///
    /// The errors of [`Allocator::stream`].
    pub fn stream(&self, id: StreamId) -> Result<AnyStream, AnyError> {
        Ok(erase!(self, AnyAllocator(allocator) => AnyStream(allocator.stream(id)?)))
    }

    /// Allocates on a stream, like [`AnyStream::allocate`], after checking that the stream is this allocator's.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] and [`AnyError::OtherBackend`] if the stream is another allocator's, and the errors of
    /// [`AnyStream::allocate`].
    #[track_caller]
    pub fn allocate(&self, bytes: u64, stream: &AnyStream) -> Result<AnyBuffer, AnyError> {
        on_both!(
            (self, stream),
            (AnyAllocator(allocator), AnyStream(stream)) => Ok(allocator.allocate(bytes, stream)?.into()),
            else Err(other_backend("stream", stream.backend_name(), self.backend_name()))
        )
    }

    /// Frees a buffer, as dropping it does, after checking that it is this allocator's. A buffer of another allocator
    /// is returned unchanged.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] or [`AnyError::OtherBackend`] with the buffer, if it is another allocator's.
    #[allow(clippy::result_large_err, reason = "the buffer comes back as it was given, as from the typed form")]
    pub fn free(&self, buffer: AnyBuffer) -> Result<(), (AnyError, AnyBuffer)> {
        let belongs_to = buffer.backend_name();
        if belongs_to != self.backend_name() {
            return Err((other_backend("buffer", belongs_to, self.backend_name()), buffer));
        }
        on_both!(
            (self, buffer),
            (AnyAllocator(allocator), AnyBuffer(buffer)) => {
                allocator.free(buffer).map_err(|(error, buffer)| (error.into(), buffer.into()))
            },
            else unreachable!("both are of one backend")
        )
    }

    /// Creates a cache of the device's page-locked memory. It reserves no memory yet. Create one for a device and clone
    /// it, because caches share nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`Allocator::pinned`].
    pub fn pinned(&self) -> Result<AnyPinned, AnyError> {
        Ok(erase!(self, AnyAllocator(allocator) => AnyPinned(allocator.pinned()?)))
    }

    /// Creates a cache of another class of host memory, with these settings.
    ///
    /// # Errors
    ///
    /// The errors of [`Allocator::pinned_with`].
    ///
    /// # Panics
    ///
    /// If the device has no such class.
    pub fn pinned_with(&self, class: ClassId, settings: Settings) -> Result<AnyPinned, AnyError> {
        Ok(erase!(self, AnyAllocator(allocator) => AnyPinned(allocator.pinned_with(class, settings)?)))
    }
}

/// Time: how far the streams are.
impl AnyAllocator {
    /// Returns whether everything up to a point is complete. Never blocks. Where the application closes ticks (Vulkan,
    /// wgpu), work is never reached before its stream is [submitted](AnyStream::submit).
    ///
    /// # Errors
    ///
    /// [`Error::UnknownStream`] if the device has no such stream; [`Error::Driver`] if a driver call fails.
    pub fn reached(&self, point: Point) -> Result<bool, AnyError> {
        on!(self, AnyAllocator(allocator) => Ok(reached(allocator.backend(), point)?))
    }

    /// Blocks until everything up to a point is complete.
    ///
    /// # Errors
    ///
    /// [`Error::NotReached`] if all submitted work of the stream is complete and the point is not reached: it covers
    /// work that was not [submitted](AnyStream::submit). [`Error::UnknownStream`] if the device has no such stream;
    /// [`Error::Driver`] if a driver call fails.
    pub fn wait(&self, point: Point) -> Result<(), AnyError> {
        on!(self, AnyAllocator(allocator) => Ok(wait(allocator.backend(), point)?))
    }
}

/// Releasing memory, and limits.
impl AnyAllocator {
    /// Returns all cached memory to the driver, after a wait for all outstanding points.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if a driver call fails. What was not released stays cached.
    pub fn empty_cache(&self) -> Result<(), AnyError> {
        on!(self, AnyAllocator(allocator) => Ok(allocator.empty_cache()?))
    }

    /// Returns cached memory to the driver until at most `bytes` are reserved or nothing more can be released. Returns
    /// the bytes that are reserved then.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if a driver call fails. What was not released stays cached.
    pub fn trim(&self, bytes: u64) -> Result<u64, AnyError> {
        on!(self, AnyAllocator(allocator) => Ok(allocator.trim(bytes)?))
    }

    /// Retires freed blocks whose points are reached. Every allocation does this too.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if a driver call fails.
    pub fn poll(&self) -> Result<(), AnyError> {
        on!(self, AnyAllocator(allocator) => Ok(allocator.poll()?))
    }

    /// Limits the reserved bytes; `None` lifts the limit. Lowering it below what is reserved does not release anything.
    pub fn set_limit(&self, bytes: Option<u64>) {
        on!(self, AnyAllocator(allocator) => allocator.set_limit(bytes));
    }

    /// Limits the reserved bytes to a share of the device's memory, from 0 to 1. 1 lifts the limit.
    ///
    /// # Panics
    ///
    /// If the share is outside that range.
    pub fn set_memory_fraction(&self, fraction: f64) {
        on!(self, AnyAllocator(allocator) => allocator.set_memory_fraction(fraction));
    }

    /// Returns the limit on reserved bytes, if there is one.
    pub fn limit(&self) -> Option<u64> {
        on!(self, AnyAllocator(allocator) => allocator.limit())
    }
}

/// Statistics, which are PyTorch's where it has them.
impl AnyAllocator {
    /// Returns all of PyTorch's statistics. Takes the lock of every stream in turn.
    pub fn stats(&self) -> MemoryStats {
        on!(self, AnyAllocator(allocator) => allocator.stats())
    }

    /// Returns what the `paged` policy has done with pages. Walks over all pages.
    pub fn page_stats(&self) -> PageStats {
        on!(self, AnyAllocator(allocator) => allocator.page_stats())
    }

    /// Returns how many bytes are reserved beyond the setting `slack` of `paged`, and how many bytes of freed memory
    /// work in flight keeps from being used by others. Asks every stream how far it is, and walks over every block.
    pub fn slack_stats(&self) -> SlackStats {
        on!(self, AnyAllocator(allocator) => allocator.slack_stats())
    }

    /// Returns the bytes in buffers, after rounding (`torch.cuda.memory_allocated`).
    pub fn memory_allocated(&self) -> u64 {
        on!(self, AnyAllocator(allocator) => allocator.memory_allocated())
    }

    /// Returns the peak of [`memory_allocated`](Self::memory_allocated) since peaks were last reset.
    pub fn max_memory_allocated(&self) -> u64 {
        on!(self, AnyAllocator(allocator) => allocator.max_memory_allocated())
    }

    /// Returns the bytes reserved from the driver (`torch.cuda.memory_reserved`).
    pub fn memory_reserved(&self) -> u64 {
        on!(self, AnyAllocator(allocator) => allocator.memory_reserved())
    }

    /// Returns the peak of [`memory_reserved`](Self::memory_reserved) since peaks were last reset.
    pub fn max_memory_reserved(&self) -> u64 {
        on!(self, AnyAllocator(allocator) => allocator.max_memory_reserved())
    }

    /// Sets every peak to its current value.
    pub fn reset_peak_stats(&self) {
        on!(self, AnyAllocator(allocator) => allocator.reset_peak_stats());
    }

    /// Resets the totals of what was allocated and freed, and the counts of events.
    pub fn reset_accumulated_stats(&self) {
        on!(self, AnyAllocator(allocator) => allocator.reset_accumulated_stats());
    }

    /// Returns how every reserved byte is used or wasted. Walks over every block.
    pub fn ledger(&self) -> WasteLedger {
        on!(self, AnyAllocator(allocator) => allocator.ledger())
    }

    /// Returns every segment with its blocks, in order of birth. Walks over every block.
    pub fn layout(&self) -> Vec<SegmentView> {
        on!(self, AnyAllocator(allocator) => allocator.layout())
    }

    /// Returns how the device's memory is used, or `None` on a device that does not report its free memory. Makes a
    /// driver call.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the driver call fails.
    pub fn memory_usage(&self) -> Result<Option<Usage>, AnyError> {
        on!(self, AnyAllocator(allocator) => Ok(allocator.memory_usage()?))
    }

    /// Returns the numbers if more is reserved than the device lists, although the device says that it does not
    /// oversubscribe. Takes a lock.
    pub fn beyond_device(&self) -> Option<BeyondDevice> {
        on!(self, AnyAllocator(allocator) => allocator.beyond_device())
    }

    /// Returns the table of `torch.cuda.memory_summary`, with sections on pages, on the slack and on the device's
    /// memory. [`Allocator::memory_summary`] says when it has which.
    pub fn memory_summary(&self, abbreviated: bool) -> String {
        on!(self, AnyAllocator(allocator) => allocator.memory_summary(abbreviated))
    }

    /// Returns the number of driver calls, and the time that they took.
    pub fn driver_activity(&self) -> DriverActivity {
        on!(self, AnyAllocator(allocator) => allocator.driver_activity())
    }

    /// Tells every [event](millpond::events::Event) to the sink from now on. [`Allocator::set_sink`] says what that
    /// costs. Returns the sink of the same type that is replaced.
    pub fn set_sink<S: Sink>(&self, sink: S) -> Option<S> {
        on!(self, AnyAllocator(allocator) => allocator.set_sink(sink))
    }

    /// Removes the sink of a type and returns it; `None` if there is none. It is told nothing more.
    pub fn take_sink<S: Sink>(&self) -> Option<S> {
        on!(self, AnyAllocator(allocator) => allocator.take_sink())
    }

    /// Checks every invariant of the allocator. Walks over every block; it is meant for tests and for debugging. Other
    /// threads must not use the allocator meanwhile.
    ///
    /// # Panics
    ///
    /// If an invariant does not hold, with its numbers.
    pub fn check(&self) {
        on!(self, AnyAllocator(allocator) => allocator.check());
    }
}

fn expect_stream<B: Backend>(backend: &B, stream: StreamId) -> Result<(), Error<B::Error>> {
    if backend.has_stream(stream) { Ok(()) } else { Err(Error::UnknownStream { stream }) }
}

fn reached<B: Backend>(backend: &B, point: Point) -> Result<bool, Error<B::Error>> {
    expect_stream(backend, point.stream)?;
    let reached = backend.reached(point.stream).map_err(|error| driver("reached", error))?;
    Ok(reached >= point.tick)
}

fn wait<B: Backend>(backend: &B, point: Point) -> Result<(), Error<B::Error>> {
    expect_stream(backend, point.stream)?;
    let reached = backend.wait(point).map_err(|error| driver("wait", error))?;
    if reached >= point.tick { Ok(()) } else { Err(Error::NotReached { point, reached }) }
}

fn driver<E: BackendError>(call: &'static str, source: E) -> Error<E> {
    Error::Driver { call, lost: source.fault() == Fault::Lost, source }
}
