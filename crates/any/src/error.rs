//! The errors: what the typed ones say, in one type.

use std::error::Error as StdError;
use std::fmt;

use millpond::conf::ConfError;
use millpond::text::with_causes;
use millpond::typed::ViewError;
use millpond::{BuildError, Error, ErrorKind, OutOfMemory};
use millpond_backend::{BackendError, Fault, Shortage};

use crate::macros::on;

/// Any error of this crate. Errors of the typed types are passed on in full.
///
/// `Debug` prints the text with its causes, so that a `main` that returns the error says what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum AnyError {
    /// An error of an allocator, a stream or a buffer.
    #[error(transparent)]
    Allocator(#[from] Error<DriverError>),
    /// The settings or the configuration do not suit the device, or are malformed.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A name that no device can have.
    #[error("the device `{name}`: {why}")]
    Name {
        /// The name that was given.
        name: String,
        /// The part that is wrong, and what is accepted.
        why: String,
    },
    /// A name of a backend that the program was built without.
    #[error("the device `{name}`: the program was built without it; enable the feature `{backend}` of millpond-any")]
    NotBuiltIn {
        /// The name that was given.
        name: String,
        /// The backend, and the feature that has it.
        backend: &'static str,
    },
    /// A device that does not open.
    #[error("the device `{name}` does not open")]
    NoDevice {
        /// The name that was given.
        name: String,
        /// What is missing, or the driver's error.
        source: DriverError,
    },
    /// No device at all could be opened, as the simulated one is not built in.
    #[error("no device can be opened: {}", list(passed_over))]
    NoneOpens {
        /// The backends that were tried, and the reasons.
        passed_over: Vec<PassedOver>,
    },
}

impl fmt::Debug for AnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_causes(self))
    }
}

/// A backend that was tried and gave no device.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PassedOver {
    /// The name of the backend.
    pub backend: &'static str,
    /// The reason, as a sentence without a full stop.
    pub why: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.backend, self.why)
    }
}

fn list(passed_over: &[PassedOver]) -> String {
    if passed_over.is_empty() {
        return "none is built in; enable a feature of millpond-any".into();
    }
    passed_over.iter().map(PassedOver::to_string).collect::<Vec<_>>().join("; ")
}

impl AnyError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            AnyError::Allocator(error) => error.kind(),
            AnyError::Build(BuildError::Unsupported { .. }) => ErrorKind::Unsupported,
            AnyError::NotBuiltIn { .. } | AnyError::NoDevice { .. } | AnyError::NoneOpens { .. } => ErrorKind::NoDevice,
            AnyError::Build(_) | AnyError::Name { .. } => ErrorKind::Input,
        }
    }

    /// Returns the explanation with the report, if an allocator had no memory for a request.
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self {
            AnyError::Allocator(error) => error.out_of_memory(),
            _ => None,
        }
    }

    /// Returns the driver's own error, if a driver's call failed.
    pub fn driver(&self) -> Option<&DriverError> {
        match self {
            AnyError::Allocator(error) => error.driver(),
            AnyError::NoDevice { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A driver's own error, as the backend returned it. It is boxed, because some are large.
#[derive(Debug)]
#[non_exhaustive]
pub enum DriverError {
    /// The simulated device's.
    #[cfg(feature = "sim")]
    Sim(Box<millpond_sim::SimError>),
    /// CUDA's.
    #[cfg(feature = "cuda")]
    Cuda(Box<millpond_cuda::CudaError>),
    /// Vulkan's.
    #[cfg(feature = "vulkan")]
    Vulkan(Box<millpond_vulkan::VulkanError>),
    /// wgpu's.
    #[cfg(feature = "wgpu")]
    Wgpu(Box<millpond_wgpu::WgpuError>),
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        on!(self, DriverError(error) => error.fmt(f))
    }
}

impl StdError for DriverError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        on!(self, DriverError(error) => error.source())
    }
}

impl BackendError for DriverError {
    fn fault(&self) -> Fault {
        on!(self, DriverError(error) => error.fault())
    }

    fn shortage(&self) -> Shortage {
        on!(self, DriverError(error) => error.shortage())
    }
}

impl From<ConfError> for AnyError {
    fn from(source: ConfError) -> Self {
        AnyError::Build(BuildError::Conf { source })
    }
}

impl From<ViewError> for AnyError {
    fn from(error: ViewError) -> Self {
        AnyError::Allocator(Error::View(error))
    }
}

/// Makes the conversion from the error of one backend.
macro_rules! from_driver {
    ($feature:literal, $variant:ident, $error:ty) => {
        #[cfg(feature = $feature)]
        impl From<$error> for DriverError {
            fn from(error: $error) -> Self {
                DriverError::$variant(Box::new(error))
            }
        }
    };
}

from_driver!("sim", Sim, millpond_sim::SimError);
from_driver!("cuda", Cuda, millpond_cuda::CudaError);
from_driver!("vulkan", Vulkan, millpond_vulkan::VulkanError);
from_driver!("wgpu", Wgpu, millpond_wgpu::WgpuError);
