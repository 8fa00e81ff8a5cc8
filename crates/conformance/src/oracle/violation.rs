//! What the oracle objects to.

use millpond_backend::{Point, StreamId, Tick};
use millpond_core::PageId;

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
    /// orders submits only, be it at all addresses or where a page has moved.
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
    /// A grant says that its memory was never used, and a former tenant had bytes of it.
    #[error(
        "{bytes} bytes at offset {} of {} were granted on {stream} as fresh, and hold bytes that were freed at {freed}",
        place.offset, place.segment
    )]
    NotFresh {
        /// Where the grant is.
        place: Place,
        /// Its length.
        bytes: u64,
        /// Its stream.
        stream: StreamId,
        /// When the former tenant gave them up.
        freed: Point,
    },
    /// A grant says that the last use of its memory is over, and it is not.
    #[error(
        "{bytes} bytes at offset {} of {} were granted on {stream} as if their last use were over, and are in use \
         until {waits_for}: only tick {reached} is reached there", place.offset, place.segment
    )]
    NotComplete {
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
    /// A grant says that its memory may be used without any ado, on a device whose streams keep order only behind
    /// barriers.
    #[error(
        "{bytes} bytes at offset {} of {} were granted as ordered after {last_use}, which only a barrier would make \
         true: tick {reached} is reached", place.offset, place.segment
    )]
    NoBarrier {
        /// Where the grant is.
        place: Place,
        /// Its length.
        bytes: u64,
        /// The last use, on the stream of the grant.
        last_use: Point,
        /// How far that stream is.
        reached: Tick,
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
    /// A page went back to the driver while the device may still use it.
    #[error(
        "bytes {begin}..{end} of page {} went back to the driver and are still in use until {waits_for}: only tick \
         {reached} is reached there", page.0
    )]
    ReleasedPage {
        /// Which page.
        page: PageId,
        /// Where in it a former tenant's bytes began.
        begin: u64,
        /// Where they ended.
        end: u64,
        /// What that tenant's use ends with.
        waits_for: Point,
        /// How far that stream is.
        reached: Tick,
    },
    /// A grant lies at addresses that a page has left, where it is only mapped still.
    #[error(
        "{bytes} bytes at offset {} of {} were granted, where page {} at offset {at} is not at home",
        place.offset, place.segment, page.0
    )]
    Retired {
        /// Where the grant is.
        place: Place,
        /// Its length.
        bytes: u64,
        /// The page that is mapped there.
        page: PageId,
        /// Where in the segment it is.
        at: u64,
    },
    /// A grant lies where no page is mapped.
    #[error(
        "{bytes} bytes at offset {} of {} were granted, and no page is at offset {at}", place.offset, place.segment
    )]
    Unbacked {
        /// Where the grant is.
        place: Place,
        /// Its length.
        bytes: u64,
        /// The first offset in the segment without a page.
        at: u64,
    },
    /// Two live blocks share bytes of a page.
    #[error(
        "bytes {begin}..{end} of page {} are behind offset {} of {} and behind offset {} of {}, both in use",
        page.0, place.offset, place.segment, other.offset, other.segment
    )]
    SharedPage {
        /// Which page.
        page: PageId,
        /// Where in it the common bytes begin, or before.
        begin: u64,
        /// Where they end.
        end: u64,
        /// The block that was granted.
        place: Place,
        /// The block that was there first.
        other: Place,
    },
    /// Other pages lie behind a live block than at its grant.
    #[error(
        "the pages behind {bytes} bytes at offset {} of {} changed while {stream} uses them",
        place.offset, place.segment
    )]
    Moved {
        /// Where the block is.
        place: Place,
        /// Its length.
        bytes: u64,
        /// Its stream.
        stream: StreamId,
    },
}
