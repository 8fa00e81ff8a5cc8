//! Others who allocate on a device, to be measured beside Millpond.

use super::Target;
use crate::failure::Failure;

/// One of them.
pub(crate) struct Peer {
    /// What people call it.
    pub(crate) name: &'static str,
    /// So many pairs make a round; fewer where each is a call of the driver.
    pub(crate) max_per_round: u64,
    /// Allocates so many bytes and frees them.
    pub(crate) pair: Box<dyn FnMut(u64) -> Result<(), Failure>>,
}

impl Target {
    /// The peers that the backend offers, each on a device opened for it.
    ///
    /// # Errors
    ///
    /// [`Failure::Device`] if the device does not open.
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
