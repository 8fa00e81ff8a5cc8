//! The promise across devices, on a few programs; [`crate::sameness`] runs it on as many as one likes.

use crate::device::DeviceUnderTest;
use crate::sameness::{self, Program};
use crate::scenario::Policy;
use crate::session::Stop;
use crate::suite::Outcome;

const SEEDS: u64 = 3;

/// Runs some programs here and on the reference, and compares.
pub(super) fn same_as_simulated<D: DeviceUnderTest>(device: &D, policy: &Policy) -> Result<(), Stop> {
    for seed in 0..SEEDS {
        match sameness::same_as_simulated(device, policy, &Program::Seed(seed)) {
            Ok(_) => {}
            Err(Outcome::Skipped(reason)) => return Err(Stop::Skip(reason)),
            Err(outcome) => return Err(Stop::Fail(format!("seed {seed}: {outcome}"))),
        }
    }
    Ok(())
}
