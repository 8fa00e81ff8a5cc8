//! A request in progress, taken step by step.
//!
//! A plan is in one [`Phase`], which owns just the data of that phase. [`Coordinator::next`] has the phase go on until
//! there is something for the shell to do; [`Coordinator::learn`] takes in what came of it. Where a plan stands on the
//! ladder of its policy, and what comes next, is a table in the policy's folder.

mod ladder;
mod pages;
pub(crate) mod phase;
mod report;
mod segments;
pub(crate) mod step;
pub(crate) mod sweep;
pub(crate) mod turn;

use millpond_backend::{Reuse, StreamId, Tick};

use crate::books::Standing;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{PoolId, ShardId};
use crate::memory::Requester;
pub(crate) use crate::paged::{Knows, Times};
use crate::policy::Source;
use crate::shard::Grant;
use crate::size::Want;
pub(crate) use ladder::{Attempt, Rung};
use phase::Purpose;
use phase::{Asked, Phase, Turned};
pub use report::{FreeRange, Pin, Relief, Report};
pub use step::{Outcome, Step};
pub use step::{PageCall, Polled};

/// What a plan is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Goal {
    /// Serve a request of a shard.
    Allocate(ShardId, Want),
    /// Release everything cached, but for that of held pools.
    EmptyCache,
    /// Release everything that a pool has cached, unless the pool is held.
    EmptyPool(PoolId),
    /// Release until no more than this number of bytes is reserved.
    Trim(u64),
    /// Release what is idle already, without waiting (the `direct` policy's free).
    Reclaim,
}

/// What is asked for. It stays as it is for the life of the plan, but for the last three.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) goal: Goal,
    /// The counts of searches on the small and on the large side when the request came.
    pub(crate) clocks: [u64; 2],
    /// The stream that requests, where that is not the one that the shard was opened for.
    pub(crate) stream: Option<StreamId>,
    /// The requesting stream's open tick when the request came: lower ticks were submitted.
    pub(crate) open: Tick,
    /// What [`Shard::changes`](crate::Shard::changes) was when the request missed, until it is searched for again.
    pub(crate) missed_at: Option<u64>,
    /// How much the device's budget allows until nothing else serves the request.
    pub(crate) allowance: Allowance,
    /// Whether the driver has refused whole pages of an expandable segment: no more than what is missing is mapped.
    pub(crate) is_short: bool,
}

/// How much the device's budget allows a request to reserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Allowance {
    /// Anything: there is no budget, it cannot be told, or nothing within it has served the request.
    Any,
    /// What it leaves when it is asked for, which comes before anything is created.
    Unasked,
    /// At most this number of reserved bytes.
    Most(u64),
}

impl Allowance {
    /// Returns the most bytes that may be reserved, if that is known and bounded.
    pub(crate) fn most(self) -> Option<u64> {
        if let Allowance::Most(bytes) = self { Some(bytes) } else { None }
    }
}

impl Request {
    /// Returns the shard and the size of a request.
    ///
    /// # Panics
    ///
    /// If the plan has another goal.
    pub(crate) fn allocation(&self) -> (ShardId, Want) {
        let Goal::Allocate(shard, want) = self.goal else {
            panic!("a plan for {:?} is asked for its request", self.goal)
        };
        (shard, want)
    }

    /// Returns the count of searches on the request's side.
    pub(crate) fn clock(&self) -> u64 {
        self.clocks[self.allocation().1.side.index()]
    }
}

/// A request in progress.
#[derive(Debug)]
pub struct Plan {
    pub(crate) request: Request,
    /// How it stands to other plans.
    pub(crate) standing: Standing,
    /// The shortest range of addresses that there were none for, if the plan wanted one.
    pub(crate) refused_addresses: Option<u64>,
    /// Whether pools that nothing holds have given back what was idle of them, and whether addresses were scarce then.
    pub(crate) emptied_pools: Option<bool>,
    /// Whether it climbs the ladder of `paged`, and what its attempts have learnt there.
    pub(crate) gathers: bool,
    pub(crate) knows: Knows,
    pub(crate) phase: Phase,
}

impl Plan {
    fn new(goal: Goal, clocks: [u64; 2]) -> Self {
        let request = Request {
            goal,
            clocks,
            stream: None,
            open: Tick::ZERO,
            missed_at: None,
            allowance: Allowance::Any,
            is_short: false,
        };
        Self {
            request,
            standing: Standing::default(),
            refused_addresses: None,
            emptied_pools: None,
            gathers: false,
            knows: Knows::default(),
            phase: Phase::Begin,
        }
    }

    /// Returns a plan for a request that missed in its shard. `clocks` are the counts of searches on the small and the
    /// large side.
    pub fn allocate(shard: ShardId, want: Want, clocks: [u64; 2]) -> Self {
        Self::new(Goal::Allocate(shard, want), clocks)
    }

    /// Says which stream requests. Without this it is the one that the shard was opened for.
    pub fn for_stream(mut self, stream: StreamId) -> Self {
        self.request.stream = Some(stream);
        self
    }

    /// Says which tick of the requesting stream was open when the request came. What it covers, and what comes later,
    /// counts as not submitted; without this, so does everything that is not reached.
    pub fn with_open_tick(mut self, open: Tick) -> Self {
        self.request.open = open;
        self
    }

    /// Says what [`Shard::changes`](crate::Shard::changes) was when the request missed: while it is the same, the plan
    /// does not search before the device is asked.
    pub fn after_miss(mut self, changes: u64) -> Self {
        self.request.missed_at = Some(changes);
        self
    }

    /// Has the plan ask what the device's budget leaves ([`Step::Budget`]) before it creates anything, where the driver
    /// would grant more than that: cached memory is given back or gathered before the budget is exceeded, and nothing
    /// is refused because of it.
    pub fn within_budget(mut self) -> Self {
        self.request.allowance = Allowance::Unasked;
        self
    }

    /// Returns a plan that gives back everything cached: it waits for what is outstanding, then releases every free
    /// segment and page.
    pub fn empty_cache(clocks: [u64; 2]) -> Self {
        Self::new(Goal::EmptyCache, clocks)
    }

    /// Returns a plan that gives back everything that one pool has cached: PyTorch's `emptyCache` of a private pool. It
    /// does nothing while the pool has references.
    pub fn empty_pool(pool: PoolId, clocks: [u64; 2]) -> Self {
        Self::new(Goal::EmptyPool(pool), clocks)
    }

    /// Returns a plan that gives back cached memory until at most `bytes` are reserved, or nothing more can go.
    pub fn trim(bytes: u64, clocks: [u64; 2]) -> Self {
        Self::new(Goal::Trim(bytes), clocks)
    }

    /// Returns a plan that gives back what is idle already, without waiting.
    pub fn reclaim(clocks: [u64; 2]) -> Self {
        Self::new(Goal::Reclaim, clocks)
    }
}

impl Coordinator {
    /// Returns the stream that a plan requests memory for, as shards see it.
    pub(crate) fn requester_of(&self, plan: &Plan) -> Requester {
        let (shard, _) = plan.request.allocation();
        let stream = plan.request.stream.unwrap_or_else(|| self.stream_of(shard));
        let usable = match self.facts.reuse {
            Reuse::InOrder => Tick(u64::MAX),
            Reuse::AfterSubmit => Tick(plan.request.open.0.saturating_sub(1)),
            Reuse::AfterDone => self.pending.reached(stream),
        };
        Requester { stream, usable }
    }

    /// Returns the next step of a plan.
    ///
    /// # Panics
    ///
    /// If the outcome of the previous step was not told.
    pub fn next(&mut self, plan: &mut Plan, shards: &mut dyn Shards) -> Step {
        if plan.standing.keeps_turn() && self.turns.has_turn(&plan.standing) {
            // Alone among plans: nor do blocks that are handed out or taken back change what it sees.
            shards.hold();
        }
        let mut phase = core::mem::replace(&mut plan.phase, Phase::Over);
        let mut step = loop {
            let (next, step) = self.go_on(phase, plan, shards);
            if let Some(step) = step {
                plan.phase = next;
                break step;
            }
            phase = next;
        };
        shards.let_go();
        self.keep_count(plan, Some(&step));
        self.leave_captured_alone(&mut step);
        if let Step::Pause { seen } = &mut step {
            *seen = self.progress();
        }
        step
    }

    /// Takes in the outcome of the last step.
    ///
    /// # Panics
    ///
    /// If the outcome does not answer the step.
    pub fn learn(&mut self, plan: &mut Plan, outcome: Outcome, shards: &mut dyn Shards) {
        match core::mem::replace(&mut plan.phase, Phase::Over) {
            Phase::Asked(asked) => plan.phase = self.answered(asked, outcome, plan, shards),
            phase => panic!("{outcome:?} answers no step: the plan is at {phase:?}"),
        }
        self.keep_count(plan, None);
    }

    /// Ends a plan before its time: what it has claimed goes back, and the next step is [`Step::Done`], or begins to
    /// undo what is half-done.
    pub fn abandon(&mut self, plan: &mut Plan, shards: &mut dyn Shards) {
        let phase = core::mem::replace(&mut plan.phase, Phase::Over);
        plan.phase = self.give_up(phase, plan, shards);
        self.keep_count(plan, None);
    }

    /// Has a phase go on.
    fn go_on(&mut self, phase: Phase, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        match phase {
            Phase::Begin => self.first_rung(plan).turn(),
            Phase::Climb(rung) => self.stand_back(plan, rung).unwrap_or_else(|| self.climb(rung, plan, shards)),
            Phase::Woken(rung) => self.stand_back(plan, rung).unwrap_or_else(|| self.search(plan, rung, shards)),
            Phase::Sweep(sweep) => self.sweep_on(sweep, plan, shards),
            Phase::Extend(block, rung) => self.extend(Some(block), rung, plan, shards),
            Phase::Serve(block) => self.serve(block, plan, shards),
            Phase::Window(job, rung) => self.back_window(job, rung, shards),
            Phase::Undo(calls, extension, refused) => Phase::call(calls, Purpose::Undo(extension, refused)),
            Phase::Asked(asked) => panic!("the outcome of the last step was not told: {asked:?}"),
            Phase::Over => (Phase::Over, Some(Step::Done)),
        }
    }

    /// Takes in an outcome, and returns the phase that follows.
    fn answered(&mut self, asked: Asked, outcome: Outcome, plan: &mut Plan, shards: &mut dyn Shards) -> Phase {
        match (asked, outcome) {
            (Asked::Points(rung), outcome) => self.told(Phase::Climb(rung), outcome, plan, shards),
            (Asked::Sweep(sweep), outcome) => self.told(Phase::Sweep(sweep), outcome, plan, shards),
            (Asked::Pause(rung), Outcome::Done) => Phase::Woken(rung),
            (Asked::Pause(_), Outcome::Failed) => Phase::Over,
            (Asked::Release { shard, slot, sweep }, Outcome::Done) => {
                shards.with(shard, |shard| shard.memory.segments.vacate(slot));
                self.turns.note_progress(&mut plan.standing);
                Phase::Sweep(sweep)
            }
            (Asked::Pages(calls, purpose), Outcome::Done) => self.calls_made(calls, *purpose, None, plan, shards),
            (Asked::Pages(calls, purpose), Outcome::Stopped { done, refused }) => {
                self.calls_made(calls, *purpose, Some((done, refused)), plan, shards)
            }
            (Asked::Waits(job, rung), outcome) => self.waits_queued(job, rung, outcome, plan, shards),
            (Asked::Memory(reserve), outcome) => self.memory_answered(reserve, outcome, plan, shards),
            (asked, outcome) => panic!("{outcome:?} does not answer {asked:?}"),
        }
    }

    /// Takes in how far streams are, or what the budget leaves. That took time: what is free may be more than the plan
    /// has seen. Returns the phase that follows.
    fn told(&mut self, then: Phase, outcome: Outcome, plan: &mut Plan, shards: &mut dyn Shards) -> Phase {
        match outcome {
            Outcome::Reached(points) => {
                points.iter().for_each(|point| self.pending.note_reached(point.stream, point.tick));
            }
            Outcome::Polled { streams, time } => {
                self.note_pace(&plan.request, &streams, time, shards);
                streams.iter().for_each(|polled| self.pending.note_polled(polled));
            }
            Outcome::Left(left) => {
                // The budget is what is left beside what is reserved.
                let most = |left| Allowance::Most(self.headroom.with_asked().saturating_add(left));
                plan.request.allowance = left.map_or(Allowance::Any, most);
            }
            // A driver that cannot wait any more: the plan ends, its claims go back.
            Outcome::Failed => return self.give_up(then, plan, shards),
            other => panic!("{other:?} does not answer what comes before {then:?}"),
        }
        plan.knows.told();
        then
    }

    /// Returns whether plans for homes may have the device asked [before they begin](Self::answer).
    pub fn asks_first(&self) -> bool {
        let is_calm = self.pending.waiters() == 0 && !self.turns.has_queue();
        self.traits.source == Source::Pages && is_calm && !self.pending.has_captures()
    }

    /// Serves a request that missed in a home if the device's answer shows a free block, which it does in most cases.
    /// Otherwise the plan begins with what is known by now. `outcome` is that of a [`Step::Poll`] of the first streams
    /// of [`Shard::first_question`](crate::Shard::first_question). Costs a look at each of those, and a search.
    ///
    /// # Panics
    ///
    /// If the plan is for no request, or the outcome is that of another step.
    pub fn answer(&mut self, plan: &mut Plan, outcome: Outcome, shards: &mut dyn Shards) -> Option<Grant> {
        plan.phase = self.told(Phase::Begin, outcome, plan, shards);
        if !self.asks_first() {
            // A plan has begun to wait for its turn, a block waits for a point, or a capture has begun.
            return None;
        }
        plan.knows.times = Times::Told;
        let served = self.find_by_news(plan, shards).ok();
        if served.is_none() {
            let (home, _) = plan.request.allocation();
            plan.request.missed_at = Some(shards.with(home, |home| home.changes()));
            // By the plan's first turn more may be free, so its first attempt searches once more.
            plan.knows.times = Times::Told;
        }
        served
    }

    /// Gives back what a phase holds, and returns the phase that undoes the rest.
    fn give_up(&mut self, phase: Phase, plan: &mut Plan, shards: &mut dyn Shards) -> Phase {
        match phase {
            Phase::Sweep(sweep) => sweep.give_up(plan.request.clocks, shards),
            Phase::Extend(block, _) | Phase::Serve(block) => {
                let (shard, _) = plan.request.allocation();
                shards.with(shard, |shard| shard.memory.unclaim(block, plan.request.clocks));
            }
            Phase::Window(job, _) => self.pager(shards).give_up(*job),
            // What is half-done is undone, and then the plan is over.
            Phase::Undo(calls, extension, _) => return Phase::Undo(calls, extension, false),
            Phase::Asked(asked) => panic!("a plan is given up before the outcome of its step was told: {asked:?}"),
            Phase::Begin | Phase::Climb(_) | Phase::Woken(_) | Phase::Over => {}
        }
        Phase::Over
    }
}
