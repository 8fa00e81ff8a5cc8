//! A lane: what is kept per stream. Its clock is made of atomics, so that `mark` and `reached` take no lock; the rest
//! lies behind the lane's own lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ash::vk;
use millpond_backend::Point;
use parking_lot::Mutex;

use crate::gate::Gate;
use crate::staging::Ring;

/// One stream. A pair of cache lines of its own, so that threads with streams of their own do not meet.
#[repr(align(128))]
pub(crate) struct Lane {
    /// The tick that the next submit closes. Raised under the lane's lock, before that submit reaches the driver.
    pub(crate) open: AtomicU64,
    /// The newest tick that the driver has been given. Below `open - 1` for a moment during a submit, and for good
    /// after one that failed.
    pub(crate) submitted: AtomicU64,
    /// The newest tick known to be complete.
    pub(crate) reached: AtomicU64,
    /// Its counter is the newest complete tick.
    pub(crate) semaphore: vk::Semaphore,
    /// The semaphore is ours to destroy.
    pub(crate) owned: bool,
    /// An index into the device's queues.
    pub(crate) queue: usize,
    pub(crate) state: Mutex<LaneState>,
    /// What the next submit waits for. Behind a lock of its own, under which nothing else is locked: an allocation adds
    /// to it while a submit that has the lane's lock stands before the queue.
    waits: Mutex<Vec<Point>>,
    /// Values that no submit signals, as (first, the value that is signalled next): after a submit that failed or was
    /// abandoned, and where an engine's timeline skips some.
    gaps: Mutex<Vec<(u64, u64)>>,
    /// There are any; lets the common case skip the lock.
    has_gaps: AtomicBool,
}

/// What a lane records and submits.
pub(crate) struct LaneState {
    pub(crate) pool: vk::CommandPool,
    /// Recorded once: a barrier that orders everything after everything.
    pub(crate) barrier: vk::CommandBuffer,
    /// The stream's own open command buffer, if anything was recorded since the last submit.
    pub(crate) recording: Option<vk::CommandBuffer>,
    /// The open command buffer writes memory that the host sees.
    pub(crate) to_host: bool,
    /// Recorded, ended and not yet submitted: there is one after a submit that failed.
    pub(crate) ended: Vec<vk::CommandBuffer>,
    /// Submitted, with the tick that covers them, oldest first.
    pub(crate) in_flight: VecDeque<(u64, vk::CommandBuffer)>,
    /// Ready to be recorded anew.
    pub(crate) spare: Vec<vk::CommandBuffer>,
    /// The bind of sparse memory that the next submit waits for.
    pub(crate) bind: u64,
    /// The newest bind that a submit has waited for.
    pub(crate) bound: u64,
    /// Closed by tests only.
    pub(crate) gate: Option<Gate>,
    /// Made when bytes of the host first go through.
    pub(crate) ring: Option<Ring>,
}

impl LaneState {
    /// Whether there is anything of our own to submit.
    pub(crate) fn has_commands(&self) -> bool {
        self.recording.is_some() || !self.ended.is_empty()
    }

    /// The driver, or an engine, has taken a submit that waits for the bind that was noted.
    pub(crate) fn submitted(&mut self) {
        self.bound = self.bind;
    }
}

impl Lane {
    /// A lane whose next tick is `next`.
    pub(crate) fn new(semaphore: vk::Semaphore, owned: bool, next: u64, queue: usize, state: LaneState) -> Lane {
        Lane {
            open: AtomicU64::new(next),
            submitted: AtomicU64::new(next - 1),
            reached: AtomicU64::new(0),
            semaphore,
            owned,
            queue,
            state: Mutex::new(state),
            waits: Mutex::default(),
            gaps: Mutex::default(),
            has_gaps: AtomicBool::new(false),
        }
    }

    /// Has the next submit wait for a point.
    pub(crate) fn wait_for(&self, point: Point) {
        self.waits.lock().push(point);
    }

    /// Answers what the next submit waits for, oldest first. Points that are noted later come behind these.
    pub(crate) fn waits(&self) -> Vec<Point> {
        self.waits.lock().clone()
    }

    /// Forgets the oldest points: a submit that waits for them was taken. To be called under the lane's lock, which keeps
    /// others from forgetting them as well.
    pub(crate) fn waited(&self, count: usize) {
        self.waits.lock().drain(..count);
    }

    /// The driver has been given a tick. To be called under the lane's lock.
    pub(crate) fn note_submitted(&self, tick: u64) {
        let newest = self.submitted.load(Ordering::Relaxed);
        assert!(tick > newest, "tick {tick} was submitted after tick {newest}: they must rise");
        if tick > newest + 1 || self.has_gaps.load(Ordering::Relaxed) {
            let reached = self.reached();
            let mut gaps = self.gaps.lock();
            gaps.retain(|&(_, next)| next > reached);
            gaps.extend((tick > newest + 1).then_some((newest + 1, tick)));
            self.has_gaps.store(!gaps.is_empty(), Ordering::Release);
        }
        self.submitted.store(tick, Ordering::Release);
    }

    /// The value to wait for that comes with a submitted tick: the tick, or the next that is signalled at all. Vulkan
    /// allows to wait for values in between, but validation layers are at a loss then.
    pub(crate) fn signalled(&self, tick: u64) -> u64 {
        if !self.has_gaps.load(Ordering::Acquire) {
            return tick;
        }
        let gaps = self.gaps.lock();
        gaps.iter().find(|&&(first, next)| first <= tick && tick < next).map_or(tick, |&(_, next)| next)
    }

    #[inline]
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }
}
