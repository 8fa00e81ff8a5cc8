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
    /// What it is bound to, unless it is a range.
    pub(crate) memory: Option<SegmentMemory>,
    pub(crate) address: Option<u64>,
    pub(crate) mapped: Option<HostPointer>,
    pub(crate) limits: DescriptorLimits,
    /// Whether code outside of this backend has the buffer's handle.
    pub(crate) shown: AtomicBool,
}

/// The memory behind a segment, from [`Segment::memory`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SegmentMemory {
    /// The memory. It belongs to the device, which frees it with the segment.
    pub memory: vk::DeviceMemory,
    /// The offset in it at which the segment's buffer is bound, in bytes. A block is at this plus `Buffer::offset`.
    pub offset: u64,
    /// The index of its memory type. What is bound to it needs this bit in its `memoryTypeBits`.
    pub memory_type: u32,
    /// What the driver requires of the memory of the segment's buffer: its size is that of the allocation.
    pub requirements: vk::MemoryRequirements,
    /// Whether it was allocated for its buffer alone (`VkMemoryDedicatedAllocateInfo`), so that nothing else may be
    /// bound to it: in class 0 only.
    pub is_dedicated: bool,
}

impl Segment {
    /// Returns the memory that the segment's buffer is bound to; `None` for a range, whose pages are memory each
    /// ([`Page::memory`](crate::Page::memory)) and may move. Costs nothing.
    ///
    /// Images and buffers of your own may be bound to memory of the class [`Vulkan::IMAGE`](crate::Vulkan::IMAGE), and
    /// buffers to that of the host's classes, into blocks that `Stream::allocate_aligned` returns. A block of an
    /// allocator stays at its place in the memory until it is dropped. Like [`buffer`](Segment::buffer), this counts as
    /// having shown the segment to code outside.
    pub fn memory(&self) -> Option<SegmentMemory> {
        let memory = self.memory?;
        self.show();
        Some(memory)
    }

    /// Returns the buffer. Bytes 0 to [`bytes`](Segment::bytes) of it are the segment.
    ///
    /// Commands of your own that use it are submitted before the last handle of the allocator is dropped, unless the
    /// device was opened with [`engine_submits`](crate::VulkanBuilder::engine_submits). There the memory of a dropped
    /// allocator whose buffer was returned here goes back with the next submit of the streams that used it.
    pub fn buffer(&self) -> vk::Buffer {
        self.show();
        self.buffer
    }

    /// Notes that code outside of this backend has a handle.
    fn show(&self) {
        // Mostly it is noted already. A write would take the cache line from other threads.
        if !self.is_shown() {
            self.shown.store(true, Ordering::Relaxed);
        }
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
