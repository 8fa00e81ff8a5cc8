//! The errors of this backend, with what to do about each.

use ash::vk;
use millpond_backend::{BackendError, ClassId, Fault, Point};
use thiserror::Error;

/// An error of the Vulkan device, or of opening it. All sizes and offsets are in bytes.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VulkanError {
    /// There is no Vulkan loader on this machine.
    #[error("no Vulkan loader ({loader}: {reason}); install it (libvulkan1 on Debian, vulkan-loader on Fedora)")]
    NoLoader {
        /// The library that was looked for.
        loader: String,
        /// The message of the system's linker.
        reason: String,
    },
    /// The loader finds no driver, or no driver has a device.
    #[error(
        "the Vulkan loader finds no device ({reason}); install the driver of your GPU, or mesa-vulkan-drivers for one \
         in software, and look whether VK_DRIVER_FILES names a file that is not there"
    )]
    NoDriver {
        /// The reason, as far as the loader reports it.
        reason: String,
    },
    /// There are fewer devices.
    #[error("there is no Vulkan device {index}: the loader lists {count}, counted from 0")]
    NoDevice {
        /// The device that was asked for.
        index: usize,
        /// The number of devices.
        count: usize,
    },
    /// The validation layer was asked for and is not installed.
    #[error("the layer VK_LAYER_KHRONOS_validation is not there; install vulkan-validationlayers, or open without it")]
    NoValidation,
    /// The device lacks something that this backend cannot do without.
    #[error("{device} (Vulkan {version}) lacks {missing}; update the driver or choose another device")]
    Lacks {
        /// The device's name.
        device: String,
        /// Its Vulkan version.
        version: String,
        /// The feature that it lacks.
        missing: &'static str,
    },
    /// No such queue was opened or adopted.
    #[error("there is no queue {index} of family {family}: this device was opened with {available}")]
    NoQueue {
        /// The family that was asked for.
        family: u32,
        /// The queue within the family.
        index: u32,
        /// The queues that were opened or that the device has.
        available: String,
    },
    /// No memory type of the device fits the class.
    #[error("no memory type serves class {} ({location}) for buffers of {usage:?}; ask for fewer usages", class.0)]
    NoMemoryType {
        /// The class.
        class: ClassId,
        /// The kind of memory that the class needs.
        location: &'static str,
        /// The usages that its buffers should have.
        usage: vk::BufferUsageFlags,
    },
    /// The driver has no memory left for the request.
    #[error("out of memory: {asked} bytes of class {} refused by the driver; release segments or pages first", class.0)]
    OutOfMemory {
        /// Bytes of the request.
        asked: u64,
        /// The class.
        class: ClassId,
    },
    /// The request is larger than the largest segment, however much memory is left.
    #[error("out of memory: {asked} bytes asked in one piece, {max} is the device's most; ask for several")]
    TooLarge {
        /// Bytes of the request.
        asked: u64,
        /// The most bytes that one request may have.
        max: u64,
    },
    /// The device allows no more allocations, however small.
    #[error("out of memory: the device allows {max} allocations at a time; use larger segments or pages")]
    TooMany {
        /// `maxMemoryAllocationCount`.
        max: u64,
    },
    /// Too few addresses are left for the range.
    #[error("out of addresses: {asked} bytes asked, {free} of {total} free; release ranges first")]
    AddressSpace {
        /// Bytes of the request.
        asked: u64,
        /// Bytes of addresses left.
        free: u64,
        /// Bytes of addresses that the device has for ranges.
        total: u64,
    },
    /// Only the device's own memory comes in pages.
    #[error("class {} has no virtual memory; use class 0", class.0)]
    NoPages {
        /// The class that was asked for.
        class: ClassId,
    },
    /// A size or offset is no multiple of the granularity.
    #[error("{call}: {value} is no multiple of the granularity {granularity}; round it")]
    Misaligned {
        /// The call.
        call: &'static str,
        /// The size or offset.
        value: u64,
        /// The granularity that it must be a multiple of.
        granularity: u64,
    },
    /// A segment was passed where the call needs a range of addresses.
    #[error("the segment of {bytes} bytes is no range: it has memory of its own and nothing can be mapped there")]
    NotARange {
        /// The length of the segment.
        bytes: u64,
    },
    /// The memory library failed for another reason than a lack of memory.
    #[error("{bytes} bytes of class {} could not be allocated: {source}", class.0)]
    Memory {
        /// Bytes of the request.
        bytes: u64,
        /// The class.
        class: ClassId,
        /// The error of the library.
        source: gpu_allocator::AllocationError,
    },
    /// A Vulkan call failed.
    #[error("{call} failed: {result:?}")]
    Driver {
        /// The call.
        call: &'static str,
        /// The result of the call.
        result: vk::Result,
    },
    /// The device is lost. Every later call on it fails.
    #[error("the Vulkan device is lost; drop everything made from it and open it again")]
    Lost,
    /// A test planned this failure with [`Vulkan::fail_nth`](crate::Vulkan::fail_nth).
    #[error("planned fault in {call}: {fault:?}")]
    Planned {
        /// The call that failed.
        call: &'static str,
        /// The kind of failure that was planned.
        fault: Fault,
    },
    /// The request is for 0 bytes.
    #[error("{call} of 0 bytes; ask for at least one")]
    Empty {
        /// The call.
        call: &'static str,
    },
    /// The device, as it was opened, cannot do this.
    #[error("{call}: {missing}; see the device's capabilities")]
    Unsupported {
        /// The call.
        call: &'static str,
        /// The capability that the device lacks, or was opened without.
        missing: &'static str,
    },
    /// The operation reaches beyond the end of its segment.
    #[error("{bytes} bytes at offset {offset} leave a segment of {segment_bytes} bytes")]
    OutOfRange {
        /// The offset in the segment at which the operation starts.
        offset: u64,
        /// The length of the operation.
        bytes: u64,
        /// The length of the segment.
        segment_bytes: u64,
    },
    /// A descriptor cannot begin at this offset.
    #[error("a storage buffer at offset {offset}, which is no multiple of {alignment}: bind from an aligned offset")]
    DescriptorOffset {
        /// The offset in the segment at which it begins.
        offset: u64,
        /// `minStorageBufferOffsetAlignment`.
        alignment: u64,
    },
    /// The range is longer than a shader may access through one storage buffer.
    #[error("a storage buffer of {bytes} bytes, {max} is the device's most (maxStorageBufferRange): bind parts")]
    DescriptorTooLarge {
        /// The length of the range.
        bytes: u64,
        /// `maxStorageBufferRange`.
        max: u64,
    },
    /// The source and the target of a copy share bytes.
    #[error("a copy of {bytes} bytes from offset {from} to offset {to} of one segment overlaps itself")]
    Overlap {
        /// Offset of the source.
        from: u64,
        /// Offset of the target.
        to: u64,
        /// The number of bytes to copy.
        bytes: u64,
    },
    /// The segment belongs to another device.
    #[error("{call}: the segment is of Vulkan device {other}, not of device {own}; copy through the host")]
    Foreign {
        /// The call.
        call: &'static str,
        /// This device's number within the process.
        own: u64,
        /// The segment's device.
        other: u64,
    },
    /// A stream was asked to wait for work that was not submitted: its queue could wait for ever.
    #[error("{point} is not submitted: the newest submitted tick is {submitted}; submit that stream first")]
    NotSubmitted {
        /// The point.
        point: Point,
        /// The newest submitted tick of the point's stream.
        submitted: u64,
    },
    /// The value is not above those that an engine's own timeline has passed.
    #[error("value {value} was announced for a timeline whose next value is {next}; values must rise")]
    Falls {
        /// The value that the engine's submit would signal.
        value: u64,
        /// The lowest value that is allowed.
        next: u64,
    },
}

impl VulkanError {
    /// Returns a function for `map_err` on a Vulkan call that has nothing to do with the device being lost.
    pub(crate) fn driver(call: &'static str) -> impl Fn(vk::Result) -> VulkanError {
        move |result| VulkanError::Driver { call, result }
    }
}

impl BackendError for VulkanError {
    fn fault(&self) -> Fault {
        match self {
            VulkanError::OutOfMemory { .. }
            | VulkanError::TooLarge { .. }
            | VulkanError::TooMany { .. }
            | VulkanError::AddressSpace { .. } => Fault::OutOfMemory,
            VulkanError::Driver { result: vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, .. } => Fault::OutOfMemory,
            VulkanError::Lost | VulkanError::Driver { result: vk::Result::ERROR_DEVICE_LOST, .. } => Fault::Lost,
            VulkanError::Planned { fault, .. } => *fault,
            _ => Fault::Other,
        }
    }
}
