//! What a plan asks its shell to do, the outcomes that the shell reports, and the numbers that explain a refusal.

use alloc::boxed::Box;
use alloc::vec::Vec;

use millpond_backend::{Point, StreamId, Tick};

use crate::books::{PageCall, Polled};
use crate::ids::{GroupId, PoolId, SegmentId, ShardId, Slot};
use crate::memory::NoRoom;
use crate::shard::Grant;
use crate::stats::{SlackStats, WasteLedger};

/// What the shell is to do next for a plan. After every step but the ends ([`Grant`](Step::Grant),
/// [`Lend`](Step::Lend), [`Grown`](Step::Grown), [`Stuck`](Step::Stuck), [`Refuse`](Step::Refuse),
/// [`Done`](Step::Done)) the shell reports an [`Outcome`].
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
    /// The end of a growth: the block is longer. The grant is that of the whole block, with the last use of what was
    /// added.
    Grown(Grant),
    /// The end of a growth for which there is no room at the place of the block. Nothing has changed.
    Stuck(NoRoom),
    /// The end of a request that cannot be served.
    Refuse(Box<Report>),
    /// The end of a plan that a group stands in the way of, or whose group cannot change now.
    Denied(Denied),
    /// The end of a plan with nothing more to do: it had no request, or the driver failed and the plan has put
    /// everything back.
    Done,
    /// The program is asked whether it can make room for a request that would be refused with this report, if its plan
    /// [appeals](crate::Plan::appealing). The plan holds nothing meanwhile, and has no turn. The outcome is
    /// [`Outcome::Retry`] or [`Outcome::Done`].
    Appeal(Box<Report>),
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
        let is_answer = matches!(self, Step::Grant(_) | Step::Lend { .. } | Step::Grown(_) | Step::Stuck(_));
        is_answer || matches!(self, Step::Refuse(_) | Step::Denied(_) | Step::Done)
    }
}

/// Why a plan that concerns a group has ended without effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// The request is for a pool of this group, which is not running.
    Closed(GroupId),
    /// This stream is being captured, so the end of its work on the group cannot be waited for.
    Capturing(StreamId),
    /// There is no room for the pages of the group.
    NoRoom {
        /// The bytes of all of its pages.
        bytes: u64,
        /// The bytes of those that the driver created before it had no more, which it got back. `None` if the limit
        /// left no room.
        created: Option<u64>,
    },
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
    /// The program may have made room: the request is tried again from the first rung.
    Retry,
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

/// A block that keeps a free range from growing or from going back to the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pin {
    /// The offset in the segment at which it starts, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub size: u64,
    /// The bytes that the program asked for.
    pub requested: u64,
    /// Whether it is freed already and waits for a point.
    pub waiting: bool,
}

/// A free range of memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FreeRange {
    /// The stream that the range belongs to.
    pub stream: StreamId,
    /// The segment that the range is in.
    pub segment: SegmentId,
    /// The offset in the segment at which it starts, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The neighbouring blocks that are in use or wait for a point: at most one before and one behind.
    pub pinned_by: Vec<Pin>,
}

/// Something that would make room for a refused request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Relief {
    /// The bytes that come free by it, in whole segments and pages.
    pub bytes: u64,
    /// Whether the request is served then for certain, if nothing else changes and the driver gives what it has got
    /// back. `false` where that cannot be known.
    pub serves: bool,
}

/// The facts in an out-of-memory error. All sizes are in bytes, taken after the retries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The bytes that the program asked for.
    pub requested_bytes: u64,
    /// What the driver was asked for: the segment, which PyTorch's message gives as the size that was tried. In
    /// expandable segments it is what is missing; under `paged`, which asks for no segments, the request in whole pages
    /// of the smallest size.
    pub tried_bytes: u64,
    /// The stream of the request.
    pub stream: StreamId,
    /// The pool of the request.
    pub pool: PoolId,
    /// The limit on reserved bytes, if there is one ("allowed").
    pub limit_bytes: Option<u64>,
    /// All bytes of the device.
    pub total_bytes: u64,
    /// The bytes in blocks that the program holds ("allocated").
    pub allocated_bytes: u64,
    /// The bytes taken from the driver.
    pub reserved_bytes: u64,
    /// The ledger of where the reserved bytes are.
    pub ledger: WasteLedger,
    /// The largest free range of any stream.
    pub largest_free: Option<FreeRange>,
    /// The largest free range of the request's own stream, pool and side, which alone could serve it.
    pub largest_usable: Option<FreeRange>,
    /// The bytes that `empty_cache` would give back now.
    pub empty_cache_frees: u64,
    /// The bytes in free pages and free segments whose last use is not known to be over. What is used by work that was
    /// never submitted stays cached.
    pub unreached_bytes: u64,
    /// The bytes that become free once the points that they wait for are reached.
    pub waiting_frees: u64,
    /// What comes free once nothing waits for the device any more, on any stream.
    pub by_waiting: Relief,
    /// Whether a free block of its own stream serves the request then, without that anything has to go back first.
    pub fits_after_waits: bool,
    /// What comes free once private pools have no references, but for the pool of the request, and the device is done
    /// with it.
    pub by_dropping_pools: Relief,
    /// The bytes of those whose last use is not known to be over.
    pub unreached_in_pools: u64,
    /// What `empty_cache` frees for a request that was refused before anything was tried, if the device is done with
    /// it; nothing otherwise, as the allocator has done that itself.
    pub by_emptying: Relief,
    /// The bytes in free blocks of private pools, which PyTorch's message gives as allocated there.
    pub in_private_pools: u64,
    /// What is reserved beyond the slack, and the work that may be the reason.
    pub slack: SlackStats,
    /// Whether a stream gets memory that it was the last to use again without a wait.
    pub reuses_in_order: bool,
    /// Whether free pages of every stream serve the request, because the policy is `paged`, and the pool has no source
    /// of its own.
    pub moves_pages: bool,
    /// Whether the segments of the pool come from a source of its own, rather than from the driver.
    pub has_source: bool,
    /// The shortest range of addresses that the request needed and there were none for, where as many bytes as it needs
    /// are not allocated: what is free in several places cannot be joined without addresses.
    pub refused_addresses: Option<u64>,
    /// Whether `throw_on_cudamalloc_oom` refused the request before anything was tried.
    pub rejected: bool,
}

impl Report {
    /// Returns the bytes that could be released or gathered at once.
    pub fn idle_bytes(&self) -> u64 {
        self.empty_cache_frees.saturating_sub(self.unreached_bytes)
    }

    /// Returns the bytes that must be freed for the request. With pages, the idle pages of every stream serve it; other
    /// policies would have to release them first, which the last retry has done.
    pub fn missing_bytes(&self) -> u64 {
        self.tried_bytes.saturating_sub(if self.moves_pages { self.idle_bytes() } else { 0 })
    }

    /// Returns the bytes that must at least come free for the request: by how much the limit is too low, or what is
    /// missing if the driver has refused it.
    pub fn short_bytes(&self) -> u64 {
        match self.beyond_limit_bytes() {
            0 => self.missing_bytes(),
            beyond => beyond,
        }
    }

    /// Returns how many bytes the limit is too low for the request; 0 if the limit is not the reason for the refusal.
    pub fn beyond_limit_bytes(&self) -> u64 {
        let needed = self.reserved_bytes.saturating_add(self.missing_bytes());
        self.limit_bytes.map_or(0, |limit| needed.saturating_sub(limit))
    }
}
