//! What a plan asks of its shell, and what the shell answers.

use alloc::boxed::Box;
use alloc::vec::Vec;

use millpond_backend::{Point, StreamId, Tick};

use super::report::Report;
use crate::ids::{PageId, Place, ShardId, Slot};
use crate::shard::Grant;

/// What the shell is to do next for a plan. Everything but the ends ([`Grant`](Step::Grant), [`Lend`](Step::Lend),
/// [`Refuse`](Step::Refuse), [`Done`](Step::Done)) is answered with an [`Outcome`].
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// The request is served.
    Grant(Grant),
    /// The request is served with a block of another stream's shard, which is idle. It is used on the requesting stream
    /// and goes back to the lender: the shell frees it there.
    Lend {
        /// Whose block it is.
        lender: ShardId,
        /// The block.
        grant: Grant,
    },
    /// The request cannot be served.
    Refuse(Box<Report>),
    /// There is nothing more to do: the plan had no request, or the driver failed and the plan has put everything back.
    Done,
    /// Ask these streams what they reached. Answer: [`Outcome::Reached`].
    Poll(Vec<StreamId>),
    /// Wait for these points. Answer: [`Outcome::Reached`], with what was in fact reached.
    Wait(Vec<Point>),
    /// Wait for everything recorded on this stream so far. Answer: [`Outcome::Reached`].
    Synchronize(StreamId),
    /// Have this stream wait, on the device, for these points of others. Answer: [`Outcome::Waits`],
    /// or [`Outcome::Refused`] if one of the streams cannot take part in a wait now.
    StreamWait {
        /// Who waits.
        stream: StreamId,
        /// For what.
        points: Vec<Point>,
    },
    /// Take a segment from the driver. Answer: [`Outcome::Reserved`], [`Outcome::Refused`] or [`Outcome::Failed`].
    Reserve {
        /// Whose it will be.
        shard: ShardId,
        /// The place kept for it.
        slot: Slot,
        /// Its length.
        bytes: u64,
    },
    /// Reserve a range of addresses. Answers as for [`Reserve`](Step::Reserve).
    ReserveRange {
        /// Whose it will be.
        shard: ShardId,
        /// The place kept for it.
        slot: Slot,
        /// Its length.
        bytes: u64,
    },
    /// Make these calls in order, up to the first that fails. Answer: [`Outcome::Done`] or [`Outcome::Stopped`].
    Pages(Vec<PageCall>),
    /// Give a segment back to the driver. Answer: [`Outcome::Done`].
    Release {
        /// Whose it was.
        shard: ShardId,
        /// Which one.
        slot: Slot,
        /// Its length.
        bytes: u64,
    },
    /// Give an address range back to the driver. Answer: [`Outcome::Done`].
    ReleaseRange {
        /// Whose it was.
        shard: ShardId,
        /// Which one.
        slot: Slot,
    },
    /// Other plans hold what may make room, or have their turn: wait until
    /// [`Coordinator::progress`](super::Coordinator::progress) is another number than this. Answer: [`Outcome::Done`].
    Pause {
        /// The number when the step was taken.
        seen: u64,
    },
}

impl Step {
    /// Nothing follows: the plan is answered.
    pub fn is_end(&self) -> bool {
        matches!(self, Step::Grant(_) | Step::Lend { .. } | Step::Refuse(_) | Step::Done)
    }
}

/// One driver call about a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageCall {
    /// Create physical memory under this number.
    Create {
        /// Its number, which the shell keeps the handle by.
        page: PageId,
        /// Its length.
        bytes: u64,
    },
    /// Map the page, ordered on the stream of the place's shard.
    Map {
        /// Which.
        page: PageId,
        /// Where to.
        at: Place,
    },
    /// Unmap the page there. Cannot fail.
    Unmap {
        /// Which.
        page: PageId,
        /// Where.
        at: Place,
    },
    /// Give the page's memory back. Cannot fail.
    Release {
        /// Which.
        page: PageId,
    },
}

/// What came of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// A segment or a range, at this device address (0 on devices without addresses).
    Reserved {
        /// Where it starts.
        address: u64,
    },
    /// The driver has no memory (or addresses) left, or a stream cannot take part in a wait now.
    Refused,
    /// The driver failed otherwise. The plan puts everything back, which may take further steps, and is then
    /// [`Done`](Step::Done).
    Failed,
    /// Of the page calls so many were made; the next one failed.
    Stopped {
        /// How many were made.
        done: usize,
        /// For want of memory; otherwise the plan ends as after [`Failed`](Outcome::Failed).
        refused: bool,
    },
    /// These streams reached these ticks.
    Reached(Vec<Point>),
    /// The waits are queued; this tick of the waiting stream covers them.
    Waits(Tick),
}
