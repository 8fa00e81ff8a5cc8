//! The violations that the oracle finds.

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
        /// The place of the grant.
        place: Place,
        /// Its length.
        bytes: u64,
        /// Its stream.
        stream: StreamId,
        /// The place of the earlier block.
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
        /// The place of the grant.
        place: Place,
        /// Its length.
        bytes: u64,
        /// Its stream.
        stream: StreamId,
        /// The point at which a former tenant's use ends.
        waits_for: Point,
        /// The tick that its stream has reached.
        reached: Tick,
    },
    /// Memory was granted on its home stream before the work of its former tenant was submitted, on a device that
    /// orders submits only, be it at all addresses or where a page has moved.
    #[error(
        "{bytes} bytes at offset {} of {} were granted again before the work up to {freed} was submitted: tick {open} \
         is still open", place.offset, place.segment
    )]
    Unsubmitted {
        /// The place of the grant.
        place: Place,
        /// Its length.
        bytes: u64,
        /// The point at which the memory was freed.
        freed: Point,
        /// The stream's open tick.
        open: Tick,
    },
    /// A grant says that its memory was never used, and a former tenant used some of its bytes.
    #[error(
        "{bytes} bytes at offset {} of {} were granted on {stream} as fresh, and hold bytes that were freed at {freed}",
        place.offset, place.segment
    )]
    NotFresh {
        /// The place of the grant.
        place: Place,
        /// Its length.
        bytes: u64,
        /// Its stream.
        stream: StreamId,
        /// The point at which the former tenant freed the bytes.
        freed: Point,
    },
    /// A grant says that the last use of its memory is over, and it is not.
    #[error(
        "{bytes} bytes at offset {} of {} were granted on {stream} as if their last use were over, and are in use \
         until {waits_for}: only tick {reached} is reached there", place.offset, place.segment
    )]
    NotComplete {
        /// The place of the grant.
        place: Place,
        /// Its length.
        bytes: u64,
        /// Its stream.
        stream: StreamId,
        /// The point at which a former tenant's use ends.
        waits_for: Point,
        /// The tick that its stream has reached.
        reached: Tick,
    },
    /// A grant says that its memory may be used without a barrier, on a device whose streams keep order only behind
    /// barriers.
    #[error(
        "{bytes} bytes at offset {} of {} were granted as ordered after {last_use}, which only a barrier would make \
         true: tick {reached} is reached", place.offset, place.segment
    )]
    NoBarrier {
        /// The place of the grant.
        place: Place,
        /// Its length.
        bytes: u64,
        /// The last use, on the stream of the grant.
        last_use: Point,
        /// The tick that its stream has reached.
        reached: Tick,
    },
    /// A grant is too small, or starts where no block may start.
    #[error(
        "a request for {requested} bytes was granted {bytes} bytes at offset {} of {}, address {address:?}: blocks are \
         at least as long as the request and start at multiples of 512", place.offset, place.segment
    )]
    Misshapen {
        /// The place of the grant.
        place: Place,
        /// Its length.
        bytes: u64,
        /// The size of the request.
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
        /// The place of the block.
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
        /// The place where the memory began.
        place: Place,
        /// The offset in the segment where it ended.
        end: u64,
        /// The point at which a former tenant's use ends.
        waits_for: Point,
        /// The tick that its stream has reached.
        reached: Tick,
    },
    /// A page went back to the driver while the device may still use it.
    #[error(
        "bytes {begin}..{end} of page {} went back to the driver and are still in use until {waits_for}: only tick \
         {reached} is reached there", page.0
    )]
    ReleasedPage {
        /// The page.
        page: PageId,
        /// The offset in the page where a former tenant's bytes began.
        begin: u64,
        /// The offset in the page where they ended.
        end: u64,
        /// The point at which that tenant's use ends.
        waits_for: Point,
        /// The tick that its stream has reached.
        reached: Tick,
    },
    /// A grant lies at addresses from which a page has moved away, and where it only remains mapped.
    #[error(
        "{bytes} bytes at offset {} of {} were granted, where page {} at offset {at} is not at home",
        place.offset, place.segment, page.0
    )]
    Retired {
        /// The place of the grant.
        place: Place,
        /// Its length.
        bytes: u64,
        /// The page that is mapped there.
        page: PageId,
        /// Its offset in the segment.
        at: u64,
    },
    /// A grant lies where no page is mapped.
    #[error(
        "{bytes} bytes at offset {} of {} were granted, and no page is at offset {at}", place.offset, place.segment
    )]
    Unbacked {
        /// The place of the grant.
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
        /// The page.
        page: PageId,
        /// The offset in the page where the common bytes begin, or an earlier one.
        begin: u64,
        /// The offset in the page where they end.
        end: u64,
        /// The place of the block that was granted.
        place: Place,
        /// The place of the earlier block.
        other: Place,
    },
    /// Other pages lie behind a live block than at its grant.
    #[error(
        "the pages behind {bytes} bytes at offset {} of {} changed while {stream} uses them",
        place.offset, place.segment
    )]
    Moved {
        /// The place of the block.
        place: Place,
        /// Its length.
        bytes: u64,
        /// Its stream.
        stream: StreamId,
    },
}
