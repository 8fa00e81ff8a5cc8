//! A lane: what the simulated device keeps per stream, and the work queued on it.
//!
//! The part that `mark` and `reached` read consists of atomics, with one lane to a pair of cache lines, so that threads
//! that use different streams do not contend. The queue itself belongs to the schedule and is guarded by the device's
//! lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millpond_backend::{Point, Tick};
use parking_lot::Mutex;

use crate::space::Piece;

/// The clock of one stream.
///
/// Invariant, whenever `pending` is locked: `reached` is the tick before the first queued task's, or the tick before
/// `open` if nothing is queued.
#[repr(align(128))]
pub(crate) struct Lane {
    /// The tick that the next mark returns. Rises when a tick is closed.
    open: AtomicU64,
    /// Whether the open tick may have been marked. Never false after a mark of the open tick was returned; may be true
    /// without one.
    dirty: AtomicBool,
    /// The newest complete tick.
    reached: AtomicU64,
    /// The number of tasks queued and unfinished. Its lock guards every change of `open` and `reached`.
    pending: Mutex<u64>,
    /// The number of event queries made, counted here so that polling threads do not share a counter.
    pub(crate) queries: AtomicU64,
    /// The number of events recorded, counted here for the same reason.
    pub(crate) records: AtomicU64,
}

impl Lane {
    pub(crate) fn new() -> Lane {
        Lane {
            open: AtomicU64::new(1),
            dirty: AtomicBool::new(false),
            reached: AtomicU64::new(0),
            pending: Mutex::new(0),
            queries: AtomicU64::new(0),
            records: AtomicU64::new(0),
        }
    }

    /// Notes that the open tick is marked, and returns it.
    pub(crate) fn mark(&self) -> Tick {
        // `open` is read before `dirty`. `close` clears `dirty` before it raises `open`, so a thread that reads the
        // raised number also sees the flag cleared, and sets it again.
        let open = self.open.load(Ordering::Acquire);
        if !self.dirty.load(Ordering::Relaxed) {
            self.dirty.store(true, Ordering::Release);
        }
        Tick(open)
    }

    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Closes the open tick, marked or not.
    pub(crate) fn close(&self) {
        let pending = self.pending.lock();
        self.close_locked(*pending);
    }

    /// Closes the open tick if it was marked, and returns whether it was: whether an event was recorded.
    pub(crate) fn close_if_dirty(&self) -> bool {
        let pending = self.pending.lock();
        let close = self.is_dirty();
        if close {
            self.close_locked(*pending);
        }
        close
    }

    fn close_locked(&self, pending: u64) {
        self.dirty.store(false, Ordering::Relaxed);
        let open = self.open.load(Ordering::Relaxed);
        self.open.store(open + 1, Ordering::Release);
        if pending == 0 {
            self.reached.store(open, Ordering::Release);
        }
    }

    /// Counts a new task, and returns the tick it belongs to.
    pub(crate) fn enter(&self) -> u64 {
        let mut pending = self.pending.lock();
        *pending += 1;
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a task as finished. `next` is the tick of the task that is now first.
    pub(crate) fn leave(&self, next: Option<u64>) {
        let mut pending = self.pending.lock();
        *pending -= 1;
        let end = next.unwrap_or_else(|| self.open.load(Ordering::Relaxed));
        assert!(
            end > self.reached.load(Ordering::Relaxed),
            "a lane's ticks fell: work of tick {end} was reached before"
        );
        self.reached.store(end - 1, Ordering::Release);
    }
}

/// What a task does when the device completes it.
pub(crate) enum Op {
    /// Touches its pieces and changes nothing.
    Kernel,
    /// Runs until the host waits for it, or a test completes it.
    Busy,
    /// Blocks the lane until the point is reached.
    Wait(Point),
    /// Sets every byte of its writes to this value.
    Fill(u8),
    /// Copies its reads to its writes.
    Copy,
    /// Stores these bytes in its writes.
    Upload(Vec<u8>),
    /// Stores its reads here.
    Download(Arc<Mutex<Vec<u8>>>),
}

/// One piece of queued work.
pub(crate) struct Task {
    /// Unique on the device, rising in the order of queueing.
    pub(crate) number: u64,
    /// The tick that covers it.
    pub(crate) tick: u64,
    pub(crate) op: Op,
    pub(crate) reads: Vec<Piece>,
    pub(crate) writes: Vec<Piece>,
}

/// The unfinished work of one lane, oldest first. The ticks never decrease along it.
pub(crate) type Queue = VecDeque<Task>;
