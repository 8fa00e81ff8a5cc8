//! Pages, as users see them.

use std::fmt;

use ash::vk;
use millpond_backend::ClassId;

/// A handle of physical memory: one `VkDeviceMemory`. A page that is dropped without `release_page` stays with the
/// device until the device's last handle is dropped.
pub struct Page {
    /// The device's number within the process.
    pub(crate) device: u64,
    pub(crate) memory: vk::DeviceMemory,
    pub(crate) bytes: u64,
    pub(crate) class: ClassId,
}

impl Page {
    /// Returns the memory itself.
    pub fn memory(&self) -> vk::DeviceMemory {
        self.memory
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the class that it was taken from.
    pub fn class(&self) -> ClassId {
        self.class
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("memory", &self.memory).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
