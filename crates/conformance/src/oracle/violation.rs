//! What the oracle objects to.

use millpond_backend::{Point, StreamId, Tick};

use super::Place;

/// A grant or a release that no sound allocator makes. Sizes and offsets are in bytes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Two live blocks share a byte.
    #[error(
        "{bytes} bytes at offset {} of {} were granted on {stream}, and {other_bytes} bytes at offset {} of {} are in \
         use on {other_stream}: the two overlap", place.offset, place.segment, other.offset, other.segment
    )]
    Overlap {
        /// Where the grant is.
        place: Place,
        /// Its length.
        bytes: u64,
        /// Its stream.
        stream: StreamId,
        /// Where the block is that was there first.
        other: Place,
        /// Its length.
        other_bytes: u64,
        /// Its stream.
        other_stream: StreamId,
    },
    /// Memory was granted while the device may still use it for a former tenant.
    #[error(
        "{bytes} bytes at offset {} of {} were granted on {stream} and are still in use until {waits_for}: only tick \
         {reached} is reached there", place.offset, place.segment
    )]
    Premature {
        /// Where the grant is.
        place: Place,
        /// Its length.
        bytes: u64,
        /// Its stream.
        stream: StreamId,
        /// What a former tenant's use ends with.
        waits_for: Point,
        /// How far that stream is.
        reached: Tick,
    },
    /// Memory was granted on its home stream before the work of its former tenant was submitted, on a device that
    /// orders submits only.
    #[error(
        "{bytes} bytes at offset {} of {} were granted again before the work up to {freed} was submitted: tick {open} \
         is still open", place.offset, place.segment
    )]
    Unsubmitted {
        /// Where the grant is.
        place: Place,
        /// Its length.
        bytes: u64,
        /// When it was freed.
        freed: Point,
        /// The stream's open tick.
        open: Tick,
    },
    /// A grant is too small, or starts where no block may start.
    #[error(
        "a request for {requested} bytes was granted {bytes} bytes at offset {} of {}, address {address:?}: blocks are \
         at least as long as the request and start at multiples of 512", place.offset, place.segment
    )]
    Misshapen {
        /// Where the grant is.
        place: Place,
        /// Its length.
        bytes: u64,
        /// What was asked for.
        requested: u64,
        /// Its device address.
        address: Option<u64>,
    },
    /// A live block lies where the allocator has no memory.
    #[error(
        "{bytes} bytes at offset {} of {} are in use on {stream}, and there is no memory there",
        place.offset, place.segment
    )]
    NoMemory {
        /// Where the block is.
        place: Place,
        /// Its length.
        bytes: u64,
        /// Its stream.
        stream: StreamId,
    },
    /// Memory went back to the driver while the device may still use it.
    #[error(
        "bytes {}..{end} of {} went back to the driver and are still in use until {waits_for}: only tick {reached} is \
         reached there", place.offset, place.segment
    )]
    Released {
        /// Where the memory began.
        place: Place,
        /// Where it ended.
        end: u64,
        /// What a former tenant's use ends with.
        waits_for: Point,
        /// How far that stream is.
        reached: Tick,
    },
}
