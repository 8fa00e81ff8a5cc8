//! Orphans: the lanes of streams that are gone and whose last work has no event behind it; and the wait for the whole
//! context, which alone shows that such work is over.
//!
//! While any stream of the context is being captured, the driver refuses that wait and spoils the capture. So a call
//! that finds a stream gone does not wait. What was freed there stays in use until a request needs the memory.

use cudarc::driver::sys::CUstream;
use millpond_backend::StreamId;

use super::Time;
use crate::error::CudaError;
use crate::gear::Gear;
use crate::streams::Registry;
use crate::streams::handle::Handle;
use crate::streams::lane::{Lane, Tenure};

impl<G: Gear> Time<G> {
    /// Ends the use of a lane whose handle is another stream's now. Its open tick stays open unless an event covers it.
    /// Returns whether the stream was registered.
    pub(super) fn orphan(&self, registry: &mut Registry, stream: StreamId) -> bool {
        let was_registered = self.end(registry, stream);
        self.spare.lock().append(&mut self.lane(stream).state.lock().spare);
        was_registered
    }

    /// Waits for the whole context if a stream is borrowed or an orphan. No event lies behind work on memory that was
    /// not freed.
    pub(crate) fn settle_borrowed(&self) -> Result<(), CudaError> {
        let is_borrowed = |lane: &Lane| match lane.state.lock().tenure {
            Tenure::Registered => false,
            Tenure::Borrowed => !lane.is_gone(),
            Tenure::Uncovered => true,
        };
        if self.lanes.iter().any(|(_, lane)| is_borrowed(lane)) { self.settle_context() } else { Ok(()) }
    }

    /// Waits for the whole context if work that matters has no event behind it. Does nothing while a stream is being
    /// captured, as far as the driver may be asked. `asked` says that the program has asked for the wait, so that
    /// borrowed streams which were captured in their last call are taken to be free by now.
    pub(crate) fn settle_uncovered(&self, asked: bool) -> Result<(), CudaError> {
        let is_uncovered = |lane: &Lane| lane.state.lock().tenure == Tenure::Uncovered;
        if !self.lanes.iter().any(|(_, lane)| is_uncovered(lane)) || self.may_be_capturing(asked)? {
            return Ok(());
        }
        match self.settle_context() {
            // A capture has begun meanwhile, or one of a stream that is not known here.
            Err(CudaError::Driver { code, .. }) if code.is_capture() && !asked => Ok(()),
            settled => settled,
        }
    }

    /// Returns whether a stream may be being captured. The handle of a borrowed one must not be used: what its last
    /// call has shown counts, unless `asked` is set.
    fn may_be_capturing(&self, asked: bool) -> Result<bool, CudaError> {
        self.enter("cuStreamIsCapturing")?;
        let _bound = self.bind_relaxed()?;
        let is_capturing = |lane: &Lane| {
            let stay = lane.stay();
            // A default stream of another thread is a blocking one, which the question about the legacy one is for.
            let Some(handle) = stay.handle().filter(|_| lane.on_this_thread()) else { return Ok(false) };
            let state = lane.state.lock();
            match state.tenure {
                Tenure::Registered => self.is_capturing(handle),
                Tenure::Borrowed | Tenure::Uncovered => Ok(state.captured && !asked),
            }
        };
        for (_, lane) in self.lanes.iter() {
            if is_capturing(lane)? {
                return Ok(true);
            }
        }
        let legacy: CUstream = Handle::LEGACY.0;
        self.is_capturing(legacy)
    }

    /// Waits for the whole context, after which the work of streams without an event is over.
    fn settle_context(&self) -> Result<(), CudaError> {
        const CALL: &str = "cuCtxSynchronize";
        self.enter(CALL)?;
        let _bound = self.bind_relaxed()?;
        let gaps = |lane: &Lane| {
            let state = lane.state.lock();
            (state.tenure == Tenure::Uncovered).then_some(state.gaps)
        };
        let uncovered: Vec<_> = self.lanes.iter().filter_map(|(_, lane)| gaps(lane).map(|gaps| (lane, gaps))).collect();
        self.gear.before_waiting_for_all();
        // SAFETY: the context is current.
        self.check(CALL, unsafe { (self.driver.cuCtxSynchronize)() })?;
        for (lane, gaps) in uncovered {
            let mut state = lane.state.lock();
            // Memory that was freed during the wait, in a capture, is not covered by it.
            if state.tenure == Tenure::Uncovered && state.gaps == gaps {
                let tick = lane.clock.close();
                self.retire(lane, &mut state, tick);
                lane.clock.complete(tick);
                state.tenure = Tenure::Borrowed;
            }
        }
        Ok(())
    }
}
