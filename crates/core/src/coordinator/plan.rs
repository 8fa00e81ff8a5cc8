//! A request in progress: a ladder of rungs, each entered a bounded number of times.
//!
//! The order of the rungs *is* the policy. For `classic` it is PyTorch's: search; collect garbage; grow; release
//! oversize blocks and grow again; wait for everything outstanding, release everything cached and grow once more;
//! refuse. For `direct` it is: give back what is no longer used; grow; wait, give back the rest and grow once more;
//! refuse. After its first failure to grow a plan climbs alone: see the module `turn`.

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

/// The place of an attempt to grow among those of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attempt {
    First,
    AfterOversize,
    /// `paged`, in the plan's turn: the attempt before everything cached is released.
    AfterWait,
    Last,
}

/// The rung on which a plan stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rung {
    Search,
    Collect,
    Grow(Attempt),
    /// The wait, before a refusal, for the plan's turn and until no other plan holds anything.
    Turn,
    Oversize,
    /// The wait for everything outstanding.
    Flush,
    /// The work after that wait: retire, search again if the settings say so, and begin to release.
    AfterWait,
    /// The release of everything cached.
    Release,
    /// `paged`: the wait for the oldest points.
    Oldest,
    /// `paged`: the work after that wait: retire, search, and try again.
    AfterOldest,
    Refuse,
    End,
}

/// The purpose of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Goal {
    Allocate(ShardId, Want),
    EmptyCache,
    /// A release until at most this number of bytes is reserved.
    Trim(u64),
    /// A release of what is idle already, without waiting (a free under the `direct` policy).
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
    /// The open tick of the requesting stream when the request came: lower ticks were submitted.
    pub(super) open: Tick,
    pub(super) rung: Rung,
    pub(super) awaited: Awaited,
    pub(super) sweep: Option<Sweep>,
    /// The block that the plan has claimed in an expandable segment that is being extended.
    pub(super) growing: Option<BlockId>,
    /// The page calls that are being made, or are to be made next.
    pub(super) batch: Option<Batch>,
    /// What `paged` is doing for the request.
    pub(super) job: Option<Job>,
    /// The number of known rounds in which `paged` had to ask for more, once it has been determined.
    pub(super) repeated: Option<u32>,
    /// Whether `paged` has asked the streams how far they are.
    pub(super) polled: bool,
    /// Whether it is known how far the streams are, while the blocks that became ready are not retired yet.
    pub(super) news: bool,
    /// Whether `paged` has reserved a range for the request, because no other place could serve it.
    pub(super) ranged: bool,
    /// Whether the driver or the limit refused to create pages: `paged` then uses only the pages that exist.
    pub(super) no_new_pages: bool,
    /// Whether one of the streams cannot take part in a device-side wait at present: `paged` then moves no page behind
    /// one.
    pub(super) no_waits: bool,
    /// The number of reserved bytes that the device's budget leaves. The request stays within it until nothing else
    /// serves it.
    pub(super) allowance: Option<u64>,
    /// The points that `paged` waited for last. To wait for the same points again would change nothing.
    pub(super) waited: Vec<Point>,
    /// Whether the driver refused the current attempt to grow.
    pub(super) refused: bool,
    /// The value of [`Coordinator::progress`] when the current attempt began, plus what the plan has added to it since.
    pub(super) seen: u64,
    /// The number of times that an attempt was repeated because other threads interfered.
    pub(super) repeats: u32,
    /// The plan's place in the queue of those that wait for their turn.
    pub(super) ticket: Option<u64>,
    /// Whether the plan would be refused otherwise: its turn then lasts until it is answered.
    pub(super) keeps_turn: bool,
    /// Whether the plan is counted among those that hold something.
    pub(super) counted: bool,
    /// Whether the plan has paused and not looked for a free block since.
    pub(super) paused: bool,
    /// The number of blocks that had been freed when the current attempt began. Under `paged` each attempt sets it; in
    /// a turn it is set once for the whole last part of the ladder.
    pub(super) frees_seen: u64,
    /// Whether the plan has gone through the last part of its ladder once already.
    pub(super) is_second: bool,
}

/// The largest number of times that a plan repeats an attempt that other plans have spoiled. After that it waits for
/// its turn, because the quick way leads nowhere.
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

    /// Creates a plan for a request that missed in its shard. `clocks` are the counts of searches on the small and the
    /// large side.
    pub fn allocate(shard: ShardId, want: Want, clocks: [u64; 2]) -> Self {
        Self::new(Goal::Allocate(shard, want), Rung::Search, clocks)
    }

    /// Sets the tick of the requesting stream that was open when the request came. Work at this tick or a later one
    /// counts as not submitted. Without this call, so does all work that is not known to be reached.
    pub fn with_open_tick(self, open: Tick) -> Self {
        Self { open, ..self }
    }

    /// Creates a plan that gives back everything cached: it waits for what is outstanding, then releases every free
    /// segment and page.
    pub fn empty_cache(clocks: [u64; 2]) -> Self {
        Self::new(Goal::EmptyCache, Rung::Flush, clocks)
    }

    /// Creates a plan that gives back cached memory until at most `bytes` are reserved, or nothing more can be
    /// released.
    pub fn trim(bytes: u64, clocks: [u64; 2]) -> Self {
        Self::new(Goal::Trim(bytes), Rung::Flush, clocks)
    }

    /// Creates a plan that gives back what is idle already, without waiting.
    pub fn reclaim(clocks: [u64; 2]) -> Self {
        Self::new(Goal::Reclaim, Rung::Collect, clocks)
    }
}

impl Coordinator {
    /// Returns the next step of a plan.
    ///
    /// # Panics
    ///
    /// Panics if the outcome of the previous step was not passed to [`learn`](Coordinator::learn).
    pub fn next(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Step {
        assert_eq!(plan.awaited, Awaited::Nothing, "the outcome of the last step was not told");
        if plan.keeps_turn && self.has_turn(plan) {
            // The plan works alone: blocks that are handed out or taken back do not change what it sees either.
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

    /// Works on the current rung. `None` means that the plan moved on and its new rung is to be worked on.
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

    /// Ends a turn in which the last attempt failed. The plan is refused, unless blocks were freed since the wait for
    /// everything outstanding. Such blocks may have been in use during that wait, while blocks that were free then have
    /// been handed out since: the request then misses although the program never holds more than there is. The plan
    /// therefore waits for them once more. What was free before has been released by then, so a second time nothing is
    /// left to be handed out.
    pub(super) fn end_turn(&mut self, plan: &mut Plan, shards: &mut impl Shards) {
        let again = !plan.is_second && self.frees(shards) != plan.frees_seen;
        plan.is_second = true;
        plan.rung = if again { Rung::Flush } else { Rung::Refuse };
    }

    /// Returns whether other plans may be the reason that the plan found nothing, and it has not looked again in its
    /// turn.
    fn may_be_disturbed(&self, plan: &Plan, shards: &mut impl Shards) -> bool {
        let within = |want: Want| want.rounded <= self.limit.unwrap_or(u64::MAX).min(self.facts.total_bytes);
        let helps = matches!(plan.goal, Goal::Allocate(_, want) if within(want));
        helps
            && !plan.keeps_turn
            && (self.others_hold(plan) || self.others_progressed(plan) || self.frees(shards) != plan.frees_seen)
    }

    /// Looks for a free block once more: another thread may have freed one since the plan began.
    pub(super) fn search(&mut self, plan: &mut Plan, shards: &mut impl Shards) -> Option<Step> {
        let Goal::Allocate(shard, want) = plan.goal else { return None };
        let clock = plan.clocks[want.side.index()];
        if self.facts.reuse != Reuse::InOrder {
            // Blocks that settled in the shard may have used up its room for peaks, which is why the request missed.
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

    /// Chooses what to collect before growth: the garbage of `classic`, or what `direct` gives back before it takes
    /// more.
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

    /// Processes the outcome of page calls: all were made, or only some of them before one failed.
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

    /// Processes the outcome of the last step.
    ///
    /// # Panics
    ///
    /// Panics if the outcome does not belong to the step.
    pub fn learn(&mut self, plan: &mut Plan, outcome: Outcome, shards: &mut impl Shards) {
        let awaited = core::mem::replace(&mut plan.awaited, Awaited::Nothing);
        match (awaited, outcome) {
            (Awaited::Points, Outcome::Reached(points)) => {
                for point in points {
                    self.note_reached(point.stream, point.tick);
                }
                plan.news = true;
            }
            // The driver cannot wait any more: the plan ends, and its claims are returned.
            (Awaited::Points | Awaited::Pause | Awaited::StreamWait, Outcome::Failed) => self.abandon(plan, shards),
            (Awaited::Pause, Outcome::Done) => {}
            (Awaited::Release { shard, slot }, Outcome::Done) => self.released(plan, shard, slot, shards),
            (Awaited::Pages, Outcome::Done) => self.learn_pages(plan, None, shards),
            (Awaited::Pages, Outcome::Stopped { done, refused }) => {
                self.learn_pages(plan, Some((done, refused)), shards);
            }
            (Awaited::StreamWait, Outcome::Waits(tick)) => self.learn_waits(plan, tick),
            // The attempt is made again without waits. Those that are queued already have no bad effect.
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

    /// Notes that the driver did not grow the memory. A failure other than a refusal ends the plan.
    pub(super) fn not_grown(&mut self, refused: bool) {
        self.refused = refused;
        if !refused {
            self.rung = Rung::End;
        }
    }

    /// Returns whether the budget, and not a limit, is the reason for the refusal.
    fn is_held_by_budget(&self, limit: Option<u64>) -> bool {
        self.allowance.is_some_and(|allowance| limit.is_none_or(|limit| allowance < limit))
    }

    /// Starts again with what the driver grants beyond the budget, because nothing within it serves the request.
    fn leave_budget(&mut self) {
        self.allowance = None;
        self.rung = Rung::Search;
        (self.polled, self.ranged, self.no_new_pages) = (false, false, false);
        self.waited.clear();
    }

    /// Returns what the request is for.
    pub(super) fn request(&self) -> (ShardId, Want) {
        match self.goal {
            Goal::Allocate(shard, want) => (shard, want),
            other => panic!("a plan for {other:?} is asked for its request"),
        }
    }
}
