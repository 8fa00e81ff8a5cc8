//! Ticks: closing them, querying them, and waiting for them.

use std::sync::atomic::Ordering;

use millpond_backend::{Closing, Point, StreamId, Tick};
use millpond_kit::Misuse;

use super::Time;
use crate::error::SimError;
use crate::error::calls::CallKind;
use crate::open::Completion;
use crate::streams::lane::{Lane, Op};

impl Time {
    /// Closes a lane's open tick, by an event, if it was marked and `needed` is not below it.
    pub(crate) fn record(&self, lane: &Lane, needed: Tick) {
        if lane.close_if_marked(needed) {
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
        let marked = self.caps.closing == Closing::Backend && lane.clock.is_marked();
        if !marked && lane.clock.is_caught_up() {
            return Ok(lane.clock.reached());
        }
        self.query(lane)
    }

    /// Queries the driver for a lane's newest complete tick, closing the open tick first if it was marked.
    fn query(&self, lane: &Lane) -> Result<Tick, SimError> {
        lane.queries.fetch_add(1, Ordering::Relaxed);
        self.strike(CallKind::Reached)?;
        if self.caps.closing == Closing::Backend {
            self.record(lane, Tick(u64::MAX));
        }
        self.charge(self.costs.query_ns);
        Ok(lane.clock.reached())
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
            return Ok(lane.clock.reached());
        }
        self.enter(CallKind::Wait)?;
        let mut state = self.state();
        if self.caps.closing == Closing::Backend {
            self.record(lane, point.tick);
        }
        self.finish(&mut state, point, false);
        self.settle(&mut state);
        Ok(lane.clock.reached())
    }

    /// Closes the open tick of a stream as the application's submit does, and returns it. Where the backend closes
    /// ticks there is nothing to submit, and the open tick is only marked.
    pub(crate) fn submit(&self, stream: StreamId) -> Tick {
        let lane = self.lane(stream);
        let mut state = self.state();
        if self.caps.closing == Closing::Backend {
            return lane.clock.mark();
        }
        let tick = lane.clock.open();
        lane.close();
        self.settle(&mut state);
        tick
    }

    /// Closes the tick of a point if it is open, where the backend closes ticks.
    pub(crate) fn close(&self, point: Point) {
        let lane = self.lane(point.stream);
        if self.caps.closing == Closing::Backend && lane.clock.open() == point.tick {
            self.record(lane, Tick(u64::MAX));
        }
    }

    /// Implements `wait_for`.
    pub(crate) fn wait_for(&self, stream: StreamId, point: Point) -> Result<(), SimError> {
        if !self.caps.stream_wait {
            return Err(Misuse::Unsupported { call: CallKind::StreamWait.name(), missing: None }.into());
        }
        self.enter(CallKind::StreamWait)?;
        self.lane(stream);
        let target = self.lane(point.stream);
        let backend_closes = self.caps.closing == Closing::Backend;
        let mut state = self.state();
        if backend_closes {
            self.record(target, point.tick);
        }
        let open = target.clock.open();
        // Where the application submits, a stream may wait for the open tick: the submit closes it later.
        let newest = if backend_closes { Tick(open.0 - 1) } else { open };
        if point.tick > newest {
            return Err(Misuse::NeverMarked { point, open: open.0 }.into());
        }
        self.charge(self.costs.stream_wait_ns);
        if stream != point.stream && !self.is_reached(point) {
            self.queue(&mut state, stream, Op::Wait(point), Vec::new(), Vec::new());
            self.settle(&mut state);
        }
        Ok(())
    }
}
