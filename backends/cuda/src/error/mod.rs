//! The errors of this backend, with what to do about each.

use std::fmt;

use millpond_backend::{BackendError, ClassId, Fault, StreamId};
use millpond_kit::Misuse;
#[cfg(feature = "testing")]
use millpond_kit::testing::Planned;
use thiserror::Error;

use crate::driver::{OLDEST, Unusable};

mod code;

pub use code::Code;

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
        "the driver supports CUDA {}.{}, and {}.{} or newer is needed; update the NVIDIA driver",
        found.0, found.1, needed.0, needed.1
    )]
    DriverTooOld {
        /// The version that is installed, major and minor.
        found: (u32, u32),
        /// The oldest version that this backend supports.
        needed: (u32, u32),
    },
    /// There is no such device.
    #[error("no CUDA device {ordinal}: the driver lists {count}, from 0; check nvidia-smi and CUDA_VISIBLE_DEVICES")]
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
    #[error("out of memory: {asked} bytes requested in one piece, and {max} is the most; request several")]
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
    /// A test planned this failure with [`fail_nth`](crate::testing::Cuda::fail_nth).
    #[cfg(feature = "testing")]
    #[error(transparent)]
    Planned(#[from] Planned),
    /// The call has to be changed: it breaks the contract.
    #[error(transparent)]
    Misuse(#[from] Misuse),
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
    /// The stream belongs to another context.
    #[error("the stream does not belong to the context of device {ordinal}; register it with its own device")]
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
    /// The pages of the device cannot be given to other processes.
    #[error("the pages of device {device} cannot be shared with other processes: {}", if *supported {
        "open it with CudaBuilder::shareable_pages(true)"
    } else {
        "the device or its driver cannot share pages as file descriptors; send a copy through the host"
    })]
    NotShareable {
        /// The device.
        device: usize,
        /// Whether the device could, and was opened without.
        supported: bool,
    },
    /// The memory does not lie in pages, or does not in those of this device.
    #[error("{address:#x} is not in pages of device {device}; share memory of cuMemAlloc with cuIpcGetMemHandle")]
    NotInPages {
        /// The device.
        device: usize,
        /// The address.
        address: u64,
    },
    /// The driver made no file descriptor of a page.
    #[error(
        "{call}: the page of {bytes} bytes at {address:#x} has no file descriptor: {code}; each shared page keeps \
         one open, so check the limit on open files (ulimit -n)"
    )]
    NotExported {
        /// The call.
        call: &'static str,
        /// The address at which the page is mapped.
        address: u64,
        /// The size of the page.
        bytes: u64,
        /// The code that the driver returned.
        code: Code,
    },
    /// The device has no DMA buffers.
    #[error(
        "device {device} has no DMA buffers: they take Linux and the open kernel modules of NVIDIA's driver; register \
         the memory through nvidia-peermem, or export its pages"
    )]
    NoDmaBuf {
        /// The device.
        device: usize,
    },
    /// The driver made no DMA buffer of the memory.
    #[error("{call}: there is no DMA buffer of {bytes} bytes at {address:#x}: {code}; {}", if *pages > 1 {
        format!("they lie in {pages} pages, of which this driver takes one at a time: export each page alone, or take \
                 the memory from policy:classic, where it lies in one allocation")
    } else {
        "check that it is memory of this device, and the limit on open files (ulimit -n)".to_owned()
    })]
    DmaBufRefused {
        /// The call.
        call: &'static str,
        /// The address of the first byte, a multiple of the host's pages.
        address: u64,
        /// The number of bytes.
        bytes: u64,
        /// The number of pages in which they lie: 0 if they lie in none.
        pages: usize,
        /// The code that the driver returned.
        code: Code,
    },
    /// The driver refused a page of another process.
    #[error(
        "{call}: the file descriptor {descriptor} is not a page of {bytes} bytes that device {device} can import: \
         {code}; pass descriptors that another process exported on this machine, with the sizes of its pages"
    )]
    NotImported {
        /// The call.
        call: &'static str,
        /// The device.
        device: usize,
        /// The file descriptor.
        descriptor: i32,
        /// The size that was named.
        bytes: u64,
        /// The code that the driver returned.
        code: Code,
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
            #[cfg(feature = "testing")]
            CudaError::Planned(planned) => planned.fault,
            CudaError::Misuse(misuse) => misuse.fault(),
            _ => Fault::Other,
        }
    }
}

impl From<Unusable> for CudaError {
    fn from(why: Unusable) -> CudaError {
        match why {
            Unusable::NoLibrary => CudaError::NoDriver,
            Unusable::NoFunction(symbol) => CudaError::MissingSymbol { symbol },
            Unusable::NoDevice => CudaError::NoDevice { ordinal: 0, count: 0 },
            Unusable::TooOld { version } => {
                CudaError::DriverTooOld { found: in_parts(version), needed: in_parts(OLDEST) }
            }
            Unusable::Refused { call, code } => CudaError::Driver { call, code: Code(code) },
        }
    }
}

/// Returns a version of CUDA's, major and minor.
pub(crate) fn in_parts(version: i32) -> (u32, u32) {
    let version = version.unsigned_abs();
    (version / 1000, version % 1000 / 10)
}

impl Code {
    /// Returns an error unless this is success.
    pub(crate) fn check(self, call: &'static str) -> Result<(), CudaError> {
        if self == Code::SUCCESS { Ok(()) } else { Err(CudaError::Driver { call, code: self }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_driver_is_named_with_both_versions() {
        let error = CudaError::from(Unusable::TooOld { version: 11_080 });
        assert!(error.to_string().contains("CUDA 11.8") && error.to_string().contains("12.0"), "{error}");
    }
}
