//! A device under test that is chosen at run time.

use std::num::NonZeroUsize;

use millpond::settings::Policy;

#[cfg(feature = "cuda")]
use crate::cuda::CudaDevice;
use crate::device::DeviceUnderTest;
use crate::sameness::{self, Program, Trail};
use crate::sim::SimDevice;
use crate::suite::{self, Outcome, ScenarioResult};
#[cfg(feature = "vulkan")]
use crate::vulkan::VulkanDevice;
#[cfg(feature = "wgpu")]
use crate::wgpu::WgpuDevice;

/// A device under test of one of the backends that are built in. The suite is compiled for each of them once, here.
#[non_exhaustive]
pub enum Tested {
    /// A simulated device.
    Sim(SimDevice),
    /// A CUDA device.
    #[cfg(feature = "cuda")]
    Cuda(CudaDevice),
    /// A Vulkan device.
    #[cfg(feature = "vulkan")]
    Vulkan(VulkanDevice),
    /// A wgpu device.
    #[cfg(feature = "wgpu")]
    Wgpu(WgpuDevice),
}

impl From<SimDevice> for Tested {
    fn from(device: SimDevice) -> Self {
        Self::Sim(device)
    }
}

/// Evaluates an expression on the device, whatever its backend is.
macro_rules! on {
    ($tested:expr, $device:ident => $call:expr) => {
        match $tested {
            Tested::Sim($device) => $call,
            #[cfg(feature = "cuda")]
            Tested::Cuda($device) => $call,
            #[cfg(feature = "vulkan")]
            Tested::Vulkan($device) => $call,
            #[cfg(feature = "wgpu")]
            Tested::Wgpu($device) => $call,
        }
    };
}

impl Tested {
    /// Returns the [name](DeviceUnderTest::name) of the device.
    pub fn name(&self) -> String {
        on!(self, device => device.name())
    }

    /// Runs some groups of the suite, as [`suite::run_groups`] does without differences, and passes each result to
    /// `progress`.
    ///
    /// # Panics
    ///
    /// If there is no such group.
    pub fn run_groups(&self, names: &[&str], jobs: NonZeroUsize, progress: &mut dyn FnMut(&ScenarioResult)) {
        on!(self, device => drop(suite::run_groups(device, names, &[], jobs, progress)));
    }

    /// Runs a program on the device under a policy, as [`sameness::trail`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`sameness::trail`].
    pub fn trail(&self, policy: Policy, program: &Program<'_>) -> Result<Trail, Outcome> {
        on!(self, device => sameness::trail(device, policy, program))
    }
}
