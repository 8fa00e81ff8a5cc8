//! Where a device's memory is, in JSON.

use millpond::Usage;
use serde::Serialize;

/// A [`Usage`] under its own names, with the sum of its parts.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct UsageRow {
    total_bytes: u64,
    free_bytes: u64,
    used_bytes: u64,
    reserved_bytes: u64,
    process_bytes: Option<u64>,
    others_bytes: Option<u64>,
    untold_bytes: u64,
}

impl UsageRow {
    pub(crate) fn new(usage: &Usage) -> Self {
        let &Usage { total_bytes, free_bytes, reserved_bytes, process_bytes, others_bytes, untold_bytes, .. } = usage;
        let used_bytes = usage.used_bytes();
        Self { total_bytes, free_bytes, used_bytes, reserved_bytes, process_bytes, others_bytes, untold_bytes }
    }
}
