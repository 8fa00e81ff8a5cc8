//! The link to a device: the driver, the context, and whether the context is still well.

use std::sync::atomic::{AtomicBool, Ordering};

use millpond_backend::{BackendError, Fault};
use parking_lot::Mutex;

use crate::driver::Driver;
use crate::error::{Code, CudaError};
use crate::gear::Gear;
use crate::open::context::{Bound, Relaxed, Shared};
use crate::probe::DeviceInfo;

/// The code that a planned loss reports as the driver's: `CUDA_ERROR_LAUNCH_FAILED`.
const PLANNED_LOSS: Code = Code(719);

/// What every call to a device needs: the lowest storey of its state.
pub(crate) struct Link<G> {
    /// Unique within the process.
    pub(crate) id: u64,
    pub(crate) ordinal: usize,
    pub(crate) info: DeviceInfo,
    pub(crate) driver: &'static Driver,
    pub(crate) context: Shared,
    pub(crate) gear: G,
    lost: AtomicBool,
    /// The call and the code of the first failure that lost the context.
    cause: Mutex<Option<(&'static str, Code)>>,
}

impl<G: Gear> Link<G> {
    pub(crate) fn new(id: u64, info: DeviceInfo, driver: &'static Driver, context: Shared) -> Link<G> {
        let (ordinal, gear) = (info.ordinal, G::default());
        Link { id, ordinal, info, driver, context, gear, lost: AtomicBool::new(false), cause: Mutex::new(None) }
    }

    /// Makes the context current if it is not. Costs one driver call of 10 ns if it is current already.
    pub(crate) fn bind(&self) -> Result<Bound, CudaError> {
        let bound = Bound::new(self.driver, self.context.cu_ctx());
        bound.map_err(|(call, code)| match self.check(call, code.0) {
            Err(error) => error,
            Ok(()) => panic!("{call} failed with success"),
        })
    }

    /// Works like [`bind`](Link::bind), for calls that are prohibited while another thread captures.
    pub(crate) fn bind_relaxed(&self) -> Result<(Bound, Relaxed), CudaError> {
        let bound = self.bind()?;
        Ok((bound, Relaxed::new(self.driver)))
    }

    /// Returns whether the context is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Returns an error with the cause of the loss if the context is lost.
    #[inline]
    pub(crate) fn alive(&self) -> Result<(), CudaError> {
        if self.is_lost() { Err(self.loss()) } else { Ok(()) }
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
        self.gear.strike(call).inspect_err(|planned| {
            if planned.fault() == Fault::Lost {
                self.lose(call, PLANNED_LOSS);
            }
        })
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
