//! Programs whose trails are compared across devices that were chosen.

use millpond_backend::{Backend, Caps};
use millpond_conformance::sameness::{self, Program, Trail};
use millpond_conformance::scenario::Policy;
use millpond_conformance::{Outcome, SimDevice};

use super::{Job, Target};
use crate::failure::Failure;

/// Tells the facts of a device.
struct Facts;

impl Job for Facts {
    type Output = Caps;

    fn run<B: Backend + Clone>(self, backend: B) -> Result<Caps, Failure> {
        Ok(backend.caps().clone())
    }
}

impl Target {
    /// The facts of the device, which is opened for it.
    ///
    /// # Errors
    ///
    /// [`Failure::Device`] if it does not open.
    pub(crate) fn caps(&self) -> Result<Caps, Failure> {
        self.run(Facts)
    }

    /// Runs a program on the device, opened anew, under a policy.
    ///
    /// # Errors
    ///
    /// [`Failure::Device`] for a device that is missing.
    pub(crate) fn trail(&self, policy: &Policy, program: &Program<'_>) -> Result<Result<Trail, Outcome>, Failure> {
        Ok(match self {
            Self::Sim(options) => sameness::trail(&SimDevice::immediate(options.total_bytes()), policy, program),
            #[cfg(feature = "cuda")]
            Self::Cuda(options) => options.tested(|device| sameness::trail(device, policy, program))?,
            #[cfg(feature = "vulkan")]
            Self::Vulkan(options) => sameness::trail(&options.under_test()?, policy, program),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(options) => sameness::trail(&options.under_test()?, policy, program),
        })
    }
}
