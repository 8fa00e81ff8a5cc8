//! Asking: what the driver says of the events under way, and what becomes of them.

use std::sync::Arc;

use millpond_backend::{StreamId, Tick};

use super::Time;
use crate::error::{Code, CudaError};
use crate::gear::Gear;
use crate::streams::handle::Event;
use crate::streams::lane::{Lane, LaneState, Tenure};
use crate::streams::stay::Stay;

/// The number of outstanding closed ticks of a stream at which a query of the stream closes no more: the next one is
/// closed when the oldest is reached. A stream that is far behind the host then needs no more events than this, and its
/// progress is still known to a sixteenth of its outstanding work.
pub(super) const OUTSTANDING_MAX: usize = 16;

/// The state of an event that was queried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    Outstanding,
    Complete,
    /// A capture that is over has caught the event, which will never be complete.
    Caught,
}

impl<G: Gear> Time<G> {
    /// Returns the newest complete tick of a stream. Makes no driver call while nothing is outstanding.
    #[inline]
    pub(crate) fn reached(&self, stream: StreamId) -> Result<Tick, CudaError> {
        self.alive()?;
        let lane = self.lane(stream);
        if lane.clock.is_drained() {
            return Ok(lane.clock.reached());
        }
        self.ask(lane)
    }

    /// Works like [`reached`](Time::reached), and waits for another thread that asks at the same time, so that
    /// the answer is not an older one.
    #[cfg(feature = "testing")]
    pub(crate) fn reached_by_now(&self, stream: StreamId) -> Result<Tick, CudaError> {
        self.alive()?;
        let lane = self.lane(stream);
        self.ask_under(lane, &lane.stay(), &mut lane.state.lock())
    }

    /// Queries the driver for the newest complete tick, unless another thread is at it.
    fn ask(&self, lane: &Lane) -> Result<Tick, CudaError> {
        // Another thread that holds the locks is querying, copies the stream's bytes, or unregisters the stream. What
        // is known is returned in that case.
        let Some(stay) = lane.try_stay() else { return Ok(lane.clock.reached()) };
        let Some(mut state) = lane.state.try_lock() else { return Ok(lane.clock.reached()) };
        self.ask_under(lane, &stay, &mut state)
    }

    /// Queries the driver for the newest complete tick. While work is in progress this takes four driver calls, of
    /// which one queries an event and three concern the thread; three more (and an event) where a tick is closed.
    fn ask_under(&self, lane: &Lane, stay: &Stay<'_>, state: &mut LaneState) -> Result<Tick, CudaError> {
        self.enter("cuEventQuery")?;
        let _bound = self.bind_relaxed()?;
        self.query(lane, state)?;
        let is_behind = !state.pending.is_empty();
        if lane.clock.is_marked() && state.pending.len() < OUTSTANDING_MAX {
            // A tick that cannot be closed now stays open.
            let _ = self.close(stay, state)?;
            // Behind an event that is not complete, the new one is not complete either.
            if !is_behind {
                self.query(lane, state)?;
            }
        }
        Ok(lane.clock.reached())
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
    pub(super) fn event(&self, event: &Event) -> Result<Asked, CudaError> {
        // SAFETY: the event lives while it is pending or held.
        match Code(unsafe { (self.driver.cuEventQuery)(event.0) }) {
            Code::NOT_READY => Ok(Asked::Outstanding),
            code if code.is_caught() => Ok(Asked::Caught),
            code => self.check("cuEventQuery", code.0).map(|()| Asked::Complete),
        }
    }

    /// Removes an event that was caught by a capture that is over, and that will never be complete. The next event
    /// covers the work that it should have covered.
    pub(super) fn forget(&self, lane: &Lane, state: &mut LaneState, caught: Arc<Event>) {
        lane.clock.uncover();
        state.pending.retain(|pending| !Arc::ptr_eq(&pending.event, &caught));
        if state.tenure == Tenure::Borrowed {
            state.uncover();
        }
        self.recycle(lane, state, caught);
    }

    /// Notes that everything up to the tick is complete.
    pub(crate) fn retire(&self, lane: &Lane, state: &mut LaneState, tick: Tick) {
        while state.pending.front().is_some_and(|pending| pending.tick <= tick) {
            let Some(done) = state.pending.pop_front() else { break };
            lane.clock.complete(done.tick);
            self.recycle(lane, state, done.event);
        }
    }

    /// Keeps an event for later use, unless another thread still needs it.
    pub(super) fn recycle(&self, lane: &Lane, state: &mut LaneState, event: Arc<Event>) {
        let Some(event) = Arc::into_inner(event) else { return };
        if lane.is_gone() {
            self.spare.lock().push(event);
        } else {
            state.spare.push(event);
        }
    }
}
