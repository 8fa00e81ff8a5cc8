//! Failures: those that the driver reports, and those that a test plans.

use std::sync::atomic::Ordering;

use millpond_backend::Fault;

use crate::device::Device;
use crate::{Code, Cuda, CudaError};

/// What a planned loss says that the driver returned: `CUDA_ERROR_LAUNCH_FAILED`.
const PLANNED_LOSS: Code = Code(719);

impl Device {
    /// Fails if the context is lost, with what lost it.
    #[inline]
    pub(crate) fn alive(&self) -> Result<(), CudaError> {
        if self.lost.load(Ordering::Acquire) { Err(self.loss()) } else { Ok(()) }
    }

    #[cold]
    fn loss(&self) -> CudaError {
        let (call, code) = self.cause.lock().unwrap_or(("an earlier call", PLANNED_LOSS));
        CudaError::Lost { device: self.ordinal, call, code }
    }

    /// From now on everything fails with this.
    fn lose(&self, call: &'static str, code: Code) -> CudaError {
        self.cause.lock().get_or_insert((call, code));
        self.lost.store(true, Ordering::Release);
        self.loss()
    }

    /// Before each fallible driver call: fails if the context is lost, or if a test planned it.
    pub(crate) fn enter(&self, call: &'static str) -> Result<(), CudaError> {
        self.alive()?;
        let Some(fault) = self.faults.strike(&()) else { return Ok(()) };
        if fault == Fault::Lost {
            self.lose(call, PLANNED_LOSS);
        }
        Err(CudaError::Planned { call, fault })
    }

    /// Reads a call's result. What a context does not survive loses it for good.
    pub(crate) fn check(&self, call: &'static str, code: u32) -> Result<(), CudaError> {
        match Code(code) {
            Code::SUCCESS => Ok(()),
            code if code.is_fatal() => Err(self.lose(call, code)),
            code => Err(CudaError::Driver { call, code }),
        }
    }

    /// Reads the result of a call that gives something back, and so cannot fail: what goes wrong there is told by the
    /// next call that can.
    pub(crate) fn keep(&self, call: &'static str, code: u32) {
        if Code(code) != Code::SUCCESS {
            self.lose(call, Code(code));
        }
    }
}

/// Aids for testing what stands on this backend.
impl Cuda {
    /// Plans that the `nth` fallible driver call, counted from 1 and from now, fails with that fault and does nothing.
    /// [`Fault::Lost`] loses the device for good. Calls that cannot fail (releasing, marking) are not counted, nor is
    /// what needs no driver call.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn fail_nth(&self, nth: u64, fault: Fault) {
        self.device.faults.add(None, nth, fault);
    }

    /// Forgets the planned failures that have not struck.
    pub fn forget_faults(&self) {
        self.device.faults.forget();
    }

    /// How many fallible driver calls there were so far, as [`fail_nth`](Cuda::fail_nth) counts them.
    pub fn fallible_calls(&self) -> u64 {
        self.device.faults.calls()
    }
}
