//! A lane: the state kept per stream. Its clock consists of atomics, so that `mark` and `reached` take no lock; the
//! events are guarded by the lane's own lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{CUevent, CUstream};
use millpond_backend::Tick;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::staging::Ring;

/// The state of one stream. It has a pair of cache lines of its own, so that threads that use different streams do not
/// contend.
///
/// Invariant, whenever `state` is not locked: every tick above `reached` and below `open` is covered by an event in
/// `pending`, or `dirty` is set, so that the next event covers it.
#[repr(align(128))]
pub(crate) struct Lane {
    /// The tick that the next mark returns. Raised under the lock, before the event that closes it is recorded.
    open: AtomicU64,
    /// Whether the open tick may have been marked. Never false after a mark of the open tick was returned; may be true
    /// without one.
    dirty: AtomicBool,
    /// The newest tick known to be complete.
    reached: AtomicU64,
    /// Whether the stream was unregistered, so that its handle must not be used any more. Set under both locks.
    gone: AtomicBool,
    /// Held shared by threads that use the handle, and exclusively by a thread that unregisters the stream. Taken
    /// before `state`.
    pub(crate) users: RwLock<()>,
    handle: Handle,
    /// The thread of a per-thread default stream, whose handle means another stream on each thread.
    pub(crate) thread: Option<ThreadId>,
    pub(crate) state: Mutex<LaneState>,
    /// Notified when the host has read a piece of the ring.
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
    /// Shared with the threads that wait for it at this moment. It is recorded again only when no thread does.
    pub(crate) event: Arc<Event>,
}

/// The part of a lane that its lock guards.
#[derive(Default)]
pub(crate) struct LaneState {
    /// The closed ticks, in rising order.
    pub(crate) pending: VecDeque<Pending>,
    /// Events that can be recorded again.
    pub(crate) spare: Vec<Event>,
    /// Keeps an engine's stream alive while it is registered.
    pub(crate) kept: Option<Arc<CudaStream>>,
    /// Whether this device made the stream and has to destroy it.
    pub(crate) owned: bool,
    /// The driver's number of the stream, which unlike its handle is never used again. Unknown with older drivers.
    pub(crate) unique: Option<u64>,
    /// The staging ring, made when bytes of the host are first copied through it.
    pub(crate) ring: Option<Ring>,
}

impl Pending {
    /// Returns the tick and a shared reference to the event. The event is not recorded again before the reference is
    /// passed to [`Device::recycle`].
    ///
    /// [`Device::recycle`]: crate::device::Device::recycle
    pub(crate) fn share(&self) -> (u64, Arc<Event>) {
        (self.tick, Arc::clone(&self.event))
    }
}

impl LaneState {
    /// Returns the event that covers a tick: the oldest of those that were recorded at it or later.
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

    /// Returns the driver's handle. It is valid until the lane is gone: code that passes it to the driver has it from a
    /// [`Stay`](crate::stay::Stay), or is the only user left.
    pub(crate) fn handle(&self) -> CUstream {
        self.handle.0
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Returns whether work that this thread queues on the handle belongs to this lane.
    pub(crate) fn on_this_thread(&self) -> bool {
        self.thread.is_none_or(|thread| thread == std::thread::current().id())
    }

    /// Notes that the open tick is marked, and returns it.
    #[inline]
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

    #[inline]
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::Acquire)
    }

    /// Notes that the open tick must be closed again, because the event that should have covered an earlier one does
    /// not.
    pub(crate) fn set_dirty(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Returns whether nothing is outstanding: every tick that was marked is known to be complete.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_dirty() && self.reached() + 1 >= self.open()
    }

    /// Raises `open` and returns its previous value. Called only under the lane's lock, and before the event is
    /// recorded: work behind the event must not be marked with a tick that the event closes.
    pub(crate) fn raise(&self) -> u64 {
        self.dirty.store(false, Ordering::Relaxed);
        let open = self.open.load(Ordering::Relaxed);
        self.open.store(open + 1, Ordering::Release);
        open
    }

    /// Notes that a tick is complete. Called only under the lane's lock.
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
