//! The use of a stream's handle: while a thread uses it, the stream is not unregistered.

use cudarc::driver::sys::CUstream;
use millpond_backend::StreamId;
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use super::Streams;
use super::lane::Lane;
use crate::error::CudaError;
use crate::gear::Gear;

/// A guard that keeps the stream as it is: registered, so that its handle is valid, or unregistered.
///
/// Code that passes the handle to the driver holds one of these until the driver's call has returned;
/// [`unregister`](crate::Cuda::unregister) waits for all of them, and a thread that needs one in the meantime
/// waits for it. The guard is taken before the lane's lock, by a thread that holds no other guard, of whatever lane,
/// and it is not held while the host waits for the device. The calls made under it only queue work. Such a call may
/// block where the driver has no room for more work, until the device has completed some; then `unregister`, which
/// queues an event, would block there as well.
pub(crate) struct Stay<'l> {
    lane: &'l Lane,
    _guard: Guard<'l>,
}

/// The guard that excludes other threads. It takes effect until it is dropped.
#[expect(dead_code, reason = "the guards are there to be dropped")]
enum Guard<'l> {
    Shared(RwLockReadGuard<'l, ()>),
    Alone(RwLockWriteGuard<'l, ()>),
}

impl Lane {
    /// Keeps the stream as it is. Waits while the stream is being unregistered.
    pub(crate) fn stay(&self) -> Stay<'_> {
        Stay { lane: self, _guard: Guard::Shared(self.users.read()) }
    }

    /// Works like [`stay`](Lane::stay), but returns `None` without a wait while the stream is being unregistered.
    pub(crate) fn try_stay(&self) -> Option<Stay<'_>> {
        self.users.try_read().map(|guard| Stay { lane: self, _guard: Guard::Shared(guard) })
    }

    /// Excludes all other threads from the stream, after those that use it have finished: to unregister it.
    pub(crate) fn stay_alone(&self) -> Stay<'_> {
        Stay { lane: self, _guard: Guard::Alone(self.users.write()) }
    }
}

impl Stay<'_> {
    /// Returns the driver's handle, or `None` if the stream is unregistered. The handle is valid while `self` lives.
    pub(crate) fn handle(&self) -> Option<CUstream> {
        (!self.lane.is_gone()).then(|| self.lane.handle())
    }

    /// Returns the lane of the stream.
    pub(crate) fn lane(&self) -> &Lane {
        self.lane
    }
}

impl<G: Gear> Streams<G> {
    /// Returns the handle of a stream on which this thread can record work. The handle is valid while the stay lives.
    pub(crate) fn usable(&self, call: &'static str, stream: StreamId, stay: &Stay<'_>) -> Result<CUstream, CudaError> {
        let handle = stay.handle().ok_or(CudaError::Unregistered { stream })?;
        if stay.lane().on_this_thread() { Ok(handle) } else { Err(CudaError::OtherThread { call, stream }) }
    }
}
