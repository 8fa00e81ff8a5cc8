//! Failures: those that the driver reports, and those that a test plans.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millpond_backend::Fault;
use parking_lot::Mutex;

use crate::device::Device;
use crate::{Code, Cuda, CudaError};

/// What a planned loss says that the driver returned: `CUDA_ERROR_LAUNCH_FAILED`.
const PLANNED_LOSS: Code = Code(719);

/// The planned failures, and how many fallible driver calls there were. Costs two atomic operations per driver call
/// while nothing is planned.
#[derive(Default)]
pub(crate) struct FaultPlan {
    calls: AtomicU64,
    armed: AtomicBool,
    /// For each failure, the calls still to come, the failing one included.
    planned: Mutex<Vec<(u64, Fault)>>,
}

impl FaultPlan {
    /// Counts one call, and returns the fault if one was planned for it.
    fn strike(&self) -> Option<Fault> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if !self.armed.load(Ordering::Acquire) {
            return None;
        }
        let mut planned = self.planned.lock();
        let mut struck = None;
        planned.retain_mut(|(left, fault)| {
            *left -= 1;
            struck = struck.or((*left == 0).then_some(*fault));
            *left > 0
        });
        self.armed.store(!planned.is_empty(), Ordering::Release);
        struck
    }
}

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
        let Some(fault) = self.faults.strike() else { return Ok(()) };
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
        assert!(nth > 0, "calls are counted from 1: call 0 cannot fail");
        let plan = &self.device.faults;
        plan.planned.lock().push((nth, fault));
        plan.armed.store(true, Ordering::Release);
    }

    /// Forgets the planned failures that have not struck.
    pub fn forget_faults(&self) {
        self.device.faults.planned.lock().clear();
    }

    /// How many fallible driver calls there were so far, as [`fail_nth`](Cuda::fail_nth) counts them.
    pub fn fallible_calls(&self) -> u64 {
        self.device.faults.calls.load(Ordering::Relaxed)
    }
}
