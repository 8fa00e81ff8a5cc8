//! The errors of this backend, with what to do about each.

use ash::vk;
use millpond_backend::{BackendError, ClassId, Fault, Shortage};
use millpond_kit::Misuse;
#[cfg(feature = "testing")]
use millpond_kit::testing::Planned;
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
    /// The loader is older than the functions that are called.
    #[error(
        "the Vulkan loader supports Vulkan {version}, and 1.2 is needed; update it (libvulkan1 on Debian, \
         vulkan-loader on Fedora)"
    )]
    OldLoader {
        /// The newest version that it knows.
        version: String,
    },
    /// An engine's instance was created for an older version, so that it or its devices lack what is used.
    #[error("there is no {missing}: create the instance with an apiVersion of Vulkan 1.2 or later")]
    OldInstance {
        /// A function or a feature that is missing.
        missing: &'static str,
    },
    /// The loader finds no driver, or no driver has a device.
    #[error(
        "the Vulkan loader finds no device ({reason}); install the driver of your GPU, or mesa-vulkan-drivers for a \
         software device, and check that the files in VK_DRIVER_FILES exist"
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
    #[error("VK_LAYER_KHRONOS_validation is not installed; install vulkan-validationlayers, or leave validation off")]
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
    /// No queue was chosen, or the device has none of the kind that was.
    #[error("no queue was named; name at least one of {available}")]
    NoQueues {
        /// The queues that the device has.
        available: String,
    },
    /// One queue was chosen twice. Each choice would get a lock of its own, and none would keep the other out.
    #[error("queue {index} of family {family} is named twice: name each queue once, each family with its count")]
    QueueTwice {
        /// The queue's family.
        family: u32,
        /// The queue within the family.
        index: u32,
    },
    /// Buffers were to have usages that need a feature or an extension with which the device is not opened.
    #[error("buffers of class {} cannot have the usages {refused:?}; only {allowed:?} is allowed", class.0)]
    Usage {
        /// The class.
        class: ClassId,
        /// The usages that it cannot have.
        refused: vk::BufferUsageFlags,
        /// The usages that there are.
        allowed: vk::BufferUsageFlags,
    },
    /// The device does not export memory of buffers in that kind.
    #[error("{device} exports no memory as {refused:?}, only as {exports:?} (`DeviceInfo::exports`)")]
    NoExport {
        /// The device's name.
        device: String,
        /// The handle type that was asked for.
        refused: vk::ExternalMemoryHandleTypeFlags,
        /// Those that the device has.
        exports: vk::ExternalMemoryHandleTypeFlags,
    },
    /// The memory was not created to be exported.
    #[error("the memory cannot be exported: {remedy}")]
    NotExported {
        /// What makes it so.
        remedy: &'static str,
    },
    /// No memory type of the device fits the class.
    #[error("no memory type serves class {} ({location}) for buffers with {usage:?}; request fewer usages", class.0)]
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
    #[error(
        "too large: {asked} bytes requested in one piece, and the device allows {max} (maxMemoryAllocationSize, \
         maxBufferSize or the heap); request several"
    )]
    TooLarge {
        /// Bytes of the request.
        asked: u64,
        /// The most bytes that one request may have.
        max: u64,
    },
    /// The device allows no more allocations, however small.
    #[error(
        "out of allocations: the device allows {max} at a time (maxMemoryAllocationCount), and Millpond has {own} and \
         the engine {engine}, as far as it has announced them; release some, or use larger segments \
         (large_segment_size_mb) or pages (page_granularity)"
    )]
    TooMany {
        /// `maxMemoryAllocationCount`.
        max: u64,
        /// The allocations of this backend on the device.
        own: u64,
        /// Those that the engine has said to have
        /// ([`set_engine_allocations`](crate::Vulkan::set_engine_allocations)).
        engine: u64,
    },
    /// Too few addresses are left for the range.
    #[error(
        "out of addresses: {asked} bytes of them requested, and {free} of {total} are free (sparseAddressSpaceSize); \
         release ranges first"
    )]
    AddressSpace {
        /// Bytes of the request.
        asked: u64,
        /// Bytes of addresses left.
        free: u64,
        /// Bytes of addresses that the device has for ranges.
        total: u64,
    },
    /// The driver has no addresses for a buffer, which takes no memory by itself.
    #[error(
        "out of addresses: the driver has none for a buffer of {asked} bytes (`{call}`), though it has not run out of \
         memory; release segments first, or open the device without bufferDeviceAddress"
    )]
    BufferAddresses {
        /// The call that was refused.
        call: &'static str,
        /// Bytes of the buffer.
        asked: u64,
    },
    /// A Vulkan call failed.
    #[error("{call} failed: {result:?}")]
    Driver {
        /// The call.
        call: &'static str,
        /// The result of the call.
        result: vk::Result,
    },
    /// The driver could not end a stream's command buffer. What was recorded there through the device since the last
    /// submit is lost: unlike after other errors of a submit, the next one does not make up for it.
    #[error(
        "vkEndCommandBuffer failed: {result:?}; commands recorded on the stream since its last submit are lost: \
         record them again"
    )]
    NotRecorded {
        /// The result of the call.
        result: vk::Result,
    },
    /// The device is lost. Every later call on it fails.
    #[error("the Vulkan device is lost; drop everything made from it and open it again")]
    Lost,
    /// A descriptor cannot begin at this offset.
    #[error("the offset {offset} of a storage buffer is not a multiple of {alignment}; bind from an aligned offset")]
    DescriptorOffset {
        /// The offset in the segment at which it begins.
        offset: u64,
        /// `minStorageBufferOffsetAlignment`.
        alignment: u64,
    },
    /// The range is longer than a shader may access through one storage buffer.
    #[error("a storage buffer of {bytes} bytes exceeds the limit of {max} (maxStorageBufferRange); bind parts")]
    DescriptorTooLarge {
        /// The length of the range.
        bytes: u64,
        /// `maxStorageBufferRange`.
        max: u64,
    },
    /// A call that its caller has to change.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// A test planned this failure.
    #[cfg(feature = "testing")]
    #[error(transparent)]
    Planned(#[from] Planned),
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

    /// Returns whether the request could be served once memory or addresses were given back.
    pub(crate) fn is_short(&self) -> bool {
        self.fault() == Fault::OutOfMemory && !matches!(self, VulkanError::TooLarge { .. })
    }
}

impl BackendError for VulkanError {
    fn shortage(&self) -> Shortage {
        match self {
            VulkanError::TooLarge { .. } => Shortage::Piece,
            VulkanError::TooMany { .. } => Shortage::Allocations,
            VulkanError::AddressSpace { .. } | VulkanError::BufferAddresses { .. } => Shortage::Addresses,
            _ => Shortage::Memory,
        }
    }

    fn fault(&self) -> Fault {
        match self {
            VulkanError::OutOfMemory { .. }
            | VulkanError::TooLarge { .. }
            | VulkanError::TooMany { .. }
            | VulkanError::AddressSpace { .. }
            | VulkanError::BufferAddresses { .. } => Fault::OutOfMemory,
            VulkanError::Driver {
                result: vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY,
                ..
            } => Fault::OutOfMemory,
            VulkanError::Lost | VulkanError::Driver { result: vk::Result::ERROR_DEVICE_LOST, .. } => Fault::Lost,
            // Another thread is submitting that work: its tick is closed, and not yet with the driver.
            VulkanError::Misuse(Misuse::NotSubmitted { .. }) => Fault::NotNow,
            #[cfg(feature = "testing")]
            VulkanError::Planned(planned) => planned.fault,
            _ => Fault::Other,
        }
    }
}
