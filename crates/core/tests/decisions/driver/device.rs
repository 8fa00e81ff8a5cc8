//! An allocator whose steps are taken by hand.

use millpond_backend::{Point, StreamId, Tick};
use millpond_core::settings::{Growth, Policy};
use millpond_core::stats::{MemoryStats, PageStats, SlackStats};
use millpond_core::{
    Checkpoint, Coordinator, Freed, Obstacle, Outcome, PageCall, Plan, PoolId, Report, Requester, Restored, Shard,
    ShardBlock, ShardId, Sizes, Step, Want, WasteLedger,
};

use super::facts::Lane;
use super::{Facts, Gpu, Held, Meddled, empty_cache, granted, is_pages, is_reserve, point};

/// The allocator, and the GPU that it is for.
pub(crate) struct Device {
    pub(crate) coordinator: Coordinator,
    pub(crate) shards: Vec<Shard>,
    /// The streams in pools that tests name by their number.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) sizes: Sizes,
    pub(crate) gpu: Gpu,
    /// The steps that were taken since a test forgot them.
    pub(crate) steps: Vec<Step>,
}

impl Device {
    pub(crate) fn of(facts: &Facts) -> Self {
        let (coordinator, shards, lanes) = facts.open();
        let (sizes, gpu) = (coordinator.sizes().clone(), Gpu::new(lanes.len()));
        Self { coordinator, shards, lanes, sizes, gpu, steps: Vec::new() }
    }

    /// Creates a device of three streams under `paged`.
    pub(crate) fn new(growth: Growth, limit: u64) -> Self {
        Self::of(&Facts::paged(growth, limit))
    }

    /// Creates a device with a slack of its own.
    pub(crate) fn with_slack(growth: Growth, slack: f64) -> Self {
        Self::of(&Facts { limit: Some(1 << 30), ..Facts::under(Policy::Paged { growth, slack }, 3) })
    }

    /// Opens one more stream in a pool.
    pub(crate) fn open(&mut self, stream: u32, pool: PoolId) {
        self.lanes.push(Lane::open(&mut self.coordinator, &mut self.shards, StreamId(stream), pool));
        self.gpu.reached.resize(self.lanes.len(), Tick(100));
        self.gpu.open.resize(self.lanes.len(), Tick(50));
    }

    pub(crate) fn want(&self, bytes: u64) -> Want {
        self.sizes.want(bytes).expect("a size that exists")
    }

    pub(crate) fn plan(&self, lane: usize, bytes: u64) -> Plan {
        let Lane { stream, shard } = self.lanes[lane];
        Plan::allocate(shard, self.want(bytes), [0; 2]).for_stream(stream)
    }

    pub(crate) fn next(&mut self, plan: &mut Plan) -> Step {
        let step = self.coordinator.next(plan, &mut self.shards);
        self.steps.push(step.clone());
        step
    }

    /// Returns the next step, with `meddle` called just before the look at a shard that comes after `looks` others.
    pub(crate) fn next_meddled(
        &mut self,
        plan: &mut Plan,
        looks: &mut u32,
        meddle: &mut dyn FnMut(&mut Vec<Shard>),
    ) -> Step {
        let step = self.coordinator.next(plan, &mut Meddled { shards: &mut self.shards, looks, meddle });
        self.steps.push(step.clone());
        step
    }

    pub(crate) fn learn(&mut self, plan: &mut Plan, outcome: Outcome) {
        self.coordinator.learn(plan, outcome, &mut self.shards);
    }

    /// Reports an outcome, with `meddle` called as in [`next_meddled`](Self::next_meddled).
    pub(crate) fn learn_meddled(
        &mut self,
        plan: &mut Plan,
        outcome: Outcome,
        looks: &mut u32,
        meddle: &mut dyn FnMut(&mut Vec<Shard>),
    ) {
        self.coordinator.learn(plan, outcome, &mut Meddled { shards: &mut self.shards, looks, meddle });
    }

    /// Performs a step, and reports the outcome to its plan.
    pub(crate) fn done(&mut self, plan: &mut Plan, step: &Step) {
        let outcome = self.gpu.perform(step);
        self.learn(plan, outcome);
    }

    /// Takes steps up to one for which `stop` holds, or the end. That step is returned and not performed.
    pub(crate) fn until(&mut self, plan: &mut Plan, stop: impl Fn(&Step) -> bool) -> Step {
        for _ in 0..1000 {
            let step = self.next(plan);
            if stop(&step) || step.is_end() {
                return step;
            }
            self.done(plan, &step);
        }
        panic!("a plan without an end: {plan:?}");
    }

    /// Takes steps up to one for which `stop` holds.
    ///
    /// # Panics
    ///
    /// If the plan ends without one.
    pub(crate) fn reach(&mut self, plan: &mut Plan, stop: impl Fn(&Step) -> bool) -> Step {
        let step = self.until(plan, &stop);
        assert!(stop(&step), "{step:?}");
        step
    }

    /// Takes steps up to one for which `stop` holds, and that step too.
    pub(crate) fn past(&mut self, plan: &mut Plan, stop: impl Fn(&Step) -> bool) {
        let step = self.reach(plan, stop);
        self.done(plan, &step);
    }

    /// Takes steps up to one that has pages mapped, unmapped or released.
    ///
    /// # Panics
    ///
    /// If the plan ends without one.
    pub(crate) fn until_calls(&mut self, plan: &mut Plan) -> (Step, Vec<PageCall>) {
        let step = self.until(plan, is_pages);
        let Step::Pages(calls) = &step else { panic!("{step:?}") };
        (step.clone(), calls.clone())
    }

    /// Takes steps up to one for which `stop` holds, and reports to the plan then that the driver fails. It has to end.
    pub(crate) fn fail_at(&mut self, plan: &mut Plan, stop: impl Fn(&Step) -> bool, outcome: Outcome) {
        self.reach(plan, stop);
        self.learn(plan, outcome);
        assert_eq!(self.end(plan), Step::Done);
        self.check();
    }

    /// Ends a plan before its time, and takes the steps that undo what it has done.
    pub(crate) fn give_up(&mut self, plan: &mut Plan) {
        self.coordinator.abandon(plan, &mut self.shards);
        assert_eq!(self.until(plan, |step| !is_pages(step)), Step::Done);
        self.check();
    }

    /// Runs a plan to its end, which is returned.
    pub(crate) fn end(&mut self, plan: &mut Plan) -> Step {
        self.until(plan, Step::is_end)
    }

    /// Runs a plan to its end, and keeps its steps alone.
    pub(crate) fn run(&mut self, plan: &mut Plan) -> Step {
        self.steps.clear();
        let end = self.end(plan);
        self.check();
        end
    }

    /// Runs a plan to its end, with `meddle` called just before the look at a shard that comes after `looks` others.
    pub(crate) fn end_meddled(
        &mut self,
        plan: &mut Plan,
        looks: &mut u32,
        meddle: &mut dyn FnMut(&mut Vec<Shard>),
    ) -> Step {
        for _ in 0..1000 {
            let step = self.next_meddled(plan, looks, meddle);
            if step.is_end() {
                return step;
            }
            self.done(plan, &step);
        }
        panic!("a plan without an end: {plan:?}");
    }

    /// Runs a plan to its end. Returns the block that it was granted.
    pub(crate) fn finish(&mut self, plan: &mut Plan, lane: usize) -> Option<Held> {
        let end = self.end(plan);
        self.check();
        self.granted(&end, lane)
    }

    /// Returns what a plan was granted, if it was.
    pub(crate) fn granted(&self, end: &Step, lane: usize) -> Option<Held> {
        granted(end, self.lanes[lane].shard.0 as usize)
    }

    /// Makes a request that misses.
    pub(crate) fn try_allocate(&mut self, shard: usize, bytes: u64) -> Option<Held> {
        self.ask_as_another_thread();
        let mut plan = self.plan(shard, bytes);
        self.finish(&mut plan, shard)
    }

    pub(crate) fn allocate(&mut self, shard: usize, bytes: u64) -> Held {
        self.try_allocate(shard, bytes).expect("there is room")
    }

    /// Makes the same request again, which must need no driver call.
    pub(crate) fn allocate_at_no_cost(&mut self, shard: usize, bytes: u64) -> Held {
        self.steps.clear();
        let held = self.allocate(shard, bytes);
        assert!(!self.steps.iter().any(|step| is_pages(step) || is_reserve(step)), "{:?}", self.steps);
        held
    }

    /// Makes a request of a stream that finds free memory at home.
    pub(crate) fn hit(&mut self, shard: usize, bytes: u64) -> Option<Held> {
        self.hit_at(shard, bytes, u64::MAX)
    }

    /// Makes a request that memory serves which its stream has used up to a tick.
    pub(crate) fn hit_at(&mut self, lane: usize, bytes: u64, usable: u64) -> Option<Held> {
        let want = self.want(bytes);
        let Lane { stream, shard } = self.lanes[lane];
        let shard = shard.0 as usize;
        let grant = self.shards[shard].allocate(&want, 0, Requester { stream, usable: Tick(usable) })?;
        Some(Held { shard, grant })
    }

    /// Has the coordinator know how far every stream is, as if another thread had asked. A plan asks those alone that
    /// it might have to wait for.
    fn ask_as_another_thread(&mut self) {
        if self.slack().bound_bytes.is_some() {
            for (stream, &tick) in self.gpu.reached.iter().enumerate() {
                self.coordinator.note_reached(StreamId(stream as u32), tick);
            }
        }
    }

    /// Makes a request as a program does, and keeps the steps of its plan alone.
    pub(crate) fn try_serve(&mut self, shard: usize, bytes: u64) -> Result<Held, Box<Report>> {
        self.steps.clear();
        if let Some(held) = self.hit(shard, bytes) {
            self.check();
            return Ok(held);
        }
        self.ask_as_another_thread();
        let mut plan = self.plan(shard, bytes);
        match self.run(&mut plan) {
            Step::Refuse(report) => Err(report),
            end => Ok(self.granted(&end, shard).unwrap_or_else(|| panic!("{end:?}"))),
        }
    }

    pub(crate) fn serve(&mut self, shard: usize, bytes: u64) -> Held {
        self.try_serve(shard, bytes).expect("there is room")
    }

    /// Makes blocks of these lengths in MiB, one behind the other, of which every other one is freed in a tick,
    /// beginning with the first. Returns the blocks between them.
    pub(crate) fn gaps(&mut self, shard: usize, mib: &[u64], tick: u64) -> Vec<Held> {
        let blocks: Vec<_> = mib.iter().map(|mib| self.allocate(shard, mib * super::MIB)).collect();
        blocks.iter().step_by(2).for_each(|&held| self.free(held, tick));
        blocks.into_iter().skip(1).step_by(2).collect()
    }

    /// Makes a request that misses, and frees the block, which was used up to a tick.
    pub(crate) fn use_until(&mut self, shard: usize, bytes: u64, tick: u64) -> Held {
        let held = self.allocate(shard, bytes);
        self.free(held, tick);
        held
    }

    /// Frees a block. `tick` covers its use on each stream that it is used on.
    pub(crate) fn free(&mut self, held: Held, tick: u64) {
        self.free_unchecked(held, tick);
        self.check();
    }

    /// Does the work of [`free`](Self::free) without a look at all shards: while a plan is under way, whose claims the
    /// checks do not know, or where a look would end the short path of a free that is put off.
    pub(crate) fn free_unchecked(&mut self, held: Held, tick: u64) {
        let freed = self.take_back(held, tick);
        self.note_freed(held, freed, tick);
    }

    /// Has the coordinator learn what a block waits for that was taken back.
    pub(crate) fn note_freed(&mut self, held: Held, freed: Freed, tick: u64) {
        match freed {
            Freed::Pending(uses) => {
                let points: Vec<_> = uses.streams.iter().map(|&stream| point(stream.0, tick)).collect();
                self.pend(held, &points);
                self.poll();
            }
            Freed::Done { unsettled } | Freed::Settling { unsettled } => {
                if unsettled {
                    self.coordinator.settle(ShardId(held.shard as u32), &mut self.shards);
                }
            }
        }
    }

    /// Has the shard take a block back, as a thread does that has not come to the coordinator yet.
    pub(crate) fn take_back(&mut self, held: Held, tick: u64) -> Freed {
        self.shards[held.shard].free(held.grant.block, Tick(tick), 0)
    }

    /// Has the coordinator learn the points that a block waits for.
    pub(crate) fn pend(&mut self, held: Held, points: &[Point]) {
        let (shard, block) = held.id();
        self.coordinator.pend(shard, block, points.iter().copied(), [0; 2], &mut self.shards);
    }

    /// Frees a block at a tick of its own stream, where these points of others come before its next use.
    pub(crate) fn free_behind(&mut self, held: Held, tick: u64, points: &[Point]) {
        points.iter().for_each(|point| self.record(held, point.stream.0));
        let freed = self.take_back(held, tick);
        assert!(matches!(freed, Freed::Pending(_)), "{freed:?}");
        self.pend(held, points);
        self.check();
    }

    /// Records that a block is used on another stream.
    pub(crate) fn record(&mut self, held: Held, stream: u32) {
        self.shards[held.shard].record_stream(held.grant.block, StreamId(stream));
    }

    /// Has the coordinator learn that a stream has reached a tick, and makes free what waited for that.
    pub(crate) fn note_reached(&mut self, stream: u32, tick: u64) {
        self.coordinator.note_reached(StreamId(stream), Tick(tick));
        self.coordinator.retire_ready([0; 2], &mut self.shards);
    }

    /// Has the coordinator learn how far all streams are.
    pub(crate) fn poll(&mut self) {
        for (stream, &tick) in self.gpu.reached.iter().enumerate() {
            self.coordinator.note_reached(StreamId(stream as u32), tick);
        }
        self.coordinator.retire_ready([0; 2], &mut self.shards);
    }

    pub(crate) fn checkpoint(&mut self, pool: PoolId) -> Checkpoint {
        self.coordinator.checkpoint(pool, &mut self.shards)
    }

    pub(crate) fn restore(&mut self, pool: PoolId, to: &Checkpoint) -> Result<Vec<Restored>, Obstacle> {
        let restored = self.coordinator.restore(pool, to, &mut self.shards);
        self.check();
        restored
    }

    /// Determines whether a checkpoint could come back once these blocks are free.
    pub(crate) fn may_restore(&mut self, pool: PoolId, to: &Checkpoint, leaving: &[Held]) -> Result<(), Obstacle> {
        let leaving = leaving.iter().map(Held::id);
        let leaving: Vec<_> = leaving.map(|(shard, block)| ShardBlock { shard, block }).collect();
        self.coordinator.may_restore(pool, to, &leaving, &mut self.shards)
    }

    /// Gives back all that is cached, and returns the bytes that stay reserved.
    pub(crate) fn empty(&mut self) -> u64 {
        assert_eq!(self.end(&mut empty_cache()), Step::Done);
        self.check();
        self.reserved()
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.coordinator.reserved_bytes()
    }

    /// Returns the number of mappings of pages in windows.
    pub(crate) fn in_windows(&self) -> u64 {
        self.page_stats().shadows
    }

    pub(crate) fn stats(&mut self) -> MemoryStats {
        self.coordinator.stats(&mut self.shards)
    }

    pub(crate) fn ledger(&mut self) -> WasteLedger {
        self.coordinator.ledger(&mut self.shards)
    }

    pub(crate) fn slack(&mut self) -> SlackStats {
        self.coordinator.slack_stats(&mut self.shards)
    }

    pub(crate) fn page_stats(&self) -> PageStats {
        self.coordinator.page_stats()
    }

    pub(crate) fn reset_peaks(&mut self) {
        self.coordinator.reset_peaks(&mut self.shards);
    }

    pub(crate) fn set_limit(&mut self, bytes: u64) {
        self.coordinator.set_limit(Some(bytes));
    }

    pub(crate) fn check(&mut self) {
        self.coordinator.check(&mut self.shards);
    }
}
