//! The cache of page-locked host memory that belongs to a device's allocator.

use std::fmt;

use millpond_backend::{Backend, ClassId, ClassKind, StreamId};
use millpond_core::settings::Settings;

use crate::allocator::Allocator;
use crate::builder::coordinator_for;
use crate::error::Error;
#[cfg(not(loom))]
use crate::state::Handle;
use crate::state::State;
use crate::stream::Stream;
#[cfg(not(loom))]
use crate::sync::{Arc, Mutex};

pub(crate) mod buffer;
mod copies;
#[cfg(all(test, not(loom)))]
mod tests;
pub(crate) mod uses;

pub use buffer::PinnedBuffer;

/// A cache of page-locked host memory, for copies to and from one device. Cheap to clone; clones are the same cache.
///
/// Reserving such memory from the driver costs hundreds of microseconds for each MiB (CUDA: `cuMemHostAlloc`), and
/// releasing it waits for the device (`cuMemFreeHost`). An allocation that the cache can serve costs a microsecond or
/// less.
///
/// There is one pool for all streams and threads. A [`PinnedBuffer`] belongs to no stream, and its memory is granted
/// again, on any thread, once the copies that used it are complete, because the *host* may be the next to write it. So
/// a buffer can be dropped as soon as its copies are queued.
///
/// The reserved bytes stay within 1.125 times the peak of live bytes ([`Settings::for_host`]), where memory that waits
/// for copies counts as live: idle segments are released before more are reserved. If time matters more than memory,
/// set a larger [slack](millpond_core::settings::Segments::Snug) with [`pinned_with`](Allocator::pinned_with).
///
/// ```
/// use millpond::Allocator;
/// use millpond_sim::Sim;
///
/// let allocator = Allocator::new(Sim::new());
/// let (stream, pinned) = (allocator.create_stream()?, allocator.pinned()?);
/// let on_device = stream.allocate(8)?;
///
/// let mut batch = pinned.allocate(8)?;
/// batch.bytes_mut()?.copy_from_slice(b"millpond");
/// stream.upload_pinned((&batch, 0), (&on_device, 0), 8)?;
/// drop(batch); // Its memory waits for the copy; the program does not.
///
/// let mut back = pinned.allocate(8)?;
/// stream.download_pinned((&on_device, 0), (&mut back, 0), 8)?;
/// back.wait()?;
/// assert_eq!(back.bytes()?, b"millpond");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pinned<B: Backend> {
    cache: Allocator<B>,
    home: Stream<B>,
}

impl<B: Backend + Clone> Allocator<B> {
    /// Creates a cache of the device's page-locked memory, which is its first class of the kind [`ClassKind::Host`]. It
    /// reserves no memory yet. Create one for a device and clone it, because caches share nothing. The cache is
    /// independent of this allocator and does not keep it alive. Where this allocator
    /// [scrubs](millpond_core::settings::Scrub), in either mode, the host overwrites each buffer of the cache before it
    /// is handed out.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on a device without such a class, or whose host memory has no address (wgpu);
    /// [`Error::Driver`] if a driver call fails.
    pub fn pinned(&self) -> Result<Pinned<B>, Error<B::Error>> {
        let classes = &self.backend().caps().classes;
        match classes.iter().position(|class| class.kind == ClassKind::Host) {
            Some(at) => {
                let settings = Settings { scrub: self.state().scrub, ..Settings::for_host() };
                self.pinned_with(ClassId(at as u16), settings)
            }
            None => Err(self.state().no_pinned()),
        }
    }

    /// Creates a cache of another class of host memory (Vulkan has one for uploads and one that the host reads faster),
    /// with these settings.
    ///
    /// # Errors
    ///
    /// The errors of [`pinned`](Self::pinned); [`Error::Unsupported`] also if the device has no such class of the kind
    /// [`ClassKind::Host`], or if the settings need virtual memory, which host memory does not have; [`Error::Setting`]
    /// for a setting outside its range.
    pub fn pinned_with(&self, class: ClassId, settings: Settings) -> Result<Pinned<B>, Error<B::Error>> {
        let state = self.state();
        let backend = state.backend.clone();
        let named = backend.caps().classes.get(usize::from(class.0));
        if named.is_none_or(|class| class.kind != ClassKind::Host) || !backend.caps().host_memory {
            return Err(state.no_pinned());
        }
        settings.validate().map_err(|error| Error::Setting(Box::new(error)))?;
        let Ok(coordinator) = coordinator_for(backend.caps(), class, settings.into()) else {
            let advice = "set policy:classic or direct, without expandable segments";
            let device = backend.caps().name.clone();
            return Err(Error::Unsupported { what: "virtual memory for host memory", device, advice });
        };
        // This stream is the home of all memory of the cache, and no work is put on it, so everything that its ticks
        // cover is complete. Work that was put there would be overlooked, so the stream is set aside, and the cache
        // opens no other. A cache that is gone leaves its stream to the next one.
        let home = match state.left_aside() {
            Some(home) => home,
            None => backend.create_stream().map_err(|e| Error::of_driver("create_stream", e))?,
        };
        let cache = State::new(backend, class, state.device, coordinator).beside(state, home);
        Ok(Pinned::over(Allocator::from_state(cache), home))
    }
}

impl<B: Backend> State<B> {
    pub(crate) fn no_pinned(&self) -> Error<B::Error> {
        Error::Unsupported {
            what: "page-locked memory that the host can address",
            device: self.backend.caps().name.clone(),
            advice: "use `Stream::upload` and `Stream::download`, which stage the bytes themselves",
        }
    }
}

impl<B: Backend> Pinned<B> {
    /// Makes a cache of an allocator that has set its home stream aside.
    fn over(cache: Allocator<B>, home: StreamId) -> Self {
        Self { home: cache.open(home), cache }
    }

    /// Returns the cache that a place keeps, which the first call makes.
    #[cfg(not(loom))]
    pub(crate) fn kept_in(
        place: &Mutex<Option<Arc<Handle<B>>>>,
        make: impl FnOnce() -> Result<Self, Error<B::Error>>,
    ) -> Result<Self, Error<B::Error>> {
        let there = place.lock().clone();
        if let Some(cache) = there {
            return Ok(Self::of(&cache));
        }
        let made = make()?;
        // Another thread may have made one meanwhile, which serves this one, too.
        let cache = Arc::clone(place.lock().get_or_insert_with(|| Arc::clone(made.cache().handle())));
        Ok(Self::of(&cache))
    }

    /// Returns the cache of a handle of its allocator.
    #[cfg(not(loom))]
    pub(crate) fn of(handle: &Arc<Handle<B>>) -> Self {
        match handle.state.home() {
            Some(home) => Self::over(Allocator::of(handle), home),
            None => panic!("a cache of page-locked memory has no home stream"),
        }
    }

    /// Allocates at least `bytes` bytes. Their content is unspecified: memory is handed out as its previous user left
    /// it, unless the cache [scrubs](millpond_core::settings::Scrub).
    ///
    /// A hit makes no driver call, except that it polls streams while buffers wait for their copies. A miss may release
    /// idle segments, which **waits for the device** where releases do (CUDA), and reserves a new one. A request of 0
    /// bytes gives an empty buffer that is not counted.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] with a report; [`Error::TooLarge`] from 2^60 bytes; [`Error::Driver`] if a driver call
    /// fails.
    #[track_caller]
    pub fn allocate(&self, bytes: u64) -> Result<PinnedBuffer<B>, Error<B::Error>> {
        let buffer = self.home.allocate(bytes)?;
        PinnedBuffer::new(buffer).ok_or_else(|| self.home.lane().owner().no_pinned())
    }

    /// Returns the allocator behind the cache: for limits, statistics, `memory_summary`, and the calls that release
    /// memory. Its `empty_cache` and `trim` wait for the copies in progress, and on CUDA each segment that they release
    /// waits for the device.
    ///
    /// It has no streams, so only [`allocate`](Self::allocate) returns its buffers: `create_stream` and `stream` return
    /// [`Error::NoStreams`]. The stream that [`layout`](Allocator::layout) and reports name is set aside for the cache.
    /// The device's allocator opens no stream with its number either ([`Error::SetAside`]).
    ///
    /// `set_limit` limits the reserved bytes of this cache alone. `reset_peak_stats` also forgets the peak that decides
    /// how much may stay cached.
    pub fn cache(&self) -> &Allocator<B> {
        &self.cache
    }
}

impl<B: Backend> Clone for Pinned<B> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), home: self.home.clone() }
    }
}

impl<B: Backend> fmt::Debug for Pinned<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("reserved_bytes", &self.cache.memory_reserved()).finish_non_exhaustive()
    }
}
