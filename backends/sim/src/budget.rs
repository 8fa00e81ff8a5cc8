//! The budget: how much memory is left.

use millpond_backend::{BudgetInfo, ClassId};
use millpond_kit::Misuse;

use crate::error::SimError;
use crate::error::calls::CallKind;
use crate::time::Time;

/// Implements `budget`.
pub(crate) fn budget(device: &Time, class: ClassId) -> Result<BudgetInfo, SimError> {
    if !device.caps.budget {
        return Err(Misuse::Unsupported { call: CallKind::Budget.name(), missing: None }.into());
    }
    device.enter(CallKind::Budget)?;
    device.caps.class(class);
    let space = device.memory.space();
    let others_bytes = (class == ClassId::DEVICE).then_some(space.others);
    let (free_bytes, total_bytes) = (space.free(class), space.total(class));
    // Where memory is oversubscribed, more may be held than there is.
    let process_bytes = others_bytes.map(|others| (total_bytes - free_bytes).saturating_sub(others));
    Ok(BudgetInfo::new(free_bytes, total_bytes).with_others_bytes(others_bytes).with_process_bytes(process_bytes))
}
