//! What wgpu and this backend report.

use millpond_backend::{BackendError, Fault, Point};
use thiserror::Error;

/// An error of a wgpu device. All sizes and offsets are in bytes.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WgpuError {
    /// There is nothing to open.
    #[error(
        "no adapter was found for {backends:?}: install the driver of your GPU, or a software one (Vulkan: Mesa's \
         lavapipe, in Debian the packages mesa-vulkan-drivers and libvulkan1), or enable another of this crate's \
         features"
    )]
    NoAdapter {
        /// The interfaces that were asked for.
        backends: wgpu::Backends,
    },
    /// The number is none of an adapter's.
    #[error("adapter {index} was asked for, and there are {count}: choose one from 0 to {}", count - 1)]
    NoSuchAdapter {
        /// The number asked for.
        index: usize,
        /// How many there are; at least one.
        count: usize,
    },
    /// The adapter gave no device.
    #[error("the adapter {adapter} gave no device: {source}")]
    NoDevice {
        /// The adapter's name.
        adapter: String,
        /// wgpu's reason.
        source: wgpu::RequestDeviceError,
    },
    /// The driver has too little memory left.
    #[error("out of memory: {asked} bytes asked by {call}, and the driver refused; release segments first")]
    OutOfMemory {
        /// What was asked for.
        call: &'static str,
        /// Bytes of the request.
        asked: u64,
        /// wgpu's own report.
        source: Box<wgpu::Error>,
    },
    /// The Vulkan backend under the device failed.
    #[cfg(feature = "vulkan-segments")]
    #[error("{call}: {source}")]
    Vulkan {
        /// The call.
        call: &'static str,
        /// Its own error.
        source: Box<millpond_vulkan::VulkanError>,
    },
    /// The adapter cannot serve segments of the Vulkan backend.
    #[cfg(feature = "vulkan-segments")]
    #[error("{adapter} cannot have Vulkan's segments: it lacks {missing}; leave vulkan_segments off")]
    NoVulkanSegments {
        /// The adapter's name.
        adapter: String,
        /// What is missing.
        missing: &'static str,
    },
    /// One buffer may not be so large, however much memory is left.
    #[error("out of memory: {asked} bytes asked in one segment, {max} is the most (max_buffer_size); ask for several")]
    TooLarge {
        /// Bytes of the request.
        asked: u64,
        /// The device's largest buffer.
        max: u64,
    },
    /// The device is gone.
    #[error("the device is lost ({reason}); open it anew")]
    Lost {
        /// What wgpu said when it went.
        reason: String,
    },
    /// wgpu refused a call or the commands that were recorded for it. Nothing of it ran.
    #[error("{call} was refused: {source}")]
    Refused {
        /// The call.
        call: &'static str,
        /// wgpu's own report.
        source: Box<wgpu::Error>,
    },
    /// A buffer could not be shown to the host.
    #[error("{call}: the buffer could not be mapped: {reason}")]
    Map {
        /// The call.
        call: &'static str,
        /// wgpu's reason.
        reason: String,
    },
    /// A test planned this failure.
    #[error("planned fault in {call}: {fault:?}")]
    Planned {
        /// The call that failed.
        call: &'static str,
        /// The kind of failure that was planned.
        fault: Fault,
    },
    /// The request is for nothing.
    #[error("{call} of 0 bytes; ask for at least one")]
    Empty {
        /// The call.
        call: &'static str,
    },
    /// An offset or a size is no multiple of what the device wants.
    #[error("{call}: the {what} {value} is no multiple of {multiple}; round it")]
    Misaligned {
        /// The call.
        call: &'static str,
        /// What of it: "offset" or "size".
        what: &'static str,
        /// The offset or size.
        value: u64,
        /// What it must be a multiple of.
        multiple: u64,
    },
    /// The range leaves its segment.
    #[error("{call}: {bytes} bytes at offset {offset} leave a segment of {segment_bytes} bytes")]
    OutOfRange {
        /// The call.
        call: &'static str,
        /// Where the range starts in the segment.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// How long the segment is.
        segment_bytes: u64,
    },
    /// A shader may not see so much of a buffer at once.
    #[error(
        "a binding of {bytes} bytes is over the device's limit of {max} (max_storage_buffer_binding_size); bind parts"
    )]
    BindingTooLarge {
        /// Bytes of the binding.
        bytes: u64,
        /// The most that one binding may have.
        max: u64,
    },
    /// Source and target of a copy share bytes.
    #[error("a copy of {bytes} bytes from offset {from} to offset {to} of one segment overlaps itself")]
    Overlap {
        /// Offset of the source.
        from: u64,
        /// Offset of the target.
        to: u64,
        /// How much is copied.
        bytes: u64,
    },
    /// The segment is another device's.
    #[error("{call}: the segment belongs to wgpu device {belongs_to}, not to {given_to}; download and upload instead")]
    ForeignSegment {
        /// The call.
        call: &'static str,
        /// Whose segment it is: [`Wgpu::serial`](crate::Wgpu::serial).
        belongs_to: u64,
        /// Who was given it.
        given_to: u64,
    },
    /// A stream shall wait for work that may never be submitted.
    #[error("{point} was not submitted: the newest tick submitted there is {submitted}; submit that stream first")]
    NotSubmitted {
        /// The point.
        point: Point,
        /// The newest tick that was submitted on its stream.
        submitted: u64,
    },
}

impl BackendError for WgpuError {
    fn fault(&self) -> Fault {
        match self {
            WgpuError::OutOfMemory { .. } | WgpuError::TooLarge { .. } => Fault::OutOfMemory,
            #[cfg(feature = "vulkan-segments")]
            WgpuError::Vulkan { source, .. } => source.fault(),
            WgpuError::Lost { .. } => Fault::Lost,
            WgpuError::Planned { fault, .. } => *fault,
            _ => Fault::Other,
        }
    }
}
