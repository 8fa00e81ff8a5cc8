//! The breaches of the contract that the device detects and that no correct allocator causes.

use std::fmt;

use millpond_backend::{Point, StreamId, Tick};

/// The kind of access that work makes to the bytes it touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The work only reads them.
    Read,
    /// The work writes them, and may read them.
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "reads",
            Access::Write => "writes",
        })
    }
}

/// A breach of the contract that would cause wrong bytes or a fault on real hardware.
///
/// `address` and `bytes` are the part that both sides touch. `by` and `other` name work by its stream and the tick that
/// covers it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Violation {
    /// Work touches bytes that unfinished work touches, nothing orders the two, and one writes. The other work is of
    /// another stream, or the same stream's where that keeps no order: [`StreamOrder`](crate::StreamOrder).
    Race {
        /// The later work.
        by: Point,
        /// The access of the later work.
        access: Access,
        /// The earlier, unfinished work.
        other: Point,
        /// The access of the earlier work.
        other_access: Access,
        /// Whether the earlier work runs on a stream of another device.
        other_device: bool,
        /// The address of the bytes, as the later work addresses them.
        address: u64,
        /// The number of bytes that both touch.
        bytes: u64,
    },
    /// A segment or page was released while unfinished work touches it.
    ReleasedInUse {
        /// The unfinished work.
        other: Point,
        /// The address at which that work touches it.
        address: u64,
        /// The number of bytes that the work touches.
        bytes: u64,
    },
    /// A page was unmapped while unfinished work touches it through these addresses.
    UnmappedInUse {
        /// The unfinished work.
        other: Point,
        /// The first address that was unmapped and in use.
        address: u64,
        /// The number of bytes that were unmapped and in use.
        bytes: u64,
    },
    /// Work touches addresses where nothing is mapped.
    TouchesUnmapped {
        /// The stream of the work.
        stream: StreamId,
        /// The tick that covers it.
        tick: Tick,
        /// The address at which the work starts.
        address: u64,
        /// The number of bytes that the work touches.
        bytes: u64,
    },
    /// A page or a range was released while the page was mapped in the range.
    ReleasedMapped {
        /// The address at which the page is mapped.
        address: u64,
        /// The size of the page in bytes.
        bytes: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |address: &u64, bytes: &u64| format!("{bytes} bytes at {address:#x}");
        match self {
            Violation::Race { by, access, other, other_access, other_device, address, bytes } => write!(
                f,
                "{by} {access} {} that {other}{} still {other_access}, and nothing orders the two",
                span(address, bytes),
                if *other_device { " of another device" } else { "" },
            ),
            Violation::ReleasedInUse { other, address, bytes } => {
                write!(f, "{} released while {other} still touches them", span(address, bytes))
            }
            Violation::UnmappedInUse { other, address, bytes } => {
                write!(f, "{} unmapped while {other} still touches them", span(address, bytes))
            }
            Violation::TouchesUnmapped { stream, tick, address, bytes } => {
                write!(f, "{stream} tick {tick} touches {}, which are not all mapped", span(address, bytes))
            }
            Violation::ReleasedMapped { address, bytes } => {
                write!(f, "{} released while a page is mapped there", span(address, bytes))
            }
        }
    }
}
