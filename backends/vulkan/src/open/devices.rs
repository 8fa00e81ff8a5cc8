//! The list of devices.

use std::ffi::OsString;

use ash::vk;

use super::instance::Instance;
use crate::error::VulkanError;
use crate::probe::{DeviceInfo, Probe};

/// Returns all physical devices, in the loader's order. There is at least one.
pub(crate) fn physical_devices(instance: &Instance) -> Result<Vec<vk::PhysicalDevice>, VulkanError> {
    // SAFETY: the instance is alive; the call has no other condition.
    let found = unsafe { instance.raw.enumerate_physical_devices() };
    match found {
        Ok(devices) if !devices.is_empty() => Ok(devices),
        Ok(_) => Err(VulkanError::NoDriver { reason: "it lists no device".to_owned() }),
        Err(vk::Result::ERROR_INITIALIZATION_FAILED) => {
            Err(VulkanError::NoDriver { reason: "its drivers fail to start".to_owned() })
        }
        Err(result) => Err(VulkanError::Driver { call: "vkEnumeratePhysicalDevices", result }),
    }
}

/// Lists the devices of this machine.
pub(crate) fn list(loader: Option<&OsString>) -> Result<Vec<DeviceInfo>, VulkanError> {
    let instance = Instance::open(loader, false)?;
    let mut infos = Vec::new();
    for (index, physical) in physical_devices(&instance)?.into_iter().enumerate() {
        infos.push(DeviceInfo::of(index, &Probe::new(&instance.raw, physical)?));
    }
    Ok(infos)
}
