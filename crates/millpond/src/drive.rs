//! What serves a request that its lane alone does not: a search that asks the device, and for a miss a plan. A plan is
//! run in a loop, which asks the coordinator for a step, performs it and reports the outcome. No lock is held while the
//! driver works.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use millpond_backend::{Backend, BackendError, ClassId, Closing, Fault, Point, Reuse, StreamId, Tick};
use millpond_core::{
    Coordinator, Denied, Grant, NoRoom, Outcome, PageCall, PageId, Place, Plan, Polled, Report, Requester, Shard,
    ShardId, Shards, Slot, Step, Want,
};

use crate::error::explain::{Explanation, Facts};
use crate::error::short::Short;
use crate::error::{Error, OutOfMemory};
use crate::events::Event;
use crate::hooks::{self, Appeals};
use crate::notes::note::Asked;
use crate::raw::calls::{self, Vm};
use crate::raw::source::give_back;
use crate::state::steps::Pages;
use crate::state::{HeldShards, Lane, LockedShards, State};
use crate::sync::{Arc, lock_soon, wait_until};

/// A block that was handed out, and the lane that it belongs to.
type Served<'a, B> = (Grant, &'a Lane<B>);

impl<B: Backend> State<B> {
    /// Serves a request of at least one byte. Returns the block and the lane that it belongs to, which is not the lane
    /// of the request where the block is lent.
    #[inline(never)]
    pub(crate) fn allocate<'a>(
        this: &'a Arc<Self>,
        lane: &'a Lane<B>,
        want: &Want,
        asked: &Asked,
    ) -> Result<Served<'a, B>, Error<B::Error>> {
        match Self::find_hit(this, lane, want, asked)? {
            Ok(grant) => Ok((grant, lane)),
            Err(changes) => Self::miss(this, lane, (*want, changes), asked),
        }
    }

    /// Looks for a free block in a lane, after what waits for points was polled. After a miss returns the shard's
    /// [`changes`](millpond_core::Shard::changes).
    #[inline(always)]
    fn find_hit(
        this: &Arc<Self>,
        lane: &Lane<B>,
        want: &Want,
        asked: &Asked,
    ) -> Result<Result<Grant, u64>, Error<B::Error>> {
        if this.has_waiters() {
            this.retire_ready()?;
        }
        let by = Requester { stream: asked.stream, usable: this.usable(lane, asked.stream)? };
        let clock = this.count_search(want.side);
        let hit = {
            let mut state = lane.lock();
            let hit = state.shard.allocate(want, clock, by);
            // The lane holds the allocator before the block exists, so that the block is never without it.
            state.hold(this);
            if let Some(grant) = &hit {
                lane.count_out(grant.size);
                state.granted(asked, want.requested, grant);
            }
            hit.ok_or_else(|| state.shard.changes())
        };
        if let Ok(grant) = &hit
            && grant.unsettled
        {
            this.settle(lane.shard);
        }
        Ok(hit)
    }

    /// Returns the tick up to which memory freed on a stream may be handed out there again.
    pub(crate) fn usable(&self, lane: &Lane<B>, stream: StreamId) -> Result<Tick, Error<B::Error>> {
        match self.reuse {
            Reuse::InOrder => Ok(Tick(u64::MAX)),
            Reuse::AfterSubmit => Ok(Tick(lane.mark(&self.backend, stream).0.saturating_sub(1))),
            Reuse::AfterDone => lane.reached(&self.backend, stream).map_err(|e| Error::of_driver("reached", e)),
        }
    }

    /// Serves a request that missed in its shard, whose [`changes`](millpond_core::Shard::changes) were so many then.
    #[cold]
    pub(crate) fn miss<'a>(
        this: &'a Arc<Self>,
        lane: &'a Lane<B>,
        (want, changes): (Want, u64),
        asked: &Asked,
    ) -> Result<Served<'a, B>, Error<B::Error>> {
        if hooks::is_in_hook_of(this) {
            return Err(Error::InHook { requested: want.requested });
        }
        let plan = this.plan_for(lane, want, asked.stream).after_miss(changes);
        let plan = if this.hooks.is_any() { plan.appealing() } else { plan };
        let served = Self::serve(this, lane, want, plan, asked)?;
        Ok(served.unwrap_or_else(|| panic!("a plan for {want:?} ended without an answer")))
    }

    /// Serves a request from what is cached. Returns nothing if that has nothing for it.
    pub(crate) fn allocate_cached<'a>(
        this: &'a Arc<Self>,
        lane: &'a Lane<B>,
        want: &Want,
        asked: &Asked,
    ) -> Result<Option<Served<'a, B>>, Error<B::Error>> {
        match Self::find_hit(this, lane, want, asked)? {
            Ok(grant) => Ok(Some((grant, lane))),
            Err(changes) => {
                let plan = this.plan_for(lane, *want, asked.stream).after_miss(changes).cached_only();
                Self::serve(this, lane, *want, plan, asked)
            }
        }
    }

    /// Returns the plan for a request of a lane.
    pub(crate) fn plan_for(&self, lane: &Lane<B>, want: Want, stream: StreamId) -> Plan {
        let plan = Plan::allocate(lane.shard, want, self.clocks());
        let plan = plan.for_stream(stream).with_open_tick(lane.mark(&self.backend, stream));
        if self.backend.caps().oversubscribes { plan.within_budget() } else { plan }
    }

    /// Serves a request that missed by its plan. Returns nothing if the plan ends without an answer, as one does that
    /// takes what is cached alone.
    fn serve<'a>(
        this: &'a Arc<Self>,
        lane: &'a Lane<B>,
        want: Want,
        mut plan: Plan,
        asked: &Asked,
    ) -> Result<Option<Served<'a, B>>, Error<B::Error>> {
        if this.sinks.is_told() {
            this.sinks.tell(&Event::Miss { stream: asked.stream, requested: want.requested });
        }
        if let Some(grant) = this.ask_first(lane, &mut plan, want.requested, asked)? {
            return Ok(Some((grant, lane)));
        }
        match this.run_for(&mut plan, Some(&(lane.shard, want, *asked)))? {
            Ending::Granted(grant) => {
                let _held = lane.lock();
                lane.count_out(grant.size);
                Ok(Some((grant, lane)))
            }
            Ending::Lent(lender, grant) => {
                let lender = this.lane(lender);
                // The lender's memory was granted by a miss of its own, and its handles still exist.
                let held = lender.lock();
                assert!(held.holds(), "shard {} lends and keeps no allocator", lender.shard.0);
                lender.count_out(grant.size);
                drop(held);
                Ok(Some((grant, lender)))
            }
            Ending::Denied(Denied::Closed(group)) => Err(this.paused(group)),
            Ending::Done => Ok(None),
            ending => panic!("a plan for {want:?} ended with {ending:?}"),
        }
    }

    /// Asks the device how far the streams are that the request of a plan may have to wait for, and serves it if that
    /// is all it takes.
    fn ask_first(
        &self,
        lane: &Lane<B>,
        plan: &mut Plan,
        requested: u64,
        asked: &Asked,
    ) -> Result<Option<Grant>, Error<B::Error>> {
        let Some(streams) = self.first_question(lane) else { return Ok(None) };
        let polled = self.polled(&streams, Shard::BEHIND_MAX)?;
        let mut coordinator = lock_soon(&self.coordinator);
        let grant = coordinator.answer(plan, polled, &mut LockedShards(self));
        self.publish(&coordinator);
        if let Some(grant) = &grant {
            let mut held = lane.lock();
            lane.count_out(grant.size);
            held.granted(asked, requested, grant);
        }
        Ok(grant)
    }
}

/// The way in which a plan ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// With a block of the shard that asked.
    Granted(Grant),
    /// With a block of another shard.
    Lent(ShardId, Grant),
    /// Without effect, because of a group.
    Denied(Denied),
    /// With no room for a block to become longer.
    Stuck(NoRoom),
    /// Without a block, because the plan was not for one.
    Done,
}

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

impl<B: Backend> State<B> {
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
        let (mut failure, mut panic, mut refused) = (None, None, None);
        let mut appeals = None;
        let mut next = running.tell(|coordinator, plan, shards| self.decide(coordinator, plan, asked, shards));
        loop {
            let Decided { step, pages, explanation } = next;
            running.ended = step.is_end();
            self.sinks.step(&step);
            let performed = match step {
                Step::Grant(grant) | Step::Grown(grant) => return Ok(Ending::Granted(grant)),
                Step::Stuck(why) => return Ok(Ending::Stuck(why)),
                Step::Lend { lender, grant } => return Ok(Ending::Lent(lender, grant)),
                // After a failure the plan has put everything back.
                Step::Done => match panic {
                    Some(panic) => resume_unwind(panic),
                    None => return failure.map_or(Ok(Ending::Done), Err),
                },
                Step::Refuse(report) => {
                    let refusal = self.refusal(*report, explanation, refused.as_ref());
                    return Err(Error::OutOfMemory(Box::new(refusal)));
                }
                Step::Denied(denied) => return Ok(Ending::Denied(denied)),
                Step::Appeal(ref report) => {
                    let appeals = appeals.get_or_insert_with(|| Appeals::to(&self.hooks));
                    let refusal = self.refusal((**report).clone(), explanation, refused.as_ref());
                    Performed::ok(if appeals.ask(self, &refusal) { Outcome::Retry } else { Outcome::Done })
                }
                Step::Pause { seen } => self.pause(seen),
                ref step => self.attempt(step, &mut panic),
            };
            self.sinks.refused(&step, &performed.outcome);
            failure = failure.or(performed.error);
            refused = performed.refused.or(refused);
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
        let explanation = match &step {
            Step::Refuse(report) | Step::Appeal(report) => Some(self.explain(coordinator, report)),
            _ => None,
        };
        Decided { step, pages, explanation }
    }

    /// Reports the outcome of a step to the coordinator, and to whoever watches.
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

    /// Returns the error of a refusal. `refused` is the driver's last answer that it has not got what was asked for.
    fn refusal(&self, report: Report, explanation: Option<Explanation>, refused: Option<&B::Error>) -> OutOfMemory {
        let facts = Facts::of(self.backend.caps());
        let short = match refused {
            Some(error) => Short::of(error),
            None => Short::of_ranges(&report, self.backend.caps()),
        };
        OutOfMemory::new(self.device, self.class_name(), facts, (report, short), explanation)
    }

    /// Returns the name of the class, unless it is the device's own.
    fn class_name(&self) -> Option<String> {
        (self.class != ClassId::DEVICE).then(|| self.backend.caps().class(self.class).name.clone())
    }

    fn pause(&self, seen: u64) -> Performed<B::Error> {
        drop(wait_until(&self.released, self.coordinator.lock(), |coordinator| coordinator.progress() != seen));
        Performed::ok(Outcome::Done)
    }

    /// Releases memory that is already idle, as `direct` does. An error is ignored here: a driver that fails reports it
    /// again to a caller that returns errors.
    #[cold]
    pub(crate) fn reclaim(&self) {
        let _ = self.run(&mut Plan::reclaim(self.clocks()));
    }

    /// Works like [`reclaim`](Self::reclaim) for a caller that returns errors. It does nothing where memory is
    /// cached.
    pub(crate) fn run_idle(&self) -> Result<(), Error<B::Error>> {
        if self.direct { self.run(&mut Plan::reclaim(self.clocks())).map(drop) } else { Ok(()) }
    }
}

/// The result of a step: an outcome for the plan, and the driver's error that ends the plan, if there was one.
struct Performed<E: BackendError> {
    outcome: Outcome,
    error: Option<Error<E>>,
    /// The driver's error where it has not got what was asked for, which the plan goes on from.
    refused: Option<E>,
}

impl<E: BackendError> Performed<E> {
    fn ok(outcome: Outcome) -> Self {
        Self { outcome, error: None, refused: None }
    }

    /// Creates the result of a step that ends the plan.
    fn ended(error: Option<Error<E>>) -> Self {
        Self { outcome: Outcome::Failed, error, refused: None }
    }

    /// Creates the result of a failed call. The plan continues with the next attempt after an out-of-memory error;
    /// every other error ends it.
    fn failed(call: &'static str, error: E) -> Self {
        match error.fault() {
            Fault::OutOfMemory => Self { outcome: Outcome::Refused, error: None, refused: Some(error) },
            _ => Self::ended(Some(Error::of_driver(call, error))),
        }
    }
}

impl<B: Backend> State<B> {
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
                Err(error) => Performed::ended(Some(error)),
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
            Step::Grant(_)
            | Step::Lend { .. }
            | Step::Grown(_)
            | Step::Stuck(_)
            | Step::Refuse(_)
            | Step::Denied(_)
            | Step::Done
            | Step::Appeal(_)
            | Step::Pause { .. } => unreachable!("handled by the loop"),
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
                let time = self.time();
                self.note_look(time);
                Ok(Outcome::Polled { streams: polled, time: Some(time) })
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
    pub(crate) fn time(&self) -> u64 {
        let host = || u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.backend.work_clock().unwrap_or_else(host)
    }

    fn wait_all(&self, points: Vec<Point>) -> Performed<B::Error> {
        match self.activity.book_stall(&self.backend, points, |point| self.waited(point)) {
            Ok(reached) => Performed::ok(Outcome::Reached(reached)),
            Err(error) => Performed::ended(Some(error)),
        }
    }

    /// Makes a stream wait on the device.
    fn stream_waits(&self, stream: StreamId, points: &[Point]) -> Performed<B::Error> {
        let Some(device) = self.backend.stream_wait() else {
            panic!("the device announced device-side waits in its caps and has none");
        };
        for &point in points {
            let waits = || self.activity.book_stream_wait(&self.backend, || device.wait_for(stream, point));
            if let Err(error) = self.closing(point.stream, |_| waits()) {
                if error.fault() == Fault::NotNow {
                    return Performed::ok(Outcome::Refused);
                }
                let error = Some(Error::of_driver("wait_for", error));
                return Performed::ended(error);
            }
            self.note_tick(stream);
        }
        Performed::ok(Outcome::Waits(self.backend.mark(stream)))
    }

    /// Waits for a point, as far as it was submitted. Returns what was reached.
    pub(crate) fn wait(&self, point: Point) -> Result<Point, Error<B::Error>> {
        self.activity.book(&self.backend, || self.waited(point))
    }

    fn waited(&self, point: Point) -> Result<Point, Error<B::Error>> {
        let tick = self.closing(point.stream, |backend| backend.wait(point));
        let tick = tick.map_err(|e| Error::of_driver("wait", e))?;
        let reached = Point { tick, ..point };
        self.note_reached(reached);
        Ok(reached)
    }

    pub(crate) fn mark(&self, stream: StreamId) -> Point {
        Point { stream, tick: self.backend.mark(stream) }
    }

    /// Returns what the device reports as free. `None` if that cannot be read: the driver decides then.
    pub(crate) fn budget_left(&self) -> Option<u64> {
        let budget = self.backend.budget()?;
        let left = self.activity.book(&self.backend, || budget.budget(self.class));
        left.ok().map(|left| left.free_bytes)
    }

    /// Takes a segment from the driver, or from the source of the shard's pool.
    fn reserve(&self, shard: ShardId, slot: Slot, bytes: u64) -> Performed<B::Error> {
        let lane = self.lane(shard);
        let pool = lane.lock().shard.pool();
        if let Some(source) = self.bonds.source_of(pool) {
            let segment = self.activity.book(&self.backend, || source.reserve(&self.backend, lane.stream, bytes));
            let Some(segment) = segment else { return Performed::ok(Outcome::Refused) };
            self.sources.note((shard, slot), pool, source);
            return self.install(shard, slot, "reserve", Ok(segment));
        }
        let segment = self.activity.book(&self.backend, || self.backend.reserve(self.class, bytes));
        self.install(shard, slot, "reserve", segment)
    }

    fn reserve_range(&self, shard: ShardId, slot: Slot, bytes: u64) -> Performed<B::Error> {
        let vm = self.vm();
        let range = self.activity.book(&self.backend, || vm.reserve_range(self.class, bytes));
        self.install(shard, slot, "reserve_range", range)
    }

    /// Puts a new segment into its lane's table before the core learns of it, so that every block has its segment.
    fn install(
        &self,
        shard: ShardId,
        slot: Slot,
        call: &'static str,
        segment: Result<B::Segment, B::Error>,
    ) -> Performed<B::Error> {
        match segment {
            Ok(segment) => {
                let address = self.backend.address(&segment).unwrap_or(0);
                self.lane(shard).lock().put_segment(slot, segment);
                Performed::ok(Outcome::Reserved { address })
            }
            Err(error) => Performed::failed(call, error),
        }
    }

    /// Releases a segment, to where it came from, or an (unmapped) range.
    pub(crate) fn release(&self, shard: ShardId, slot: Slot, is_range: bool) {
        let lane = self.lane(shard);
        let segment = lane.lock().take_segment(slot);
        let source = self.sources.take((shard, slot));
        self.activity.book(&self.backend, || {
            if let Some(source) = &source {
                give_back(source, &self.backend, lane.stream, segment);
            } else if is_range {
                calls::release_range::<B>(self.vm(), segment);
            } else {
                calls::release(&self.backend, segment);
            }
        });
    }

    /// Makes page calls in order, beginning with number `made`, up to the first that fails, or with `stops` to the
    /// first that takes something. `made` counts them; a call that releases something counts once it is entered.
    fn page_calls(&self, calls: &[PageCall], made: &Cell<usize>, stops: bool) -> Performed<B::Error> {
        for (done, call) in calls.iter().enumerate().skip(made.get()) {
            let gives_back = matches!(call, PageCall::Unmap { .. } | PageCall::Release { .. });
            if stops && !gives_back {
                return Performed::ok(Outcome::Stopped { done, refused: false });
            }
            made.set(done + usize::from(gives_back));
            if let Err((name, error)) = self.page_call(call) {
                let refused = error.fault() == Fault::OutOfMemory;
                let outcome = Outcome::Stopped { done, refused };
                return match refused {
                    true => Performed { outcome, error: None, refused: Some(error) },
                    false => Performed { outcome, error: Some(Error::of_driver(name, error)), refused: None },
                };
            }
        }
        Performed::ok(Outcome::Done)
    }

    fn page_call(&self, call: &PageCall) -> Result<(), (&'static str, B::Error)> {
        let vm = self.vm();
        match *call {
            PageCall::Create { page, bytes } => {
                let made = self.activity.book(&self.backend, || vm.create_page(self.class, bytes));
                self.pages.put(page, made.map_err(|error| ("create_page", error))?);
            }
            PageCall::Map { page, at } => {
                let (lane, page) = (self.lane(at.shard), self.pages.get(page));
                let range = calls::range_of(lane, at.slot);
                let mapped =
                    self.activity.book(&self.backend, || calls::map::<B>(vm, range, at.offset, &page, lane.stream));
                mapped.map_err(|error| ("map", error))?;
            }
            PageCall::Unmap { page, at } => self.unmap(page, at),
            PageCall::Release { page } => {
                let page = self.pages.take(page);
                self.activity.book(&self.backend, || calls::release_page::<B>(vm, page));
            }
        }
        Ok(())
    }

    fn unmap(&self, page: PageId, at: Place) {
        let (lane, page) = (self.lane(at.shard), self.pages.get(page));
        let range = calls::range_of(lane, at.slot);
        self.activity.book(&self.backend, || calls::unmap::<B>(self.vm(), range, at.offset, &page, lane.stream));
    }

    /// Unmaps a page everywhere and releases it.
    pub(crate) fn release_page(&self, page: PageId, places: &[Place]) {
        places.iter().for_each(|&at| self.unmap(page, at));
        let page = self.pages.take(page);
        self.activity.book(&self.backend, || calls::release_page::<B>(self.vm(), page));
    }

    /// Returns whether another process may have a page.
    #[cfg(not(loom))]
    pub(crate) fn is_shared(&self, page: PageId) -> bool {
        self.vm().is_shared(&self.pages.get(page))
    }

    fn vm(&self) -> &Vm<'_, B> {
        match self.backend.virtual_memory() {
            Some(vm) => vm,
            None => panic!("the device announced virtual memory in its caps and has none"),
        }
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
