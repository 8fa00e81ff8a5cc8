//! Segments, as users see them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;
use millpond_backend::ClassId;
use millpond_kit::{Misuse, Remedy};

use super::descriptor::DescriptorLimits;
use crate::error::VulkanError;
use crate::open::HostPointer;

/// A segment of a Vulkan device: one `VkBuffer` with memory of its own, for all queue families that the device was
/// opened with (concurrent sharing where there are several), so that queue ownership is never transferred.
///
/// It is owned, as the contract requires. A segment that is dropped without `release` stays with the device until the
/// device's last handle is dropped. The buffer is destroyed with the device, even if the segment still exists.
pub struct Segment {
    /// The device's number within the process.
    pub(crate) device: u64,
    /// Unique on its device, never reused.
    pub(crate) id: u64,
    pub(crate) buffer: vk::Buffer,
    pub(crate) bytes: u64,
    pub(crate) class: ClassId,
    pub(crate) memory_type: u32,
    pub(crate) address: Option<u64>,
    pub(crate) mapped: Option<HostPointer>,
    pub(crate) limits: DescriptorLimits,
    /// Whether code outside of this backend has the buffer's handle.
    pub(crate) shown: AtomicBool,
}

impl Segment {
    /// Returns the buffer. Bytes 0 to [`bytes`](Segment::bytes) of it are the segment.
    ///
    /// When an allocator is dropped, its memory goes back at once if no buffer was returned here. If one was, commands
    /// may have been recorded that use it, and the memory goes back with the next submit of the streams that used it.
    pub fn buffer(&self) -> vk::Buffer {
        // Mostly it is noted already. A write would take the cache line from other threads.
        if !self.is_shown() {
            self.shown.store(true, Ordering::Relaxed);
        }
        self.buffer
    }

    /// Returns whether code outside of this backend has the buffer's handle, so that commands may use the buffer which
    /// this backend does not know of.
    pub(crate) fn is_shown(&self) -> bool {
        self.shown.load(Ordering::Relaxed)
    }

    /// Returns its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the class that it was taken from.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// Returns the index of its memory type.
    pub fn memory_type(&self) -> u32 {
        self.memory_type
    }

    /// Returns the range as a storage buffer's descriptor. Costs nothing.
    ///
    /// Blocks start at multiples of 512 and no device requires more than 256, so the start of a block can always be
    /// bound. Any length is allowed: bind the requested bytes (`Buffer::len`), not the rounded block
    /// (`Buffer::capacity`), whose end holds what the previous user of the memory left there. The buffer has the usage
    /// for it unless [`VulkanBuilder::usage`](crate::VulkanBuilder::usage) excluded it.
    ///
    /// # Errors
    ///
    /// [`Misuse::Empty`], [`Misuse::OutOfRange`], [`VulkanError::DescriptorOffset`] for an offset that is no multiple
    /// of `minStorageBufferOffsetAlignment`, and [`VulkanError::DescriptorTooLarge`] for more bytes than
    /// `maxStorageBufferRange`.
    pub fn descriptor(&self, offset: u64, bytes: u64) -> Result<vk::DescriptorBufferInfo, VulkanError> {
        Misuse::if_empty("descriptor", bytes)?;
        self.check(offset, bytes)?;
        self.limits.descriptor(self.buffer(), offset, bytes)
    }

    /// Returns a descriptor that covers a range which may begin at any byte, and the number of bytes in it before the
    /// range, for a shader that takes its first element as a number. Costs nothing.
    ///
    /// A storage buffer's descriptor begins at a multiple of `minStorageBufferOffsetAlignment`, so part of a block
    /// usually has none of its own. The bytes before the range belong to what lies next to it, in its own block, and
    /// the shader leaves them alone. A kernel that takes addresses needs none of this: `Buffer::address` is one.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`descriptor`](Segment::descriptor), except for an offset.
    pub fn window(&self, offset: u64, bytes: u64) -> Result<(vk::DescriptorBufferInfo, u64), VulkanError> {
        Misuse::if_empty("window", bytes)?;
        self.check(offset, bytes)?;
        let before = offset % self.limits.offset_alignment;
        self.descriptor(offset - before, before + bytes).map(|descriptor| (descriptor, before))
    }

    /// Returns whether the host sees it.
    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped.is_some()
    }

    /// Returns an error if the bytes leave the segment.
    pub(crate) fn check(&self, offset: u64, bytes: u64) -> Result<(), Misuse> {
        Misuse::if_outside(offset, bytes, self.bytes)
    }

    /// Returns an error if the segment belongs to another device than `own`.
    pub(crate) fn of(&self, own: u64, call: &'static str) -> Result<(), Misuse> {
        if self.device == own {
            return Ok(());
        }
        Err(Misuse::Foreign { call, own, other: self.device, remedy: Remedy::CopyThroughHost("Vulkan") })
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("buffer", &self.buffer)
            .field("bytes", &self.bytes)
            .field("class", &self.class.0)
            .finish_non_exhaustive()
    }
}
