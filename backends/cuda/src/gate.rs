//! Gates: a testing aid that keeps a stream's work in flight for as long as a test wants.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_backend::StreamId;
use parking_lot::{Condvar, Mutex};

use crate::device::Device;
use crate::lane::Lane;
use crate::{Cuda, CudaError};

/// Where a function of the host, queued on a stream, waits.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut open = self.open.lock();
        while !*open {
            self.opened.wait(&mut open);
        }
    }

    fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }
}

/// What the driver calls when the stream comes to a gate.
unsafe extern "C" fn pass(gate: *mut c_void) {
    // SAFETY: the pointer is the one that `hold` gave up, and the driver calls once.
    let gate = unsafe { Arc::from_raw(gate.cast_const().cast::<Gate>()) };
    gate.pass();
}

/// Aids for testing what stands on this backend.
impl Cuda {
    /// Queues a function of the host on the stream that returns only after [`unhold`](Cuda::unhold), so that what is
    /// queued behind it stays in flight. What was marked before is closed first and, unless the stream is held already,
    /// waited for: it is not held.
    ///
    /// The driver may run such functions of all streams on one thread: while a stream is held, another's may wait for
    /// it. A wait for the stream opens its gates, and so does one for another stream that comes to nothing for a
    /// quarter of a second. Whatever waits for the whole device
    /// ([`Backend::release`](millpond_backend::Backend::release)) opens all.
    ///
    /// # Errors
    ///
    /// [`CudaError::Unregistered`], [`CudaError::OtherThread`], [`CudaError::Capturing`], and the driver's.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn hold(&self, stream: StreamId) -> Result<(), CudaError> {
        const CALL: &str = "cuLaunchHostFunc";
        let device = &*self.device;
        device.alive()?;
        let lane = device.lane(stream);
        let _bound = device.bind_relaxed()?;
        device.uncaptured(CALL, stream, device.usable(CALL, stream, &lane.stay())?)?;
        let held = device.gates.lock().iter().any(|(held, _)| *held == stream);
        device.settle(lane, !held)?;
        let stay = lane.stay();
        let handle = device.usable(CALL, stream, &stay)?;
        let gate = Arc::new(Gate::default());
        let data = Arc::into_raw(Arc::clone(&gate));
        let mut gates = device.gates.lock();
        // SAFETY: the function takes the pointer that goes with it, once; it calls no driver.
        let code = unsafe { (device.driver.cuLaunchHostFunc)(handle, Some(pass), data.cast_mut().cast()) };
        if let Err(error) = device.check(CALL, code) {
            // SAFETY: the driver has refused the function, so the pointer is still ours.
            drop(unsafe { Arc::from_raw(data) });
            return Err(error);
        }
        gates.push((stream, gate));
        device.closed.store(gates.len(), Ordering::Release);
        Ok(())
    }

    /// Ends every [`hold`](Cuda::hold) of the stream. The work may complete now. Nothing happens if it is not held.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn unhold(&self, stream: StreamId) {
        self.device.open_gates_on(self.device.lane(stream));
    }
}

impl Device {
    /// Whether any stream is held.
    pub(crate) fn gates_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) > 0
    }

    /// Ends every hold: before whatever waits for the whole device.
    pub(crate) fn open_gates(&self) {
        if self.gates_closed() {
            self.open_gates_of(|_| true);
        }
    }

    /// Ends every hold of one stream: before the host waits for it.
    pub(crate) fn open_gates_on(&self, lane: &Lane) {
        if self.gates_closed() {
            self.open_gates_of(|held| std::ptr::eq(self.lane(held), lane));
        }
    }

    fn open_gates_of(&self, chosen: impl Fn(StreamId) -> bool) {
        let mut gates = self.gates.lock();
        gates.retain(|(stream, gate)| {
            let opens = chosen(*stream);
            if opens {
                gate.open();
            }
            !opens
        });
        self.closed.store(gates.len(), Ordering::Release);
    }
}
