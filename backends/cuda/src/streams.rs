//! Streams: opened here, or registered by the code that owns them.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;
use millpond_backend::StreamId;

use crate::device::Device;
use crate::lane::{Handle, Lane, LaneState};
use crate::timeline::Stays;
use crate::{Cuda, CudaError};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_LEGACY`, another name of the null handle.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// The identity of a registered stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Key {
    Handle(Handle),
    /// The default stream of a thread. All of these streams have one handle.
    Thread(ThreadId),
}

/// The streams that are registered now.
#[derive(Default)]
pub(crate) struct Registry(HashMap<Key, StreamId>);

impl Cuda {
    /// Registers a stream of cudarc's, and keeps it alive until [`unregister`](Cuda::unregister). A stream that is
    /// registered already keeps its number.
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
    /// The handle is of this device's context, and the stream lives until [`unregister`](Cuda::unregister) or until the
    /// last handle of the device is dropped. If the stream is destroyed earlier and its handle is used again, newer
    /// drivers report it (the stream then gets a new number here, after a wait for the whole context), and older ones
    /// do not.
    pub unsafe fn register_raw(&self, stream: CUstream) -> Result<StreamId, CudaError> {
        self.device.register(stream, None)
    }

    /// Registers the legacy default stream: the null handle, which waits for all blocking streams, as they wait for it.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn register_legacy_default(&self) -> Result<StreamId, CudaError> {
        self.device.register(Device::LEGACY.0, None)
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
}

impl Device {
    pub(crate) fn create_stream(&self) -> Result<StreamId, CudaError> {
        self.enter("cuStreamCreate")?;
        let _bound = self.bind_relaxed()?;
        let mut handle: CUstream = std::ptr::null_mut();
        // SAFETY: the pointer is to a local pointer; the context is current.
        self.check("cuStreamCreate", unsafe { (self.driver.cuStreamCreate)(&raw mut handle, NON_BLOCKING) })?;
        let unique = self.unique(Handle(handle)).inspect_err(|_| {
            // SAFETY: the stream was just made, and no other code has its handle.
            unsafe { (self.driver.cuStreamDestroy_v2)(handle) };
        })?;
        let state = LaneState { owned: true, unique, ..LaneState::default() };
        let mut registry = self.registry.lock();
        Ok(self.enlist(&mut registry, Key::Handle(Handle(handle)), Lane::new(Handle(handle), None, state)))
    }

    fn register(&self, stream: CUstream, kept: Option<Arc<CudaStream>>) -> Result<StreamId, CudaError> {
        self.alive()?;
        let thread = std::thread::current().id();
        let (key, handle, thread) = match stream as usize {
            0 | LEGACY => (Key::Handle(Device::LEGACY), Device::LEGACY, None),
            PER_THREAD => (Key::Thread(thread), Handle(stream), Some(thread)),
            _ => (Key::Handle(Handle(stream)), Handle(stream), None),
        };
        let mut registry = self.registry.lock();
        let known = registry.0.get(&key).copied();
        let unique = if matches!(key, Key::Handle(_)) { self.unique(handle)? } else { None };
        if let Some(stream) = known {
            let lane = self.lane(stream);
            // A lane that is gone is about to leave the registry.
            if !lane.is_gone() {
                if lane.state.lock().unique == unique {
                    return Ok(stream);
                }
                self.bury(lane)?;
            }
        }
        let state = LaneState { kept, unique, ..LaneState::default() };
        Ok(self.enlist(&mut registry, key, Lane::new(handle, thread, state)))
    }

    /// Gives a lane its number. Called under the registry's lock, so that numbers follow the order of registration.
    fn enlist(&self, registry: &mut Registry, key: Key, lane: Lane) -> StreamId {
        let index = self.lanes.push(lane);
        let stream = StreamId(u32::try_from(index).expect("fewer than 2^32 streams"));
        registry.0.insert(key, stream);
        stream
    }

    /// Returns the driver's own number for a stream, which is never used again, if the driver reports it.
    fn unique(&self, handle: Handle) -> Result<Option<u64>, CudaError> {
        let Some(look_up) = self.driver.cuStreamGetId else { return Ok(None) };
        let _bound = self.bind()?;
        let mut unique = 0;
        // SAFETY: the stream is alive, as the caller promised; the pointer is to a local number.
        self.check("cuStreamGetId", unsafe { look_up(handle.0, &raw mut unique) })?;
        Ok(Some(unique))
    }

    /// Retires the lane of a registered stream that was destroyed and whose handle now belongs to another stream. No
    /// event can be recorded behind its work any more, so this waits for everything in the context.
    fn bury(&self, lane: &Lane) -> Result<(), CudaError> {
        let _bound = self.bind_relaxed()?;
        // The gates are opened and the context is waited for before the lane is locked, so that no thread waits for the
        // lane in the meantime.
        self.open_gates();
        // SAFETY: the context is current.
        self.check("cuCtxSynchronize", unsafe { (self.driver.cuCtxSynchronize)() })?;
        let _stay = lane.stay_alone();
        let mut state = lane.state.lock();
        lane.set_gone();
        let tick = lane.raise();
        self.retire(lane, &mut state, tick);
        lane.complete(tick);
        Ok(())
    }

    fn unregister(&self, stream: StreamId) -> Result<(), CudaError> {
        const CALL: &str = "unregister";
        self.alive()?;
        let lane = self.lane(stream);
        let stay = lane.stay_alone();
        let handle = self.usable(CALL, stream, &stay)?;
        self.enter("cuEventRecord")?;
        let _bound = self.bind_relaxed()?;
        let mut state = lane.state.lock();
        match self.close_for_good(&stay, &mut state)? {
            Ok(()) => {}
            Err(Stays::Capturing) => return Err(CudaError::Capturing { call: CALL, stream }),
            Err(Stays::OtherThread) => return Err(CudaError::OtherThread { call: CALL, stream }),
        }
        lane.set_gone();
        self.spare.lock().append(&mut state.spare);
        state.kept = None;
        if state.owned {
            // SAFETY: this device made the stream, and its lane is gone. Every thread that used the handle has
            // finished, as the stay guarantees, and no thread gets it any more. The driver completes the stream's work
            // first.
            self.keep("cuStreamDestroy", unsafe { (self.driver.cuStreamDestroy_v2)(handle) });
        }
        drop(state);
        drop(stay);
        // This comes last, and under no other lock: a thread that registers a stream takes this lock first. The handle
        // may belong to another stream by now.
        self.registry.lock().0.retain(|_, registered| *registered != stream);
        Ok(())
    }
}
