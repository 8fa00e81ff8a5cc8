//! Binding part of a segment as a storage buffer.

use ash::vk;

use crate::error::VulkanError;
use crate::probe::Probe;

/// The device's limits on the range of a storage buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DescriptorLimits {
    /// `minStorageBufferOffsetAlignment`.
    pub(super) offset_alignment: u64,
    /// `maxStorageBufferRange`.
    max_bytes: u64,
}

impl DescriptorLimits {
    /// Returns the limits of a device, which its segments keep.
    pub(crate) fn of(probe: &Probe) -> DescriptorLimits {
        let limits = &probe.properties.limits;
        DescriptorLimits {
            offset_alignment: limits.min_storage_buffer_offset_alignment,
            max_bytes: u64::from(limits.max_storage_buffer_range),
        }
    }

    /// Returns a range of a buffer as a storage buffer's descriptor. The range is inside.
    pub(crate) fn descriptor(
        &self,
        buffer: vk::Buffer,
        offset: u64,
        bytes: u64,
    ) -> Result<vk::DescriptorBufferInfo, VulkanError> {
        let DescriptorLimits { offset_alignment: alignment, max_bytes: max } = *self;
        if !offset.is_multiple_of(alignment) {
            return Err(VulkanError::DescriptorOffset { offset, alignment });
        }
        if bytes > max {
            return Err(VulkanError::DescriptorTooLarge { bytes, max });
        }
        Ok(vk::DescriptorBufferInfo::default().buffer(buffer).offset(offset).range(bytes))
    }
}
