//! The promise of equal decisions on all devices, tested with a few programs. [`crate::sameness`] runs any number of
//! them.

use crate::device::DeviceUnderTest;
use crate::sameness::{self, Program};
use crate::session::Stop;
use crate::suite::Outcome;
use millpond::settings::Policy;

const SEEDS: u64 = 3;

/// Runs some programs on the device and on the reference, and compares their results.
pub(super) fn same_as_simulated<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    for seed in 0..SEEDS {
        match sameness::same_as_simulated(device, policy, &Program::Seed(seed)) {
            Ok(_) => {}
            Err(Outcome::Skipped(reason)) => return Err(Stop::Skip(reason)),
            Err(outcome) => return Err(Stop::Fail(format!("seed {seed}: {outcome}"))),
        }
    }
    Ok(())
}
