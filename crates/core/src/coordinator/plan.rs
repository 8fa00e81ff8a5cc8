//! A request in progress: a ladder of rungs, each entered a bounded number of times.
//!
//! The order of the rungs *is* the policy. For `classic` it is PyTorch's: search; collect garbage; grow; release
//! oversize blocks and grow again; wait for everything outstanding, release everything cached and grow once more;
//! refuse. For `direct`: give back what is done with; grow; wait, give back the rest and grow once more; refuse. From
//! its first refusal on a plan climbs alone: see the module `turn`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, Tick};

use super::calls::{Batch, Purpose};
use super::paged::Job;
use super::step::{Outcome, Step};
use super::sweep::Sweep;
use super::{Coordinator, Shards};
use crate::ids::{BlockId, ShardId, Slot};
use crate::settings::Policy;
use crate::shard::Grant;
use crate::size::Want;

/// Which attempt to grow this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attempt {
    First,
    AfterOversize,
    /// `paged`, in its turn: once more before everything cached is released.
    AfterWait,
    Last,
}

/// Where a plan stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rung {
    Search,
    Collect,
    Grow(Attempt),
    /// Before a refusal: wait for the plan's turn, and until no other plan holds anything.
    Turn,
    Oversize,
    /// Wait for everything outstanding.
    Flush,
    /// The wait is over: retire, search again if the settings say so, and begin to release.
    AfterWait,
    /// Release everything cached.
    Release,
    /// `paged`: wait for the oldest points.
    Oldest,
    /// They are reached: retire, search, and try again.
    AfterOldest,
    Refuse,
    End,
}

/// What a plan is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Goal {
    Allocate(ShardId, Want),
    EmptyCache,
    /// Release until no more than so many bytes are reserved.
    Trim(u64),
    /// Release what is idle already, without waiting (the `direct` policy's free).
    Reclaim,
}

/// The step whose outcome a plan awaits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    Nothing,
    Points,
    Segment { slot: Slot, bytes: u64 },
    Range { slot: Slot, bytes: u64 },
    Pages,
    StreamWait,
    Release { shard: ShardId, slot: Slot },
    Pause,
}

/// A request in progress.
#[derive(Debug)]
pub struct Plan {
    pub(super) goal: Goal,
    pub(super) clocks: [u64; 2],
    /// What the requesting stream's open tick was when the request came: lower ticks were submitted.
    pub(super) open: Tick,
    pub(super) rung: Rung,
    pub(super) awaited: Awaited,
    pub(super) sweep: Option<Sweep>,
    /// The plan's own claimed block in an expandable segment that is being extended.
    pub(super) growing: Option<BlockId>,
    /// Page calls being made, or to be made next.
    pub(super) batch: Option<Batch>,
    /// What `paged` is doing for the request.
    pub(super) job: Option<Job>,
    /// How many known rounds had to ask `paged` for more, once that was asked.
    pub(super) repeated: Option<u32>,
    /// `paged` has asked the streams how far they are.
    pub(super) polled: bool,
    /// It was told how far streams are, and has not retired what that makes ready.
    pub(super) news: bool,
    /// `paged` has reserved a range for the request, because it could be served nowhere else.
    pub(super) ranged: bool,
    /// The driver or the limit refused to create pages: `paged` makes do with those there are.
    pub(super) no_new_pages: bool,
    /// One of the streams cannot take part in a device-side wait now: `paged` moves no page behind one.
    pub(super) no_waits: bool,
    /// The request stays within so many reserved bytes, what the device's budget leaves, until nothing else serves it.
    pub(super) allowance: Option<u64>,
    /// The points that `paged` waited for last: waiting for the same ones again leads nowhere.
    pub(super) waited: Vec<Point>,
    /// The driver refused the current attempt to grow.
    pub(super) refused: bool,
    /// What [`Coordinator::progress`] was when the current attempt began, and what the plan itself has added.
    pub(super) seen: u64,
    /// How often an attempt was repeated because other threads interfered.
    pub(super) repeats: u32,
    /// Its place in the queue of those that wait for their turn.
    pub(super) ticket: Option<u64>,
    /// It would be refused otherwise: its turn lasts until it is answered.
    pub(super) keeps_turn: bool,
    /// It is counted among those that hold something.
    pub(super) counted: bool,
    /// It has paused, and not looked for a free block since.
    pub(super) paused: bool,
    /// How many blocks had been freed when the current attempt began: under `paged` each, in a turn all of the last
    /// part of the ladder.
    pub(super) frees_seen: u64,
    /// It has gone through the last part of its ladder once already.
    pub(super) is_second: bool,
}

/// How often a plan repeats an attempt that others have spoiled, before it waits for its turn: a bound that says when
/// the quick way leads nowhere.
pub(super) const REPEATS_MAX: u32 = 64;

impl Plan {
    fn new(goal: Goal, rung: Rung, clocks: [u64; 2]) -> Self {
        Self {
            goal,
            clocks,
            open: Tick::ZERO,
            rung,
            awaited: Awaited::Nothing,
            sweep: None,
            growing: None,
            batch: None,
            job: None,
            repeated: None,
            polled: false,
            news: false,
            ranged: false,
            no_new_pages: false,
            no_waits: false,
            allowance: None,
            waited: Vec::new(),
            refused: false,
            seen: 0,
            repeats: 0,
            ticket: None,
            keeps_turn: false,
            counted: false,
            paused: false,
            frees_seen: 0,
            is_second: false,
        }
    }

    /// A request that missed in its shard. `clocks` are the counts of searches on the small and the large side.
    pub fn allocate(shard: ShardId, want: Want, clocks: [u64; 2]) -> Self {
        Self::new(Goal::Allocate(shard, want), Rung::Search, clocks)
    }

    /// Tells which tick of the requesting stream was open when the request came. What it covers, and what comes later,
    /// counts as not submitted; without this, so does everything that is not reached.
    pub fn with_open_tick(self, open: Tick) -> Self {
        Self { open, ..self }
    }

    /// Give back everything cached: wait for what is outstanding, then release every free segment and page.
    pub fn empty_cache(clocks: [u64; 2]) -> Self {
        Self::new(Goal::EmptyCache, Rung::Flush, clocks)
    }

    /// Give back cached memory until at most `bytes` are reserved, or nothing more can go.
    pub fn trim(bytes: u64, clocks: [u64; 2]) -> Self {
        Self::new(Goal::Trim(bytes), Rung::Flush, clocks)
    }

    /// Give back what is idle already, without waiting.
    pub fn reclaim(clocks: [u64; 2]) -> Self {
        Self::new(Goal::Reclaim, Rung::Collect, clocks)
    }
}

impl Coordinator {
    /// The next step of a plan.
    ///
    /// # Panics
    ///
    /// If the outcome of the previous step was not told.
    pub fn next(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Step {
        assert_eq!(plan.awaited, Awaited::Nothing, "the outcome of the last step was not told");
        if plan.keeps_turn && self.has_turn(plan) {
            // Alone among plans: nor do blocks that are handed out or taken back change what it sees.
            shards.hold();
        }
        let mut step = self.next_step(plan, shards);
        shards.let_go();
        self.keep_count(plan, Some(&step));
        if let Step::Pause { seen } = &mut step {
            *seen = self.progress();
        }
        step
    }

    fn next_step(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Step {
        if let Some(batch) = &plan.batch {
            let calls = batch.calls.clone();
            return plan.awaits(Awaited::Pages, Step::Pages(calls));
        }
        loop {
            if let Some(step) = self.next_of_sweep(plan, shards) {
                return step;
            }
            if let Some(step) = self.stand_back(plan) {
                return step;
            }
            if core::mem::take(&mut plan.paused)
                && plan.rung != Rung::Search
                && let Some(step) = self.search(plan, shards)
            {
                return step;
            }
            if let Some(step) = self.climb(plan, shards) {
                return step;
            }
        }
    }

    /// Works on the current rung. `None`: the plan moved on, look again.
    fn climb(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Option<Step> {
        match (plan.rung, plan.goal) {
            (Rung::Search, Goal::Allocate(..)) => {
                plan.rung = Rung::Collect;
                self.search(plan, shards)
            }
            (Rung::Collect, _) => self.collect(plan, shards),
            (Rung::Grow(attempt), Goal::Allocate(shard, want)) if self.settings.is_paged() => {
                self.grow_paged(plan, attempt, shard, want, shards)
            }
            (Rung::Grow(attempt), Goal::Allocate(shard, want)) => self.grow(plan, attempt, shard, want, shards),
            (Rung::Turn, Goal::Allocate(..)) => {
                let last = if self.settings.max_split_bytes.is_some() { Rung::Oversize } else { Rung::Flush };
                let last = if self.settings.is_paged() { Rung::Flush } else { last };
                self.wait_for_turn(plan, Rung::Grow(Attempt::First), last, shards)
            }
            (Rung::Oversize, Goal::Allocate(shard, want)) => {
                let enough = self.sweep_oversize(plan, shard, want, shards);
                plan.rung = if enough { Rung::Grow(Attempt::AfterOversize) } else { Rung::Flush };
                None
            }
            (Rung::Flush, _) => {
                plan.rung = Rung::AfterWait;
                self.scalars.num_sync_all_streams += 1;
                if plan.keeps_turn {
                    plan.frees_seen = self.frees(shards);
                }
                let points = self.outstanding(shards);
                (!points.is_empty()).then(|| plan.awaits(Awaited::Points, Step::Wait(points)))
            }
            (Rung::AfterWait, _) => self.after_wait(plan, shards),
            (Rung::Release, goal) => self.release_all(plan, goal, shards),
            (Rung::Oldest, _) => self.wait_for_oldest(plan, shards),
            (Rung::AfterOldest, _) => self.after_oldest(plan, shards),
            (Rung::Refuse, Goal::Allocate(..)) if plan.is_held_by_budget(self.limit) => {
                plan.leave_budget();
                None
            }
            (Rung::Refuse, Goal::Allocate(..)) if self.may_be_disturbed(plan, shards) => {
                plan.rung = Rung::Turn;
                None
            }
            (Rung::Refuse, Goal::Allocate(shard, want)) => {
                self.scalars.num_ooms += 1;
                Some(Step::Refuse(Box::new(self.report(shard, want, false, shards))))
            }
            (Rung::End, _) => Some(Step::Done),
            (rung, goal) => panic!("a plan for {goal:?} stands on rung {rung:?}"),
        }
    }

    fn after_wait(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Option<Step> {
        self.retire(plan.clocks, shards);
        if self.settings.search_after_wait
            && let Some(step) = self.search(plan, shards)
        {
            return Some(step);
        }
        let moves = self.settings.is_paged() && matches!(plan.goal, Goal::Allocate(..));
        plan.rung = if moves { Rung::Grow(Attempt::AfterWait) } else { Rung::Release };
        None
    }

    fn release_all(&mut self, plan: &mut Plan, goal: Goal, shards: &mut impl Shards) -> Option<Step> {
        self.sweep_all(plan, shards);
        plan.rung = match goal {
            Goal::Allocate(..) => {
                self.scalars.num_alloc_retries += 1;
                Rung::Grow(Attempt::Last)
            }
            _ => Rung::End,
        };
        None
    }

    /// The last attempt was refused in the plan's turn: refuses, unless blocks were freed since the wait for everything
    /// outstanding. Those may not have been free then, while others that were free have been handed out: to a program
    /// that never has more than there is, all looks as if it had both. So the plan waits for them once more; what was
    /// free before is released by now, so a second time there is nothing left to hand out.
    pub(super) fn end_turn(&mut self, plan: &mut Plan, shards: &mut impl Shards) {
        let again = !plan.is_second && self.frees(shards) != plan.frees_seen;
        plan.is_second = true;
        plan.rung = if again { Rung::Flush } else { Rung::Refuse };
    }

    /// Others may have had a part in it that the plan found nothing, and it has not looked in its turn.
    fn may_be_disturbed(&self, plan: &Plan, shards: &mut impl Shards) -> bool {
        let within = |want: Want| want.rounded <= self.limit.unwrap_or(u64::MAX).min(self.facts.total_bytes);
        let helps = matches!(plan.goal, Goal::Allocate(_, want) if within(want));
        helps
            && !plan.keeps_turn
            && (self.others_hold(plan) || self.others_progressed(plan) || self.frees(shards) != plan.frees_seen)
    }

    /// Looks for a free block once more: others may have freed one since the plan began.
    pub(super) fn search(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Option<Step> {
        let Goal::Allocate(shard, want) = plan.goal else { return None };
        let clock = plan.clocks[want.side.index()];
        if self.facts.reuse != Reuse::InOrder {
            // Blocks that settled in the shard may have used up its room for peaks: that is why the request came here.
            self.settle(shard, shards);
        }
        let grant = shards.with(shard, |shard| {
            let found = shard.find(&want)?;
            Some(shard.take(found, &want, clock))
        })?;
        Some(Step::Grant(self.settled(shard, grant, shards)))
    }

    pub(super) fn settled(&mut self, shard: ShardId, mut grant: Grant, shards: &mut impl Shards) -> Grant {
        if core::mem::take(&mut grant.unsettled) {
            self.settle(shard, shards);
        }
        grant
    }

    /// Garbage collection (`classic`), or what `direct` gives back before it takes more.
    fn collect(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Option<Step> {
        plan.rung = match plan.goal {
            Goal::Allocate(..) => Rung::Grow(Attempt::First),
            _ => Rung::End,
        };
        if self.settings.policy == Policy::Direct || plan.goal == Goal::Reclaim {
            return self.sweep_idle(plan, shards);
        }
        if let Goal::Allocate(shard, want) = plan.goal
            && self.settings.snug().is_some()
        {
            self.sweep_surplus(plan, shard, want, shards);
        } else {
            self.sweep_garbage(plan, shards);
        }
        None
    }

    /// What came of page calls: all were made, or so many before one failed.
    fn learn_pages(&mut self, plan: &mut Plan, stopped: Option<(usize, bool)>, shards: &mut impl Shards) {
        let Some(Batch { mut calls, purpose }) = plan.batch.take() else { panic!("no page calls were asked for") };
        if let Some((done, _)) = stopped {
            if matches!(purpose, Purpose::Extend { .. }) {
                self.forget_uncreated(&calls[done..]);
            }
            calls.truncate(done);
        }
        match (purpose, stopped) {
            (Purpose::Extend { block, bytes }, None) => self.extended(plan, block, bytes, &calls, shards),
            (Purpose::Extend { block, bytes }, Some((_, refused))) => {
                self.undo_extension(plan, Purpose::Undo { block, bytes, refused }, &calls, shards);
            }
            (Purpose::Undo { block, bytes, refused }, None) => {
                self.pages_undone(&calls);
                self.extension_undone(plan, block, bytes, refused, shards);
            }
            (Purpose::GiveUp { shard, block, bytes }, None) => {
                self.pages_released(&calls, shards);
                self.unmapped(plan, shard, block, bytes, shards);
            }
            (Purpose::GiveUpSpare, None) => self.spare_released(plan, &calls, shards),
            (Purpose::Back, stopped) => self.backed(plan, &calls, stopped.map(|(_, refused)| refused), shards),
            (purpose, Some(stopped)) => panic!("calls for {purpose:?} cannot fail and did: {stopped:?}"),
        }
    }

    /// Takes in what came of the last step.
    ///
    /// # Panics
    ///
    /// If the outcome does not answer the step.
    pub fn learn(&mut self, plan: &mut Plan, outcome: Outcome, shards: &mut impl Shards) {
        let awaited = core::mem::replace(&mut plan.awaited, Awaited::Nothing);
        match (awaited, outcome) {
            (Awaited::Points, Outcome::Reached(points)) => {
                for point in points {
                    self.note_reached(point.stream, point.tick);
                }
                plan.news = true;
            }
            // A driver that cannot wait any more: the plan ends, its claims go back.
            (Awaited::Points | Awaited::Pause | Awaited::StreamWait, Outcome::Failed) => self.abandon(plan, shards),
            (Awaited::Pause, Outcome::Done) => {}
            (Awaited::Release { shard, slot }, Outcome::Done) => self.released(plan, shard, slot, shards),
            (Awaited::Pages, Outcome::Done) => self.learn_pages(plan, None, shards),
            (Awaited::Pages, Outcome::Stopped { done, refused }) => {
                self.learn_pages(plan, Some((done, refused)), shards);
            }
            (Awaited::StreamWait, Outcome::Waits(tick)) => self.learn_waits(plan, tick),
            // The attempt is made again without waits; those that were queued do no harm.
            (Awaited::StreamWait, Outcome::Refused) => {
                plan.no_waits = true;
                self.abandon_job(plan, shards);
            }
            (awaited, outcome) => self.learn_growth(plan, awaited, outcome, shards),
        }
        self.keep_count(plan, None);
    }
}

impl Plan {
    pub(super) fn awaits(&mut self, awaited: Awaited, step: Step) -> Step {
        self.awaited = awaited;
        step
    }

    /// The driver refused to grow, or failed otherwise, which ends the plan.
    pub(super) fn not_grown(&mut self, refused: bool) {
        self.refused = refused;
        if !refused {
            self.rung = Rung::End;
        }
    }

    /// The budget is what the request was refused for, rather than a limit.
    fn is_held_by_budget(&self, limit: Option<u64>) -> bool {
        self.allowance.is_some_and(|allowance| limit.is_none_or(|limit| allowance < limit))
    }

    /// Nothing within the budget serves the request: all over again, with what the driver grants beyond it.
    fn leave_budget(&mut self) {
        self.allowance = None;
        self.rung = Rung::Search;
        (self.polled, self.ranged, self.no_new_pages) = (false, false, false);
        self.waited.clear();
    }

    /// What the request is for.
    pub(super) fn request(&self) -> (ShardId, Want) {
        match self.goal {
            Goal::Allocate(shard, want) => (shard, want),
            other => panic!("a plan for {other:?} is asked for its request"),
        }
    }
}
