//! Looking for a device, and saying so where there is none.

use std::fmt::Display;

use millpond_cuda::{Cuda, CudaError};
use millpond_vulkan::{Vulkan, VulkanError};
use millpond_wgpu::{Wgpu, WgpuError};

use crate::engine::Result;

/// Names, with commas between them, what must not be missing: "vulkan", "wgpu", "cuda". Set it on a machine for tests.
const REQUIRE: &str = "MILLPOND_REQUIRE";

/// Opens Vulkan device 0, under the validation layer where that is installed. `None`, after saying what to install,
/// where there is no such device.
///
/// # Errors
///
/// The driver's; and that there is no device, where `MILLPOND_REQUIRE` names `vulkan`.
pub fn vulkan() -> Result<Option<Vulkan>> {
    let opened = match Vulkan::builder().validation(true).build() {
        Err(VulkanError::NoValidation) => Vulkan::open(0),
        opened => opened,
    };
    match opened {
        Ok(device) => Ok(Some(device)),
        Err(error) if is_absence(&error) => missing("vulkan", &error),
        Err(error) => Err(error.into()),
    }
}

/// Opens CUDA device 0. `None`, after saying what to install, where there is none.
///
/// # Errors
///
/// The driver's; and that there is no device, where `MILLPOND_REQUIRE` names `cuda`.
pub fn cuda() -> Result<Option<Cuda>> {
    use CudaError::{DriverTooOld, MissingSymbol, NoDevice, NoDriver};
    match Cuda::open(0) {
        Ok(device) => Ok(Some(device)),
        Err(error @ (NoDriver | MissingSymbol { .. } | DriverTooOld { .. } | NoDevice { .. })) => {
            missing("cuda", &error)
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens wgpu adapter 0. `None`, after saying what to install, where there is none.
///
/// # Errors
///
/// The driver's; and that there is no adapter, where `MILLPOND_REQUIRE` names `wgpu`.
pub fn wgpu() -> Result<Option<Wgpu>> {
    match Wgpu::open(0) {
        Ok(device) => Ok(Some(device)),
        Err(error @ WgpuError::NoAdapter { .. }) => missing("wgpu", &error),
        Err(error) => Err(error.into()),
    }
}

/// Fails if a device has objected to something: Vulkan's validation layer, or wgpu outside of Millpond's own calls.
///
/// # Errors
///
/// All that it found.
pub fn expect_no_objection(messages: &[String]) -> Result<()> {
    if messages.is_empty() { Ok(()) } else { Err(format!("the device was misused: {}", messages.join("\n")).into()) }
}

fn is_absence(error: &VulkanError) -> bool {
    use VulkanError::{Lacks, NoDevice, NoDriver, NoLoader};
    matches!(error, NoLoader { .. } | NoDriver { .. } | NoDevice { .. } | Lacks { .. })
}

/// Says that there is no such device. Where it must not be missing, that is an error.
fn missing<T>(power: &str, reason: &dyn Display) -> Result<Option<T>> {
    let required = std::env::var(REQUIRE).is_ok_and(|list| list.split(',').any(|each| each.trim() == power));
    if required {
        return Err(format!("{REQUIRE} names {power}: {reason}").into());
    }
    eprintln!("SKIPPED, no {power} here: {reason}");
    Ok(None)
}
