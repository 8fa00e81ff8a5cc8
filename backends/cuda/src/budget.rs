//! How much memory is left.

use millpond_backend::{Budget, BudgetInfo, ClassId};

use crate::memory::PINNED;
use crate::{Cuda, CudaError, host};

impl Budget for Cuda {
    type Error = CudaError;

    /// For the device's own memory what the driver says; for page-locked memory what the operating system has
    /// available. Bytes of this process and of others are known with the feature `nvml` alone, which costs some calls
    /// of that library, and only where it tells of processes: in a container that numbers them anew it does not.
    ///
    /// # Errors
    ///
    /// The driver's, and [`CudaError::Unsupported`] where the system does not tell of the host's memory.
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
    /// Nobody tells.
    #[expect(clippy::unused_self, reason = "with NVML it is asked of this device")]
    fn shares(&self) -> (Option<u64>, Option<u64>) {
        (None, None)
    }
}
