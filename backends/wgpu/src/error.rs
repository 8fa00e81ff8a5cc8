//! The errors that wgpu and this backend report.

use millpond_backend::{BackendError, Fault, Point, Shortage};
use millpond_kit::Misuse;
#[cfg(feature = "testing")]
use millpond_kit::testing::Planned;
use thiserror::Error;

/// An error of a wgpu device. All sizes and offsets are in bytes.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WgpuError {
    /// No adapter was found.
    #[error(
        "no adapter was found for {backends:?}: install the driver of your GPU or a software device (Mesa's lavapipe \
         for Vulkan: mesa-vulkan-drivers and libvulkan1 on Debian), or enable another feature of this crate"
    )]
    NoAdapter {
        /// The interfaces that were asked for.
        backends: wgpu::Backends,
    },
    /// No adapter has this number.
    #[error("there is no adapter {index} among {count}; choose one from 0 to {}", count - 1)]
    NoSuchAdapter {
        /// The number asked for.
        index: usize,
        /// The number of adapters; at least one.
        count: usize,
    },
    /// The adapter gave no device.
    #[error("the adapter {adapter} created no device: {source}")]
    NoDevice {
        /// The adapter's name.
        adapter: String,
        /// wgpu's reason.
        r#source: wgpu::RequestDeviceError,
    },
    /// The driver has too little memory left.
    #[error("out of memory: the driver refused {asked} bytes to {call}; release segments first")]
    OutOfMemory {
        /// The call that requested the memory.
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
        r#source: Box<millpond_vulkan::VulkanError>,
    },
    /// The adapter cannot serve segments of the Vulkan backend.
    #[cfg(feature = "vulkan-segments")]
    #[error("{adapter} does not support Vulkan's segments: it lacks {missing}; leave vulkan_segments off")]
    NoVulkanSegments {
        /// The adapter's name.
        adapter: String,
        /// The feature that is missing.
        missing: &'static str,
    },
    /// The request is larger than the largest buffer, however much memory is left.
    #[error("out of memory: {asked} bytes requested in one segment, and max_buffer_size is {max}; request several")]
    TooLarge {
        /// Bytes of the request.
        asked: u64,
        /// The device's largest buffer, in bytes.
        max: u64,
    },
    /// The device is lost.
    #[error("the device is lost ({reason}); open it again")]
    Lost {
        /// The reason that wgpu gave for the loss.
        reason: String,
    },
    /// wgpu refused a call or the commands that were recorded for it. None of the commands ran.
    #[error("{call} was refused: {source}")]
    Refused {
        /// The call.
        call: &'static str,
        /// wgpu's own report.
        r#source: Box<wgpu::Error>,
    },
    /// A buffer could not be mapped for the host.
    #[error("{call}: the buffer could not be mapped: {reason}")]
    Map {
        /// The call.
        call: &'static str,
        /// wgpu's reason.
        reason: String,
    },
    /// A call that its caller has to change.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// A test planned this failure.
    #[cfg(feature = "testing")]
    #[error(transparent)]
    Planned(#[from] Planned),
    /// The binding is longer than a shader may access through one binding.
    #[error(
        "a binding of {bytes} bytes exceeds the device's limit of {max} (max_storage_buffer_binding_size); bind parts"
    )]
    BindingTooLarge {
        /// Bytes of the binding.
        bytes: u64,
        /// The most that one binding may have.
        max: u64,
    },
    /// A stream was asked to wait for work that may never be submitted.
    #[error("{point} was not submitted: the newest submitted tick is {submitted}; submit that stream first")]
    NotSubmitted {
        /// The point.
        point: Point,
        /// The newest tick that was submitted on its stream.
        submitted: u64,
    },
}

impl BackendError for WgpuError {
    fn shortage(&self) -> Shortage {
        match self {
            WgpuError::TooLarge { .. } => Shortage::Piece,
            #[cfg(feature = "vulkan-segments")]
            WgpuError::Vulkan { source, .. } => source.shortage(),
            _ => Shortage::Memory,
        }
    }

    fn fault(&self) -> Fault {
        match self {
            WgpuError::OutOfMemory { .. } | WgpuError::TooLarge { .. } => Fault::OutOfMemory,
            #[cfg(feature = "vulkan-segments")]
            WgpuError::Vulkan { source, .. } => source.fault(),
            WgpuError::Lost { .. } => Fault::Lost,
            #[cfg(feature = "testing")]
            WgpuError::Planned(planned) => planned.fault,
            // Another thread is submitting that work: its tick is closed, and not yet with the driver.
            WgpuError::NotSubmitted { .. } => Fault::NotNow,
            _ => Fault::Other,
        }
    }
}
