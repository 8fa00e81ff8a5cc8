//! Planned faults: a testing aid that makes driver calls fail that would otherwise succeed.

use millpond_backend::Fault;

use crate::device::Shared;
use crate::{Wgpu, WgpuError};

impl Shared {
    /// Returns an error if the device is lost, or if a test planned one. Runs before each fallible call.
    pub(crate) fn enter(&self, call: &'static str) -> Result<(), WgpuError> {
        self.alive()?;
        let Some(fault) = self.faults.strike(&()) else { return Ok(()) };
        if fault == Fault::Lost {
            self.loss.note("a planned fault took it");
        }
        Err(WgpuError::Planned { call, fault })
    }
}

/// Aids for testing code that is built on this backend.
impl Wgpu {
    /// Plans that the `nth` fallible driver call, counted from 1 and from now, fails with that fault and does nothing.
    /// [`Fault::Lost`] loses the device for good, as far as this backend is concerned. Calls that cannot fail are not
    /// counted, nor are submits, nor queries that are answered from memory.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn fail_nth(&self, nth: u64, fault: Fault) {
        self.shared.faults.add(None, nth, fault);
    }

    /// Cancels the planned failures that have not happened yet. The number of calls that a program makes depends on how
    /// fast the device is, so a plan may outlive the program it was made for.
    pub fn forget_faults(&self) {
        self.shared.faults.forget();
    }

    /// Returns the number of fallible driver calls so far, as [`fail_nth`](Wgpu::fail_nth) counts them.
    pub fn fallible_calls(&self) -> u64 {
        self.shared.faults.calls()
    }
}
