//! The device itself, and the part of the contract that does not concern memory, pages or transfers.

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUstream;
use millpond_backend::{
    Backend, Budget, Caps, ClassId, FaultPlan, HostMemory, Point, StreamId, StreamWait, Tick, Transfer, VirtualMemory,
};
use parking_lot::Mutex;

use crate::context::Shared;
use crate::driver::Driver;
use crate::gate::Gate;
use crate::lane::{Event, Handle, Lane};
use crate::memory::{Live, Taken};
use crate::pages::PageFacts;
use crate::streams::Registry;
use crate::{Code, CudaError, DeviceInfo, Page, Segment};

/// A CUDA device, in one context, and the handle to it: clones are the same device. Memory, streams and events that the
/// device made are given back when the last handle is dropped.
///
/// All methods may be called from any thread, whatever context is current there, and leave that context current.
/// `mark`, and `reached` while nothing is outstanding, take no lock and make no driver call.
#[derive(Clone)]
pub struct Cuda {
    pub(crate) device: Arc<Device>,
}

/// The state that all handles of a device share.
pub(crate) struct Device {
    /// Unique within the process.
    pub(crate) id: u64,
    pub(crate) ordinal: usize,
    pub(crate) info: DeviceInfo,
    pub(crate) driver: &'static Driver,
    pub(crate) context: Shared,
    /// The devices that may touch this one's memory, held so that their contexts stay alive.
    pub(crate) peers: Vec<Shared>,
    pub(crate) caps: Caps,
    pub(crate) pages: Option<PageFacts>,
    /// The stream for `cuMemAllocAsync`, where that is used.
    pub(crate) pool_stream: Option<Handle>,
    /// Whether a thread that waits for an event sleeps.
    pub(crate) blocking: bool,
    /// One lane per stream, read without a lock.
    pub(crate) lanes: boxcar::Vec<Lane>,
    pub(crate) registry: Mutex<Registry>,
    /// Events left by unregistered streams.
    pub(crate) spare: Mutex<Vec<Event>>,
    pub(crate) gates: Mutex<Vec<(StreamId, Arc<Gate>)>>,
    /// The number of closed gates.
    pub(crate) closed: AtomicUsize,
    /// The number of the next segment, range or page.
    pub(crate) ids: AtomicU64,
    /// The memory that was handed out and not given back.
    pub(crate) live: Mutex<Live>,
    /// Memory that was released while a capture forbade freeing it. It is freed when no capture does.
    pub(crate) deferred: Mutex<Vec<Taken>>,
    /// Bytes of class 0 that were handed out and not given back.
    pub(crate) held: AtomicU64,
    pub(crate) faults: FaultPlan,
    pub(crate) lost: AtomicBool,
    /// The call and the code of the first failure that lost the context.
    pub(crate) cause: Mutex<Option<(&'static str, Code)>>,
}

// SAFETY: the fields that are not `Send` are the driver's own handles, names that its functions take on every thread.
unsafe impl Send for Device {}
// SAFETY: as for `Send`; everything that changes is atomic or behind a lock.
unsafe impl Sync for Device {}

impl Cuda {
    /// Returns the context, for use with the rest of cudarc.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.device.context
    }

    /// Returns the device's place, by which it was opened.
    pub fn ordinal(&self) -> usize {
        self.device.ordinal
    }

    /// Returns the facts that are known of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.device.info
    }

    /// Returns the places of the devices whose kernels may touch this one's memory.
    pub fn peers(&self) -> Vec<usize> {
        self.device.peers.iter().map(|peer| peer.ordinal()).collect()
    }

    /// Returns the bytes of the device's own memory that were handed out and not given back: segments of class 0, and
    /// pages.
    pub fn held_bytes(&self) -> u64 {
        self.device.held.load(Ordering::Acquire)
    }

    /// Makes work recorded on `stream` from now on begin only after a point of another device's stream is reached. The
    /// devices wait, not the host. `peer` may also be another handle of this device.
    ///
    /// This orders a copy between devices on both: before the copy, the copying stream waits here for the other stream,
    /// and behind the copy, the other stream waits for the copying one. Memory that is then freed or used on the other
    /// stream is freed or used after the copy. Costs as much as [`StreamWait::wait_for`].
    ///
    /// # Errors
    ///
    /// The errors of [`StreamWait::wait_for`], and [`CudaError::Lost`] if either device is lost.
    ///
    /// # Panics
    ///
    /// If `stream` is not this device's, or the point's stream is not the peer's.
    pub fn wait_for_peer(&self, stream: StreamId, peer: &Cuda, point: Point) -> Result<(), CudaError> {
        self.device.wait_for(stream, &peer.device, point)
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

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda")
            .field("name", &self.device.caps.name)
            .field("ordinal", &self.device.ordinal)
            .field("streams", &self.device.lanes.count())
            .field("lost", &self.device.lost.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl Device {
    /// Returns the lane of a stream.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    #[inline]
    pub(crate) fn lane(&self, stream: StreamId) -> &Lane {
        match self.lanes.get(stream.0 as usize) {
            Some(lane) => lane,
            None => panic!("{stream} asked of a device that has {} streams", self.lanes.count()),
        }
    }

    /// Returns the next number for a segment, range or page.
    pub(crate) fn number(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.open_gates();
        // If even this fails, the context is lost, and everything with it: the calls below have no effect then.
        let bound = self.bind_relaxed();
        let lanes = std::mem::take(&mut self.lanes);
        let live = std::mem::take(self.live.get_mut());
        let staged = lanes.iter().any(|(_, lane)| lane.state.lock().ring.is_some());
        if staged || !live.is_empty() {
            lanes.iter().for_each(|(_, lane)| self.drain(lane));
        }
        self.release_all(live);
        self.give_deferred();
        let spare = std::mem::take(self.spare.get_mut());
        spare.into_iter().for_each(|event| self.destroy_event(event));
        for lane in lanes {
            self.destroy_lane(lane);
        }
        if let Some(Handle(stream)) = self.pool_stream {
            // SAFETY: this device made the stream, and no other code has its handle.
            unsafe { (self.driver.cuStreamDestroy_v2)(stream) };
        }
        drop(bound);
    }
}

impl Device {
    /// Waits for a stream's work, which may touch memory that is about to be given back. Does not wait for the whole
    /// context, because that would invalidate captures of other threads.
    fn drain(&self, lane: &Lane) {
        // A stream that is being captured is no error: its work belongs to a graph, which runs later. Without an event
        // the stream itself is waited for; where that fails, too, there is no work left.
        if self.settle_anyhow(lane).is_err()
            && let Some(handle) = lane.stay().handle()
        {
            let handle = if lane.on_this_thread() { handle } else { Device::LEGACY.0 };
            // SAFETY: the stream is registered or the legacy one, and so alive.
            unsafe { (self.driver.cuStreamSynchronize)(handle) };
        }
    }

    /// Destroys an event. Work that it covers may still run: the driver keeps what it needs.
    fn destroy_event(&self, event: Event) {
        // SAFETY: this device made the event, and its last handle is being dropped, so no other code has the event.
        unsafe { (self.driver.cuEventDestroy_v2)(event.0) };
    }

    fn destroy_lane(&self, lane: Lane) {
        let (gone, handle) = (lane.is_gone(), lane.handle());
        let state = lane.state.into_inner();
        let pending = state.pending.into_iter().filter_map(|pending| Arc::into_inner(pending.event));
        pending.chain(state.spare).for_each(|event| self.destroy_event(event));
        if let Some(ring) = state.ring {
            self.destroy_ring(ring);
        }
        if state.owned && !gone {
            // SAFETY: this device made the stream. The driver completes its work before it frees what the stream holds.
            unsafe { (self.driver.cuStreamDestroy_v2)(handle) };
        }
    }

    /// The legacy default stream: a null pointer as a stream.
    pub(crate) const LEGACY: Handle = Handle(ptr::null_mut());
}

// SAFETY: segments are driver allocations, ranges driver reservations of at least the bytes asked for, which the driver
// keeps apart. A tick is reported only when the event recorded behind all its work was complete, and `open` is raised
// before that event is recorded, so that work behind it is marked with a later tick. Ticks rise (`Lane::complete`
// panics if they fell), and stream ids are indices of a vector that only grows.
unsafe impl Backend for Cuda {
    type Segment = Segment;
    type Page = Page;
    type Error = CudaError;

    fn caps(&self) -> &Caps {
        &self.device.caps
    }

    /// Creates a stream that does not wait for the legacy default stream, nor that stream for it
    /// (`CU_STREAM_NON_BLOCKING`).
    fn create_stream(&self) -> Result<StreamId, CudaError> {
        self.device.create_stream()
    }

    fn has_stream(&self, stream: StreamId) -> bool {
        self.device.lanes.get(stream.0 as usize).is_some()
    }

    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Segment, CudaError> {
        self.device.reserve(class, bytes)
    }

    unsafe fn release(&self, segment: Segment) {
        self.device.release(segment);
    }

    fn address(&self, segment: &Segment) -> Option<u64> {
        Some(segment.address)
    }

    #[inline]
    fn mark(&self, stream: StreamId) -> Tick {
        self.device.lane(stream).mark()
    }

    #[inline]
    fn reached(&self, stream: StreamId) -> Result<Tick, CudaError> {
        self.device.reached(stream)
    }

    fn wait(&self, point: Point) -> Result<Tick, CudaError> {
        self.device.wait(point)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Segment = Segment, Page = Page, Error = CudaError>> {
        match self.device.pages {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn stream_wait(&self) -> Option<&dyn StreamWait<Error = CudaError>> {
        Some(self)
    }

    fn host_memory(&self) -> Option<&dyn HostMemory<Segment = Segment>> {
        Some(self)
    }

    fn transfer(&self) -> Option<&dyn Transfer<Segment = Segment, Error = CudaError>> {
        Some(self)
    }

    fn budget(&self) -> Option<&dyn Budget<Error = CudaError>> {
        Some(self)
    }
}

impl StreamWait for Cuda {
    type Error = CudaError;

    /// Closes the point's tick if it is still open. A point that is reached needs no driver call.
    ///
    /// # Errors
    ///
    /// [`CudaError::NeverMarked`] for a tick beyond the open one, [`CudaError::Capturing`] if either stream is being
    /// captured and the point is not reached, [`CudaError::Unregistered`], [`CudaError::OtherThread`], and the driver's
    /// errors.
    fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), CudaError> {
        self.device.wait_for(stream, &self.device, point)
    }
}
