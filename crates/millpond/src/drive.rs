//! The effect loop: asks the coordinator for a step, performs it without any lock, and reports the outcome.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use millpond_backend::{Backend, BackendError, ClassId, Closing, Fault, Point, StreamId, Tick};
use millpond_core::{Coordinator, Grant, Outcome, Plan, Polled, ShardId, Shards, Step, Want};

use crate::effects::Performed;
use crate::error::explain::{Explanation, Facts};
use crate::error::{Error, OutOfMemory};
use crate::notes::note::Asked;
use crate::state::steps::Pages;
use crate::state::{HeldShards, State};
use crate::sync::{lock_soon, wait_until};

/// A step that the coordinator has decided on, with what is kept to tell of it later.
struct Decided {
    step: Step,
    pages: Pages,
    explanation: Option<Explanation>,
}

/// The payload of a panic.
type Panic = Box<dyn Any + Send>;

/// A plan that is being run. If the core panics on it, other threads do not wait for it: what it has claimed is lost.
struct Running<'a, B: Backend> {
    state: &'a State<B>,
    plan: &'a mut Plan,
    ended: bool,
}

impl<B: Backend> Running<'_, B> {
    /// Lets the coordinator work on the plan, and wakes paused threads if the result may concern them.
    fn tell<R>(&mut self, work: impl FnOnce(&mut Coordinator, &mut Plan, &mut HeldShards<'_, B>) -> R) -> R {
        let mut coordinator = lock_soon(&self.state.coordinator);
        let before = coordinator.progress();
        let result = work(&mut coordinator, self.plan, &mut HeldShards::new(self.state));
        self.state.publish(&coordinator);
        let is_news = coordinator.progress() != before;
        drop(coordinator);
        if is_news {
            self.state.released.notify_all();
        }
        result
    }
}

impl<B: Backend> Drop for Running<'_, B> {
    fn drop(&mut self) {
        if !self.ended {
            self.state.coordinator.lock().lose(self.plan);
            self.state.released.notify_all();
        }
    }
}

/// The way in which a plan ended.
pub(crate) enum Ending {
    /// With a block of the shard that asked.
    Granted(Grant),
    /// With a block of another shard.
    Lent(ShardId, Grant),
    /// Without a block, because the plan was not for one.
    Done,
}

impl<B: Backend> State<B> {
    /// Returns what the device reports as free. `None` if that cannot be read: the driver decides then.
    fn budget_left(&self) -> Option<u64> {
        let budget = self.backend.budget()?;
        let left = self.activity.book(&self.backend, || budget.budget(self.class));
        left.ok().map(|left| left.free_bytes)
    }

    /// Runs a plan to its end.
    ///
    /// A call of the backend that panics counts as one that failed: the plan puts everything back, and then the panic
    /// is resumed.
    pub(crate) fn run(&self, plan: &mut Plan) -> Result<Ending, Error<B::Error>> {
        self.run_for(plan, None)
    }

    /// Runs a plan to its end, for a request if there is one.
    pub(crate) fn run_for(
        &self,
        plan: &mut Plan,
        asked: Option<&(ShardId, Want, Asked)>,
    ) -> Result<Ending, Error<B::Error>> {
        let mut running = Running { state: self, plan, ended: false };
        let (mut failure, mut panic) = (None, None);
        let mut next = running.tell(|coordinator, plan, shards| self.decide(coordinator, plan, asked, shards));
        loop {
            let Decided { step, pages, explanation } = next;
            running.ended = step.is_end();
            self.sinks.step(&step);
            let performed = match step {
                Step::Grant(grant) => return Ok(Ending::Granted(grant)),
                Step::Lend { lender, grant } => return Ok(Ending::Lent(lender, grant)),
                // After a failure the plan has put everything back.
                Step::Done => match panic {
                    Some(panic) => resume_unwind(panic),
                    None => return failure.map_or(Ok(Ending::Done), Err),
                },
                Step::Refuse(report) => {
                    let facts = Facts::of(self.backend.caps());
                    let refusal = OutOfMemory::new(self.device, self.class_name(), facts, *report, explanation);
                    return Err(Error::OutOfMemory(Box::new(refusal)));
                }
                Step::Pause { seen } => self.pause(seen),
                ref step => self.attempt(step, &mut panic),
            };
            self.sinks.refused(&step, &performed.outcome);
            failure = failure.or(performed.error);
            let is_panicking = panic.is_some();
            next = running.tell(|coordinator, plan, shards| {
                self.learn(coordinator, plan, (&step, performed.outcome, &pages), shards);
                if is_panicking {
                    coordinator.abandon(plan, shards);
                }
                self.decide(coordinator, plan, asked, shards)
            });
        }
    }

    /// Asks the coordinator for the next step of a plan.
    fn decide(
        &self,
        coordinator: &mut Coordinator,
        plan: &mut Plan,
        asked: Option<&(ShardId, Want, Asked)>,
        shards: &mut HeldShards<'_, B>,
    ) -> Decided {
        let step = coordinator.next(plan, shards);
        let is_on = self.sinks.noting.is_on();
        let pages = if is_on { self.decided(coordinator, &step, asked) } else { Pages::default() };
        let explanation = if let Step::Refuse(report) = &step { Some(self.explain(coordinator, report)) } else { None };
        Decided { step, pages, explanation }
    }

    /// Tells the coordinator what came of a step, and whoever watches.
    fn learn(
        &self,
        coordinator: &mut Coordinator,
        plan: &mut Plan,
        (step, outcome, pages): (&Step, Outcome, &Pages),
        shards: &mut HeldShards<'_, B>,
    ) {
        let noted = self.sinks.noting.is_on().then(|| outcome.clone());
        coordinator.learn(plan, outcome, shards);
        if let Some(outcome) = noted {
            shards.let_go();
            self.done(coordinator, step, &outcome, pages);
        }
    }

    /// Returns the name of the class, unless it is the device's own.
    fn class_name(&self) -> Option<String> {
        (self.class != ClassId::DEVICE).then(|| self.backend.caps().class(self.class).name.clone())
    }

    fn pause(&self, seen: u64) -> Performed<B::Error> {
        drop(wait_until(&self.released, self.coordinator.lock(), |coordinator| coordinator.progress() != seen));
        Performed::ok(Outcome::Done)
    }

    /// Performs a step. The first panic of a call is kept in `panic`.
    ///
    /// A call that takes memory and panics has not taken any. A call that releases memory and panics counts as done,
    /// because it cannot fail otherwise: the handle was moved into it, and there is nothing left to ask. Later calls
    /// that release memory are still made.
    fn attempt(&self, step: &Step, panic: &mut Option<Panic>) -> Performed<B::Error> {
        let made = Cell::new(0);
        loop {
            let stops = panic.is_some();
            // A call that panics may leave the backend's state half changed, which is the backend's concern. Our state
            // changes entirely before a call or not at all.
            match catch_unwind(AssertUnwindSafe(|| self.perform(step, &made, stops))) {
                Ok(performed) => return performed,
                Err(caught) => _ = panic.get_or_insert(caught),
            }
            match step {
                Step::Pages(_) => {}
                Step::Release { .. } | Step::ReleaseRange { .. } => return Performed::ok(Outcome::Done),
                _ => return Performed::ok(Outcome::Failed),
            }
        }
    }

    /// Makes the driver calls of a step. Those about pages work as in [`page_calls`](Self::page_calls).
    fn perform(&self, step: &Step, made: &Cell<usize>, stops: bool) -> Performed<B::Error> {
        match *step {
            Step::Poll(ref streams) => match self.polled(streams, usize::MAX) {
                Ok(outcome) => Performed::ok(outcome),
                Err(error) => Performed { outcome: Outcome::Failed, error: Some(error) },
            },
            Step::Budget => Performed::ok(Outcome::Left(self.budget_left())),
            Step::Wait(ref points) => self.wait_all(points.clone()),
            Step::Synchronize(stream) => self.wait_all(vec![Point { stream, tick: self.backend.mark(stream) }]),
            Step::Reserve { shard, slot, bytes } => self.reserve(shard, slot, bytes),
            Step::ReserveRange { shard, slot, bytes } => self.reserve_range(shard, slot, bytes),
            Step::Pages(ref calls) => self.page_calls(calls, made, stops),
            Step::StreamWait { stream, ref points } => self.stream_waits(stream, points),
            Step::Release { shard, slot, .. } => {
                self.release(shard, slot, false);
                Performed::ok(Outcome::Done)
            }
            Step::ReleaseRange { shard, slot } => {
                self.release(shard, slot, true);
                Performed::ok(Outcome::Done)
            }
            Step::Grant(_) | Step::Lend { .. } | Step::Refuse(_) | Step::Done | Step::Pause { .. } => {
                unreachable!("handled by the loop")
            }
        }
    }

    /// Polls streams, where the driver closes ticks until so many are found to be behind. Where submits close ticks, a
    /// wait for an open tick may never end: two streams could wait for each other's open ticks, and the application may
    /// submit one stream alone.
    pub(crate) fn polled(&self, streams: &[StreamId], behind_most: usize) -> Result<Outcome, Error<B::Error>> {
        match self.backend.caps().closing {
            Closing::Backend => {
                let (mut polled, mut behind) = (Vec::new(), 0);
                for &stream in streams {
                    let before = self.backend.open_tick(stream);
                    let reached = self.reached(stream)?.tick;
                    let (closed, asked) = ticks_of_query(before, self.backend.open_tick(stream));
                    polled.push(Polled { stream, reached, asked, open: None, closed });
                    behind += usize::from(reached < asked);
                    if behind >= behind_most {
                        break;
                    }
                }
                Ok(Outcome::Polled { streams: polled, time: Some(self.time()) })
            }
            Closing::Submit => {
                let polled = self.poll(streams)?.into_iter().map(|Point { stream, tick: reached }| {
                    let open = self.backend.mark(stream);
                    Polled { stream, reached, asked: open, open: Some(open), closed: None }
                });
                Ok(Outcome::Polled { streams: polled.collect(), time: None })
            }
        }
    }

    /// Returns the time by which the device's work proceeds, in nanoseconds since any moment.
    fn time(&self) -> u64 {
        let host = || u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.backend.work_clock().unwrap_or_else(host)
    }

    fn wait_all(&self, points: Vec<Point>) -> Performed<B::Error> {
        match self.activity.book_stall(&self.backend, points, |point| self.waited(point)) {
            Ok(reached) => Performed::ok(Outcome::Reached(reached)),
            Err(error) => Performed { outcome: Outcome::Failed, error: Some(error) },
        }
    }

    /// Makes a stream wait on the device.
    fn stream_waits(&self, stream: StreamId, points: &[Point]) -> Performed<B::Error> {
        let Some(device) = self.backend.stream_wait() else {
            panic!("the device announced device-side waits in its caps and has none");
        };
        for &point in points {
            if let Err(error) = self.activity.book_stream_wait(&self.backend, || device.wait_for(stream, point)) {
                if error.fault() == Fault::NotNow {
                    return Performed::ok(Outcome::Refused);
                }
                let error = Some(Error::of_driver("wait_for", error));
                return Performed { outcome: Outcome::Failed, error };
            }
        }
        Performed::ok(Outcome::Waits(self.backend.mark(stream)))
    }

    /// Waits for a point, as far as it was submitted. Returns what was reached.
    pub(crate) fn wait(&self, point: Point) -> Result<Point, Error<B::Error>> {
        self.activity.book(&self.backend, || self.waited(point))
    }

    fn waited(&self, point: Point) -> Result<Point, Error<B::Error>> {
        let tick = self.backend.wait(point);
        tick.map(|tick| Point { tick, ..point }).map_err(|e| Error::of_driver("wait", e))
    }

    /// Releases memory that is already idle, as `direct` does. An error is ignored here: a driver that fails reports it
    /// again to a caller that returns errors.
    #[cold]
    pub(crate) fn reclaim(&self) {
        let _ = self.run(&mut Plan::reclaim(self.clocks()));
    }

    /// Does the same as [`reclaim`](Self::reclaim) for a caller that returns errors. It does nothing where memory is
    /// cached.
    pub(crate) fn run_idle(&self) -> Result<(), Error<B::Error>> {
        if self.direct { self.run(&mut Plan::reclaim(self.clocks())).map(drop) } else { Ok(()) }
    }

    pub(crate) fn mark(&self, stream: StreamId) -> Point {
        Point { stream, tick: self.backend.mark(stream) }
    }
}

/// Returns the tick that a query of a stream has closed, if it has closed one, and the last tick that there was when
/// the stream was asked. What is told are the ticks that were open before and after.
fn ticks_of_query(before: Option<Tick>, after: Option<Tick>) -> (Option<Tick>, Tick) {
    match before {
        // The backend does not tell its ticks: whatever is not reached counts as asked for.
        None => (None, Tick(u64::MAX)),
        Some(tick) if before < after => (Some(tick), tick),
        // Nothing was marked on the open tick yet, or it cannot be closed now.
        Some(tick) => (None, Tick(tick.0.saturating_sub(1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_asks_for_all_that_was_marked_before() {
        let at = |tick| Some(Tick(tick));
        assert_eq!(ticks_of_query(at(5), at(6)), (at(5), Tick(5)));
        assert_eq!(
            ticks_of_query(at(5), at(5)),
            (None, Tick(4)),
            "nothing is marked on tick 5, and what will be comes later"
        );
        assert_eq!(ticks_of_query(at(0), at(0)), (None, Tick(0)));
        let (closed, untold) = ticks_of_query(None, None);
        assert!(closed.is_none() && untold == Tick(u64::MAX), "{untold:?} where ticks are not told");
    }
}
