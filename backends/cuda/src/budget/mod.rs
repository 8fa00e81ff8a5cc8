//! The budget: how much memory is left.

use std::sync::atomic::Ordering;

use millpond_backend::{BudgetInfo, ClassId};
use millpond_kit::Misuse;

use crate::error::CudaError;
use crate::gear::Gear;
use crate::memory::{Memory, PINNED, host};

#[cfg(feature = "nvml")]
pub(crate) mod nvml;

/// Implements `budget`.
pub(crate) fn budget<G: Gear>(memory: &Memory<G>, class: ClassId) -> Result<BudgetInfo, CudaError> {
    const CALL: &str = "cuMemGetInfo";
    memory.caps.class(class);
    memory.enter(CALL)?;
    if class == PINNED {
        let missing = Some("the system does not tell of its memory");
        let missing = Misuse::Unsupported { call: "budget", missing };
        let (total_bytes, free_bytes) = host::memory().ok_or(missing)?;
        return Ok(BudgetInfo::new(free_bytes, total_bytes));
    }
    let _bound = memory.bind_relaxed()?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: both pointers are to local numbers; the context is current.
    let code = unsafe { (memory.driver.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
    memory.check(CALL, code)?;
    let (process_bytes, others_bytes) = shares(memory);
    let budget = BudgetInfo::new(free as u64, total as u64);
    Ok(budget.with_others_bytes(others_bytes).with_process_bytes(process_bytes))
}

/// Returns the bytes of this process and those of all others, as far as they are known: with NVML only.
fn shares<G: Gear>(memory: &Memory<G>) -> (Option<u64>, Option<u64>) {
    let held = memory.held.load(Ordering::Acquire);
    #[cfg(feature = "nvml")]
    return nvml::shares(&memory.info, held);
    #[cfg(not(feature = "nvml"))]
    {
        let _ = held;
        (None, None)
    }
}
