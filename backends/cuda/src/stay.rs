//! Who may use a stream's handle, and when: while somebody does, the stream is not taken away.

use cudarc::driver::sys::CUstream;
use millpond_backend::StreamId;
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use crate::CudaError;
use crate::device::Device;
use crate::lane::Lane;

/// While it lives the stream stays what it is: registered, so that its handle is good, or unregistered.
///
/// Whoever gives the handle to the driver holds one of these until the driver's call has returned;
/// [`Cuda::unregister`](crate::Cuda::unregister) waits for all of them, and those who come meanwhile wait for it. It is
/// taken before the lane's lock, by a thread that has none, of whatever lane, and it is not kept while the host waits
/// for the device. The calls under it only queue work. Such a call may block where the driver has no room for more
/// work, until the device has done some; then `unregister`, which queues an event, would block there as well.
pub(crate) struct Stay<'l> {
    lane: &'l Lane,
    _guard: Guard<'l>,
}

/// What keeps the others away. It acts when it is dropped.
#[expect(dead_code, reason = "the guards are there to be dropped")]
enum Guard<'l> {
    Shared(RwLockReadGuard<'l, ()>),
    Alone(RwLockWriteGuard<'l, ()>),
}

impl Lane {
    /// Keeps the stream as it is. Waits while it is being unregistered.
    pub(crate) fn stay(&self) -> Stay<'_> {
        Stay { lane: self, _guard: Guard::Shared(self.users.read()) }
    }

    /// As [`stay`](Lane::stay); `None`, and no wait, while the stream is being unregistered.
    pub(crate) fn try_stay(&self) -> Option<Stay<'_>> {
        self.users.try_read().map(|guard| Stay { lane: self, _guard: Guard::Shared(guard) })
    }

    /// Keeps everybody else from the stream, once those who use it have done so: to unregister it.
    pub(crate) fn stay_alone(&self) -> Stay<'_> {
        Stay { lane: self, _guard: Guard::Alone(self.users.write()) }
    }
}

impl Stay<'_> {
    /// The driver's handle; `None` if the stream is unregistered. Good while `self` lives.
    pub(crate) fn handle(&self) -> Option<CUstream> {
        (!self.lane.is_gone()).then(|| self.lane.handle())
    }

    /// Whose stream it is.
    pub(crate) fn lane(&self) -> &Lane {
        self.lane
    }
}

impl Device {
    /// The handle of a stream on which work of this thread can be recorded. Good while the stay lives.
    pub(crate) fn usable(&self, call: &'static str, stream: StreamId, stay: &Stay<'_>) -> Result<CUstream, CudaError> {
        let handle = stay.handle().ok_or(CudaError::Unregistered { stream })?;
        if stay.lane().on_this_thread() { Ok(handle) } else { Err(CudaError::OtherThread { call, stream }) }
    }
}
