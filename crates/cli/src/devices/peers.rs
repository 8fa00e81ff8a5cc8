//! Other allocators of a device, which are measured beside Millpond.

use super::Target;
use crate::failure::Failure;

/// Another allocator.
pub(crate) struct Peer {
    /// The name of the allocator, for readers.
    pub(crate) name: &'static str,
    /// The most pairs in a round: a lower number where each pair calls the driver.
    pub(crate) max_per_round: u64,
    /// Allocates the given number of bytes and frees them.
    pub(crate) pair: Box<dyn FnMut(u64) -> Result<(), Failure>>,
}

impl Target {
    /// Returns the peers that the backend offers, each on a device opened for it.
    ///
    /// # Errors
    ///
    /// Returns [`Failure::Device`] if the device does not open.
    pub(crate) fn peers(&self) -> Result<Vec<Peer>, Failure> {
        match self {
            Self::Sim(_) => Ok(Vec::new()),
            #[cfg(feature = "cuda")]
            Self::Cuda(options) => options.peers(),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(options) => options.peers(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(options) => options.peers(),
        }
    }
}
