//! A lane: the state kept per stream. Its clock consists of atomics, so that `mark` and `reached` take no lock; the
//! rest is guarded by the lane's own lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;
use millpond_backend::{Point, Tick};
use millpond_kit::{Ring, SubmitClock};
use parking_lot::Mutex;

use super::gate::Gate;
use crate::open::MappedBuffer;

/// The state of one stream. It has a pair of cache lines of its own, so that threads that use different streams do not
/// contend.
#[repr(align(128))]
pub(crate) struct Lane {
    /// Its ticks: closed and submitted under the lane's lock.
    pub(crate) clock: SubmitClock,
    /// The timeline semaphore whose counter is the newest complete tick.
    pub(crate) semaphore: vk::Semaphore,
    /// Whether the semaphore was created here and has to be destroyed.
    pub(crate) owned: bool,
    /// The stream's queue: an index into the device's queues.
    pub(crate) queue: usize,
    pub(crate) state: Mutex<LaneState>,
    /// The points that the next submit waits for. They have a lock of their own, under which no other lock is taken: an
    /// allocation adds to them while a submit that holds the lane's lock waits for the queue.
    waits: Mutex<Vec<Point>>,
    /// Values that no submit signals, as (first, the value that is signalled next): they arise after a submit that
    /// failed or was abandoned, and where an engine's timeline skips some.
    gaps: Mutex<Vec<(Tick, Tick)>>,
    /// Whether there are any gaps. Allows the common case to skip the lock.
    has_gaps: AtomicBool,
}

/// The part of a lane that is recorded and submitted.
pub(crate) struct LaneState {
    pub(crate) pool: vk::CommandPool,
    /// The command buffer with a barrier that orders all commands after all earlier ones. It is recorded once.
    pub(crate) barrier: vk::CommandBuffer,
    /// The stream's own open command buffer, if anything was recorded since the last submit.
    pub(crate) recording: Option<vk::CommandBuffer>,
    /// Whether the open command buffer writes memory that the host sees.
    pub(crate) to_host: bool,
    /// Command buffers that are recorded and ended, and not yet submitted. There is one after a submit that failed.
    pub(crate) ended: Vec<vk::CommandBuffer>,
    /// Command buffers that are submitted, with the tick that covers them, oldest first.
    pub(crate) in_flight: VecDeque<(Tick, vk::CommandBuffer)>,
    /// Command buffers that can be recorded again.
    pub(crate) spare: Vec<vk::CommandBuffer>,
    /// The bind of sparse memory that the next submit waits for.
    pub(crate) bind: u64,
    /// The newest bind that a submit has waited for.
    pub(crate) bound: u64,
    /// The gate, which only tests close.
    pub(crate) gate: Option<Gate>,
    /// The staging ring, made when bytes of the host are first copied through it.
    pub(crate) ring: Option<Ring<MappedBuffer>>,
}

impl LaneState {
    /// Returns the state of a lane on which nothing was recorded.
    pub(crate) fn new(pool: vk::CommandPool, barrier: vk::CommandBuffer) -> LaneState {
        LaneState {
            pool,
            barrier,
            recording: None,
            to_host: false,
            ended: Vec::new(),
            in_flight: Default::default(),
            spare: Vec::new(),
            bind: 0,
            bound: 0,
            gate: None,
            ring: None,
        }
    }

    /// Returns whether there are commands of this backend to submit.
    pub(crate) fn has_commands(&self) -> bool {
        self.recording.is_some() || !self.ended.is_empty()
    }

    /// Notes that the driver, or an engine, has taken a submit that waits for the noted bind.
    pub(crate) fn submitted(&mut self) {
        self.bound = self.bind;
    }
}

impl Lane {
    /// Returns a lane whose next tick is `next`.
    pub(crate) fn new(semaphore: vk::Semaphore, owned: bool, next: Tick, queue: usize, state: LaneState) -> Lane {
        Lane {
            clock: SubmitClock::starting_at(next),
            semaphore,
            owned,
            queue,
            state: Mutex::new(state),
            waits: Mutex::default(),
            gaps: Mutex::default(),
            has_gaps: AtomicBool::new(false),
        }
    }

    /// Makes the next submit wait for a point.
    pub(crate) fn wait_for(&self, point: Point) {
        self.waits.lock().push(point);
    }

    /// Returns the points that the next submit waits for, oldest first. Points that are noted later come behind these.
    pub(crate) fn waits(&self) -> Vec<Point> {
        self.waits.lock().clone()
    }

    /// Forgets the oldest points, after a submit that waits for them was taken. Called under the lane's lock, which
    /// keeps other threads from forgetting them as well.
    pub(crate) fn waited(&self, count: usize) {
        self.waits.lock().drain(..count);
    }

    /// Notes that a tick was passed to the driver. Called under the lane's lock.
    pub(crate) fn note_submitted(&self, tick: Tick) {
        let next = Tick(self.clock.submitted().0 + 1);
        // Gaps are noted before the tick is: threads that wait for a tick in one find it.
        if tick > next || self.has_gaps.load(Ordering::Relaxed) {
            let reached = self.clock.reached();
            let mut gaps = self.gaps.lock();
            gaps.retain(|&(_, next)| next > reached);
            gaps.extend((tick > next).then_some((next, tick)));
            self.has_gaps.store(!gaps.is_empty(), Ordering::Release);
        }
        self.clock.submit(tick);
    }

    /// Returns the value to wait for so that a submitted tick is complete: the tick, or the next value that is
    /// signalled. Vulkan allows waits for values in between, but validation layers do not handle them.
    pub(crate) fn signalled(&self, tick: Tick) -> Tick {
        if !self.has_gaps.load(Ordering::Acquire) {
            return tick;
        }
        let gaps = self.gaps.lock();
        gaps.iter().find(|&&(first, next)| first <= tick && tick < next).map_or(tick, |&(_, next)| next)
    }
}
