//! What the simulated driver reports.

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
        /// Bytes that the class has in all.
        total: u64,
    },
    /// One segment may not be so large, however much memory is left.
    #[error("out of memory: {asked} bytes asked in one segment, {max} is the most; ask for several")]
    TooLarge {
        /// Bytes of the request.
        asked: u64,
        /// The class's largest segment.
        max: u64,
    },
    /// Too few addresses are left for the range.
    #[error("out of addresses: {asked} bytes asked, {free} of {total} free; release ranges first")]
    AddressSpace {
        /// Bytes of the request.
        asked: u64,
        /// Bytes of addresses left.
        free: u64,
        /// Bytes of addresses in all.
        total: u64,
    },
    /// The device is gone: [`Sim::kill`](crate::Sim::kill) was called or a planned fault took it.
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
    /// The request is for nothing.
    #[error("{call} of 0 bytes; ask for at least one")]
    Empty {
        /// The call.
        call: CallKind,
    },
    /// The device was built without this power.
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
        /// What it must be a multiple of.
        granularity: u64,
    },
    /// The operation leaves its segment.
    #[error("{bytes} bytes at offset {offset} leave a segment of {segment_bytes} bytes")]
    OutOfRange {
        /// Where the operation starts in the segment.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// How long the segment is.
        segment_bytes: u64,
    },
    /// The operation touches addresses with nothing behind them.
    #[error("{bytes} bytes at address {address:#x} touch unmapped addresses; map pages there first")]
    Unmapped {
        /// Where the operation starts.
        address: u64,
        /// How long it is.
        bytes: u64,
    },
    /// The target of a map is taken.
    #[error("{bytes} bytes at address {address:#x} are mapped already; unmap them first")]
    AlreadyMapped {
        /// Where the page should go.
        address: u64,
        /// The page's size.
        bytes: u64,
    },
    /// The page is mapped elsewhere and the device cannot show it twice.
    #[error("the page of {bytes} bytes for address {address:#x} is mapped elsewhere, and the device has no aliasing")]
    NoAliasing {
        /// Where the page should go.
        address: u64,
        /// The page's size.
        bytes: u64,
    },
    /// A segment was asked where only a range of addresses will do.
    #[error(
        "the segment at address {address:#x} is no range: it has memory of its own and nothing can be mapped there"
    )]
    NotARange {
        /// Where the segment starts.
        address: u64,
    },
    /// Source and target of a copy share bytes.
    #[error("a copy of {bytes} bytes from {from:#x} to {to:#x} overlaps itself")]
    Overlap {
        /// Address of the source.
        from: u64,
        /// Address of the target.
        to: u64,
        /// How much is copied.
        bytes: u64,
    },
    /// A stream shall wait for a point that nobody marked.
    #[error("{point} was never marked: the open tick is {open}; call mark first")]
    NeverMarked {
        /// The point.
        point: Point,
        /// The stream's open tick.
        open: u64,
    },
    /// A download waits, through other streams, for itself.
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
