//! Test gear: driver calls that fail, and streams that are held. Only with the feature `testing`.
//!
//! [`Cuda`] is the device with the gear. It does all that [`crate::Cuda`] does, and stands where tests need it; the two
//! are different types, so that the one without has no trace of the gear even where both are in a program.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use millpond_backend::{Fault, StreamId, Tick};
use millpond_kit::testing::FaultPlan;
pub use millpond_kit::testing::Planned;
use parking_lot::Mutex;

use crate::device::CudaWith;
use crate::error::CudaError;
use crate::gear::{Gear, sealed};

mod gate;

use gate::{Gate, HOLD_MAX, pass};

/// How long a wait may take before it opens all gates.
struct Patience(Mutex<Duration>);

impl Default for Patience {
    fn default() -> Self {
        Self(Mutex::new(Duration::from_millis(250)))
    }
}

/// A CUDA device with test gear, and the handle to it, in all else as [`crate::Cuda`].
pub type Cuda = CudaWith<Rigged>;

/// The gear: the failures that are planned, and the gates that hold streams.
#[derive(Default)]
pub struct Rigged {
    faults: FaultPlan,
    gates: Mutex<Vec<(StreamId, Arc<Gate>)>>,
    /// The number of closed gates.
    closed: AtomicUsize,
    patience: Patience,
}

impl sealed::Sealed for Rigged {}

impl Gear for Rigged {
    fn strike(&self, call: &'static str) -> Result<(), CudaError> {
        self.faults.strike(&()).map_or(Ok(()), |fault| Err(Planned { call, fault }.into()))
    }

    fn before_waiting_for(&self, stream: StreamId) {
        self.open(stream);
    }

    fn before_waiting_for_all(&self) {
        if self.is_closed() {
            for gate in self.take(|_, _| true) {
                gate.open();
            }
        }
    }

    /// Asks again and again while gates are closed, and opens all of them if the answer takes long.
    fn watch<T>(&self, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
        let begin = Instant::now();
        while self.is_closed() {
            match ask() {
                Some(answer) => return Some(answer),
                None if begin.elapsed() < *self.patience.0.lock() => std::thread::yield_now(),
                None => self.before_waiting_for_all(),
            }
        }
        None
    }
}

impl Rigged {
    /// Returns whether any stream is held.
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) > 0
    }

    /// Returns whether the stream is held.
    fn holds(&self, stream: StreamId) -> bool {
        self.gates.lock().iter().any(|(held, _)| *held == stream)
    }

    /// Ends every hold of one stream. Returns whether a gate had expired before.
    fn open(&self, stream: StreamId) -> bool {
        if !self.is_closed() {
            return false;
        }
        let gates = self.take(|held, _| held == stream);
        gates.iter().fold(false, |expired, gate| gate.open() | expired)
    }

    /// Adds a closed gate to the list.
    fn close(&self, stream: StreamId, gate: Arc<Gate>) {
        let mut gates = self.gates.lock();
        gates.push((stream, gate));
        self.closed.store(gates.len(), Ordering::Release);
    }

    /// Removes gates from the list of those that are closed, and returns them.
    fn take(&self, chosen: impl Fn(StreamId, &Arc<Gate>) -> bool) -> Vec<Arc<Gate>> {
        let mut gates = self.gates.lock();
        let taken = gates.extract_if(.., |(stream, gate)| chosen(*stream, gate)).map(|(_, gate)| gate).collect();
        self.closed.store(gates.len(), Ordering::Release);
        taken
    }
}

impl fmt::Debug for Rigged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rigged").field("calls", &self.faults.calls()).finish_non_exhaustive()
    }
}

/// Planned failures.
impl Cuda {
    /// Plans that the `nth` fallible driver call, counted from 1 and from now, fails with that fault and does nothing.
    /// [`Fault::Lost`] loses the device for good. Calls that cannot fail (releasing, marking) are not counted, nor are
    /// operations that need no driver call.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn fail_nth(&self, nth: u64, fault: Fault) {
        self.device.gear.faults.add(None, nth, fault);
    }

    /// Sets how long a wait of the host may take while a stream is held, before it opens all gates: what is waited for
    /// may itself wait for a held stream. It is 250 ms unless set, as the work of other streams takes time on a real
    /// device.
    pub fn set_patience(&self, patience: Duration) {
        *self.device.gear.patience.0.lock() = patience;
    }

    /// Cancels the planned failures that have not happened yet.
    pub fn forget_faults(&self) {
        self.device.gear.faults.forget();
    }

    /// Returns the number of fallible driver calls so far, as [`fail_nth`](Cuda::fail_nth) counts them.
    pub fn fallible_calls(&self) -> u64 {
        self.device.gear.faults.calls()
    }
}

/// What the host knows.
impl Cuda {
    /// Returns the newest complete tick of a stream. It waits for another thread that asks at the same time, which
    /// [`Backend::reached`](millpond_backend::Backend::reached) does not: that returns what was known before.
    ///
    /// # Errors
    ///
    /// The driver's.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn reached_by_now(&self, stream: StreamId) -> Result<Tick, CudaError> {
        self.device.reached_by_now(stream)
    }
}

/// Held streams.
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
    /// # Errors
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
        device.settle(stream, !device.gear.holds(stream))?;
        let stay = lane.stay();
        let handle = device.usable(CALL, stream, &stay)?;
        let gate = Arc::new(Gate::default());
        // The gate is listed before the call: where the driver has no room for the function, the gates before it can be
        // opened in the meantime.
        device.gear.close(stream, Arc::clone(&gate));
        let data = Arc::into_raw(Arc::clone(&gate));
        // SAFETY: the function takes the pointer that is passed with it, once; it makes no driver call.
        let code = unsafe { (device.driver.cuLaunchHostFunc)(handle, Some(pass), data.cast_mut().cast()) };
        if let Err(error) = device.check(CALL, code) {
            // SAFETY: the driver has refused the function, so this thread still owns the pointer.
            drop(unsafe { Arc::from_raw(data) });
            device.gear.take(|_, closed| Arc::ptr_eq(closed, &gate));
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
        self.device.lane(stream);
        let expired = self.device.gear.open(stream);
        assert!(
            !expired || std::thread::panicking(),
            "{stream} was held for more than {HOLD_MAX:?} and has gone on by itself: a call waits for it, or the \
             test takes too long"
        );
    }
}
