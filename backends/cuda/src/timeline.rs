//! Time: closing ticks by events, asking what was reached, and waiting for it on the host and on the device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUevent, CUstream};
use millpond_backend::{Point, StreamId, Tick};

use crate::device::Device;
use crate::lane::{Event, Lane, LaneState, Pending};
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
    /// thread; two more (and an event) where a tick is closed.
    fn ask(&self, lane: &Lane) -> Result<Tick, CudaError> {
        // Whoever holds the lock is asking, or is busy with the stream's bytes: what is known will do meanwhile.
        let Some(mut state) = lane.state.try_lock() else { return Ok(Tick(lane.reached())) };
        self.enter("cuEventQuery")?;
        let _bound = self.bind_relaxed()?;
        self.query(lane, &mut state)?;
        let is_behind = !state.pending.is_empty();
        if lane.is_dirty() && state.pending.len() < OUTSTANDING_MAX {
            // A tick that cannot be closed now stays open.
            let _ = self.close(lane, &mut state)?;
            // Behind an event that is not complete the new one is not, either.
            if !is_behind {
                self.query(lane, &mut state)?;
            }
        }
        Ok(Tick(lane.reached()))
    }

    /// Closes the open tick with an event behind all work of the stream, or says why that cannot be done now.
    pub(crate) fn close(&self, lane: &Lane, state: &mut LaneState) -> Result<Result<(), Stays>, CudaError> {
        if lane.is_gone() || lane.on_this_thread() {
            self.close_on(lane, state, lane.handle())
        } else {
            Ok(Err(Stays::OtherThread))
        }
    }

    /// As [`close`](Device::close), for a tick that is needed now: where the stream is another thread's the event goes
    /// on the legacy default stream, which waits for it, and for all other blocking streams besides.
    fn close_anyhow(&self, lane: &Lane, state: &mut LaneState) -> Result<Result<(), Stays>, CudaError> {
        let handle = if lane.on_this_thread() { lane.handle() } else { Device::LEGACY.0 };
        self.close_on(lane, state, handle)
    }

    fn close_on(&self, lane: &Lane, state: &mut LaneState, handle: CUstream) -> Result<Result<(), Stays>, CudaError> {
        if lane.is_gone() {
            self.close_gone(lane, state);
            return Ok(Ok(()));
        }
        if self.is_capturing(handle)? {
            return Ok(Err(Stays::Capturing));
        }
        let event = self.take_event(state)?;
        let tick = lane.raise();
        // SAFETY: the event is ours and nobody waits for it; the stream is registered or the legacy one, so alive.
        let code = unsafe { (self.driver.cuEventRecord)(event.0, handle) };
        if let Err(error) = self.check("cuEventRecord", code) {
            lane.set_dirty();
            state.spare.push(event);
            return Err(error);
        }
        state.pending.push_back(Pending { tick, event: Arc::new(event) });
        Ok(Ok(()))
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

    /// Whether the stream is being captured into a graph.
    pub(crate) fn is_capturing(&self, handle: CUstream) -> Result<bool, CudaError> {
        let mut status = 0;
        // SAFETY: the stream is registered, so alive; the pointer is to a local number.
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
            // SAFETY: the event lives while it is pending.
            match Code(unsafe { (self.driver.cuEventQuery)(oldest.event.0) }) {
                Code::NOT_READY => break,
                Code::CAPTURED_EVENT => self.forget(lane, state),
                code => {
                    self.check("cuEventQuery", code.0)?;
                    let tick = oldest.tick;
                    self.retire(lane, state, tick);
                }
            }
        }
        Ok(())
    }

    /// The oldest event was caught by a capture that began while it was recorded, and will never be complete. The next
    /// event covers what it should have.
    fn forget(&self, lane: &Lane, state: &mut LaneState) {
        lane.set_dirty();
        if let Some(caught) = state.pending.pop_front() {
            self.recycle(lane, state, caught.event);
        }
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
        let mut state = lane.state.lock();
        let uncovered = lane.reached() < point.tick.0 && state.covering(point.tick.0).is_none();
        if uncovered {
            // A tick that cannot be closed now is not waited for.
            let _ = self.close_anyhow(lane, &mut state)?;
        }
        let newest = state.covering(point.tick.0).or(state.pending.back());
        let Some((tick, event)) = newest.map(|pending| (pending.tick, Arc::clone(&pending.event))) else {
            return Ok(Tick(lane.reached()));
        };
        drop(state);
        self.wait_for_event(lane, tick, event)?;
        Ok(Tick(lane.reached()))
    }

    /// Blocks until the event is complete, and retires everything up to its tick.
    fn wait_for_event(&self, lane: &Lane, tick: u64, event: Arc<Event>) -> Result<(), CudaError> {
        self.open_gates_on(lane);
        let waited = self.synchronize(&event);
        let mut state = lane.state.lock();
        if waited.is_ok() {
            self.retire(lane, &mut state, tick);
        }
        self.recycle(lane, &mut state, event);
        waited
    }

    /// Closes the open tick if it was marked, and waits for all closed ones if so asked.
    pub(crate) fn settle(&self, lane: &Lane, wait: bool) -> Result<(), CudaError> {
        let mut state = lane.state.lock();
        if lane.is_dirty() {
            let _ = self.close(lane, &mut state)?;
        }
        let newest = state.pending.back().map(|pending| (pending.tick, Arc::clone(&pending.event)));
        drop(state);
        match newest.filter(|_| wait) {
            Some((tick, event)) => self.wait_for_event(lane, tick, event),
            None => Ok(()),
        }
    }

    /// Closes the open tick, marked or not, and waits for it: before what the stream may use goes.
    pub(crate) fn settle_anyhow(&self, lane: &Lane) -> Result<(), CudaError> {
        let mut state = lane.state.lock();
        let _ = self.close_anyhow(lane, &mut state)?;
        drop(state);
        self.settle(lane, true)
    }

    /// Blocks until the event is complete. While gates are closed it is asked again and again, and gates that are in
    /// the way for long are opened.
    fn synchronize(&self, event: &Event) -> Result<(), CudaError> {
        let begin = Instant::now();
        while self.gates_closed() {
            // SAFETY: the event is held by the caller.
            match Code(unsafe { (self.driver.cuEventQuery)(event.0) }) {
                Code::NOT_READY if begin.elapsed() < PATIENCE => std::thread::yield_now(),
                Code::NOT_READY => self.open_gates(),
                code => return self.check("cuEventQuery", code.0),
            }
        }
        // SAFETY: the event is held by the caller.
        self.check("cuEventSynchronize", unsafe { (self.driver.cuEventSynchronize)(event.0) })
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
        self.usable(CALL, stream, later)?;
        if self.is_capturing(later.handle())? {
            return Err(CudaError::Capturing { call: CALL, stream });
        }
        let mut state = earlier.state.lock();
        if earlier.reached() < point.tick.0 && state.covering(point.tick.0).is_none() {
            // An event belongs to the context of its stream.
            let _there = if std::ptr::eq(self, of) { None } else { Some(of.bind()?) };
            let closed = of.close_anyhow(earlier, &mut state)?;
            closed.map_err(|_| CudaError::Capturing { call: CALL, stream: point.stream })?;
        }
        let Some(pending) = state.covering(point.tick.0) else { return Ok(()) };
        // SAFETY: the event is pending, so recorded, and stays as it is while the lane is locked; what is recorded into
        // it later does not change what this call makes the stream wait for. Both handles are alive.
        self.check(CALL, unsafe { (self.driver.cuStreamWaitEvent)(later.handle(), pending.event.0, 0) })
    }

    /// Fails if work of this thread cannot be recorded on the stream.
    pub(crate) fn usable(&self, call: &'static str, stream: StreamId, lane: &Lane) -> Result<(), CudaError> {
        if lane.is_gone() {
            return Err(CudaError::Unregistered { stream });
        }
        if lane.on_this_thread() { Ok(()) } else { Err(CudaError::OtherThread { call, stream }) }
    }
}
