//! Streams: opened here, or registered by the code that owns them.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::thread::ThreadId;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;
use millpond_backend::StreamId;
use parking_lot::Mutex;

use crate::error::CudaError;
use crate::gear::Gear;
use crate::handle::Handle;
use crate::time::Time;
use crate::time::close::Stays;
use crate::time::lane::{Lane, LaneState};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_LEGACY`, another name of the null handle.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`.
pub(crate) const PER_THREAD: usize = 2;

/// The identity of a registered stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Key {
    Handle(Handle),
    /// The default stream of a thread. All of these streams have one handle.
    Thread(ThreadId),
}

/// The streams that are registered now.
#[derive(Default)]
struct Registry(HashMap<Key, StreamId>);

/// The registry of streams: the storey above time.
pub(crate) struct Streams<G> {
    time: Time<G>,
    registry: Mutex<Registry>,
}

impl<G> Deref for Streams<G> {
    type Target = Time<G>;

    #[inline]
    fn deref(&self) -> &Time<G> {
        &self.time
    }
}

impl<G> DerefMut for Streams<G> {
    fn deref_mut(&mut self) -> &mut Time<G> {
        &mut self.time
    }
}

impl<G: Gear> Streams<G> {
    pub(crate) fn new(time: Time<G>) -> Streams<G> {
        Streams { time, registry: Mutex::new(Registry::default()) }
    }

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

    pub(crate) fn register(&self, stream: CUstream, kept: Option<Arc<CudaStream>>) -> Result<StreamId, CudaError> {
        self.alive()?;
        let thread = std::thread::current().id();
        let (key, handle, thread) = match stream as usize {
            0 | LEGACY => (Key::Handle(Handle::LEGACY), Handle::LEGACY, None),
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
        let stream = self.lanes.push(lane);
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
        // The context is waited for before the lane is locked, so that no thread waits for the lane in the meantime.
        self.gear.before_waiting_for_all();
        // SAFETY: the context is current.
        self.check("cuCtxSynchronize", unsafe { (self.driver.cuCtxSynchronize)() })?;
        let _stay = lane.stay_alone();
        let mut state = lane.state.lock();
        lane.set_gone();
        let tick = lane.clock.close();
        self.retire(lane, &mut state, tick);
        lane.clock.complete(tick);
        Ok(())
    }

    pub(crate) fn unregister(&self, stream: StreamId) -> Result<(), CudaError> {
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
