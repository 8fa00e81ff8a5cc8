//! What the device saw that no correct allocator causes.

use std::fmt;

use millpond_backend::{Point, StreamId, Tick};

/// What work does to the bytes it touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It only reads them.
    Read,
    /// It writes them, and may read them.
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

/// A breach of the contract that real hardware would have answered with wrong bytes or a fault.
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
        /// What the later work does.
        access: Access,
        /// The earlier, unfinished work.
        other: Point,
        /// What the earlier work does.
        other_access: Access,
        /// The earlier work runs on a stream of another device.
        other_device: bool,
        /// Where, as the later work addresses it.
        address: u64,
        /// How many bytes both touch.
        bytes: u64,
    },
    /// A segment or page was released while unfinished work touches it.
    ReleasedInUse {
        /// The unfinished work.
        other: Point,
        /// Where that work touches it.
        address: u64,
        /// How many bytes of it.
        bytes: u64,
    },
    /// A page was unmapped while unfinished work touches it through these addresses.
    UnmappedInUse {
        /// The unfinished work.
        other: Point,
        /// Where.
        address: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// Work touches addresses with nothing behind them.
    TouchesUnmapped {
        /// The stream of the work.
        stream: StreamId,
        /// The tick that covers it.
        tick: Tick,
        /// Where the work starts.
        address: u64,
        /// How many bytes it touches.
        bytes: u64,
    },
    /// A page or a range was released while the page was mapped in the range.
    ReleasedMapped {
        /// Where the page is mapped.
        address: u64,
        /// How many bytes.
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
