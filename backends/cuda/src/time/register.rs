//! The streams of other code: registering them, and retiring those that leave, whose work may still run.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUstream;
use millpond_backend::StreamId;

use super::Time;
use super::borrow::Arrived;
use super::close::Stays;
use crate::error::CudaError;
use crate::gear::Gear;
use crate::streams::Key;
use crate::streams::handle::Handle;
use crate::streams::lane::{Lane, LaneState, Tenure};

impl<G: Gear> Time<G> {
    /// Registers a stream by its handle, and returns its number: the one that it has, or a new one.
    pub(crate) fn register(&self, stream: CUstream, kept: Option<Arc<CudaStream>>) -> Result<StreamId, CudaError> {
        self.alive()?;
        let key = Key::of(stream);
        let (handle, thread) = match key {
            Key::Handle(handle) => (handle, None),
            Key::Thread(thread) => (Handle(stream), Some(thread)),
        };
        let mut registry = self.registry.lock();
        let known = registry.0.get(&key).copied();
        // The default streams are never destroyed.
        let is_default = matches!(key, Key::LEGACY | Key::Thread(_));
        let unique = if is_default { None } else { self.unique(handle)? };
        let mut was_registered = false;
        if let Some(stream) = known {
            let lane = self.lane(stream);
            // A lane that is gone is about to leave the registry.
            let stay = lane.stay();
            let mut state = lane.state.lock();
            let is_same = if state.tenure == Tenure::Registered {
                state.is_stream(unique)
            } else {
                // Threads may be in calls with the number of the borrowed stream, which stays that of its handle.
                let _bound = self.bind_relaxed()?;
                self.arrive_under(lane, &mut state, handle.0, false)? != Arrived::Over
            };
            if is_same && stay.handle().is_some() {
                state.unique = state.unique.or(unique);
                state.tenure = Tenure::Registered;
                state.kept = state.kept.take().or(kept);
                return Ok(stream);
            }
            drop((state, stay));
            was_registered = self.orphan(&mut registry, stream);
        }
        let state = LaneState { kept, unique, ..LaneState::default() };
        let stream = self.enlist(&mut registry, key, Lane::new(handle, thread, state));
        drop(registry);
        if was_registered {
            // No event can be recorded behind the work of the former stream any more.
            self.settle_uncovered(false)?;
        }
        Ok(stream)
    }

    pub(crate) fn unregister(&self, stream: StreamId) -> Result<(), CudaError> {
        const CALL: &str = "unregister";
        self.alive()?;
        let lane = self.lane(stream);
        let stay = lane.stay_alone();
        let handle = self.usable(CALL, stream, &stay)?;
        self.enter("cuEventRecord")?;
        let _bound = self.bind_relaxed()?;
        let mut state = lane.state.lock();
        if self.arrive_under(lane, &mut state, handle, false)? == Arrived::Over {
            drop((state, stay));
            self.orphan(&mut self.registry.lock(), stream);
            return Ok(());
        }
        let tenure = std::mem::take(&mut state.tenure);
        let closed = self.close_for_good(&stay, &mut state);
        if closed != Ok(Ok(())) {
            state.tenure = tenure;
        }
        match closed? {
            Ok(()) => {}
            Err(Stays::Capturing) => return Err(CudaError::Capturing { call: CALL, stream }),
            Err(Stays::OtherThread) => return Err(CudaError::OtherThread { call: CALL, stream }),
        }
        lane.set_gone();
        self.spare.lock().append(&mut state.spare);
        state.kept = None;
        if state.owned {
            // SAFETY: this device made the stream, and its lane is gone. Every thread that used the handle has
            // finished, as the stay guarantees, and no thread gets it any more. The driver completes the stream's work
            // first.
            self.keep("cuStreamDestroy", unsafe { (self.driver.cuStreamDestroy_v2)(handle) });
        }
        drop(state);
        drop(stay);
        // This comes last, and under no other lock: a thread that registers a stream takes this lock first. The handle
        // may belong to another stream by now.
        self.registry.lock().0.retain(|_, registered| *registered != stream);
        Ok(())
    }
}
