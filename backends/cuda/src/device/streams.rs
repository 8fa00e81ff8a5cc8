//! The streams of other code: registering them, and the handles of those that are registered.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;
#[cfg(doc)]
use millpond_backend::Backend;
use millpond_backend::StreamId;

use super::CudaWith;
use crate::error::CudaError;
use crate::gear::Gear;
use crate::streams::handle::Handle;
use crate::streams::handle::PER_THREAD;

impl<G: Gear> CudaWith<G> {
    /// Registers a stream of cudarc's, and keeps it alive until [`unregister`](crate::Cuda::unregister). A stream that
    /// is registered already keeps its number.
    ///
    /// # Errors
    ///
    /// [`CudaError::ForeignStream`] if the stream belongs to another context; else the driver's errors.
    pub fn register(&self, stream: &Arc<CudaStream>) -> Result<StreamId, CudaError> {
        if stream.context().cu_ctx() != self.device.context.cu_ctx() {
            return Err(CudaError::ForeignStream { ordinal: self.device.ordinal });
        }
        self.device.register(stream.cu_stream(), Some(Arc::clone(stream)))
    }

    /// Registers a stream by its handle. A handle that is registered already keeps its number. `CU_STREAM_LEGACY` and
    /// `CU_STREAM_PER_THREAD` stand for the streams that they name.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    ///
    /// # Safety
    ///
    /// The handle is of this device's context, and the stream lives until [`unregister`](crate::Cuda::unregister) or
    /// until the last handle of the device is dropped. If the stream is destroyed earlier and its handle is used again,
    /// newer drivers report it, and older ones do not. The stream then gets a new number here, after a wait for the
    /// whole context. While a stream is being captured, that wait is left to
    /// [`settle_uncovered`](Self::settle_uncovered).
    pub unsafe fn register_raw(&self, stream: CUstream) -> Result<StreamId, CudaError> {
        self.device.register(stream, None)
    }

    /// Returns the number of a stream by its handle, as [`register_raw`](Self::register_raw) does. Unlike there, the
    /// program may destroy the stream whenever no call with it is under way. A stream that is registered stays so,
    /// unless it was destroyed and the handle is another stream's. `register_raw` makes a borrowed one a registered
    /// one.
    ///
    /// Call [`arrive`](Self::arrive) before each use. Of work on a borrowed stream only that counts which was queued
    /// before an `arrive` with `frees`, and fills and waits of this device. Copies through this device do not count.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    ///
    /// # Safety
    ///
    /// The handle is of this device's context and not that of a default stream, and the stream is alive.
    pub unsafe fn borrow_raw(&self, stream: CUstream) -> Result<StreamId, CudaError> {
        self.device.borrow(stream)
    }

    /// Begins a use of a [borrowed](Self::borrow_raw) stream. If its handle has become that of another stream, that one
    /// waits on the device for the former one. With `frees`, an event is recorded behind what the program has queued,
    /// so that marks which are made afterwards cover it. Does nothing for other streams.
    ///
    /// Six driver calls, and four more with `frees`; none waits. While the stream is being captured, nothing is
    /// recorded, and its ticks stay open until the next call, or until [`settle_uncovered`](Self::settle_uncovered).
    /// Without `frees` the host then waits for what was freed before the capture, as a graph may run at any time.
    ///
    /// # Errors
    ///
    /// [`CudaError::Unregistered`] if the number is over: borrow the stream again. That is so after
    /// [`unregister`](crate::Cuda::unregister), and where memory was freed in a capture and the handle has become that
    /// of another stream since, or may have: no call outside of a capture had shown the stream before. Else the
    /// driver's errors.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    ///
    /// # Safety
    ///
    /// The stream is alive.
    pub unsafe fn arrive(&self, stream: StreamId, frees: bool) -> Result<(), CudaError> {
        self.device.arrive(stream, frees)
    }

    /// Waits for all work in the context if a stream is borrowed: before memory is given back that work on a borrowed
    /// stream may use, and that was not freed behind an [`arrive`](Self::arrive). Does nothing if none is borrowed.
    ///
    /// # Errors
    ///
    /// The driver's errors: such a wait is prohibited while a stream of the context is captured.
    pub fn settle_borrowed(&self) -> Result<(), CudaError> {
        self.device.settle_borrowed()
    }

    /// Waits for all work in the context if memory was freed on a stream behind which no event could be recorded: in a
    /// capture of a [borrowed](Self::borrow_raw) stream that has had no call since, or on a stream that was gone.
    /// Points of such a stream are reached then. Does nothing where there is none, and while a registered stream, or
    /// one that waits for the legacy default stream, is being captured.
    ///
    /// Call it before memory is given back, when no borrowed stream is being captured: the wait would spoil the
    /// capture. To [`wait`](Backend::wait) for a point of such a stream also waits for the context, unless a borrowed
    /// stream was captured in its last call. An allocation does so before it is refused.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn settle_uncovered(&self) -> Result<(), CudaError> {
        self.device.settle_uncovered(true)
    }

    /// Registers the legacy default stream: the null handle, which waits for all blocking streams, as they wait for it.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn register_legacy_default(&self) -> Result<StreamId, CudaError> {
        self.device.register(Handle::LEGACY.0, None)
    }

    /// Registers the calling thread's own default stream. Other threads cannot record there: if they wait for its open
    /// tick, they wait for all blocking streams, and their transfers on it fail.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn register_per_thread_default(&self) -> Result<StreamId, CudaError> {
        self.device.register(PER_THREAD as CUstream, None)
    }

    /// Unregisters a stream, before it is destroyed; a stream that the device created is destroyed by this. Points of
    /// the stream stay valid: a marked tick is still reached when its work is complete. The number is not used again,
    /// and registering the handle again gives a new one. Waits for calls of other threads that use the stream at this
    /// moment, which only queue work. Later calls fail because the stream is unregistered.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`] while the stream is being captured, [`CudaError::OtherThread`] for the default stream
    /// of another thread, [`CudaError::Unregistered`] if it was unregistered before; else the driver's errors. On an
    /// error the stream stays registered.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn unregister(&self, stream: StreamId) -> Result<(), CudaError> {
        self.device.unregister(stream)
    }

    /// Returns the driver's handle of a stream. Work that is queued there belongs to the stream like all other work.
    /// The handle is valid until the stream is unregistered; holding it does not prevent that.
    ///
    /// # Errors
    ///
    /// [`CudaError::Unregistered`] if the stream was unregistered.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn raw_stream(&self, stream: StreamId) -> Result<CUstream, CudaError> {
        let lane = self.device.lane(stream);
        if lane.is_gone() { Err(CudaError::Unregistered { stream }) } else { Ok(lane.handle()) }
    }
}
