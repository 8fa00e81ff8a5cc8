//! The budget: how much memory is left.

use millpond_backend::{Budget, BudgetInfo, ClassId};

use crate::memory::PINNED;
use crate::{Cuda, CudaError, host};

impl Budget for Cuda {
    type Error = CudaError;

    /// Returns what the driver reports for the device's own memory, and what the operating system has available for
    /// page-locked memory. The bytes of this process and of others are known only with the feature `nvml`, which costs
    /// some calls of that library, and only where it reports processes: in a container that numbers them anew it does
    /// not.
    ///
    /// # Errors
    ///
    /// The driver's errors, and [`CudaError::Unsupported`] where the system does not report the host's memory.
    fn budget(&self, class: ClassId) -> Result<BudgetInfo, CudaError> {
        const CALL: &str = "cuMemGetInfo";
        let device = &*self.device;
        device.caps.class(class);
        device.enter(CALL)?;
        if class == PINNED {
            let missing = CudaError::Unsupported { call: "budget", missing: "the system does not tell of its memory" };
            let (total_bytes, free_bytes) = host::memory().ok_or(missing)?;
            return Ok(BudgetInfo { free_bytes, total_bytes, others_bytes: None, process_bytes: None });
        }
        let _bound = device.bind_relaxed()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are to local numbers; the context is current.
        let code = unsafe { (device.driver.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        device.check(CALL, code)?;
        let (process_bytes, others_bytes) = self.shares();
        Ok(BudgetInfo { free_bytes: free as u64, total_bytes: total as u64, others_bytes, process_bytes })
    }
}

#[cfg(not(feature = "nvml"))]
impl Cuda {
    /// Returns `None` for both: without NVML neither is known.
    #[expect(clippy::unused_self, reason = "with NVML it is asked of this device")]
    fn shares(&self) -> (Option<u64>, Option<u64>) {
        (None, None)
    }
}
