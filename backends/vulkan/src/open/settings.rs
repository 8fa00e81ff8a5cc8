//! What the builder determines for the rooms that stand on the device.

use ash::vk;

/// The number of memory classes of a Vulkan device.
pub(crate) const COUNT: usize = 3;

/// The usages of buffers unless the builder sets others.
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
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { usages: [USAGE; COUNT], engine_submits: false, page_granularity: GRANULARITY }
    }
}
