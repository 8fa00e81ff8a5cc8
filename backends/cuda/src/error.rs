//! The errors of this backend, with what to do about each.

use std::fmt;

use millpond_backend::{BackendError, ClassId, Fault, Point, StreamId};
use thiserror::Error;

use crate::Code;

/// One end of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Memory of the host.
    Host {
        /// The address at which it starts.
        address: u64,
    },
    /// Memory of a device, or page-locked memory that was taken from it.
    Device {
        /// The device's place.
        ordinal: usize,
        /// The address at which it starts.
        address: u64,
    },
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Host { address } => write!(f, "{address:#x} of the host"),
            End::Device { ordinal, address } => write!(f, "{address:#x} of device {ordinal}"),
        }
    }
}

/// An error of the CUDA device, or of opening it. All sizes and offsets are in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library is not on this machine.
    #[error(
        "no CUDA driver: libcuda was not found; install the NVIDIA driver, or run where the GPU's driver is mounted"
    )]
    NoDriver,
    /// The driver's library lacks a function.
    #[error("the CUDA driver has no {symbol}; update the NVIDIA driver to one for CUDA 12.0 or newer")]
    MissingSymbol {
        /// The function's name in the library.
        symbol: &'static str,
    },
    /// The driver is too old for this backend.
    #[error(
        "the driver is for CUDA {}.{}, {}.{} is the oldest that will do; update the NVIDIA driver",
        found.0, found.1, needed.0, needed.1
    )]
    DriverTooOld {
        /// The version that is installed, major and minor.
        found: (u32, u32),
        /// The oldest version that this backend supports.
        needed: (u32, u32),
    },
    /// There is no such device.
    #[error("no CUDA device {ordinal}: the driver lists {count}, from 0; look at nvidia-smi and CUDA_VISIBLE_DEVICES")]
    NoDevice {
        /// The device that was asked for.
        ordinal: usize,
        /// The number of devices.
        count: usize,
    },
    /// A peer cannot reach this device's memory.
    #[error("device {peer} cannot reach the memory of device {own}; leave it out of the peers")]
    NoPeerAccess {
        /// This device.
        own: usize,
        /// The device that was named as its peer.
        peer: usize,
    },
    /// The driver has no memory left for the request.
    #[error("out of memory: {asked} bytes of class {} refused by {call}; release segments or pages first", class.0)]
    OutOfMemory {
        /// The call that refused.
        call: &'static str,
        /// Bytes of the request.
        asked: u64,
        /// The class.
        class: ClassId,
    },
    /// The request is larger than what this machine can address.
    #[error("out of memory: {asked} bytes asked in one piece, {max} is the most; ask for several")]
    TooLarge {
        /// Bytes of the request.
        asked: u64,
        /// The most bytes that one request may have.
        max: u64,
    },
    /// A driver call failed.
    #[error("{call} failed: {code}")]
    Driver {
        /// The call.
        call: &'static str,
        /// The code that it returned.
        code: Code,
    },
    /// The context is lost, after this failure. Every later call in it fails.
    #[error(
        "the CUDA context of device {device} is lost ({call}: {code}); end the process, or reset the device and open \
         it again"
    )]
    Lost {
        /// The device.
        device: usize,
        /// The call that found the loss.
        call: &'static str,
        /// The code that it returned.
        code: Code,
    },
    /// A test planned this failure with [`Cuda::fail_nth`](crate::Cuda::fail_nth).
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
    /// Only the device's own memory comes in pages.
    #[error("class {} has no virtual memory; use class 0", class.0)]
    NoPages {
        /// The class that was asked for.
        class: ClassId,
    },
    /// A size, an offset or an address is not a multiple of the granularity.
    #[error("{call}: {value} is no multiple of {granularity}; round it")]
    Misaligned {
        /// The call.
        call: &'static str,
        /// The size, offset or address.
        value: u64,
        /// The granularity that it must be a multiple of.
        granularity: u64,
    },
    /// The operation reaches beyond the end of its segment.
    #[error(
        "{bytes} bytes at offset {offset} leave the {end}, a segment of {segment_bytes} bytes on device {device}; \
         stay within it"
    )]
    OutOfRange {
        /// The segment of the operation: the source or the target of a copy, else the segment.
        end: &'static str,
        /// The device that the segment is on.
        device: usize,
        /// The offset in the segment at which the operation starts.
        offset: u64,
        /// The length of the operation.
        bytes: u64,
        /// The length of the segment.
        segment_bytes: u64,
    },
    /// The operation touches addresses where nothing is mapped.
    #[error("{bytes} bytes at address {address:#x} touch unmapped addresses; map pages there first")]
    Unmapped {
        /// The address at which the operation starts.
        address: u64,
        /// The length of the operation.
        bytes: u64,
    },
    /// A page is already mapped at the target of a map.
    #[error("{bytes} bytes at address {address:#x} are mapped already; unmap them first")]
    AlreadyMapped {
        /// The address at which the page was to be mapped.
        address: u64,
        /// The page's size.
        bytes: u64,
    },
    /// A segment was passed where the call needs a range of addresses.
    #[error(
        "the segment at address {address:#x} is no range: it has memory of its own and nothing can be mapped there"
    )]
    NotARange {
        /// The address at which the segment starts.
        address: u64,
    },
    /// The source and the target of a copy share bytes.
    #[error("a copy of {bytes} bytes from {from:#x} to {to:#x} overlaps itself")]
    Overlap {
        /// Address of the source.
        from: u64,
        /// Address of the target.
        to: u64,
        /// The number of bytes to copy.
        bytes: u64,
    },
    /// The driver refused a copy. If it is a copy between devices and the code is one that loses the context, the other
    /// device is the lost one: the loss of this device is [`CudaError::Lost`].
    #[error("{call}: {bytes} bytes from {from} to {to} were not copied: {code}")]
    Copy {
        /// The call.
        call: &'static str,
        /// The source.
        from: End,
        /// The target.
        to: End,
        /// The number of bytes that were to be copied.
        bytes: u64,
        /// The code that the driver returned.
        code: Code,
    },
    /// Neither end of a copy belongs to this device, or the only segment belongs to another device.
    #[error("{call}: the segment is of device {other}, and this is device {own}; ask the device that owns it")]
    Foreign {
        /// The call.
        call: &'static str,
        /// This device.
        own: usize,
        /// The segment's device.
        other: usize,
    },
    /// The stream belongs to another context.
    #[error("the stream belongs to another context than that of device {ordinal}; register it with its own device")]
    ForeignStream {
        /// This device.
        ordinal: usize,
    },
    /// The stream was unregistered by [`Cuda::unregister`](crate::Cuda::unregister).
    #[error("{stream} was unregistered; register it again, which gives it a new number")]
    Unregistered {
        /// The stream.
        stream: StreamId,
    },
    /// The stream is the per-thread default stream of another thread: its handle means a different stream on each
    /// thread.
    #[error("{call}: {stream} is the default stream of another thread; call from that thread")]
    OtherThread {
        /// The call.
        call: &'static str,
        /// The stream.
        stream: StreamId,
    },
    /// The stream is being captured into a graph. The work that this call queues would be captured too, and would run
    /// only with the graph.
    #[error("{call}: {stream} is being captured into a graph; end the capture first")]
    Capturing {
        /// The call.
        call: &'static str,
        /// The stream.
        stream: StreamId,
    },
    /// A stream was asked to wait for a point that was never marked.
    #[error("{point} was never marked: the open tick is {open}; call mark first")]
    NeverMarked {
        /// The point.
        point: Point,
        /// The stream's open tick.
        open: u64,
    },
    /// NVML, which reports the memory of other processes, failed.
    #[error("NVML: {reason}; install the NVIDIA driver's management library, or build without the feature `nvml`")]
    Nvml {
        /// The error message of NVML.
        reason: String,
    },
}

impl BackendError for CudaError {
    fn fault(&self) -> Fault {
        match self {
            CudaError::OutOfMemory { .. } | CudaError::TooLarge { .. } => Fault::OutOfMemory,
            CudaError::Driver { code, .. } | CudaError::Copy { code, .. } if *code == Code::OUT_OF_MEMORY => {
                Fault::OutOfMemory
            }
            CudaError::Lost { .. } => Fault::Lost,
            CudaError::Driver { code, .. } if code.is_fatal() => Fault::Lost,
            CudaError::Capturing { .. } | CudaError::OtherThread { .. } => Fault::NotNow,
            CudaError::Planned { fault, .. } => *fault,
            _ => Fault::Other,
        }
    }
}
