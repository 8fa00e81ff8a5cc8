//! The device itself and the handle to it: what it consists of, and how it is taken apart.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use millpond_backend::StreamId;
use parking_lot::Mutex;

use crate::gear::{Gear, Plain};
use crate::memory::Taken;
use crate::memory::host::Registrar;
use crate::open::context::Shared;
use crate::streams::handle::{Event, Handle, HostPointer};
use crate::streams::lane::{Lane, Tenure};
use crate::transfer::Transfers;

mod contract;
mod open;
mod streams;
mod surface;

/// A CUDA device, in one context, and the handle to it: clones are the same device. Memory, streams and events that the
/// device made are given back when the last handle is dropped.
///
/// All methods may be called from any thread, whatever context is current there, and leave that context current.
/// `mark`, and `reached` while nothing is outstanding, take no lock and make no driver call.
pub type Cuda = CudaWith<Plain>;

/// A CUDA device with the test gear `G`. [`Cuda`] is the device without it, and has the documentation.
pub struct CudaWith<G: Gear> {
    pub(crate) device: Arc<Device<G>>,
}

impl<G: Gear> Clone for CudaWith<G> {
    fn clone(&self) -> CudaWith<G> {
        CudaWith { device: Arc::clone(&self.device) }
    }
}

impl<G: Gear> fmt::Debug for CudaWith<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda")
            .field("name", &self.device.caps.name)
            .field("ordinal", &self.device.ordinal)
            .field("streams", &self.device.lanes.count())
            .field("lost", &self.device.is_lost())
            .finish_non_exhaustive()
    }
}

/// The state that all handles of a device share: all storeys, one upon the other.
pub(crate) struct Device<G: Gear> {
    pub(crate) transfers: Transfers<G>,
    /// The devices that may touch this one's memory, held so that their contexts stay alive.
    pub(crate) peers: Mutex<Vec<Shared>>,
}

impl<G: Gear> Deref for Device<G> {
    type Target = Transfers<G>;

    #[inline]
    fn deref(&self) -> &Transfers<G> {
        &self.transfers
    }
}

impl<G: Gear> DerefMut for Device<G> {
    fn deref_mut(&mut self) -> &mut Transfers<G> {
        &mut self.transfers
    }
}

impl<G: Gear> Registrar for Device<G> {
    fn unregister_host(&self, pointer: HostPointer) {
        self.transfers.unregister_host(pointer);
    }
}

impl<G: Gear> Drop for Device<G> {
    fn drop(&mut self) {
        self.gear.before_waiting_for_all();
        // If even this fails, the context is lost, and everything with it: the calls below have no effect then.
        let bound = self.bind_relaxed();
        let live = std::mem::take(self.live.get_mut());
        let staged = self.lanes.iter().any(|(_, lane)| lane.state.lock().ring.is_some());
        if staged || !live.is_empty() {
            self.lanes.iter().for_each(|(stream, lane)| self.drain(stream, lane));
        }
        if !live.is_empty() {
            // If this fails, the context is lost, or a capture forbids it, whose graph runs later.
            let _ = self.settle_borrowed();
        }
        self.release_all(live);
        self.give_deferred();
        let spare = std::mem::take(self.spare.get_mut());
        spare.into_iter().for_each(|event| self.destroy_event(event));
        for lane in std::mem::take(&mut self.lanes) {
            self.destroy_lane(lane);
        }
        self.destroy_pool_stream();
        drop(bound);
    }
}

impl<G: Gear> Device<G> {
    /// Waits for a stream's work, which may touch memory that is about to be given back. Does not wait for the whole
    /// context, because that would invalidate captures of other threads.
    fn drain(&self, stream: StreamId, lane: &Lane) {
        // A stream that is being captured is no error: its work belongs to a graph, which runs later. Without an event
        // the stream itself is waited for, unless it may be gone; where that fails, too, there is no work left.
        if self.settle_anyhow(stream).is_err()
            && lane.state.lock().tenure == Tenure::Registered
            && let Some(handle) = lane.stay().handle()
        {
            let handle = if lane.on_this_thread() { handle } else { Handle::LEGACY.0 };
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
            // No copy is in progress through it: the stream's work is done.
            self.give(Taken::Host { pointer: ring.into_buffer() });
        }
        if state.owned && !gone {
            // SAFETY: this device made the stream. The driver completes its work before it frees what the stream holds.
            unsafe { (self.driver.cuStreamDestroy_v2)(handle) };
        }
    }
}
