//! Failures: those that the driver reports, and those that a test plans.

use std::sync::atomic::Ordering;

use millpond_backend::Fault;

use crate::device::Device;
use crate::{Code, Cuda, CudaError};

/// The code that a planned loss reports as the driver's: `CUDA_ERROR_LAUNCH_FAILED`.
const PLANNED_LOSS: Code = Code(719);

impl Device {
    /// Returns an error with the cause of the loss if the context is lost.
    #[inline]
    pub(crate) fn alive(&self) -> Result<(), CudaError> {
        if self.lost.load(Ordering::Acquire) { Err(self.loss()) } else { Ok(()) }
    }

    #[cold]
    fn loss(&self) -> CudaError {
        let (call, code) = self.cause.lock().unwrap_or(("an earlier call", PLANNED_LOSS));
        CudaError::Lost { device: self.ordinal, call, code }
    }

    /// Marks the device as lost, so that every later call fails with the first cause, and returns the error.
    fn lose(&self, call: &'static str, code: Code) -> CudaError {
        self.cause.lock().get_or_insert((call, code));
        self.lost.store(true, Ordering::Release);
        self.loss()
    }

    /// Returns an error if the context is lost, or if a test planned one. Runs before each fallible driver call.
    pub(crate) fn enter(&self, call: &'static str) -> Result<(), CudaError> {
        self.alive()?;
        let Some(fault) = self.faults.strike(&()) else { return Ok(()) };
        if fault == Fault::Lost {
            self.lose(call, PLANNED_LOSS);
        }
        Err(CudaError::Planned { call, fault })
    }

    /// Checks the result of a call. A code that the context does not survive loses the device for good.
    pub(crate) fn check(&self, call: &'static str, code: u32) -> Result<(), CudaError> {
        match Code(code) {
            Code::SUCCESS => Ok(()),
            code if code.is_fatal() => Err(self.lose(call, code)),
            code => Err(CudaError::Driver { call, code }),
        }
    }

    /// Checks the result of a call that gives something back, and so cannot fail: an error there loses the device, and
    /// the next fallible call reports it.
    pub(crate) fn keep(&self, call: &'static str, code: u32) {
        if Code(code) != Code::SUCCESS {
            self.lose(call, Code(code));
        }
    }
}

/// Aids for testing code that is built on this backend.
impl Cuda {
    /// Plans that the `nth` fallible driver call, counted from 1 and from now, fails with that fault and does nothing.
    /// [`Fault::Lost`] loses the device for good. Calls that cannot fail (releasing, marking) are not counted, nor are
    /// operations that need no driver call.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn fail_nth(&self, nth: u64, fault: Fault) {
        self.device.faults.add(None, nth, fault);
    }

    /// Cancels the planned failures that have not happened yet.
    pub fn forget_faults(&self) {
        self.device.faults.forget();
    }

    /// Returns the number of fallible driver calls so far, as [`fail_nth`](Cuda::fail_nth) counts them.
    pub fn fallible_calls(&self) -> u64 {
        self.device.faults.calls()
    }
}
