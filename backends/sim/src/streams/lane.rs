//! A lane: what the simulated device keeps per stream, and the work queued on it.
//!
//! The part that `mark` and `reached` read consists of atomics, with one lane to a pair of cache lines, so that threads
//! that use different streams do not contend. The queue itself belongs to the schedule and is guarded by the device's
//! lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use millpond_backend::{Point, Tick};
use millpond_kit::TickClock;
use parking_lot::Mutex;

use crate::space::Piece;

/// The time of one stream.
///
/// Invariant, whenever `pending` is locked: the reached tick is the one before the first queued task's, or the one
/// before the open tick if nothing is queued.
#[repr(align(128))]
pub(crate) struct Lane {
    pub(crate) clock: TickClock,
    /// The number of tasks queued and unfinished. Its lock guards every close and completion of the clock.
    pending: Mutex<u64>,
    /// The number of event queries made, counted here so that polling threads do not share a counter.
    pub(crate) queries: AtomicU64,
    /// The number of events recorded, counted here for the same reason.
    pub(crate) records: AtomicU64,
}

impl Lane {
    pub(crate) fn new() -> Lane {
        Lane { clock: TickClock::new(), pending: Mutex::new(0), queries: AtomicU64::new(0), records: AtomicU64::new(0) }
    }

    /// Closes the open tick, marked or not.
    pub(crate) fn close(&self) {
        let pending = self.pending.lock();
        self.close_locked(*pending);
    }

    /// Closes the open tick if it was marked and `needed` is not below it. Returns whether an event was recorded. A
    /// tick that another thread is closing is closed, and complete if no work holds it, when this returns.
    pub(crate) fn close_if_marked(&self, needed: Tick) -> bool {
        let pending = self.pending.lock();
        let close = needed >= self.clock.open() && self.clock.is_marked();
        if close {
            self.close_locked(*pending);
        }
        close
    }

    fn close_locked(&self, pending: u64) {
        let tick = self.clock.close();
        if pending == 0 {
            self.clock.complete(tick);
        }
    }

    /// Counts a new task, and returns the tick it belongs to.
    pub(crate) fn enter(&self) -> Tick {
        let mut pending = self.pending.lock();
        *pending += 1;
        self.clock.open()
    }

    /// Counts a task as finished. `next` is the tick of the task that is now first.
    pub(crate) fn leave(&self, next: Option<Tick>) {
        let mut pending = self.pending.lock();
        *pending -= 1;
        let end = next.unwrap_or_else(|| self.clock.open());
        self.clock.complete(Tick(end.0 - 1));
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
    /// Fills, copies or uploads bytes that are not kept: it uses its reads and its writes, and stores nothing.
    Unkept,
    /// Stores its reads here.
    Download(Arc<Mutex<Vec<u8>>>),
}

impl Op {
    /// Returns whether the task moves bytes: a fill, a copy, an upload or a download.
    pub(crate) fn is_transfer(&self) -> bool {
        match self {
            Op::Fill(_) | Op::Copy | Op::Upload(_) | Op::Unkept | Op::Download(_) => true,
            Op::Kernel | Op::Busy | Op::Wait(_) => false,
        }
    }
}

/// One piece of queued work.
pub(crate) struct Task {
    /// Unique on the device, rising in the order of queueing.
    pub(crate) number: u64,
    /// The tick that covers it.
    pub(crate) tick: Tick,
    pub(crate) op: Op,
    pub(crate) reads: Vec<Piece>,
    pub(crate) writes: Vec<Piece>,
}

/// The unfinished work of one lane, oldest first. The ticks never decrease along it.
pub(crate) type Queue = VecDeque<Task>;

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Another thread has raised the open tick and not completed the closed one yet.
    #[test]
    fn a_tick_that_is_being_closed_is_complete_when_a_close_returns() {
        let lane = Lane::new();
        let pending = lane.pending.lock();
        lane.clock.mark();
        let tick = lane.clock.close();
        thread::scope(|scope| {
            let waits = scope.spawn(|| (lane.close_if_marked(tick), lane.clock.reached()));
            // Time enough for a wrong answer. The right one takes the lock.
            thread::sleep(Duration::from_millis(20));
            lane.clock.complete(tick);
            drop(pending);
            assert_eq!(waits.join().unwrap(), (false, tick));
        });
    }
}
