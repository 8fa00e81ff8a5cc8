//! The streams of an application that an allocator of slices knows, found by their handles.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use millpond::{Allocator, Error, Stream};
use millpond_backend::{Backend, BackendError, Fault};
use parking_lot::RwLock;

use crate::device::Cuda;
use crate::error::CudaError;
use crate::streams::Key;

/// Turns an error of the device into one of the allocator.
pub(super) fn failed(call: &'static str) -> impl Fn(CudaError) -> Error<CudaError> {
    move |source| Error::Driver { call, lost: source.fault() == Fault::Lost, source }
}

/// A stream that is registered, kept alive so that its handle belongs to no other stream.
pub(super) struct Known {
    pub(super) own: Arc<CudaStream>,
    pub(super) stream: Stream<Cuda>,
    pub(super) key: Key,
}

/// An allocator of [`Slice`](super::Slice)s with the application's streams that it knows. Clones are the same.
#[derive(Clone)]
pub struct SliceAllocator {
    shared: Arc<Shared>,
}

struct Shared {
    known: RwLock<HashMap<Key, Arc<Known>>>,
    allocator: Allocator<Cuda>,
}

impl SliceAllocator {
    /// Serves slices from an allocator, which may have settings of its own. Makes no driver call.
    pub fn new(allocator: &Allocator<Cuda>) -> SliceAllocator {
        SliceAllocator { shared: Arc::new(Shared { known: RwLock::default(), allocator: allocator.clone() }) }
    }

    /// Returns the allocator.
    pub fn allocator(&self) -> &Allocator<Cuda> {
        &self.shared.allocator
    }

    /// Returns an application's stream for allocating slices, and registers it at the first call. A stream that is
    /// known costs one lookup in a hash map under a shared lock, and no driver call. All default streams of a context
    /// are one stream, and the per-thread default stream is the calling thread's.
    ///
    /// # Errors
    ///
    /// [`CudaError::ForeignStream`] as the source if the stream is of another context. Else the errors of
    /// [`Cuda::register`].
    pub fn stream(&self, stream: &Arc<CudaStream>) -> Result<SliceStream, Error<CudaError>> {
        let known = match self.find(stream) {
            Some(known) => known,
            None => self.open(stream)?,
        };
        Ok(SliceStream { known, allocator: self.clone() })
    }

    /// Unregisters a stream, so that the application can destroy it. Slices whose home it is can be dropped afterwards
    /// as before. Later uses of them on that stream are those of a stream that is not registered. Does nothing for a
    /// stream that is not known.
    ///
    /// # Errors
    ///
    /// The errors of [`Cuda::unregister`]. The stream stays known then.
    pub fn forget(&self, stream: &CudaStream) -> Result<(), Error<CudaError>> {
        let Some(known) = self.find(stream) else { return Ok(()) };
        self.shared.allocator.backend().unregister(known.stream.id()).map_err(failed("unregister"))?;
        let mut all = self.shared.known.write();
        // Another thread may have registered it anew.
        if all.get(&known.key).is_some_and(|now| Arc::ptr_eq(now, &known)) {
            all.remove(&known.key);
        }
        Ok(())
    }

    /// Returns whether a stream is registered still: other code of the application can end that, too.
    pub(super) fn is_registered(&self, known: &Known) -> bool {
        self.shared.allocator.backend().takes_work(known.stream.id())
    }

    /// Returns the known stream with that handle in this context.
    pub(super) fn find(&self, stream: &CudaStream) -> Option<Arc<Known>> {
        if stream.context().cu_ctx() != self.shared.allocator.backend().context().cu_ctx() {
            return None;
        }
        let known = self.shared.known.read().get(&Key::of(stream.cu_stream())).map(Arc::clone);
        known.filter(|known| self.is_registered(known))
    }

    /// Works like [`find`](SliceAllocator::find), and registers the default streams, which are never destroyed.
    pub(super) fn find_or_default(&self, stream: &CudaStream) -> Option<Arc<Known>> {
        self.find(stream).or_else(|| {
            let context = self.shared.allocator.backend().context();
            if stream.context().cu_ctx() != context.cu_ctx() {
                return None;
            }
            let own = match Key::of(stream.cu_stream()) {
                Key::LEGACY => context.default_stream(),
                Key::Thread(_) => context.per_thread_stream(),
                Key::Handle(_) => return None,
            };
            self.open(&own).ok()
        })
    }

    fn open(&self, own: &Arc<CudaStream>) -> Result<Arc<Known>, Error<CudaError>> {
        let allocator = &self.shared.allocator;
        let id = allocator.backend().register(own).map_err(failed("register"))?;
        let (key, stream) = (Key::of(own.cu_stream()), allocator.stream(id)?);
        let mut all = self.shared.known.write();
        if let Some(known) = all.get(&key).filter(|known| self.is_registered(known)) {
            return Ok(Arc::clone(known));
        }
        let known = Arc::new(Known { own: Arc::clone(own), stream, key });
        all.insert(key, Arc::clone(&known));
        Ok(known)
    }
}

impl fmt::Debug for SliceAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = self.shared.known.read().len();
        f.debug_struct("SliceAllocator").field("streams", &streams).finish_non_exhaustive()
    }
}

/// A stream of an application and the allocator that serves it: what [`Slice`](super::Slice)s are allocated on.
///
/// Cloning costs two counters. The stream stays alive and registered until
/// [`SliceAllocator::forget`], or until the allocator's last handle, stream and slice are dropped.
#[derive(Clone)]
pub struct SliceStream {
    pub(super) known: Arc<Known>,
    allocator: SliceAllocator,
}

impl SliceStream {
    /// Adopts a stream of cudarc's and its context, with a new allocator of default settings: one call from a program's
    /// stream to slices. Takes as long as [`Cuda::adopt`]. For further streams of the context use
    /// [`SliceAllocator::stream`], so that all share one cache: `SliceStream::allocator` has it.
    ///
    /// # Errors
    ///
    /// The errors of [`Cuda::adopt`] and [`Cuda::register`].
    pub fn from_stream(stream: &Arc<CudaStream>) -> Result<SliceStream, Error<CudaError>> {
        let cuda = Cuda::adopt(Arc::clone(stream.context())).map_err(failed("adopt"))?;
        SliceAllocator::new(&Allocator::new(cuda)).stream(stream)
    }

    /// Returns the allocator, for further streams.
    pub fn allocator(&self) -> &SliceAllocator {
        &self.allocator
    }

    /// Returns Millpond's handle of the stream.
    pub fn stream(&self) -> &Stream<Cuda> {
        &self.known.stream
    }

    /// Returns cudarc's handle of the stream.
    pub fn cudarc(&self) -> &Arc<CudaStream> {
        &self.known.own
    }
}

impl fmt::Debug for SliceStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SliceStream").field("stream", &self.known.stream).finish_non_exhaustive()
    }
}
