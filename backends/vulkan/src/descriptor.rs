//! Binding part of a segment as a storage buffer.

use ash::vk;

use crate::device::Device;
use crate::{Segment, VulkanError};

/// The device's limits on the range of a storage buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DescriptorLimits {
    /// `minStorageBufferOffsetAlignment`.
    offset_alignment: u64,
    /// `maxStorageBufferRange`.
    max_bytes: u64,
}

impl Device {
    /// Returns the device's limits for descriptors, which its segments keep.
    pub(crate) fn descriptor_limits(&self) -> DescriptorLimits {
        let limits = &self.probe.properties.limits;
        DescriptorLimits {
            offset_alignment: limits.min_storage_buffer_offset_alignment,
            max_bytes: u64::from(limits.max_storage_buffer_range),
        }
    }
}

impl Segment {
    /// Returns the range as a storage buffer's descriptor. Costs nothing.
    ///
    /// Blocks start at multiples of 512 and no device requires more than 256, so the start of a block can always be
    /// bound. Any length is allowed: bind the bytes that were asked for (`Buffer::len`), not the rounded block
    /// (`Buffer::capacity`), whose end holds what the previous user of the memory left there. The buffer has the usage
    /// for it unless [`VulkanBuilder::usage`](crate::VulkanBuilder::usage) excluded it.
    ///
    /// # Errors
    ///
    /// [`VulkanError::Empty`], [`VulkanError::OutOfRange`], [`VulkanError::DescriptorOffset`] for an offset that is no
    /// multiple of `minStorageBufferOffsetAlignment`, and [`VulkanError::DescriptorTooLarge`] for more bytes than
    /// `maxStorageBufferRange`.
    pub fn descriptor(&self, offset: u64, bytes: u64) -> Result<vk::DescriptorBufferInfo, VulkanError> {
        if bytes == 0 {
            return Err(VulkanError::Empty { call: "descriptor" });
        }
        self.check(offset, bytes)?;
        let DescriptorLimits { offset_alignment: alignment, max_bytes: max } = self.limits;
        if !offset.is_multiple_of(alignment) {
            return Err(VulkanError::DescriptorOffset { offset, alignment });
        }
        if bytes > max {
            return Err(VulkanError::DescriptorTooLarge { bytes, max });
        }
        Ok(vk::DescriptorBufferInfo::default().buffer(self.buffer).offset(offset).range(bytes))
    }
}
