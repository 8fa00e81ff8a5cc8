//! Streams: the lanes, per stream the clock, the events and the use of the handle; and which handle is which stream.

use std::collections::HashMap;
use std::ops::Deref;
use std::thread::ThreadId;

use cudarc::driver::sys::CUstream;
use millpond_backend::StreamId;
use millpond_kit::Lanes;
use parking_lot::Mutex;

use crate::error::{Code, CudaError};
use crate::gear::Gear;
use crate::open::link::Link;

pub(crate) mod handle;
pub(crate) mod lane;
pub(crate) mod stay;

use handle::{Handle, PER_THREAD};
use lane::{Lane, LaneState, Tenure};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

/// The identity of a registered stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Key {
    Handle(Handle),
    /// The default stream of a thread. All of these streams have one handle.
    Thread(ThreadId),
}

/// `CU_STREAM_LEGACY`, another name of the null handle.
const LEGACY: usize = 1;

impl Key {
    pub(crate) const LEGACY: Key = Key::Handle(Handle::LEGACY);

    /// Returns which stream a handle means on this thread.
    pub(crate) fn of(stream: CUstream) -> Key {
        match stream as usize {
            0 | LEGACY => Key::LEGACY,
            PER_THREAD => Key::Thread(std::thread::current().id()),
            _ => Key::Handle(Handle(stream)),
        }
    }
}

/// The streams that are registered now.
#[derive(Default)]
pub(crate) struct Registry(pub(crate) HashMap<Key, StreamId>);

/// The streams of a device: the storey above the link.
pub(crate) struct Streams<G> {
    link: Link<G>,
    /// One lane per stream, read without a lock.
    pub(crate) lanes: Lanes<Lane>,
    pub(crate) registry: Mutex<Registry>,
}

impl<G> Deref for Streams<G> {
    type Target = Link<G>;

    #[inline]
    fn deref(&self) -> &Link<G> {
        &self.link
    }
}

impl<G: Gear> Streams<G> {
    pub(crate) fn new(link: Link<G>) -> Streams<G> {
        Streams { link, lanes: Lanes::default(), registry: Mutex::new(Registry::default()) }
    }

    /// Returns the lane of a stream.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    #[inline]
    pub(crate) fn lane(&self, stream: StreamId) -> &Lane {
        self.lanes.lane(stream)
    }

    /// Creates a stream that does not wait for the legacy default stream, nor that stream for it.
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
        let (mut registry, key) = (self.registry.lock(), Key::Handle(Handle(handle)));
        // The driver uses the handle of a stream again that was destroyed without a word.
        if let Some(former) = registry.0.get(&key).copied() {
            self.end(&mut registry, former);
        }
        Ok(self.enlist(&mut registry, key, Lane::new(Handle(handle), None, state)))
    }

    /// Ends the use of a lane whose stream is gone, if it has not ended. The open tick of a registered stream stays
    /// open. Returns whether it was one.
    pub(crate) fn end(&self, registry: &mut Registry, stream: StreamId) -> bool {
        let lane = self.lane(stream);
        let _stay = lane.stay_alone();
        let mut state = lane.state.lock();
        if lane.is_gone() {
            return false;
        }
        lane.set_gone();
        let was_registered = state.tenure == Tenure::Registered;
        if was_registered {
            state.uncover();
        }
        registry.0.retain(|_, registered| *registered != stream);
        was_registered
    }

    /// Gives a lane its number. Called under the registry's lock, so that numbers follow the order of registration.
    pub(crate) fn enlist(&self, registry: &mut Registry, key: Key, lane: Lane) -> StreamId {
        let stream = self.lanes.push(lane);
        registry.0.insert(key, stream);
        stream
    }

    /// Returns the driver's own number for a stream, which is never used again, if the driver reports it. It does not
    /// while the stream is captured: to ask would spoil the capture.
    pub(crate) fn unique(&self, handle: Handle) -> Result<Option<u64>, CudaError> {
        let Some(look_up) = self.driver.cuStreamGetId else { return Ok(None) };
        let _bound = self.bind()?;
        if self.is_capturing(handle.0)? {
            return Ok(None);
        }
        let mut unique = 0;
        // SAFETY: the stream is alive, as the caller promised; the pointer is to a local number.
        self.check("cuStreamGetId", unsafe { look_up(handle.0, &raw mut unique) })?;
        Ok(Some(unique))
    }

    /// Returns whether the stream is being captured into a graph.
    pub(crate) fn is_capturing(&self, handle: CUstream) -> Result<bool, CudaError> {
        let mut status = 0;
        // SAFETY: the stream is alive, as the caller guarantees; the pointer is to a local number.
        let code = unsafe { (self.driver.cuStreamIsCapturing)(handle, &raw mut status) };
        if Code(code) == Code::STREAM_CAPTURE_IMPLICIT {
            return Ok(true);
        }
        self.check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }
}
