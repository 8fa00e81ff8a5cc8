//! The history as it is read.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::SystemTime;

use millpond_backend::{Point, StreamId, Tick};
use millpond_core::{PoolId, SegmentId};

use crate::text::format_bytes;

/// What an entry is about.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Action {
    /// A block was handed out.
    Alloc,
    /// The program has freed a block.
    FreeRequested,
    /// A freed block is free again: at once, or after the points that it waited for.
    FreeCompleted,
    /// A block is used on another stream until its free; `stream` is that stream.
    Use,
    /// A block is used until its stream, `stream`, reaches this tick.
    Until(Tick),
    /// A segment was reserved from the driver.
    SegmentAlloc,
    /// A segment goes back to the driver.
    SegmentFree,
    /// Addresses were reserved, without memory.
    RangeAlloc,
    /// Addresses go back to the driver.
    RangeFree,
    /// A page of physical memory was created.
    PageCreate,
    /// A page went back to the driver.
    PageRelease,
    /// A page was mapped at its home, the place where it stays.
    SegmentMap,
    /// A page was unmapped from its home.
    SegmentUnmap,
    /// A page was mapped once more, in a window: the policy `paged` gathers free memory.
    Gather,
    /// A page was unmapped from a window.
    Ungather,
    /// A request was refused.
    OutOfMemory {
        /// The bytes that the allocator might still have reserved: of its limit, or of the device's total.
        free_bytes: u64,
    },
    /// The program emptied the cache.
    EmptyCache,
    /// The program asked to keep at most `size` bytes reserved.
    Trim,
    /// A snapshot was taken.
    Snapshot,
    /// A note of the program, from [`Allocator::annotate`](crate::Allocator::annotate).
    Annotate(Arc<str>),
    /// This tick covers everything queued on `stream` so far. It was taken by the program, or the stream is found at a
    /// new tick.
    Point(Tick),
    /// `stream` was submitted up to this tick, on a device where the application does that.
    Submit(Tick),
    /// What is queued on `stream` from now on waits for a point, on the device.
    StreamWait(Point),
    /// The program has waited until `stream` had reached this tick.
    HostWait(Tick),
    /// The allocator has seen that `stream` has reached this tick.
    Reached(Tick),
    /// The allocator has asked how far streams are, at this time of the clock by which the device's work proceeds, in
    /// nanoseconds. Not noted where the application closes ticks.
    Look(u64),
}

impl Action {
    /// Returns its name: PyTorch's where PyTorch has one (`alloc`, `free_requested`, `free_completed`, `segment_alloc`,
    /// `segment_free`, `segment_map`, `segment_unmap`, `oom`, `snapshot`, `annotate`).
    pub fn name(&self) -> &'static str {
        match self {
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::Use => "use",
            Action::Until(_) => "until",
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::RangeAlloc => "range_alloc",
            Action::RangeFree => "range_free",
            Action::PageCreate => "page_create",
            Action::PageRelease => "page_release",
            Action::SegmentMap => "segment_map",
            Action::SegmentUnmap => "segment_unmap",
            Action::Gather => "gather",
            Action::Ungather => "ungather",
            Action::OutOfMemory { .. } => "oom",
            Action::EmptyCache => "empty_cache",
            Action::Trim => "trim",
            Action::Snapshot => "snapshot",
            Action::Annotate(_) => "annotate",
            Action::Point(_) => "point",
            Action::Submit(_) => "submit",
            Action::StreamWait(_) => "stream_wait",
            Action::HostWait(_) => "host_wait",
            Action::Reached(_) => "reached",
            Action::Look(_) => "look",
        }
    }
}

/// One entry of a history. Fields that do not apply to an action are 0 or `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// When, in nanoseconds since [`History::began`], of a monotonic clock.
    pub time_ns: u64,
    /// The stream: of a block the one that it was allocated on, even where another one lends it.
    pub stream: StreamId,
    /// The pool.
    pub pool: PoolId,
    /// The segment or the range; `None` for an entry about none.
    pub segment: Option<SegmentId>,
    /// The offset in the segment, in bytes.
    pub offset: u64,
    /// The device address; `None` on devices without addresses.
    pub address: Option<u64>,
    /// The bytes: of the block after rounding, the segment, the page, or what the driver would have been asked for.
    pub size: u64,
    /// The bytes that the program asked for.
    pub requested: u64,
    /// The tag or label of the block; of an entry about no block the [tag](crate::tag()) in force.
    pub tag: Option<Arc<str>>,
    /// The place in the program at which the block was allocated; `None` for other entries.
    pub site: Option<&'static Location<'static>>,
}

impl fmt::Display for Entry {
    /// Prints the entry in one line, without what its action does not concern.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms {}", self.time_ns as f64 / 1e6, self.action.name())?;
        match &self.action {
            Action::Annotate(text) => write!(f, " {text}")?,
            Action::Point(tick) | Action::Submit(tick) | Action::HostWait(tick) | Action::Reached(tick) => {
                write!(f, " {}", Point { stream: self.stream, tick: *tick })?;
            }
            Action::Look(nanos) => write!(f, " at {nanos} ns")?,
            Action::StreamWait(point) => write!(f, " of {} for {point}", self.stream)?,
            _ => {}
        }
        if self.size > 0 {
            write!(f, " {}", format_bytes(self.size))?;
        }
        if let Some(segment) = self.segment {
            write!(f, " of {} at offset {} of {segment}", self.stream, self.offset)?;
        }
        if let Some(tag) = &self.tag {
            write!(f, " ({tag})")?;
        }
        self.site.map_or(Ok(()), |site| write!(f, " from {site}"))
    }
}

/// The newest entries, from [`Allocator::history`](crate::Allocator::history).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct History {
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
    /// How many older ones there were since the recording began, which are lost.
    pub lost: u64,
    /// When the recording began, from which times count.
    pub began: SystemTime,
}

impl Default for History {
    /// Returns the history of an allocator that records none.
    fn default() -> Self {
        Self { entries: Vec::new(), lost: 0, began: SystemTime::UNIX_EPOCH }
    }
}
