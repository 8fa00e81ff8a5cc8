//! A lane: what is kept per stream. Its clock is made of atomics, so that `mark` and `reached` take no lock; the events
//! lie behind the lane's own lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUevent, CUstream};
use millpond_backend::Tick;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::staging::Ring;

/// One stream. A pair of cache lines of its own, so that threads with streams of their own do not meet.
///
/// Invariant, whenever `state` is not locked: every tick above `reached` and below `open` is covered by an event in
/// `pending`, or `dirty` is set, so that the next event covers it.
#[repr(align(128))]
pub(crate) struct Lane {
    /// The tick that the next mark returns. Raised under the lock, before the event that closes it is recorded.
    open: AtomicU64,
    /// Somebody may have marked the open tick. Never false while a mark of the open tick is out; may be true in vain.
    dirty: AtomicBool,
    /// The newest tick known to be complete.
    reached: AtomicU64,
    /// The stream was unregistered: its handle must not be used any more. Set under both locks.
    gone: AtomicBool,
    /// Shared by those who use the handle, and for one alone who unregisters the stream. Taken before `state`.
    pub(crate) users: RwLock<()>,
    handle: Handle,
    /// For a per-thread default stream, whose handle means another stream on each thread: the thread.
    pub(crate) thread: Option<ThreadId>,
    pub(crate) state: Mutex<LaneState>,
    /// The host has read a piece of the ring.
    pub(crate) unpinned: Condvar,
}

/// The driver's handle of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Handle(pub(crate) CUstream);

// SAFETY: it is a name for the driver, whose functions take it on every thread.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handle {}

/// The driver's handle of an event.
#[derive(Debug)]
pub(crate) struct Event(pub(crate) CUevent);

// SAFETY: it is a name for the driver, whose functions take it on every thread.
unsafe impl Send for Event {}
// SAFETY: as for `Send`.
unsafe impl Sync for Event {}

/// A closed tick whose completion is not known yet.
pub(crate) struct Pending {
    pub(crate) tick: u64,
    /// Shared with those who wait for it at this moment: it is recorded anew only when nobody does.
    pub(crate) event: Arc<Event>,
}

/// What a lane does behind its lock.
#[derive(Default)]
pub(crate) struct LaneState {
    /// Ticks rise along it.
    pub(crate) pending: VecDeque<Pending>,
    /// Events to be recorded anew.
    pub(crate) spare: Vec<Event>,
    /// Keeps an engine's stream alive while it is registered.
    pub(crate) kept: Option<Arc<CudaStream>>,
    /// The stream is ours to destroy.
    pub(crate) owned: bool,
    /// What the driver calls the stream: unlike its handle never used again. Unknown with older drivers.
    pub(crate) unique: Option<u64>,
    /// Made when bytes of the host first go through.
    pub(crate) ring: Option<Ring>,
}

impl Pending {
    /// The tick and a share of the event, which is not recorded anew before that goes to [`Device::recycle`].
    ///
    /// [`Device::recycle`]: crate::device::Device::recycle
    pub(crate) fn share(&self) -> (u64, Arc<Event>) {
        (self.tick, Arc::clone(&self.event))
    }
}

impl LaneState {
    /// The event that covers a tick: the oldest of those that were recorded at it or later.
    pub(crate) fn covering(&self, tick: u64) -> Option<&Pending> {
        self.pending.iter().find(|pending| pending.tick >= tick)
    }
}

impl Lane {
    pub(crate) fn new(handle: Handle, thread: Option<ThreadId>, state: LaneState) -> Lane {
        Lane {
            open: AtomicU64::new(1),
            dirty: AtomicBool::new(false),
            reached: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            users: RwLock::new(()),
            handle,
            thread,
            state: Mutex::new(state),
            unpinned: Condvar::new(),
        }
    }

    /// The driver's handle. Good until the lane is gone: who gives it to the driver has it from a
    /// [`Stay`](crate::stay::Stay), or is the only one left.
    pub(crate) fn handle(&self) -> CUstream {
        self.handle.0
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Whether work of this thread on the handle is this lane's.
    pub(crate) fn on_this_thread(&self) -> bool {
        self.thread.is_none_or(|thread| thread == std::thread::current().id())
    }

    /// The open tick, noted as marked.
    #[inline]
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

    #[inline]
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// The open tick must be closed again, because the event that should have covered an earlier one does not.
    pub(crate) fn set_dirty(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Nothing is outstanding: every tick that was marked is known to be complete.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_dirty() && self.reached() + 1 >= self.open()
    }

    /// Raises `open` and returns the tick that it was. Only under the lane's lock, and before the event is recorded:
    /// work behind the event must not be marked with a tick that the event closes.
    pub(crate) fn raise(&self) -> u64 {
        self.dirty.store(false, Ordering::Relaxed);
        let open = self.open.load(Ordering::Relaxed);
        self.open.store(open + 1, Ordering::Release);
        open
    }

    /// Notes that a tick is complete. Only under the lane's lock.
    pub(crate) fn complete(&self, tick: u64) {
        let (reached, open) = (self.reached.load(Ordering::Relaxed), self.open.load(Ordering::Relaxed));
        assert!(tick < open, "tick {tick} is complete and was never closed: the open tick is {open}");
        assert!(tick >= reached, "a lane's ticks fell: {reached} was reached, and now {tick}");
        self.reached.store(tick, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane() -> Lane {
        Lane::new(Handle(std::ptr::null_mut()), None, LaneState::default())
    }

    #[test]
    fn a_mark_is_of_the_open_tick_and_makes_the_lane_busy() {
        let lane = lane();
        assert!(lane.is_idle());
        assert_eq!((lane.mark(), lane.mark()), (Tick(1), Tick(1)));
        assert!(!lane.is_idle());
        assert_eq!(lane.raise(), 1);
        assert!(!lane.is_dirty() && !lane.is_idle(), "tick 1 is closed and not reached");
        assert_eq!(lane.mark(), Tick(2));
        lane.complete(1);
        assert!(!lane.is_idle(), "tick 2 is marked");
        assert_eq!(lane.raise(), 2);
        lane.complete(2);
        assert!(lane.is_idle());
    }

    #[test]
    fn a_tick_is_covered_by_the_next_event() {
        let mut state = LaneState::default();
        for tick in [2, 5] {
            state.pending.push_back(Pending { tick, event: Arc::new(Event(std::ptr::null_mut())) });
        }
        let covering = |tick| state.covering(tick).map(|pending| pending.tick);
        assert_eq!([1, 2, 3, 5, 6].map(covering), [Some(2), Some(2), Some(5), Some(5), None]);
    }

    #[test]
    #[should_panic(expected = "ticks fell")]
    fn ticks_never_fall() {
        let lane = lane();
        assert_eq!((0..3).map(|_| lane.raise()).collect::<Vec<_>>(), [1, 2, 3]);
        lane.complete(3);
        lane.complete(2);
    }
}
