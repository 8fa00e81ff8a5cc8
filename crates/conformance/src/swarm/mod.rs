//! The swarm: seeded random programs that use an allocator as badly as its contract permits.
//!
//! Each seed draws its own mix: some operations are often, some rare, some never there, because programs that do a
//! little of everything rarely do much of anything. Every byte handed out is written by device work and looked at by
//! device work, nothing waits for the host unless the mix says so, and the oracle judges every grant. The seed
//! repeats the run.
//!
//! A run is a [`Program`] of [`Operation`]s, drawn as it goes. A program that fails [shrinks](Case::shrink) by itself to
//! the few operations that its failure needs.

mod case;
mod draw;
mod mix;
mod operation;
mod random;
mod run;
mod shrink;
mod steps;

use std::ops::AddAssign;

use crate::device::DeviceUnderTest;
use crate::scenario::Policy;
use crate::session::Stop;

use case::End;
pub use case::{Case, Failed, Shrunk};
pub use operation::{Noted, Operation, Program};
pub(crate) use random::Random;

/// One run to be.
#[derive(Clone, Copy, Debug)]
pub struct Swarm {
    /// Draws everything: the mix, the operations, and with them the order in which work completes where a test decides
    /// that.
    pub seed: u64,
    /// How many operations.
    pub operations: u32,
    /// Under which policy.
    pub policy: Policy,
    /// Driver calls fail now and then, on devices that can be told to.
    pub faults: bool,
    /// Verify everything after so many operations. Grants are judged each time.
    pub check_every: u32,
}

/// What a run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Grants that the oracle judged.
    pub grants: u64,
    /// Requests that were refused for lack of memory.
    pub refusals: u64,
    /// Operations that a driver failed in.
    pub failures: u64,
    /// Pieces of evidence that were looked at; none where the device cannot move bytes.
    pub evidence: usize,
    /// Pages that moved to another place.
    pub moved: u64,
    /// Those of them that moved behind a device-side wait.
    pub moved_behind_wait: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.grants += other.grants;
        self.refusals += other.refusals;
        self.failures += other.failures;
        self.evidence += other.evidence;
        self.moved += other.moved;
        self.moved_behind_wait += other.moved_behind_wait;
    }
}

/// Runs one swarm on a device. `Ok(None)`: the device cannot serve the policy.
///
/// # Errors
///
/// What went wrong, with the seed and the operation.
pub fn run<D: DeviceUnderTest>(device: &D, swarm: &Swarm) -> Result<Option<Tally>, String> {
    match run_or_stop(device, swarm) {
        Ok(tally) => Ok(Some(tally)),
        Err(Stop::Skip(_)) => Ok(None),
        Err(Stop::Fail(text)) => Err(text),
    }
}

pub(crate) fn run_or_stop<D: DeviceUnderTest>(device: &D, swarm: &Swarm) -> Result<Tally, Stop> {
    let (_, result) = Case::new(device, swarm.policy).attempt(swarm);
    result.map_err(|end| match end {
        End::Skipped(reason) => Stop::Skip(reason),
        End::Failed(failed) => Stop::Fail(format!("seed {} under {}: {failed}", swarm.seed, swarm.policy.name)),
    })
}
