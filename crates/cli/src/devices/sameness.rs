//! Trails of programs on the chosen devices, to be compared across them.

use millpond::settings::Variant;
use millpond_backend::{Backend, Caps};
use millpond_conformance::sameness::{self, Program, Trail};
use millpond_conformance::{Outcome, SimDevice};

use super::{Job, Target};
use crate::failure::Failure;

/// A job that returns the capabilities of a device.
struct Facts;

impl Job for Facts {
    type Output = Caps;

    fn run<B: Backend + Clone>(self, backend: B) -> Result<Caps, Failure> {
        Ok(backend.caps().clone())
    }
}

impl Target {
    /// Opens the device and returns its capabilities.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Device`] if the device does not open.
    pub(crate) fn caps(&self) -> Result<Caps, Failure> {
        self.run(Facts)
    }

    /// Opens the device anew and runs a program on it under a policy.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Device`] for a device that is missing.
    pub(crate) fn trail(&self, policy: &Variant, program: &Program<'_>) -> Result<Result<Trail, Outcome>, Failure> {
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
