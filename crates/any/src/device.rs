//! A device that was chosen by name or found, and the list of all that there are.

use std::fmt;

use millpond_backend::{Backend, Caps};

use crate::error::{AnyError, PassedOver};
use crate::macros::{erased, on};
#[cfg(any(feature = "sim", feature = "cuda", feature = "vulkan", feature = "wgpu"))]
use crate::options;

erased! {
    /// A device of any backend, for one or several allocators. Cheap to clone; clones are the same device.
    ///
    /// It is a backend, as each of the devices is. Who calls the contract directly asks for abilities first, with
    /// [`transfer`](millpond_backend::Backend::transfer) and its like, and passes only memory of this device: what it
    /// lacks, and memory of another backend, ends in a panic.
    ///
    /// [`open`](AnyDevice::open) opens it by name. A device that the program has opened itself with its backend, for
    /// example the Vulkan device of an engine, is converted with [`From`].
    #[derive(Clone)]
    AnyDevice: millpond_sim::Sim, millpond_cuda::Cuda, millpond_vulkan::Vulkan, millpond_wgpu::Wgpu
}

/// Makes the conversion of the devices of one backend.
macro_rules! from_device {
    ($feature:literal, $variant:ident, $device:ty) => {
        #[cfg(feature = $feature)]
        impl From<$device> for AnyDevice {
            fn from(device: $device) -> Self {
                Self::$variant(device)
            }
        }
    };
}

from_device!("sim", Sim, millpond_sim::Sim);
from_device!("cuda", Cuda, millpond_cuda::Cuda);
from_device!("vulkan", Vulkan, millpond_vulkan::Vulkan);
from_device!("wgpu", Wgpu, millpond_wgpu::Wgpu);

/// The names of all backends, the preferred ones first.
pub const BACKENDS: [&str; 4] = ["cuda", "vulkan", "wgpu", "sim"];

/// The best device of this machine, as [`AnyDevice::open_best`] found it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Best {
    /// The device.
    pub device: AnyDevice,
    /// The name with which [`AnyDevice::open`] opens the same one.
    pub name: String,
    /// The backends that were tried before, and why they gave no device.
    pub passed_over: Vec<PassedOver>,
}

impl AnyDevice {
    /// Opens a device by its name: `sim`, `cuda:0`, `vulkan:1`, `wgpu:0`. A name without a number is the backend's
    /// first GPU, or else its first device. [Options](crate::options) follow a colon or a comma, such as
    /// `sim:bytes=16GiB` and `cuda:0,alloc=async`.
    ///
    /// # Errors
    ///
    /// [`AnyError::Name`] for a name that no device can have, [`AnyError::NotBuiltIn`] if the feature of the backend
    /// is not enabled, [`AnyError::NoDevice`] if the device does not open.
    pub fn open(name: &str) -> Result<AnyDevice, AnyError> {
        let (backend, options) = name.split_once(':').unwrap_or((name, ""));
        let Some(backend) = BACKENDS.into_iter().find(|known| *known == backend) else {
            let why = format!("there is no backend `{backend}`; there are {}", BACKENDS.join(", "));
            return Err(AnyError::Name { name: name.into(), why });
        };
        let opened = match backend {
            #[cfg(feature = "sim")]
            "sim" => options::SimOptions::parse(options).map(|options| Ok(AnyDevice::Sim(options.open()))),
            #[cfg(feature = "cuda")]
            "cuda" => options::CudaOptions::parse(options).map(|it| it.open().map(AnyDevice::Cuda).map_err(Into::into)),
            #[cfg(feature = "vulkan")]
            "vulkan" => {
                options::VulkanOptions::parse(options).map(|it| it.open().map(AnyDevice::Vulkan).map_err(Into::into))
            }
            #[cfg(feature = "wgpu")]
            "wgpu" => options::WgpuOptions::parse(options).map(|it| it.open().map(AnyDevice::Wgpu).map_err(Into::into)),
            _ => {
                let _ = options;
                return Err(AnyError::NotBuiltIn { name: name.into(), backend });
            }
        };
        match opened {
            Ok(Ok(device)) => Ok(device),
            Ok(Err(source)) => Err(AnyError::NoDevice { name: name.into(), source }),
            Err(why) => Err(AnyError::Name { name: name.into(), why }),
        }
    }

    /// Opens the first GPU that there is, by `cuda`, `vulkan` and `wgpu` in this order, or else the simulated device.
    /// Software devices are left out: open them by name. A GPU that does not open is skipped like a missing one.
    ///
    /// # Errors
    ///
    /// [`AnyError::NoneOpens`] if nothing opens, which needs a build without the feature `sim`.
    pub fn open_best() -> Result<Best, AnyError> {
        let mut passed_over = Vec::new();
        for backend in BACKENDS {
            let opened = preferred(backend).and_then(|name| match AnyDevice::open(&name) {
                Ok(device) => Ok((device, name)),
                Err(AnyError::NoDevice { name, source }) => Err(format!("`{name}` does not open: {source}")),
                Err(error) => Err(error.to_string()),
            });
            match opened {
                Ok((device, name)) => return Ok(Best { device, name, passed_over }),
                Err(why) => passed_over.push(PassedOver { backend, why }),
            }
        }
        Err(AnyError::NoneOpens { passed_over })
    }

    /// Returns the device's facts: its name, its classes of memory, and what it can do.
    pub fn caps(&self) -> &Caps {
        on!(self, AnyDevice(device) => device.caps())
    }
}

/// Returns the name of the best device of a backend, or why it has none.
fn preferred(backend: &'static str) -> Result<String, String> {
    match backend {
        #[cfg(feature = "sim")]
        "sim" => options::SimOptions::preferred().map(|_| "sim".into()),
        #[cfg(feature = "cuda")]
        "cuda" => options::CudaOptions::preferred().map(|it| format!("cuda:{}", it.ordinal())),
        #[cfg(feature = "vulkan")]
        "vulkan" => options::VulkanOptions::preferred().map(|it| format!("vulkan:{}", it.index.unwrap_or(0))),
        #[cfg(feature = "wgpu")]
        "wgpu" => options::WgpuOptions::preferred().map(|it| it.label()),
        _ => Err(format!("the program was built without it; enable the feature `{backend}` of millpond-any")),
    }
}

impl fmt::Debug for AnyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyDevice({}: {})", self.backend_name(), self.caps().name)
    }
}
