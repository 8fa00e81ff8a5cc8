//! A lane: what the simulated device keeps per stream, and the work queued on it.
//!
//! The part that `mark` and `reached` read is made of atomics, one lane to a pair of cache lines, so that threads with
//! streams of their own do not meet. The queue itself is the schedule's and lies behind the device's lock.

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
    /// Somebody may have marked the open tick. Never false while a mark of the open tick is out; may be true in vain.
    dirty: AtomicBool,
    /// The newest complete tick.
    reached: AtomicU64,
    /// Tasks queued and unfinished. Its lock guards every change of `open` and `reached`.
    pending: Mutex<u64>,
    /// Event queries made, counted here so that polling threads do not share a counter.
    pub(crate) queries: AtomicU64,
    /// Events recorded, likewise.
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

    /// The open tick, noted as marked.
    pub(crate) fn mark(&self) -> Tick {
        // `open` is read before `dirty`. `close` clears `dirty` before it raises `open`, so whoever reads the raised
        // number also sees the flag cleared, and sets it again.
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

    /// Closes the open tick if it was marked, and says whether it did: whether an event was recorded.
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

    /// Counts a task in and returns the tick it belongs to.
    pub(crate) fn enter(&self) -> u64 {
        let mut pending = self.pending.lock();
        *pending += 1;
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a task out; `next` is the tick of the task that is now first.
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
    /// Runs until somebody waits for it.
    Busy,
    /// Holds the lane until the point is reached.
    Wait(Point),
    /// Sets every byte of its writes.
    Fill(u8),
    /// Moves its reads to its writes.
    Copy,
    /// Puts these bytes into its writes.
    Upload(Vec<u8>),
    /// Puts its reads here.
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

/// The unfinished work of one lane, oldest first. Ticks never fall along it.
pub(crate) type Queue = VecDeque<Task>;
