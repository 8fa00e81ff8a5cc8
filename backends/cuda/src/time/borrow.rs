//! Borrowed streams: those that the program may destroy at any time, without a word.
//!
//! A driver that is asked about a destroyed stream may crash. So the handle of a borrowed stream is used in the calls
//! that the program makes with it, where the stream is alive, and in no others. Such a call leaves an event behind the
//! work that matters, and the last event covers all later ticks. A new stream that has the handle of an old one takes
//! over its lane and waits for the last event there. So, orphans apart, there are no more lanes than streams that live
//! at one time.
//!
//! A stream whose memory was freed in a capture has no such event. If it is gone before its next call, its lane is an
//! orphan, and the new stream is borrowed anew.

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

/// What a call of the program's with a stream has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrived {
    /// The stream is not being captured, or not borrowed.
    Free,
    /// The borrowed stream is being captured.
    Captured,
    /// The handle is another stream's, which cannot wait for the former one.
    Over,
}

impl<G: Gear> Time<G> {
    /// Returns the number of a stream by its handle, which is not that of a default stream. A stream that is not known
    /// is borrowed, and so is one that has the handle of a registered stream which was destroyed.
    pub(crate) fn borrow(&self, stream: CUstream) -> Result<StreamId, CudaError> {
        self.alive()?;
        let handle = Handle(stream);
        let mut registry = self.registry.lock();
        let known = registry.0.get(&Key::Handle(handle)).copied();
        let unique = self.unique(handle)?;
        let mut was_registered = false;
        if let Some(stream) = known {
            let lane = self.lane(stream);
            // A lane that is gone is about to leave the registry.
            let stay = lane.stay();
            let state = lane.state.lock();
            // The next call with a borrowed stream looks at its number.
            if stay.handle().is_some() && (state.tenure != Tenure::Registered || state.is_stream(unique)) {
                return Ok(stream);
            }
            drop((state, stay));
            was_registered = self.orphan(&mut registry, stream);
        }
        let state = LaneState { unique, tenure: Tenure::Borrowed, ..LaneState::default() };
        let stream = self.enlist(&mut registry, Key::Handle(handle), Lane::new(handle, None, state));
        drop(registry);
        if was_registered {
            self.settle_uncovered(false)?;
        }
        Ok(stream)
    }

    /// Begins a call of the program's with a borrowed stream, which is alive now. With `frees` the call gives up memory
    /// that work on the stream uses, and an event is recorded behind that work. If that fails, the next call does it.
    /// Does nothing for other streams. If the number is that of a former stream, which the new one cannot wait for, the
    /// number is over.
    pub(crate) fn arrive(&self, stream: StreamId, frees: bool) -> Result<(), CudaError> {
        const CALL: &str = "cuStreamGetId";
        self.enter(CALL)?;
        let lane = self.lane(stream);
        let stay = lane.stay();
        let handle = self.usable(CALL, stream, &stay)?;
        let _bound = self.bind_relaxed()?;
        let mut state = lane.state.lock();
        let arrived = self.arrive_under(lane, &mut state, handle, frees);
        if arrived.is_err() && frees && state.tenure != Tenure::Registered {
            state.uncover();
        }
        drop((state, stay));
        match arrived? {
            // It may be another stream by now. A graph comes behind nothing that was queued here before.
            Arrived::Captured if !frees => self.settle(stream, true),
            Arrived::Captured | Arrived::Free => Ok(()),
            Arrived::Over => {
                self.orphan(&mut self.registry.lock(), stream);
                Err(CudaError::Unregistered { stream })
            }
        }
    }

    /// Works like [`arrive`](Time::arrive), with the lane locked and the context current. Does not wait for what was
    /// freed before a capture. After [`Arrived::Over`] the caller ends the lane.
    pub(super) fn arrive_under(
        &self,
        lane: &Lane,
        state: &mut LaneState,
        handle: CUstream,
        frees: bool,
    ) -> Result<Arrived, CudaError> {
        if state.tenure == Tenure::Registered {
            return Ok(Arrived::Free);
        }
        let is_capturing = self.is_capturing(handle)?;
        let unique = if is_capturing { None } else { self.unique(Handle(handle))? };
        // A driver that shows numbers has told none because a capture has begun meanwhile.
        state.captured = is_capturing || (unique.is_none() && self.driver.cuStreamGetId.is_some());
        if state.captured {
            if frees {
                state.uncover();
            }
            return Ok(Arrived::Captured);
        }
        let is_another = match state.unique {
            Some(_) => state.unique != unique,
            // All calls so far were made in captures, and the stream may have changed since.
            None => unique.is_some() && state.tenure == Tenure::Uncovered,
        };
        if is_another && !self.follow(lane, state, handle)? {
            return Ok(Arrived::Over);
        }
        state.unique = unique;
        if is_another || frees || state.tenure == Tenure::Uncovered {
            self.cover(lane, state, handle)?;
        }
        Ok(Arrived::Free)
    }

    /// Makes a stream wait for the work of the one that had its handle before. Returns `false` if no event lies behind
    /// that work: none can be recorded there any more.
    fn follow(&self, lane: &Lane, state: &mut LaneState, handle: CUstream) -> Result<bool, CudaError> {
        const CALL: &str = "cuStreamWaitEvent";
        if state.tenure == Tenure::Uncovered {
            return Ok(false);
        }
        let Some((_, last)) = state.pending.back().map(Pending::share) else { return Ok(true) };
        // SAFETY: the event is held, and the stream is alive, as the caller promises.
        let code = Code(unsafe { (self.driver.cuStreamWaitEvent)(handle, last.0, 0) });
        if code.is_caught() {
            self.forget(lane, state, last);
            return Ok(false);
        }
        self.recycle(lane, state, last);
        self.check(CALL, code.0).map(|()| true)
    }

    /// Records an event behind what is queued on a borrowed stream. If there are many already, it takes the place of
    /// the newest ones.
    fn cover(&self, lane: &Lane, state: &mut LaneState, handle: CUstream) -> Result<(), CudaError> {
        state.uncover();
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
}
