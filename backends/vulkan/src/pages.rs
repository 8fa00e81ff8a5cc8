//! Handles of physical memory.

use std::fmt;

use ash::vk;
use millpond_backend::ClassId;

/// A handle of physical memory: one `VkDeviceMemory`. What is dropped without `release_page` stays with the device
/// until its last handle is dropped.
pub struct Page {
    pub(crate) memory: vk::DeviceMemory,
    pub(crate) bytes: u64,
    pub(crate) class: ClassId,
}

impl Page {
    /// The memory itself.
    pub fn memory(&self) -> vk::DeviceMemory {
        self.memory
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The class that it was taken from.
    pub fn class(&self) -> ClassId {
        self.class
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("memory", &self.memory).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
