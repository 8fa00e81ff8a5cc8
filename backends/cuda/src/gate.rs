//! Gates: a testing aid that keeps a stream's work in flight for as long as a test needs.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millpond_backend::StreamId;
use parking_lot::{Condvar, Mutex};

use crate::device::Device;
use crate::lane::Lane;
use crate::{Cuda, CudaError};

/// The longest time that a gate stays closed. After it, everything that waits for a held stream continues, including a
/// driver call that cannot be interrupted.
const HOLD_MAX: Duration = Duration::from_secs(30);

/// The place where a host function that is queued on a stream waits.
#[derive(Default)]
pub(crate) struct Gate {
    passage: Mutex<Passage>,
    opened: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Passage {
    #[default]
    Closed,
    Open,
    /// The gate expired: it was not opened in time.
    Expired,
}

impl Gate {
    /// Waits until the gate is open, at most for this time.
    fn pass(&self, most: Duration) {
        let deadline = Instant::now() + most;
        let mut passage = self.passage.lock();
        while *passage == Passage::Closed {
            if self.opened.wait_until(&mut passage, deadline).timed_out() && *passage == Passage::Closed {
                *passage = Passage::Expired;
            }
        }
    }

    /// Opens the gate. Returns whether it had expired before.
    fn open(&self) -> bool {
        let before = std::mem::replace(&mut *self.passage.lock(), Passage::Open);
        self.opened.notify_all();
        before == Passage::Expired
    }
}

/// The function that the driver calls when the stream reaches a gate.
unsafe extern "C" fn pass(gate: *mut c_void) {
    // SAFETY: the pointer is the one that `hold` gave up, and the driver calls this function once.
    let gate = unsafe { Arc::from_raw(gate.cast_const().cast::<Gate>()) };
    gate.pass(HOLD_MAX);
}

/// Aids for testing code that is built on this backend.
impl Cuda {
    /// Queues a host function on the stream that returns only after [`unhold`](Cuda::unhold), so that work queued
    /// behind it stays in flight. The tick that was marked before is closed first and, unless the stream is held
    /// already, waited for: it is not held.
    ///
    /// The driver may run such functions of all streams on one thread: while a stream is held, another stream may wait
    /// for it. A wait for the stream opens its gates, and a wait for another stream that makes no progress for a
    /// quarter of a second opens all gates. Every call that waits for the whole device
    /// ([`Backend::release`](millpond_backend::Backend::release)) opens all of them, too. Other handles of the same
    /// device, of other devices and of the driver's own are not known here: a call there that waits for a held stream,
    /// while it holds a lock of the driver's that the test needs, would wait for ever. So a hold ends after 30 s
    /// without a call, and `unhold` reports it.
    ///
    /// [`CudaError::Unregistered`], [`CudaError::OtherThread`], [`CudaError::Capturing`], and the driver's errors.
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
        // The gate is listed before the call: where the driver has no room for the function, the gates before it can be
        // opened in the meantime.
        device.close_gate(stream, Arc::clone(&gate));
        let data = Arc::into_raw(Arc::clone(&gate));
        // SAFETY: the function takes the pointer that is passed with it, once; it makes no driver call.
        let code = unsafe { (device.driver.cuLaunchHostFunc)(handle, Some(pass), data.cast_mut().cast()) };
        if let Err(error) = device.check(CALL, code) {
            // SAFETY: the driver has refused the function, so this thread still owns the pointer.
            drop(unsafe { Arc::from_raw(data) });
            device.take_gates(|_, closed| Arc::ptr_eq(closed, &gate));
            return Err(error);
        }
        Ok(())
    }

    /// Ends every [`hold`](Cuda::hold) of the stream. The work may complete now. Has no effect if the stream is not
    /// held.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's, or if it was held for more than 30 s and the hold has expired: what the test
    /// observed may then have happened after the hold.
    pub fn unhold(&self, stream: StreamId) {
        let expired = self.device.open_gates_on(self.device.lane(stream));
        assert!(
            !expired || std::thread::panicking(),
            "{stream} was held for more than {HOLD_MAX:?} and has gone on by itself: a call waits for it, or the \
             test takes too long"
        );
    }
}

impl Device {
    /// Returns whether any stream is held.
    pub(crate) fn gates_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) > 0
    }

    /// Ends every hold. Called before every call that waits for the whole device.
    pub(crate) fn open_gates(&self) {
        if self.gates_closed() {
            for gate in self.take_gates(|_, _| true) {
                gate.open();
            }
        }
    }

    /// Ends every hold of one stream. Called before the host waits for the stream. Returns whether a gate had expired
    /// before.
    pub(crate) fn open_gates_on(&self, lane: &Lane) -> bool {
        if !self.gates_closed() {
            return false;
        }
        let gates = self.take_gates(|held, _| std::ptr::eq(self.lane(held), lane));
        gates.iter().fold(false, |expired, gate| gate.open() | expired)
    }

    /// Adds a closed gate to the list.
    fn close_gate(&self, stream: StreamId, gate: Arc<Gate>) {
        let mut gates = self.gates.lock();
        gates.push((stream, gate));
        self.closed.store(gates.len(), Ordering::Release);
    }

    /// Removes gates from the list of those that are closed, and returns them.
    fn take_gates(&self, chosen: impl Fn(StreamId, &Arc<Gate>) -> bool) -> Vec<Arc<Gate>> {
        let mut gates = self.gates.lock();
        let taken = gates.extract_if(.., |(stream, gate)| chosen(*stream, gate)).map(|(_, gate)| gate).collect();
        self.closed.store(gates.len(), Ordering::Release);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_nobody_opens_opens_by_itself_and_says_so() {
        let gate = Gate::default();
        gate.pass(Duration::from_millis(5));
        assert!(gate.open(), "it has opened by itself");
        gate.pass(Duration::from_secs(60));
        assert!(!gate.open(), "it was open");
    }
}
