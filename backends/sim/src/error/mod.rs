//! The errors that the simulated driver reports.

use millpond_backend::{BackendError, Fault, Point, Shortage};
use millpond_kit::Misuse;
use millpond_kit::testing::Planned;
use thiserror::Error;

pub(crate) mod calls;

/// An error of the simulated device. All sizes and offsets are in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SimError {
    /// The class has too few bytes left.
    #[error("out of memory: {asked} bytes requested, {free} of {total} free; release segments or pages first")]
    OutOfMemory {
        /// Bytes of the request.
        asked: u64,
        /// Bytes left in the class.
        free: u64,
        /// Bytes of the class in total.
        total: u64,
    },
    /// The request is larger than the largest segment, however much memory is left.
    #[error("out of memory: {asked} bytes requested in one segment, and {max} is the most; request several")]
    TooLarge {
        /// Bytes of the request.
        asked: u64,
        /// The class's largest segment, in bytes.
        max: u64,
    },
    /// Too few addresses are left for the range.
    #[error("out of addresses: {asked} bytes requested, {free} of {total} free; release ranges first")]
    AddressSpace {
        /// Bytes of the request.
        asked: u64,
        /// Bytes of addresses left.
        free: u64,
        /// Bytes of addresses in total.
        total: u64,
    },
    /// The device allows no more allocations, however small.
    #[error("out of allocations: the device allows {max} at a time, and has as many; release segments or pages first")]
    TooMany {
        /// The most that there may be.
        max: u64,
    },
    /// The addresses of memory that was to be adopted are not free.
    #[error("the {bytes} bytes at {address:#x} overlap a segment, or end above 2^56: adopt memory at other addresses")]
    Occupied {
        /// The first address.
        address: u64,
        /// The bytes to adopt.
        bytes: u64,
    },
    /// The device is lost: [`Sim::kill`](crate::Sim::kill) was called or a planned fault lost it.
    #[error("the device is lost; create a new one")]
    Lost,
    /// The test planned this failure.
    #[error(transparent)]
    Planned(#[from] Planned),
    /// The call has to be changed: it breaks the contract.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The page is mapped elsewhere and the device cannot map it twice.
    #[error("the page of {bytes} bytes for address {address:#x} is mapped elsewhere, and the device has no aliasing")]
    NoAliasing {
        /// The address at which the page was to be mapped.
        address: u64,
        /// The page's size.
        bytes: u64,
    },
    /// The bytes to read are not kept: the device was built with
    /// [`keep_contents(false)`](crate::SimBuilder::keep_contents).
    #[error(
        "{call}: the device does not keep the {bytes} bytes to read; build it with keep_contents(true), the default, \
         or open it by name without contents=none"
    )]
    NotKept {
        /// The call.
        call: &'static str,
        /// The bytes that were to be read.
        bytes: u64,
    },
    /// A download waits for itself through other streams.
    #[error("{point} cannot be reached: streams wait for each other in a circle")]
    Circle {
        /// The point that the download needs.
        point: Point,
    },
}

impl BackendError for SimError {
    fn shortage(&self) -> Shortage {
        match self {
            SimError::TooLarge { .. } => Shortage::Piece,
            SimError::AddressSpace { .. } => Shortage::Addresses,
            SimError::TooMany { .. } => Shortage::Allocations,
            _ => Shortage::Memory,
        }
    }

    fn fault(&self) -> Fault {
        match self {
            SimError::OutOfMemory { .. }
            | SimError::TooLarge { .. }
            | SimError::AddressSpace { .. }
            | SimError::TooMany { .. } => Fault::OutOfMemory,
            SimError::Lost => Fault::Lost,
            SimError::Planned(planned) => planned.fault,
            SimError::Misuse(misuse) => misuse.fault(),
            _ => Fault::Other,
        }
    }
}
