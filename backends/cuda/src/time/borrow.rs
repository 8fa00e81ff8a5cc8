//! Borrowed streams: those that the program may destroy at any time, without a word.
//!
//! A driver that is asked about a destroyed stream may crash. So the handle of a borrowed stream is used in the calls
//! that the program makes with it, where the stream is alive, and in no others. Such a call leaves an event behind the
//! work that matters, and the last event covers all later ticks. A new stream that has the handle of an old one takes
//! over its lane and waits for the last event there. So there are no more lanes than streams that live at one time.

use cudarc::driver::sys::CUstream;
use millpond_backend::StreamId;

use super::Time;
use super::ask::OUTSTANDING_MAX;
use crate::error::{Code, CudaError};
use crate::gear::Gear;
use crate::streams::Key;
use crate::streams::handle::Handle;
use crate::streams::lane::{Lane, LaneState, Pending, Tenure};
use crate::streams::stay::Stay;

impl<G: Gear> Time<G> {
    /// Returns the number of a stream by its handle, which is not that of a default stream. A stream that is not known
    /// is borrowed.
    pub(crate) fn borrow(&self, stream: CUstream) -> Result<StreamId, CudaError> {
        self.alive()?;
        let handle = Handle(stream);
        let mut registry = self.registry.lock();
        let known = registry.0.get(&Key::Handle(handle)).copied();
        // A lane that is gone is about to leave the registry.
        if let Some(stream) = known.filter(|&stream| !self.lane(stream).is_gone()) {
            return Ok(stream);
        }
        let unique = self.unique(handle)?;
        let state = LaneState { unique, tenure: Tenure::Borrowed, ..LaneState::default() };
        Ok(self.enlist(&mut registry, Key::Handle(handle), Lane::new(handle, None, state)))
    }

    /// Begins a call of the program's with a borrowed stream, which is alive now. With `frees` the call gives up memory
    /// that work on the stream uses, and an event is recorded behind that work. If that fails, the next call does it.
    /// Does nothing for other streams.
    pub(crate) fn arrive(&self, stream: StreamId, frees: bool) -> Result<(), CudaError> {
        const CALL: &str = "cuStreamGetId";
        self.enter(CALL)?;
        let lane = self.lane(stream);
        let stay = lane.stay();
        let handle = self.usable(CALL, stream, &stay)?;
        let _bound = self.bind_relaxed()?;
        let mut state = lane.state.lock();
        let arrived = self.arrive_under(lane, &mut state, handle, frees);
        if arrived.is_err() && frees && state.tenure == Tenure::Borrowed {
            state.tenure = Tenure::Uncovered;
        }
        drop((state, stay));
        let is_captured = arrived?;
        // It may be another stream by now. A graph comes behind nothing that was queued here before.
        if is_captured && !frees { self.settle(stream, true) } else { Ok(()) }
    }

    /// Works like [`arrive`](Time::arrive), with the lane locked and the context current. Does not wait for what was
    /// freed before a capture. Returns whether a borrowed stream is being captured.
    pub(super) fn arrive_under(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        handle: CUstream,
        frees: bool,
    ) -> Result<bool, CudaError> {
        if state.tenure == Tenure::Registered {
            return Ok(false);
        }
        let is_capturing = self.is_capturing(handle)?;
        let unique = if is_capturing { None } else { self.unique(Handle(handle))? };
        // A driver that shows numbers has told none because a capture has begun meanwhile.
        if is_capturing || (unique.is_none() && self.driver.cuStreamGetId.is_some()) {
            if frees {
                state.tenure = Tenure::Uncovered;
            }
            return Ok(true);
        }
        let is_another = state.unique.is_some_and(|before| Some(before) != unique);
        if is_another {
            self.follow(lane, state, handle)?;
        }
        state.unique = unique;
        if is_another || frees || state.tenure == Tenure::Uncovered {
            self.cover(lane, state, handle)?;
        }
        Ok(false)
    }

    /// Makes a stream wait for the work of the one that had its handle before.
    fn follow(&self, lane: &Lane, state: &mut LaneState, handle: CUstream) -> Result<(), CudaError> {
        const CALL: &str = "cuStreamWaitEvent";
        if state.tenure == Tenure::Borrowed {
            let Some((_, last)) = state.pending.back().map(Pending::share) else { return Ok(()) };
            // SAFETY: the event is held, and the stream is alive, as the caller promises.
            let code = Code(unsafe { (self.driver.cuStreamWaitEvent)(handle, last.0, 0) });
            self.recycle(lane, state, last);
            if !code.is_caught() {
                return self.check(CALL, code.0);
            }
        }
        // No event lies behind the work of the former stream, and none can be recorded there any more.
        self.gear.before_waiting_for_all();
        // SAFETY: the context is current.
        self.check("cuCtxSynchronize", unsafe { (self.driver.cuCtxSynchronize)() })?;
        let tick = lane.clock.close();
        self.retire(lane, state, tick);
        lane.clock.complete(tick);
        Ok(())
    }

    /// Records an event behind what is queued on a borrowed stream. If there are many already, it takes the place of
    /// the newest ones.
    fn cover(&self, lane: &Lane, state: &mut LaneState, handle: CUstream) -> Result<(), CudaError> {
        state.tenure = Tenure::Uncovered;
        while state.pending.len() >= OUTSTANDING_MAX {
            let Some(newest) = state.pending.pop_back() else { break };
            self.recycle(lane, state, newest.event);
        }
        if self.close_on(lane, state, handle)?.is_ok() {
            state.tenure = Tenure::Borrowed;
        }
        Ok(())
    }

    /// Records an event behind work of this device's own, if the stream is borrowed.
    pub(crate) fn leave_event(&self, stay: &Stay<'_>, handle: CUstream) -> Result<(), CudaError> {
        let mut state = stay.lane().state.lock();
        if state.tenure == Tenure::Registered {
            return Ok(());
        }
        let _bound = self.bind_relaxed()?;
        self.cover(stay.lane(), &mut state, handle)
    }

    /// Waits for the whole context if a stream is borrowed. No event lies behind work on memory that was not freed.
    pub(crate) fn settle_borrowed(&self) -> Result<(), CudaError> {
        let is_borrowed = |lane: &Lane| !lane.is_gone() && lane.state.lock().tenure != Tenure::Registered;
        if !self.lanes.iter().any(|(_, lane)| is_borrowed(lane)) {
            return Ok(());
        }
        const CALL: &str = "cuCtxSynchronize";
        self.enter(CALL)?;
        let _bound = self.bind_relaxed()?;
        self.gear.before_waiting_for_all();
        // SAFETY: the context is current.
        self.check(CALL, unsafe { (self.driver.cuCtxSynchronize)() })
    }
}
