//! What a plan asks its shell to do, and the outcomes that the shell reports.

use alloc::boxed::Box;
use alloc::vec::Vec;

use millpond_backend::{Point, StreamId, Tick};

use super::report::Report;
use crate::books::{PageCall, Polled};
use crate::ids::{ShardId, Slot};
use crate::shard::Grant;

/// What the shell is to do next for a plan. After every step but the ends ([`Grant`](Step::Grant),
/// [`Lend`](Step::Lend), [`Refuse`](Step::Refuse), [`Done`](Step::Done)) the shell reports an [`Outcome`].
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// The end of a request that is served.
    Grant(Grant),
    /// The end of a request that is served with a block of a private pool that allows it. The block goes back there:
    /// the shell frees it in that shard.
    Lend {
        /// The shard that the block belongs to.
        lender: ShardId,
        /// The block.
        grant: Grant,
    },
    /// The end of a request that cannot be served.
    Refuse(Box<Report>),
    /// The end of a plan with nothing more to do: it had no request, or the driver failed and the plan has put
    /// everything back.
    Done,
    /// A query for the ticks that these streams have reached. The outcome is [`Outcome::Polled`], or
    /// [`Outcome::Reached`] where nothing else is known.
    Poll(Vec<StreamId>),
    /// A query for the bytes that the device's budget leaves, before something is created. The outcome is
    /// [`Outcome::Left`].
    Budget,
    /// A wait for these points. The outcome is [`Outcome::Reached`], with the ticks that were in fact reached.
    Wait(Vec<Point>),
    /// A wait for everything recorded on this stream so far. The outcome is [`Outcome::Reached`].
    Synchronize(StreamId),
    /// A wait of this stream, on the device, for these points of other streams. The outcome is [`Outcome::Waits`], or
    /// [`Outcome::Refused`] if one of the streams cannot take part in a wait at present.
    StreamWait {
        /// The stream that waits.
        stream: StreamId,
        /// The points that it waits for.
        points: Vec<Point>,
    },
    /// A request for a segment, to the driver or to the source of the shard's pool. The outcome is
    /// [`Outcome::Reserved`], [`Outcome::Refused`] or [`Outcome::Failed`].
    Reserve {
        /// The shard that the segment will belong to.
        shard: ShardId,
        /// The slot that is kept for it.
        slot: Slot,
        /// Its length in bytes.
        bytes: u64,
    },
    /// A request to the driver for a range of addresses. The outcomes are those of [`Reserve`](Step::Reserve).
    ReserveRange {
        /// The shard that the range will belong to.
        shard: ShardId,
        /// The slot that is kept for it.
        slot: Slot,
        /// Its length in bytes.
        bytes: u64,
    },
    /// These calls, to be made in order up to the first that fails. The outcome is [`Outcome::Done`] or
    /// [`Outcome::Stopped`].
    Pages(Vec<PageCall>),
    /// The return of a segment to where it came from: the driver, or the source of the shard's pool. The outcome is
    /// [`Outcome::Done`].
    Release {
        /// The shard that the segment belonged to.
        shard: ShardId,
        /// Its slot.
        slot: Slot,
        /// Its length in bytes.
        bytes: u64,
    },
    /// The return of an address range to the driver. The outcome is [`Outcome::Done`].
    ReleaseRange {
        /// The shard that the range belonged to.
        shard: ShardId,
        /// Its slot.
        slot: Slot,
    },
    /// A wait until [`Coordinator::progress`](crate::Coordinator::progress) is no longer this number, because other
    /// plans hold memory that may make room, or have their turn. The outcome is [`Outcome::Done`].
    Pause {
        /// The number when the step was taken.
        seen: u64,
    },
}

impl Step {
    /// Returns whether this is the last step of its plan.
    pub fn is_end(&self) -> bool {
        matches!(self, Step::Grant(_) | Step::Lend { .. } | Step::Refuse(_) | Step::Done)
    }
}

/// The outcome of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The step is done.
    Done,
    /// The driver has reserved a segment or a range.
    Reserved {
        /// The device address at which it starts, or 0 on devices without addresses.
        address: u64,
    },
    /// The driver has no memory or no addresses left, or a stream cannot take part in a wait at present.
    Refused,
    /// The driver failed for another reason. The plan puts everything back, which may take further steps, and is then
    /// [`Done`](Step::Done).
    Failed,
    /// One of the page calls failed, and those after it were not made.
    Stopped {
        /// The number of calls that were made.
        done: usize,
        /// Whether the call failed for lack of memory. Otherwise the plan ends as after [`Failed`](Outcome::Failed).
        refused: bool,
    },
    /// These streams have reached these ticks.
    Reached(Vec<Point>),
    /// The streams are this far.
    Polled {
        /// Each stream that was asked, once, in any order.
        streams: Vec<Polled>,
        /// The time at which that was so, in nanoseconds since any moment. `None` where the application closes ticks,
        /// as those say little of how far the device is.
        time: Option<u64>,
    },
    /// The device's budget leaves this number of bytes, or it cannot be told.
    Left(Option<u64>),
    /// The waits are queued. This tick of the waiting stream covers them.
    Waits(Tick),
}
