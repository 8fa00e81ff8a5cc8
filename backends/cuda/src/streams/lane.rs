//! A lane: the state kept per stream. Its clock takes no lock to be marked and read; the events are guarded by the
//! lane's own lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;
use millpond_backend::Tick;
use millpond_kit::{Ring, TickClock};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::streams::handle::{Event, Handle, HostPointer};

/// The state of one stream. It has a pair of cache lines of its own, so that threads that use different streams do not
/// contend.
///
/// Invariant, whenever `state` is not locked: every tick that is closed and not reached is covered by an event in
/// `pending`, or the clock is marked, so that the next event covers it.
#[repr(align(128))]
pub(crate) struct Lane {
    /// The ticks. Closed under the lock of `state`, before the event is recorded, and completed under it.
    pub(crate) clock: TickClock,
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

/// A closed tick whose completion is not known yet.
pub(crate) struct Pending {
    pub(crate) tick: Tick,
    /// Shared with the threads that wait for it at this moment. It is recorded again only when no thread does.
    pub(crate) event: Arc<Event>,
}

/// How long the stream of a lane lives.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Tenure {
    /// Until it is unregistered. The handle can be used at any time.
    #[default]
    Registered,
    /// As long as the program likes. The handle is used in calls that the program makes with it, and in no others. An
    /// event lies behind all work that matters, so that the last event covers every later tick.
    Borrowed,
    /// Like `Borrowed`, but a capture has kept an event from being recorded, or the stream was gone before one was: no
    /// tick can be closed before the stream's next call, or before the host has waited for the whole context.
    Uncovered,
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
    /// Who says how long the stream lives.
    pub(crate) tenure: Tenure,
    /// How often the lane has become `Uncovered`, or work was added to what has no event behind it.
    pub(crate) gaps: u64,
    /// Whether the stream was being captured in the last call of the program's with it, if it is borrowed.
    pub(crate) captured: bool,
    /// The driver's number of the stream, which unlike its handle is never used again. Unknown with older drivers.
    pub(crate) unique: Option<u64>,
    /// The staging ring, made when bytes of the host are first copied through it.
    pub(crate) ring: Option<Ring<HostPointer>>,
}

impl Pending {
    /// Returns the tick and a shared reference to the event. The event is not recorded again before the reference is
    /// given back to be recycled.
    pub(crate) fn share(&self) -> (Tick, Arc<Event>) {
        (self.tick, Arc::clone(&self.event))
    }
}

impl LaneState {
    /// Notes that work which matters has no event behind it.
    pub(crate) fn uncover(&mut self) {
        self.tenure = Tenure::Uncovered;
        self.gaps += 1;
    }

    /// Returns whether the lane may be that of the stream with a number. Where one is not known, as during a capture,
    /// the stream is taken to be the same.
    pub(crate) fn is_stream(&self, unique: Option<u64>) -> bool {
        self.unique.zip(unique).is_none_or(|(before, now)| before == now)
    }

    /// Returns the event that covers a tick: the oldest of those that were recorded at it or later.
    pub(crate) fn covering(&self, tick: Tick) -> Option<&Pending> {
        self.pending.iter().find(|pending| pending.tick >= tick)
    }
}

impl Lane {
    pub(crate) fn new(handle: Handle, thread: Option<ThreadId>, state: LaneState) -> Lane {
        Lane {
            clock: TickClock::new(),
            gone: AtomicBool::new(false),
            users: RwLock::new(()),
            handle,
            thread,
            state: Mutex::new(state),
            unpinned: Condvar::new(),
        }
    }

    /// Returns the driver's handle. It is valid until the lane is gone: code that passes it to the driver has it from a
    /// stay, or is the only user left.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_covered_by_the_next_event() {
        let mut state = LaneState::default();
        for tick in [2, 5].map(Tick) {
            state.pending.push_back(Pending { tick, event: Arc::new(Event(std::ptr::null_mut())) });
        }
        let covering = |tick| state.covering(Tick(tick)).map(|pending| pending.tick.0);
        assert_eq!([1, 2, 3, 5, 6].map(covering), [Some(2), Some(2), Some(5), Some(5), None]);
    }
}
