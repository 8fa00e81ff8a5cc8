//! Looking for devices, with a message where there is none.

use std::fmt::Display;

use millpond_cuda::{Cuda, CudaError};
use millpond_vulkan::{Vulkan, VulkanBuilder, VulkanError};
use millpond_wgpu::wgpu::Features;
use millpond_wgpu::{Wgpu, WgpuError};

use crate::cuda_kernel;
use crate::engine::Result;

/// The environment variable that names, with commas between them, what must not be missing: "vulkan", "wgpu", "cuda",
/// "nvrtc", "validation". It is meant for machines that run tests.
const REQUIRE: &str = "MILLPOND_REQUIRE";

/// Opens Vulkan device 0, under the validation layer where that is installed, or where `MILLPOND_REQUIRE` names
/// `validation`. Where there is no such device, prints
/// what to install and returns `None`.
///
/// # Errors
///
/// Returns the error of the driver, or that there is no device where `MILLPOND_REQUIRE` names `vulkan`.
pub fn vulkan() -> Result<Option<Vulkan>> {
    vulkan_with(Vulkan::builder())
}

/// Works like [`vulkan`], for the device that the builder describes.
///
/// # Errors
///
/// As for [`vulkan`].
pub fn vulkan_with(builder: VulkanBuilder) -> Result<Option<Vulkan>> {
    let opened = match builder.clone().validation(true).build() {
        Err(VulkanError::NoValidation) if !is_required("validation") => builder.build(),
        opened => opened,
    };
    match opened {
        Ok(device) => Ok(Some(device)),
        Err(error) if is_absence(&error) => missing("vulkan", &error),
        Err(error) => Err(error.into()),
    }
}

/// Opens CUDA device 0. Where there is none, prints what to install and returns `None`.
///
/// # Errors
///
/// Returns the error of the driver, or that there is no device where `MILLPOND_REQUIRE` names `cuda`.
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

/// Returns whether kernels can be compiled here for this device and run on it. Where not, prints what to install.
///
/// # Errors
///
/// Returns that they cannot, where `MILLPOND_REQUIRE` names `nvrtc`.
pub fn cuda_kernels(cuda: &Cuda) -> Result<bool> {
    match cuda_kernel::runs_kernels(cuda).and_then(|()| cuda_kernel::compiler()) {
        Ok(()) => Ok(true),
        Err(error) => missing::<()>("nvrtc", &error).map(|_| false),
    }
}

/// Opens wgpu adapter 0, with `shader-f16` if it has that. Where there is none, prints what to install and returns
/// `None`.
///
/// # Errors
///
/// Returns the error of the driver, or that there is no adapter where `MILLPOND_REQUIRE` names `wgpu`.
pub fn wgpu() -> Result<Option<Wgpu>> {
    let opened = match Wgpu::builder().features(Features::SHADER_F16).build() {
        Err(WgpuError::NoDevice { .. }) => Wgpu::open(0),
        opened => opened,
    };
    match opened {
        Ok(device) => Ok(Some(device)),
        Err(error @ WgpuError::NoAdapter { .. }) => missing("wgpu", &error),
        Err(error) => Err(error.into()),
    }
}

/// Fails if a device has objected to something: Vulkan's validation layer, or wgpu outside of Millpond's own calls.
///
/// # Errors
///
/// Returns all messages.
pub fn expect_no_objection(messages: &[String]) -> Result<()> {
    if messages.is_empty() { Ok(()) } else { Err(format!("the device was misused: {}", messages.join("\n")).into()) }
}

fn is_absence(error: &VulkanError) -> bool {
    use VulkanError::{Lacks, NoDevice, NoDriver, NoLoader};
    matches!(error, NoLoader { .. } | NoDriver { .. } | NoDevice { .. } | Lacks { .. })
}

/// Returns whether the environment says that this must not be missing.
fn is_required(power: &str) -> bool {
    std::env::var(REQUIRE).is_ok_and(|list| list.split(',').any(|each| each.trim() == power))
}

/// Prints that there is no such device. Where it must not be missing, that is an error.
fn missing<T>(power: &str, reason: &dyn Display) -> Result<Option<T>> {
    if is_required(power) {
        return Err(format!("{REQUIRE} names {power}: {reason}").into());
    }
    eprintln!("SKIPPED, no {power} here: {reason}");
    Ok(None)
}
