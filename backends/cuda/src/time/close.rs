//! Closing: the event that is recorded behind the work of a tick, as late as possible.

use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUstream};
use millpond_backend::StreamId;

use super::Time;
use super::ask::Asked;
use crate::error::{Code, CudaError};
use crate::gear::Gear;
use crate::streams::handle::{Event, Handle};
use crate::streams::lane::{Lane, LaneState, Pending, Tenure};
use crate::streams::stay::Stay;

/// `CU_EVENT_DISABLE_TIMING`: events that measure nothing are cheaper.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_BLOCKING_SYNC`: a thread that waits for the event sleeps.
const BLOCKING_SYNC: u32 = 1;

/// The most events in a row that may be caught by captures that end at once, each between two driver calls. Beyond this
/// number another cause is assumed, and the driver's code is an error.
pub(super) const CAUGHT_MAX: usize = 8;

/// Returns the error after [`CAUGHT_MAX`] caught events in a row.
pub(super) fn always_caught(call: &'static str) -> CudaError {
    CudaError::Driver { call, code: Code::INVALID_VALUE }
}

/// The reason why a tick cannot be closed now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stays {
    /// The stream is being captured: an event would become part of the graph. Or it is borrowed and was captured in its
    /// last call: it may be gone.
    Capturing,
    /// The stream is the default stream of another thread, where only that thread can record.
    OtherThread,
}

impl<G: Gear> Time<G> {
    /// Closes the open tick with an event behind all work of the stream, or returns why that cannot be done now.
    pub(super) fn close(&self, stay: &Stay<'_>, state: &mut LaneState) -> Result<Result<(), Stays>, CudaError> {
        match stay.handle() {
            _ if state.tenure == Tenure::Uncovered => return Ok(Err(Stays::Capturing)),
            None => self.close_by_last(stay.lane(), state),
            Some(_) if state.tenure == Tenure::Borrowed => self.close_by_last(stay.lane(), state),
            Some(handle) if stay.lane().on_this_thread() => return self.close_on(stay.lane(), state, handle),
            Some(_) => return Ok(Err(Stays::OtherThread)),
        }
        Ok(Ok(()))
    }

    /// Works like [`close`](Time::close), for a tick that is needed now: if the stream is another thread's, the
    /// event is recorded on the legacy default stream, which waits for that stream and for all other blocking streams.
    pub(super) fn close_anyhow(&self, stay: &Stay<'_>, state: &mut LaneState) -> Result<Result<(), Stays>, CudaError> {
        match self.close(stay, state)? {
            Err(Stays::OtherThread) => self.close_on(stay.lane(), state, Handle::LEGACY.0),
            closed => Ok(closed),
        }
    }

    /// Closes the open tick with an event on a stream.
    ///
    /// A capture of another thread may begin between the check of the stream and the record. The event is then part of
    /// the capture: to query it would invalidate the capture, and a stream that waits for it would be captured too. So
    /// the stream is checked once more, and unless it is free the event is not used. If the capture has ended by then,
    /// a query of the event reports that, and no capture is invalidated.
    pub(super) fn close_on(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        handle: CUstream,
    ) -> Result<Result<(), Stays>, CudaError> {
        if self.is_capturing(handle)? {
            return Ok(Err(Stays::Capturing));
        }
        let event = self.take_event(state)?;
        let tick = lane.clock.close();
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
        lane.clock.uncover();
        state.spare.push(event);
        is_caught.map(|_| Err(Stays::Capturing))
    }

    /// Works like [`close`](Time::close), with an event that no capture has caught: the last event of a stream,
    /// on which all later queries rely.
    pub(super) fn close_for_good(
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

    /// Closes the open tick of an unregistered stream, or of a borrowed one. The stream's last event covers all work
    /// that matters.
    fn close_by_last(&self, lane: &Lane, state: &mut LaneState) {
        let tick = lane.clock.close();
        match state.pending.back() {
            Some(last) => {
                let event = Arc::clone(&last.event);
                state.pending.push_back(Pending { tick, event });
            }
            None => lane.clock.complete(tick),
        }
    }

    /// Returns an error if the stream is being captured.
    pub(crate) fn uncaptured(&self, call: &'static str, stream: StreamId, handle: CUstream) -> Result<(), CudaError> {
        if self.is_capturing(handle)? { Err(CudaError::Capturing { call, stream }) } else { Ok(()) }
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
}
