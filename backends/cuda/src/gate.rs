//! Gates: a testing aid that keeps a stream's work in flight for as long as a test wants.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millpond_backend::StreamId;
use parking_lot::{Condvar, Mutex};

use crate::device::Device;
use crate::lane::Lane;
use crate::{Cuda, CudaError};

/// For so long a gate stays closed at the most. Whatever waits for a held stream goes on then: a call of the driver
/// that cannot be interrupted, too.
const HOLD_MAX: Duration = Duration::from_secs(30);

/// Where a function of the host, queued on a stream, waits.
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
    /// Open by itself: nobody has opened it in time.
    Expired,
}

impl Gate {
    /// Waits until it is open, and for so long at the most.
    fn pass(&self, most: Duration) {
        let deadline = Instant::now() + most;
        let mut passage = self.passage.lock();
        while *passage == Passage::Closed {
            if self.opened.wait_until(&mut passage, deadline).timed_out() && *passage == Passage::Closed {
                *passage = Passage::Expired;
            }
        }
    }

    /// Opens it. Answers whether it has done so by itself.
    fn open(&self) -> bool {
        let before = std::mem::replace(&mut *self.passage.lock(), Passage::Open);
        self.opened.notify_all();
        before == Passage::Expired
    }
}

/// What the driver calls when the stream comes to a gate.
unsafe extern "C" fn pass(gate: *mut c_void) {
    // SAFETY: the pointer is the one that `hold` gave up, and the driver calls once.
    let gate = unsafe { Arc::from_raw(gate.cast_const().cast::<Gate>()) };
    gate.pass(HOLD_MAX);
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
    /// ([`Backend::release`](millpond_backend::Backend::release)) opens all. Other handles of the same device, of other
    /// devices and of the driver's own are not known here: what waits for a held stream there, with a lock of the
    /// driver's that the holder needs, would wait for ever. So a hold ends by itself after 30 s, and `unhold` says so.
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
        // Where the driver has no room for the function the gates before it can be opened meanwhile.
        device.close_gate(stream, Arc::clone(&gate));
        let data = Arc::into_raw(Arc::clone(&gate));
        // SAFETY: the function takes the pointer that goes with it, once; it calls no driver.
        let code = unsafe { (device.driver.cuLaunchHostFunc)(handle, Some(pass), data.cast_mut().cast()) };
        if let Err(error) = device.check(CALL, code) {
            // SAFETY: the driver has refused the function, so the pointer is still ours.
            drop(unsafe { Arc::from_raw(data) });
            device.take_gates(|_, closed| Arc::ptr_eq(closed, &gate));
            return Err(error);
        }
        Ok(())
    }

    /// Ends every [`hold`](Cuda::hold) of the stream. The work may complete now. Nothing happens if it is not held.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's, or was held for more than 30 s and has gone on by itself: what was to be
    /// seen while it was held may have been seen later.
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
    /// Whether any stream is held.
    pub(crate) fn gates_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) > 0
    }

    /// Ends every hold: before whatever waits for the whole device.
    pub(crate) fn open_gates(&self) {
        if self.gates_closed() {
            for gate in self.take_gates(|_, _| true) {
                gate.open();
            }
        }
    }

    /// Ends every hold of one stream: before the host waits for it. Answers whether one has ended by itself before.
    pub(crate) fn open_gates_on(&self, lane: &Lane) -> bool {
        if !self.gates_closed() {
            return false;
        }
        let gates = self.take_gates(|held, _| std::ptr::eq(self.lane(held), lane));
        gates.iter().fold(false, |expired, gate| gate.open() | expired)
    }

    /// Notes a gate that is closed.
    fn close_gate(&self, stream: StreamId, gate: Arc<Gate>) {
        let mut gates = self.gates.lock();
        gates.push((stream, gate));
        self.closed.store(gates.len(), Ordering::Release);
    }

    /// Takes gates off the list of those that are closed.
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
