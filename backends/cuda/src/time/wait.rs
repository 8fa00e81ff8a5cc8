//! Waiting: on the host for an event, and on the device for an event of another stream.

use std::sync::Arc;
use std::time::Duration;

use millpond_backend::{Point, StreamId, Tick};
use millpond_kit::Misuse;

use super::Time;
use super::ask::Asked;
use super::close::{CAUGHT_MAX, always_caught};
use crate::error::{Code, CudaError};
use crate::gear::Gear;
use crate::streams::handle::Event;
use crate::streams::lane::{Lane, Pending, Tenure};

/// The time between the first two questions of a wait that sleeps, which doubles from one to the next.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
/// The most time between two of them.
const LONGEST_PAUSE: Duration = Duration::from_micros(500);

impl<G: Gear> Time<G> {
    /// Implements `wait`.
    pub(crate) fn wait(&self, point: Point) -> Result<Tick, CudaError> {
        self.wait_as(point, false)
    }

    /// Implements `wait_asleep`.
    pub(crate) fn wait_asleep(&self, point: Point) -> Result<Tick, CudaError> {
        self.wait_as(point, !self.blocking)
    }

    /// Waits. With `dozes` the host sleeps between questions before it waits in the driver, which spins.
    fn wait_as(&self, point: Point, dozes: bool) -> Result<Tick, CudaError> {
        self.alive()?;
        let lane = self.lane(point.stream);
        let reached = lane.clock.reached();
        if reached >= point.tick {
            return Ok(reached);
        }
        self.enter("cuEventSynchronize")?;
        let _bound = self.bind_relaxed()?;
        for _ in 0..CAUGHT_MAX {
            let stay = lane.stay();
            let mut state = lane.state.lock();
            let uncovered = lane.clock.reached() < point.tick && state.covering(point.tick).is_none();
            let stays_open = uncovered && self.close_anyhow(&stay, &mut state)?.is_err();
            let has_no_event = stays_open && state.tenure == Tenure::Uncovered;
            // A tick that cannot be closed now is not waited for.
            let newest = state.covering(point.tick).or(state.pending.back()).map(Pending::share);
            drop((stay, state));
            if has_no_event {
                self.settle_uncovered(false)?;
            }
            let Some((tick, event)) = newest else { return Ok(lane.clock.reached()) };
            if dozes {
                self.doze(point.stream, &event)?;
            }
            if self.wait_for_event(point.stream, lane, tick, event)? {
                return Ok(lane.clock.reached());
            }
        }
        Err(always_caught("cuEventSynchronize"))
    }

    /// Sleeps until the event is complete or caught, and asks from time to time.
    fn doze(&self, stream: StreamId, event: &Event) -> Result<(), CudaError> {
        self.gear.before_waiting_for(stream);
        let mut pause = SHORTEST_PAUSE;
        while self.event(event)? == Asked::Outstanding {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// Blocks until the event is complete, and retires everything up to its tick. Returns `false` if a capture has
    /// caught the event, which is forgotten then.
    fn wait_for_event(&self, stream: StreamId, lane: &Lane, tick: Tick, event: Arc<Event>) -> Result<bool, CudaError> {
        self.gear.before_waiting_for(stream);
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
    pub(crate) fn settle(&self, stream: StreamId, wait: bool) -> Result<(), CudaError> {
        let lane = self.lane(stream);
        for _ in 0..CAUGHT_MAX {
            let stay = lane.stay();
            let mut state = lane.state.lock();
            if lane.clock.is_marked() {
                let _ = self.close(&stay, &mut state)?;
            }
            let newest = state.pending.back().map(Pending::share);
            drop((stay, state));
            let Some((tick, event)) = newest.filter(|_| wait) else { return Ok(()) };
            if self.wait_for_event(stream, lane, tick, event)? {
                return Ok(());
            }
        }
        Err(always_caught("cuEventSynchronize"))
    }

    /// Closes the open tick, marked or not, and waits for it. Called before memory that the stream may use is given
    /// back.
    pub(crate) fn settle_anyhow(&self, stream: StreamId) -> Result<(), CudaError> {
        let lane = self.lane(stream);
        let stay = lane.stay();
        let mut state = lane.state.lock();
        let _ = self.close_anyhow(&stay, &mut state)?;
        drop((stay, state));
        self.settle(stream, true)
    }

    /// Blocks until the event is complete, and returns `true`; returns `false` if a capture has caught it.
    fn synchronize(&self, event: &Event) -> Result<bool, CudaError> {
        let ask = || Some(self.event(event)).filter(|asked| *asked != Ok(Asked::Outstanding));
        if let Some(asked) = self.gear.watch(ask) {
            return asked.map(|asked| asked == Asked::Complete);
        }
        // SAFETY: the event is held by the caller.
        match Code(unsafe { (self.driver.cuEventSynchronize)(event.0) }) {
            code if code.is_caught() => Ok(false),
            code => self.check("cuEventSynchronize", code.0).map(|()| true),
        }
    }

    /// Implements `wait_for`, for a point of this device or of another.
    pub(crate) fn wait_for(&self, stream: StreamId, of: &Time<G>, point: Point) -> Result<(), CudaError> {
        const CALL: &str = "cuStreamWaitEvent";
        self.alive()?;
        of.alive()?;
        let (later, earlier) = (self.lane(stream), of.lane(point.stream));
        let open = earlier.clock.open();
        if point.tick > open {
            return Err(Misuse::NeverMarked { point, open: open.0 }.into());
        }
        if std::ptr::eq(later, earlier) || earlier.clock.reached() >= point.tick {
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
        if lane.clock.reached() >= point.tick {
            return Ok(None);
        }
        if state.covering(point.tick).is_none() {
            let closed = self.close_anyhow(&stay, &mut state)?;
            closed.map_err(|_| CudaError::Capturing { call, stream: point.stream })?;
        }
        Ok(state.covering(point.tick).map(|pending| pending.share().1))
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
            code => {
                self.check(call, code.0)?;
                self.leave_event(&stay, handle)?;
                Ok(true)
            }
        }
    }
}
