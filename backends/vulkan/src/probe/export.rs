//! The kinds in which a device exports memory.

use std::ffi::CStr;

use ash::{ext, khr, vk};

/// The form in which the memory of segments leaves the device, for other APIs and processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ExportKind {
    /// An opaque file descriptor, which CUDA and other Vulkan devices of the same GPU and driver import.
    OpaqueFd,
    /// A DMA buffer, which other drivers of the machine import.
    DmaBuf,
}

impl ExportKind {
    /// Every kind.
    pub(crate) const ALL: [ExportKind; 2] = [ExportKind::OpaqueFd, ExportKind::DmaBuf];

    /// Returns Vulkan's name for it.
    pub fn handle_type(self) -> vk::ExternalMemoryHandleTypeFlags {
        match self {
            ExportKind::OpaqueFd => vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD,
            ExportKind::DmaBuf => vk::ExternalMemoryHandleTypeFlags::DMA_BUF_EXT,
        }
    }

    /// Returns the extensions that it needs.
    pub(crate) fn extensions(self) -> &'static [&'static CStr] {
        match self {
            ExportKind::OpaqueFd => &[khr::external_memory_fd::NAME],
            ExportKind::DmaBuf => &[khr::external_memory_fd::NAME, ext::external_memory_dma_buf::NAME],
        }
    }
}

/// Returns the kinds in which the device exports memory of storage buffers, whose other usages make no difference.
pub(super) fn exports(
    raw: &ash::Instance,
    physical: vk::PhysicalDevice,
    has: &dyn Fn(&CStr) -> bool,
) -> Vec<ExportKind> {
    let exports = |kind: &ExportKind| {
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
        let info = vk::PhysicalDeviceExternalBufferInfo::default().usage(usage).handle_type(kind.handle_type());
        let mut found = vk::ExternalBufferProperties::default();
        // SAFETY: the physical device belongs to the instance, and has the extensions that the handle type is of.
        unsafe { raw.get_physical_device_external_buffer_properties(physical, &info, &mut found) };
        let features = found.external_memory_properties.external_memory_features;
        features.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE)
    };
    let kinds = ExportKind::ALL.into_iter();
    kinds.filter(|kind| kind.extensions().iter().all(|name| has(name))).filter(exports).collect()
}
