//! Test gear: driver calls that fail where they would otherwise succeed.

use millpond_backend::Fault;

use super::Wgpu;

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
        self.shared.driver.faults.add(None, nth, fault);
    }

    /// Cancels the planned failures that have not happened yet. The number of calls that a program makes depends on how
    /// fast the device is, so a plan may outlive the program it was made for.
    pub fn forget_faults(&self) {
        self.shared.driver.faults.forget();
    }

    /// Returns the number of fallible driver calls so far, as [`fail_nth`](Wgpu::fail_nth) counts them.
    pub fn fallible_calls(&self) -> u64 {
        self.shared.driver.faults.calls()
    }
}
