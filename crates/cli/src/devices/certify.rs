//! The conformance suite on a device that was chosen.

use millpond_conformance::{DeviceUnderTest, ScenarioResult, suite};

use super::{SimOptions, Target};
use crate::failure::Failure;

/// A callback that receives each result, with the name of the kind of device.
type Tell<'a> = &'a mut dyn FnMut(&str, &ScenarioResult);

impl Target {
    /// Runs the conformance suite on the device, or on every kind of it whose name contains `only`, and passes each
    /// result to `tell` with the name of the kind.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Input`] for options that the suite does not use, or if no kind has such a name, and
    /// [`Failure::Device`] for a device that is missing.
    pub(crate) fn certify(&self, only: Option<&str>, tell: Tell<'_>) -> Result<(), Failure> {
        let mut names = Vec::new();
        match self {
            Self::Sim(options) if **options == SimOptions::default() => {
                suite::sim_devices().iter().for_each(|device| certify(device, only, &mut names, tell));
            }
            Self::Sim(_) => {
                return Err(Failure::Input(
                    "the suite makes simulated devices of every kind itself; give `--device sim` without options"
                        .into(),
                ));
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(options) => options.tested(|device| certify(device, only, &mut names, tell))?,
            #[cfg(feature = "vulkan")]
            Self::Vulkan(options) => certify(&options.under_test()?, only, &mut names, tell),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(options) => certify(&options.under_test()?, only, &mut names, tell),
        }
        if names.iter().any(|name| is_wanted(name, only)) {
            return Ok(());
        }
        let only = only.unwrap_or_default();
        Err(Failure::Input(format!("no device has `{only}` in its name; the names are\n  {}", names.join("\n  "))))
    }
}

fn is_wanted(name: &str, only: Option<&str>) -> bool {
    only.is_none_or(|only| name.contains(only))
}

fn certify<D: DeviceUnderTest>(device: &D, only: Option<&str>, names: &mut Vec<String>, tell: Tell<'_>) {
    let name = device.name();
    if is_wanted(&name, only) {
        suite::run(device, &[], &mut |result| tell(&name, result));
    }
    names.push(name);
}
