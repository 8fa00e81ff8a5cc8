//! What the builder determines for the rooms that stand on the device.

use ash::vk;
use millpond_backend::ClassId;

use super::driver::EnabledFeatures;
use crate::error::VulkanError;
use crate::probe::ExportKind;

/// The number of memory classes of a Vulkan device.
pub(crate) const COUNT: usize = 4;

/// The usages that transfers need, whatever other usages a buffer has.
pub(crate) const TRANSFER: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw() | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

/// The usages of buffers unless the builder sets others: those that need neither a feature nor an extension.
pub(crate) const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::UNIFORM_BUFFER.as_raw()
        | vk::BufferUsageFlags::STORAGE_TEXEL_BUFFER.as_raw()
        | vk::BufferUsageFlags::UNIFORM_TEXEL_BUFFER.as_raw()
        | vk::BufferUsageFlags::INDIRECT_BUFFER.as_raw()
        | vk::BufferUsageFlags::INDEX_BUFFER.as_raw()
        | vk::BufferUsageFlags::VERTEX_BUFFER.as_raw(),
);

/// The least granularity of pages in bytes, unless the builder sets another: the size of a large page on most devices.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// The settings of a device that do not concern its opening.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The usages of each class's buffers.
    pub(crate) usages: [vk::BufferUsageFlags; COUNT],
    /// Whether other code submits work that touches the memory, without going through the device.
    pub(crate) engine_submits: bool,
    /// The least granularity of pages, in bytes.
    pub(crate) page_granularity: u64,
    /// How the memory of segments of class 0 can be exported.
    pub(crate) exports: Option<ExportKind>,
}

impl Settings {
    /// Returns an error if a class's buffers should have usages whose features are not enabled.
    pub(crate) fn check(&self, enabled: EnabledFeatures) -> Result<(), VulkanError> {
        let mut allowed = USAGE | TRANSFER;
        if enabled.buffer_device_address {
            allowed |= vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
        }
        for (class, &usage) in (0..).map(ClassId).zip(&self.usages) {
            let refused = usage & !allowed;
            if !refused.is_empty() {
                return Err(VulkanError::Usage { class, refused, allowed });
            }
        }
        Ok(())
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { usages: [USAGE; COUNT], engine_submits: false, page_granularity: GRANULARITY, exports: None }
    }
}
