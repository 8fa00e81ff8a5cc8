//! Ticks: closing them, querying them, and waiting for them.

use std::sync::atomic::Ordering;

use millpond_backend::{Closing, Point, StreamId, StreamWait, Tick};

use crate::device::Device;
use crate::lane::{Lane, Op};
use crate::schedule::Completion;
use crate::{CallKind, Sim, SimError};

impl Device {
    /// Closes a lane's open tick if it was marked, as a backend does by recording an event.
    pub(crate) fn record(&self, lane: &Lane) {
        if lane.close_if_dirty() {
            lane.records.fetch_add(1, Ordering::Relaxed);
            self.charge(self.costs.record_ns);
        }
    }

    /// Returns the newest complete tick. Takes no lock and counts no call unless a tick is marked or closed and not yet
    /// reached.
    #[inline]
    pub(crate) fn reached(&self, stream: StreamId) -> Result<Tick, SimError> {
        self.alive()?;
        let lane = self.lane(stream);
        self.stumble();
        let reached = lane.reached();
        let marked = self.caps.closing == Closing::Backend && lane.is_dirty();
        if !marked && reached + 1 >= lane.open() {
            return Ok(Tick(reached));
        }
        self.query(lane)
    }

    /// Queries the driver for a lane's newest complete tick, closing the open tick first if it was marked.
    fn query(&self, lane: &Lane) -> Result<Tick, SimError> {
        lane.queries.fetch_add(1, Ordering::Relaxed);
        self.strike(CallKind::Reached)?;
        if self.caps.closing == Closing::Backend {
            self.record(lane);
        }
        self.charge(self.costs.query_ns);
        Ok(Tick(lane.reached()))
    }

    /// Under seeded completion, lets some work complete when a caller asks for the state.
    fn stumble(&self) {
        if let Completion::Seeded(_) = self.completion
            && self.queued.load(Ordering::Acquire) > 0
        {
            self.step(&mut self.state());
        }
    }

    /// Completes what the point needs and returns the newest complete tick.
    pub(crate) fn wait(&self, point: Point) -> Result<Tick, SimError> {
        self.alive()?;
        let lane = self.lane(point.stream);
        self.stumble();
        if self.is_reached(point) {
            return Ok(Tick(lane.reached()));
        }
        self.enter(CallKind::Wait)?;
        let mut state = self.state();
        if self.caps.closing == Closing::Backend && point.tick.0 >= lane.open() {
            self.record(lane);
        }
        self.finish(&mut state, point, false);
        self.settle(&mut state);
        Ok(Tick(lane.reached()))
    }

    /// Closes the open tick of a stream as the application's submit does, and returns it. Where the backend closes
    /// ticks there is nothing to submit, and the open tick is only marked.
    pub(crate) fn submit(&self, stream: StreamId) -> Tick {
        let lane = self.lane(stream);
        let mut state = self.state();
        if self.caps.closing == Closing::Backend {
            return lane.mark();
        }
        let tick = Tick(lane.open());
        lane.close();
        self.settle(&mut state);
        tick
    }
}

impl StreamWait for Sim {
    type Error = SimError;

    fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), SimError> {
        let device = &*self.device;
        if !device.caps.stream_wait {
            return Err(SimError::Unsupported { call: CallKind::StreamWait });
        }
        device.enter(CallKind::StreamWait)?;
        device.lane(stream);
        let target = device.lane(point.stream);
        let backend_closes = device.caps.closing == Closing::Backend;
        let mut state = device.state();
        if backend_closes && point.tick.0 >= target.open() {
            device.record(target);
        }
        let open = target.open();
        // Where the application submits, a stream may wait for the open tick: the submit closes it later.
        let newest = if backend_closes { open - 1 } else { open };
        if point.tick.0 > newest {
            return Err(SimError::NeverMarked { point, open });
        }
        device.charge(device.costs.stream_wait_ns);
        if stream != point.stream && !device.is_reached(point) {
            device.queue(&mut state, stream, Op::Wait(point), Vec::new(), Vec::new());
            device.settle(&mut state);
        }
        Ok(())
    }
}
