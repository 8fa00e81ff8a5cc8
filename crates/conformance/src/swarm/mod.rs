//! The swarm: seeded random programs that test an allocator with every use that its contract permits.
//!
//! Each seed draws its own mix: some operations are frequent, some are rare, and some do not occur, because programs
//! with a uniform mix rarely reach extreme states. Every byte that is handed out is written and read by device work,
//! the host does not wait unless the mix has waits, and the oracle judges every grant. The same seed gives the same
//! run.
//!
//! A run is a [`Program`] of [operations](crate::language) that is drawn while it runs. [`Case::shrink`] reduces one
//! that fails to the few operations that its failure needs.

mod case;
mod mix;
mod program;
mod run;
mod steps;

use std::ops::AddAssign;

use crate::device::DeviceUnderTest;
use crate::session::Stop;
use millpond::settings::Policy;

use case::End;
pub use case::{Case, Failed, Shrunk};
pub use program::Program;

/// The description of a run.
#[derive(Clone, Copy, Debug)]
pub struct Swarm {
    /// The seed of all draws: the mix, the operations, and with them the order in which work completes where a test
    /// controls that.
    pub seed: u64,
    /// The number of operations.
    pub operations: u32,
    /// The policy.
    pub policy: Policy,
    /// Whether driver calls fail at times, on devices that support that.
    pub faults: bool,
    /// The number of operations after which everything is checked. Every grant is judged in any case.
    pub check_every: u32,
}

/// The counts of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Grants that the oracle judged.
    pub grants: u64,
    /// Requests that were refused for lack of memory.
    pub refusals: u64,
    /// Operations in which a driver call failed.
    pub failures: u64,
    /// Pieces of evidence that were checked; none where the device has no transfers.
    pub evidence: usize,
    /// Blocks that were handed out again as a checkpoint had them; [`grants`](Self::grants) includes them.
    pub restored: u64,
    /// Blocks that became longer at their place.
    pub grown: u64,
    /// Buffers that were allocated with an alignment.
    pub aligned: u64,
    /// Pages that moved to another place.
    pub moved: u64,
    /// Pages that moved behind a device-side wait; [`moved`](Self::moved) includes them.
    pub moved_behind_wait: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.grants += other.grants;
        self.refusals += other.refusals;
        self.failures += other.failures;
        self.evidence += other.evidence;
        self.restored += other.restored;
        self.grown += other.grown;
        self.aligned += other.aligned;
        self.moved += other.moved;
        self.moved_behind_wait += other.moved_behind_wait;
    }
}

/// Runs one swarm on a device. Returns `Ok(None)` if the device cannot serve the policy.
///
/// # Errors
///
/// Returns what went wrong, with the seed and the operation.
pub fn run<D: DeviceUnderTest>(device: &D, swarm: &Swarm) -> Result<Option<Tally>, String> {
    match run_or_stop(device, swarm) {
        Ok(tally) => Ok(Some(tally)),
        Err(Stop::Skip(_)) => Ok(None),
        Err(Stop::Fail(text)) => Err(text),
    }
}

pub(crate) fn run_or_stop<D: DeviceUnderTest>(device: &D, swarm: &Swarm) -> Result<Tally, Stop> {
    case_or_stop(&Case::new(device, swarm.policy), swarm)
}

/// Works like [`run_or_stop`], with the settings of a case.
pub(crate) fn case_or_stop<D: DeviceUnderTest>(case: &Case<'_, D>, swarm: &Swarm) -> Result<Tally, Stop> {
    let (_, result) = case.attempt(swarm);
    result.map_err(|end| match end {
        End::Skipped(reason) => Stop::Skip(reason),
        End::Failed(failed) => {
            Stop::Fail(format!("seed {} under {}: {failed}", swarm.seed, swarm.policy.variant_name()))
        }
    })
}
