//! Time: closing ticks by events, querying what was reached, and waiting for it on the host and on the device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUevent, CUstream};
use millpond_backend::{Point, StreamId, Tick};

use crate::device::Device;
use crate::lane::{Event, Lane, LaneState, Pending};
use crate::stay::Stay;
use crate::{Code, CudaError};

/// `CU_EVENT_DISABLE_TIMING`: events that measure nothing are cheaper.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_BLOCKING_SYNC`: a thread that waits for the event sleeps.
const BLOCKING_SYNC: u32 = 1;

/// How long a wait may take before it opens the gates, which only tests close.
const PATIENCE: Duration = Duration::from_millis(250);

/// The number of outstanding closed ticks of a stream at which a query of the stream closes no more: the next one is
/// closed when the oldest is reached. A stream that is far behind the host then needs no more events than this, and its
/// progress is still known to a sixteenth of its outstanding work.
const OUTSTANDING_MAX: usize = 16;

/// The most events in a row that may be caught by captures that end at once, each between two driver calls. Beyond this
/// number another cause is assumed, and the driver's code is an error.
const CAUGHT_MAX: usize = 8;

/// Returns the error after [`CAUGHT_MAX`] caught events in a row.
fn always_caught(call: &'static str) -> CudaError {
    CudaError::Driver { call, code: Code::INVALID_VALUE }
}

/// The state of an event that was queried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Outstanding,
    Complete,
    /// A capture that is over has caught the event, which will never be complete.
    Caught,
}

/// The reason why a tick cannot be closed now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stays {
    /// The stream is being captured: an event would become part of the graph.
    Capturing,
    /// The stream is the default stream of another thread, where only that thread can record.
    OtherThread,
}

impl Device {
    /// Returns the newest complete tick of a stream. Makes no driver call while nothing is outstanding.
    #[inline]
    pub(crate) fn reached(&self, stream: StreamId) -> Result<Tick, CudaError> {
        self.alive()?;
        let lane = self.lane(stream);
        if lane.is_idle() {
            return Ok(Tick(lane.reached()));
        }
        self.ask(lane)
    }

    /// Queries the driver for the newest complete tick. While work is in progress this takes four driver calls, of
    /// which one queries an event and three concern the thread; three more (and an event) where a tick is closed.
    fn ask(&self, lane: &Lane) -> Result<Tick, CudaError> {
        // Another thread that holds the locks is querying, copies the stream's bytes, or unregisters the stream. What
        // is known is returned in that case.
        let Some(stay) = lane.try_stay() else { return Ok(Tick(lane.reached())) };
        let Some(mut state) = lane.state.try_lock() else { return Ok(Tick(lane.reached())) };
        self.enter("cuEventQuery")?;
        let _bound = self.bind_relaxed()?;
        self.query(lane, &mut state)?;
        let is_behind = !state.pending.is_empty();
        if lane.is_dirty() && state.pending.len() < OUTSTANDING_MAX {
            // A tick that cannot be closed now stays open.
            let _ = self.close(&stay, &mut state)?;
            // Behind an event that is not complete, the new one is not complete either.
            if !is_behind {
                self.query(lane, &mut state)?;
            }
        }
        Ok(Tick(lane.reached()))
    }

    /// Closes the open tick with an event behind all work of the stream, or returns why that cannot be done now.
    pub(crate) fn close(&self, stay: &Stay<'_>, state: &mut LaneState) -> Result<Result<(), Stays>, CudaError> {
        match stay.handle() {
            None => self.close_gone(stay.lane(), state),
            Some(handle) if stay.lane().on_this_thread() => return self.close_on(stay.lane(), state, handle),
            Some(_) => return Ok(Err(Stays::OtherThread)),
        }
        Ok(Ok(()))
    }

    /// Does the same as [`close`](Device::close), for a tick that is needed now: if the stream is another thread's, the
    /// event is recorded on the legacy default stream, which waits for that stream and for all other blocking streams.
    fn close_anyhow(&self, stay: &Stay<'_>, state: &mut LaneState) -> Result<Result<(), Stays>, CudaError> {
        match self.close(stay, state)? {
            Err(Stays::OtherThread) => self.close_on(stay.lane(), state, Device::LEGACY.0),
            closed => Ok(closed),
        }
    }

    /// Closes the open tick with an event on a stream.
    ///
    /// A capture of another thread may begin between the check of the stream and the record. The event is then part of
    /// the capture: to query it would invalidate the capture, and a stream that waits for it would be captured too. So
    /// the stream is checked once more, and unless it is free the event is not used. If the capture has ended by then,
    /// a query of the event reports that, and no capture is invalidated.
    fn close_on(&self, lane: &Lane, state: &mut LaneState, handle: CUstream) -> Result<Result<(), Stays>, CudaError> {
        if self.is_capturing(handle)? {
            return Ok(Err(Stays::Capturing));
        }
        let event = self.take_event(state)?;
        let tick = lane.raise();
        // SAFETY: the event belongs to this device and no thread waits for it; the stream is alive, as the caller's
        // stay guarantees, or the legacy one.
        let code = unsafe { (self.driver.cuEventRecord)(event.0, handle) };
        let is_caught = match Code(code) {
            code if code.is_capture() => Ok(true),
            code => self.check("cuEventRecord", code.0).and_then(|()| self.is_capturing(handle)),
        };
        if let Ok(false) = is_caught {
            state.pending.push_back(Pending { tick, event: Arc::new(event) });
            return Ok(Ok(()));
        }
        lane.set_dirty();
        state.spare.push(event);
        is_caught.map(|_| Err(Stays::Capturing))
    }

    /// Does the same as [`close`](Device::close), with an event that no capture has caught: the last event of a stream,
    /// on which all later queries rely.
    pub(crate) fn close_for_good(
        &self,
        stay: &Stay<'_>,
        state: &mut LaneState,
    ) -> Result<Result<(), Stays>, CudaError> {
        for _ in 0..CAUGHT_MAX {
            if let Err(stays) = self.close(stay, state)? {
                return Ok(Err(stays));
            }
            let Some((_, event)) = state.pending.back().map(Pending::share) else { return Ok(Ok(())) };
            if self.event(&event)? != Asked::Caught {
                return Ok(Ok(()));
            }
            self.forget(stay.lane(), state, event);
        }
        Err(always_caught("cuEventQuery"))
    }

    /// Closes the open tick of an unregistered stream. No more work is queued there, so the stream's last event covers
    /// all of it.
    fn close_gone(&self, lane: &Lane, state: &mut LaneState) {
        let tick = lane.raise();
        match state.pending.back() {
            Some(last) => {
                let event = Arc::clone(&last.event);
                state.pending.push_back(Pending { tick, event });
            }
            None => lane.complete(tick),
        }
    }

    /// Returns an error if the stream is being captured.
    pub(crate) fn uncaptured(&self, call: &'static str, stream: StreamId, handle: CUstream) -> Result<(), CudaError> {
        if self.is_capturing(handle)? { Err(CudaError::Capturing { call, stream }) } else { Ok(()) }
    }

    /// Returns whether the stream is being captured into a graph.
    fn is_capturing(&self, handle: CUstream) -> Result<bool, CudaError> {
        let mut status = 0;
        // SAFETY: the stream is alive, as the caller's stay guarantees; the pointer is to a local number.
        let code = unsafe { (self.driver.cuStreamIsCapturing)(handle, &raw mut status) };
        if Code(code) == Code::STREAM_CAPTURE_IMPLICIT {
            return Ok(true);
        }
        self.check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }

    /// Returns an event to record: a spare one, or a new one.
    fn take_event(&self, state: &mut LaneState) -> Result<Event, CudaError> {
        if let Some(event) = state.spare.pop().or_else(|| self.spare.lock().pop()) {
            return Ok(event);
        }
        let mut event: CUevent = std::ptr::null_mut();
        let flags = DISABLE_TIMING | if self.blocking { BLOCKING_SYNC } else { 0 };
        // SAFETY: the pointer is to a local pointer; the context is current.
        self.check("cuEventCreate", unsafe { (self.driver.cuEventCreate)(&raw mut event, flags) })?;
        Ok(Event(event))
    }

    /// Queries the oldest events and retires those that are complete.
    fn query(&self, lane: &Lane, state: &mut LaneState) -> Result<(), CudaError> {
        while let Some(oldest) = state.pending.front() {
            let tick = oldest.tick;
            match self.event(&oldest.event)? {
                Asked::Outstanding => break,
                Asked::Complete => self.retire(lane, state, tick),
                Asked::Caught => {
                    let event = Arc::clone(&oldest.event);
                    self.forget(lane, state, event);
                }
            }
        }
        Ok(())
    }

    /// Queries one event.
    fn event(&self, event: &Event) -> Result<Asked, CudaError> {
        // SAFETY: the event lives while it is pending or held.
        match Code(unsafe { (self.driver.cuEventQuery)(event.0) }) {
            Code::NOT_READY => Ok(Asked::Outstanding),
            code if code.is_caught() => Ok(Asked::Caught),
            code => self.check("cuEventQuery", code.0).map(|()| Asked::Complete),
        }
    }

    /// Removes an event that was caught by a capture that is over, and that will never be complete. The next event
    /// covers the work that it should have covered.
    fn forget(&self, lane: &Lane, state: &mut LaneState, caught: Arc<Event>) {
        lane.set_dirty();
        state.pending.retain(|pending| !Arc::ptr_eq(&pending.event, &caught));
        self.recycle(lane, state, caught);
    }

    /// Notes that everything up to the tick is complete.
    pub(crate) fn retire(&self, lane: &Lane, state: &mut LaneState, tick: u64) {
        while state.pending.front().is_some_and(|pending| pending.tick <= tick) {
            let Some(done) = state.pending.pop_front() else { break };
            lane.complete(done.tick);
            self.recycle(lane, state, done.event);
        }
    }

    /// Keeps an event for later use, unless another thread still needs it.
    fn recycle(&self, lane: &Lane, state: &mut LaneState, event: Arc<Event>) {
        let Some(event) = Arc::into_inner(event) else { return };
        if lane.is_gone() {
            self.spare.lock().push(event);
        } else {
            state.spare.push(event);
        }
    }

    /// Implements `wait`.
    pub(crate) fn wait(&self, point: Point) -> Result<Tick, CudaError> {
        self.alive()?;
        let lane = self.lane(point.stream);
        let reached = lane.reached();
        if reached >= point.tick.0 {
            return Ok(Tick(reached));
        }
        self.enter("cuEventSynchronize")?;
        let _bound = self.bind_relaxed()?;
        for _ in 0..CAUGHT_MAX {
            let stay = lane.stay();
            let mut state = lane.state.lock();
            let uncovered = lane.reached() < point.tick.0 && state.covering(point.tick.0).is_none();
            if uncovered {
                // A tick that cannot be closed now is not waited for.
                let _ = self.close_anyhow(&stay, &mut state)?;
            }
            let newest = state.covering(point.tick.0).or(state.pending.back()).map(Pending::share);
            drop((stay, state));
            let Some((tick, event)) = newest else { return Ok(Tick(lane.reached())) };
            if self.wait_for_event(lane, tick, event)? {
                return Ok(Tick(lane.reached()));
            }
        }
        Err(always_caught("cuEventSynchronize"))
    }

    /// Blocks until the event is complete, and retires everything up to its tick. Returns `false` if a capture has
    /// caught the event, which is forgotten then.
    fn wait_for_event(&self, lane: &Lane, tick: u64, event: Arc<Event>) -> Result<bool, CudaError> {
        self.open_gates_on(lane);
        let waited = self.synchronize(&event);
        let mut state = lane.state.lock();
        if let Ok(false) = waited {
            self.forget(lane, &mut state, event);
            return waited;
        }
        if waited.is_ok() {
            self.retire(lane, &mut state, tick);
        }
        self.recycle(lane, &mut state, event);
        waited
    }

    /// Closes the open tick if it was marked, and waits for all closed ones if `wait` is set.
    pub(crate) fn settle(&self, lane: &Lane, wait: bool) -> Result<(), CudaError> {
        for _ in 0..CAUGHT_MAX {
            let stay = lane.stay();
            let mut state = lane.state.lock();
            if lane.is_dirty() {
                let _ = self.close(&stay, &mut state)?;
            }
            let newest = state.pending.back().map(Pending::share);
            drop((stay, state));
            let Some((tick, event)) = newest.filter(|_| wait) else { return Ok(()) };
            if self.wait_for_event(lane, tick, event)? {
                return Ok(());
            }
        }
        Err(always_caught("cuEventSynchronize"))
    }

    /// Closes the open tick, marked or not, and waits for it. Called before memory that the stream may use is given
    /// back.
    pub(crate) fn settle_anyhow(&self, lane: &Lane) -> Result<(), CudaError> {
        let stay = lane.stay();
        let mut state = lane.state.lock();
        let _ = self.close_anyhow(&stay, &mut state)?;
        drop((stay, state));
        self.settle(lane, true)
    }

    /// Blocks until the event is complete, and returns `true`; returns `false` if a capture has caught it. While gates
    /// are closed the event is polled, and gates that block it for long are opened.
    fn synchronize(&self, event: &Event) -> Result<bool, CudaError> {
        let begin = Instant::now();
        while self.gates_closed() {
            // SAFETY: the event is held by the caller.
            match Code(unsafe { (self.driver.cuEventQuery)(event.0) }) {
                Code::NOT_READY if begin.elapsed() < PATIENCE => std::thread::yield_now(),
                Code::NOT_READY => self.open_gates(),
                code if code.is_caught() => return Ok(false),
                code => return self.check("cuEventQuery", code.0).map(|()| true),
            }
        }
        // SAFETY: the event is held by the caller.
        match Code(unsafe { (self.driver.cuEventSynchronize)(event.0) }) {
            code if code.is_caught() => Ok(false),
            code => self.check("cuEventSynchronize", code.0).map(|()| true),
        }
    }

    /// Implements `wait_for`, for a point of this device or of another.
    pub(crate) fn wait_for(&self, stream: StreamId, of: &Device, point: Point) -> Result<(), CudaError> {
        const CALL: &str = "cuStreamWaitEvent";
        self.alive()?;
        of.alive()?;
        let (later, earlier) = (self.lane(stream), of.lane(point.stream));
        let open = earlier.open();
        if point.tick.0 > open {
            return Err(CudaError::NeverMarked { point, open });
        }
        if std::ptr::eq(later, earlier) || earlier.reached() >= point.tick.0 {
            return Ok(());
        }
        self.enter(CALL)?;
        let _bound = self.bind_relaxed()?;
        for _ in 0..CAUGHT_MAX {
            let Some(event) = of.covering(CALL, earlier, point)? else { return Ok(()) };
            let waits = self.wait_on(CALL, stream, &event);
            let mut state = earlier.state.lock();
            if let Ok(false) = waits {
                of.forget(earlier, &mut state, event);
                continue;
            }
            of.recycle(earlier, &mut state, event);
            return waits.map(drop);
        }
        Err(always_caught(CALL))
    }

    /// Returns an event that covers the point, or `None` if the point is reached. The event is not recorded again while
    /// it is held.
    fn covering(&self, call: &'static str, lane: &Lane, point: Point) -> Result<Option<Arc<Event>>, CudaError> {
        // An event belongs to the context of its stream.
        let _bound = self.bind()?;
        let stay = lane.stay();
        let mut state = lane.state.lock();
        if lane.reached() >= point.tick.0 {
            return Ok(None);
        }
        if state.covering(point.tick.0).is_none() {
            let closed = self.close_anyhow(&stay, &mut state)?;
            closed.map_err(|_| CudaError::Capturing { call, stream: point.stream })?;
        }
        Ok(state.covering(point.tick.0).map(|pending| pending.share().1))
    }

    /// Makes a stream wait for an event of any device. Returns `false` if a capture has caught the event.
    fn wait_on(&self, call: &'static str, stream: StreamId, event: &Event) -> Result<bool, CudaError> {
        let stay = self.lane(stream).stay();
        let handle = self.usable(call, stream, &stay)?;
        self.uncaptured(call, stream, handle)?;
        // SAFETY: the event is held, so it is not recorded again, and the stream is alive, as its stay guarantees.
        match Code(unsafe { (self.driver.cuStreamWaitEvent)(handle, event.0, 0) }) {
            code if code.is_caught() => Ok(false),
            // A capture of the stream has just begun: the stream cannot wait for work outside of it.
            code if code.is_capture() => Err(CudaError::Capturing { call, stream }),
            code => self.check(call, code.0).map(|()| true),
        }
    }
}
