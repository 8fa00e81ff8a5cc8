//! Time: closing ticks by events, asking what was reached, and waiting for it on the host and on the device.

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
/// `CU_EVENT_BLOCKING_SYNC`: who waits for the event sleeps.
const BLOCKING_SYNC: u32 = 1;

/// How long a wait may take before gates, which only tests close, have to do with it.
const PATIENCE: Duration = Duration::from_millis(250);

/// So many closed ticks of a stream are outstanding before a stream that is asked how far it is closes no more: the
/// next one is closed when the oldest is reached. A stream that is far behind the host then needs no more events than
/// this, and is still known to a sixteenth of what it has to do.
const OUTSTANDING_MAX: usize = 16;

/// So many events in a row may be caught by captures that are over at once, each between two calls of the driver. After
/// that something else is wrong with them, and the driver's answer is an error.
const CAUGHT_MAX: usize = 8;

/// The error after so many.
fn always_caught(call: &'static str) -> CudaError {
    CudaError::Driver { call, code: Code::INVALID_VALUE }
}

/// What an event answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Outstanding,
    Complete,
    /// A capture that is over has caught it: it will never be complete.
    Caught,
}

/// Why a tick cannot be closed now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stays {
    /// The stream is being captured: an event would become part of the graph.
    Capturing,
    /// It is the default stream of another thread, where nobody else can record.
    OtherThread,
}

impl Device {
    /// The newest complete tick of a stream. Calls no driver while nothing is outstanding.
    #[inline]
    pub(crate) fn reached(&self, stream: StreamId) -> Result<Tick, CudaError> {
        self.alive()?;
        let lane = self.lane(stream);
        if lane.is_idle() {
            return Ok(Tick(lane.reached()));
        }
        self.ask(lane)
    }

    /// While work is under way, four calls of the driver, of which one asks for an event and three are about the
    /// thread; three more (and an event) where a tick is closed.
    fn ask(&self, lane: &Lane) -> Result<Tick, CudaError> {
        // Whoever holds the locks is asking, is busy with the stream's bytes, or takes the stream away: what is known
        // will do meanwhile.
        let Some(stay) = lane.try_stay() else { return Ok(Tick(lane.reached())) };
        let Some(mut state) = lane.state.try_lock() else { return Ok(Tick(lane.reached())) };
        self.enter("cuEventQuery")?;
        let _bound = self.bind_relaxed()?;
        self.query(lane, &mut state)?;
        let is_behind = !state.pending.is_empty();
        if lane.is_dirty() && state.pending.len() < OUTSTANDING_MAX {
            // A tick that cannot be closed now stays open.
            let _ = self.close(&stay, &mut state)?;
            // Behind an event that is not complete the new one is not, either.
            if !is_behind {
                self.query(lane, &mut state)?;
            }
        }
        Ok(Tick(lane.reached()))
    }

    /// Closes the open tick with an event behind all work of the stream, or says why that cannot be done now.
    pub(crate) fn close(&self, stay: &Stay<'_>, state: &mut LaneState) -> Result<Result<(), Stays>, CudaError> {
        match stay.handle() {
            None => self.close_gone(stay.lane(), state),
            Some(handle) if stay.lane().on_this_thread() => return self.close_on(stay.lane(), state, handle),
            Some(_) => return Ok(Err(Stays::OtherThread)),
        }
        Ok(Ok(()))
    }

    /// As [`close`](Device::close), for a tick that is needed now: where the stream is another thread's the event goes
    /// on the legacy default stream, which waits for it, and for all other blocking streams besides.
    fn close_anyhow(&self, stay: &Stay<'_>, state: &mut LaneState) -> Result<Result<(), Stays>, CudaError> {
        match self.close(stay, state)? {
            Err(Stays::OtherThread) => self.close_on(stay.lane(), state, Device::LEGACY.0),
            closed => Ok(closed),
        }
    }

    /// Closes the open tick with an event on a stream.
    ///
    /// A capture of another thread may begin between the look at the stream and the record. The event is then part of
    /// the capture: to ask for it would spoil the capture, and who waits for it would be captured too. So the stream is
    /// looked at once more, and unless it is free the event is not used. If the capture has ended by then the event
    /// says so to who asks for it, and nothing is spoiled.
    fn close_on(&self, lane: &Lane, state: &mut LaneState, handle: CUstream) -> Result<Result<(), Stays>, CudaError> {
        if self.is_capturing(handle)? {
            return Ok(Err(Stays::Capturing));
        }
        let event = self.take_event(state)?;
        let tick = lane.raise();
        // SAFETY: the event is ours and nobody waits for it; the stream is alive, as the caller's stay says, or the
        // legacy one.
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

    /// As [`close`](Device::close), with an event that no capture has caught: the last one of a stream, on which all
    /// that is asked later relies.
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

    /// No work comes to an unregistered stream: what its last event covers is all there ever was.
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

    /// Fails if the stream is being captured.
    pub(crate) fn uncaptured(&self, call: &'static str, stream: StreamId, handle: CUstream) -> Result<(), CudaError> {
        if self.is_capturing(handle)? { Err(CudaError::Capturing { call, stream }) } else { Ok(()) }
    }

    /// Whether the stream is being captured into a graph.
    fn is_capturing(&self, handle: CUstream) -> Result<bool, CudaError> {
        let mut status = 0;
        // SAFETY: the stream is alive, as the caller's stay says; the pointer is to a local number.
        let code = unsafe { (self.driver.cuStreamIsCapturing)(handle, &raw mut status) };
        if Code(code) == Code::STREAM_CAPTURE_IMPLICIT {
            return Ok(true);
        }
        self.check("cuStreamIsCapturing", code)?;
        Ok(status != 0)
    }

    /// An event to record.
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

    /// Asks the oldest events and retires those that are complete.
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

    /// Asks one event.
    fn event(&self, event: &Event) -> Result<Asked, CudaError> {
        // SAFETY: the event lives while it is pending or held.
        match Code(unsafe { (self.driver.cuEventQuery)(event.0) }) {
            Code::NOT_READY => Ok(Asked::Outstanding),
            code if code.is_caught() => Ok(Asked::Caught),
            code => self.check("cuEventQuery", code.0).map(|()| Asked::Complete),
        }
    }

    /// An event was caught by a capture that is over, and will never be complete. The next event covers what it should
    /// have.
    fn forget(&self, lane: &Lane, state: &mut LaneState, caught: Arc<Event>) {
        lane.set_dirty();
        state.pending.retain(|pending| !Arc::ptr_eq(&pending.event, &caught));
        self.recycle(lane, state, caught);
    }

    /// Everything up to the tick is complete.
    pub(crate) fn retire(&self, lane: &Lane, state: &mut LaneState, tick: u64) {
        while state.pending.front().is_some_and(|pending| pending.tick <= tick) {
            let Some(done) = state.pending.pop_front() else { break };
            lane.complete(done.tick);
            self.recycle(lane, state, done.event);
        }
    }

    /// Keeps an event for later, if nobody else needs it any more.
    fn recycle(&self, lane: &Lane, state: &mut LaneState, event: Arc<Event>) {
        let Some(event) = Arc::into_inner(event) else { return };
        if lane.is_gone() {
            self.spare.lock().push(event);
        } else {
            state.spare.push(event);
        }
    }

    /// What `wait` does.
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

    /// Blocks until the event is complete, and retires everything up to its tick. Answers `false` if a capture has
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

    /// Closes the open tick if it was marked, and waits for all closed ones if so asked.
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

    /// Closes the open tick, marked or not, and waits for it: before what the stream may use goes.
    pub(crate) fn settle_anyhow(&self, lane: &Lane) -> Result<(), CudaError> {
        let stay = lane.stay();
        let mut state = lane.state.lock();
        let _ = self.close_anyhow(&stay, &mut state)?;
        drop((stay, state));
        self.settle(lane, true)
    }

    /// Blocks until the event is complete; `false` if a capture has caught it. While gates are closed it is asked again
    /// and again, and gates that are in the way for long are opened.
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

    /// What `wait_for` does, for a point of this device or of another.
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

    /// An event that covers the point; `None` if the point is reached. It is not recorded anew while it is held.
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

    /// Has a stream wait for an event, of whatever device. Answers `false` if a capture has caught the event.
    fn wait_on(&self, call: &'static str, stream: StreamId, event: &Event) -> Result<bool, CudaError> {
        let stay = self.lane(stream).stay();
        let handle = self.usable(call, stream, &stay)?;
        self.uncaptured(call, stream, handle)?;
        // SAFETY: the event is held, so it is not recorded anew, and the stream is alive, as its stay says.
        match Code(unsafe { (self.driver.cuStreamWaitEvent)(handle, event.0, 0) }) {
            code if code.is_caught() => Ok(false),
            // A capture of the stream has begun this moment: what is outside of it cannot be waited for.
            code if code.is_capture() => Err(CudaError::Capturing { call, stream }),
            code => self.check(call, code.0).map(|()| true),
        }
    }
}
