//! The errors that the simulated driver reports.

use millpond_backend::{BackendError, ClassId, Fault, Point};
use thiserror::Error;

use crate::CallKind;

/// An error of the simulated device. All sizes and offsets are in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SimError {
    /// The class has too few bytes left.
    #[error("out of memory: {asked} bytes asked, {free} of {total} free; release segments or pages first")]
    OutOfMemory {
        /// Bytes of the request.
        asked: u64,
        /// Bytes left in the class.
        free: u64,
        /// Bytes of the class in total.
        total: u64,
    },
    /// The request is larger than the largest segment, however much memory is left.
    #[error("out of memory: {asked} bytes asked in one segment, {max} is the most; ask for several")]
    TooLarge {
        /// Bytes of the request.
        asked: u64,
        /// The class's largest segment, in bytes.
        max: u64,
    },
    /// Too few addresses are left for the range.
    #[error("out of addresses: {asked} bytes asked, {free} of {total} free; release ranges first")]
    AddressSpace {
        /// Bytes of the request.
        asked: u64,
        /// Bytes of addresses left.
        free: u64,
        /// Bytes of addresses in total.
        total: u64,
    },
    /// The device is lost: [`Sim::kill`](crate::Sim::kill) was called or a planned fault lost it.
    #[error("the device is lost; make a new one")]
    Lost,
    /// The test planned this failure.
    #[error("planned fault in {call}: {fault:?}")]
    Planned {
        /// The call that failed.
        call: CallKind,
        /// The kind of failure that was planned.
        fault: Fault,
    },
    /// The request is for 0 bytes.
    #[error("{call} of 0 bytes; ask for at least one")]
    Empty {
        /// The call.
        call: CallKind,
    },
    /// The device was built without this capability.
    #[error("{call} asked of a device that cannot do it; see its capabilities")]
    Unsupported {
        /// The call.
        call: CallKind,
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
        call: CallKind,
        /// The size or offset.
        value: u64,
        /// The granularity that it must be a multiple of.
        granularity: u64,
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
    /// The page is mapped elsewhere and the device cannot map it twice.
    #[error("the page of {bytes} bytes for address {address:#x} is mapped elsewhere, and the device has no aliasing")]
    NoAliasing {
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
    /// A stream was asked to wait for a point that was never marked.
    #[error("{point} was never marked: the open tick is {open}; call mark first")]
    NeverMarked {
        /// The point.
        point: Point,
        /// The stream's open tick.
        open: u64,
    },
    /// A download waits for itself through other streams.
    #[error("{point} cannot be reached: streams wait for each other in a circle")]
    Circle {
        /// The point that the download needs.
        point: Point,
    },
}

impl BackendError for SimError {
    fn fault(&self) -> Fault {
        match self {
            SimError::OutOfMemory { .. } | SimError::TooLarge { .. } | SimError::AddressSpace { .. } => {
                Fault::OutOfMemory
            }
            SimError::Lost => Fault::Lost,
            SimError::Planned { fault, .. } => *fault,
            _ => Fault::Other,
        }
    }
}
