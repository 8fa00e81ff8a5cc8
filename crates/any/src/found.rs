//! The devices of this machine, by the names that open them.

#[cfg(any(feature = "cuda", feature = "vulkan", feature = "wgpu"))]
use millpond::text::with_causes;

use crate::device::BACKENDS;
use crate::error::PassedOver;

/// A device of this machine, as [`devices`] lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Found {
    /// The name with which [`AnyDevice::open`](crate::AnyDevice::open) opens it.
    pub name: String,
    /// The name that its driver gives it.
    pub label: String,
    /// Whether it is a GPU: not simulated and not in software.
    pub is_gpu: bool,
}

/// Lists the devices of all backends that are built in, the preferred backends first. A backend without devices is
/// listed with the reason. Loads drivers but opens no device, so a listed device may still fail to open.
pub fn devices() -> Vec<Result<Found, PassedOver>> {
    let mut all = Vec::new();
    for backend in BACKENDS {
        match list(backend) {
            None => {}
            Some(Ok(found)) if found.is_empty() => {
                all.push(Err(PassedOver { backend, why: "the driver has no device".into() }));
            }
            Some(Ok(found)) => all.extend(found.into_iter().map(Ok)),
            Some(Err(why)) => all.push(Err(PassedOver { backend, why })),
        }
    }
    all
}

/// Returns the devices of a backend, or why there are none; `None` if it is not built in.
fn list(backend: &str) -> Option<Result<Vec<Found>, String>> {
    match backend {
        #[cfg(feature = "sim")]
        "sim" => {
            let label = millpond_backend::Backend::caps(&millpond_sim::Sim::new()).name.clone();
            Some(Ok(vec![Found { name: "sim".into(), label, is_gpu: false }]))
        }
        #[cfg(feature = "cuda")]
        "cuda" => Some(cuda()),
        #[cfg(feature = "vulkan")]
        "vulkan" => Some(vulkan()),
        #[cfg(feature = "wgpu")]
        "wgpu" => Some(wgpu()),
        _ => None,
    }
}

#[cfg(feature = "cuda")]
fn cuda() -> Result<Vec<Found>, String> {
    let devices = millpond_cuda::Cuda::devices().map_err(|error| with_causes(&error))?;
    let found = |info: millpond_cuda::DeviceInfo| {
        let name = format!("cuda:{}", info.ordinal);
        Found { name, label: info.name, is_gpu: true }
    };
    Ok(devices.into_iter().map(found).collect())
}

#[cfg(feature = "vulkan")]
fn vulkan() -> Result<Vec<Found>, String> {
    use millpond_vulkan::ash::vk::PhysicalDeviceType;
    let devices = millpond_vulkan::Vulkan::devices().map_err(|error| with_causes(&error))?;
    let found = |info: millpond_vulkan::DeviceInfo| {
        let name = format!("vulkan:{}", info.index);
        Found { name, is_gpu: info.kind != PhysicalDeviceType::CPU, label: info.name }
    };
    Ok(devices.into_iter().map(found).collect())
}

#[cfg(feature = "wgpu")]
fn wgpu() -> Result<Vec<Found>, String> {
    let adapters = millpond_wgpu::Wgpu::adapters().map_err(|error| with_causes(&error))?;
    let found = |(index, info): (usize, &millpond_wgpu::wgpu::AdapterInfo)| Found {
        name: format!("wgpu:{index}"),
        is_gpu: crate::options::is_gpu(info),
        label: info.name.clone(),
    };
    Ok(adapters.iter().enumerate().map(found).collect())
}
