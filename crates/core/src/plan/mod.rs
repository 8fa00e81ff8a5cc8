//! A request in progress, taken step by step.
//!
//! A plan is in one [`Phase`], which owns just the data of that phase. [`Run`] takes it from step to step. Where a plan
//! stands on its ladder, and what comes next, is a table of [rungs](phase::Rung).

mod groups;
mod ladder;
mod pages;
pub(crate) mod phase;
mod refusal;
mod rehearsal;
mod run;
mod segments;
pub(crate) mod step;
pub(crate) mod sweep;

use millpond_backend::{StreamId, Tick};
use phase::Phase;

use crate::books::Standing;
use crate::ids::{BlockId, GroupId, PoolId, ShardId};
use crate::size::Want;

pub use crate::books::{PageCall, Polled};
pub(crate) use crate::paged::{Knows, Times};
pub use rehearsal::{Conditions, Forecast};
pub(crate) use run::Run;
pub use step::{Denied, FreeRange, Outcome, Pin, Relief, Report, Step};

/// What a plan is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Goal {
    /// Serve a request.
    Allocate(Allocation),
    /// Release everything cached, but for that of held pools.
    EmptyCache,
    /// Release everything that a pool has cached, unless the pool is held.
    EmptyPool(PoolId),
    /// Release until no more than this number of bytes is reserved.
    Trim(u64),
    /// Release what is idle already, without waiting (the `direct` policy's free).
    Reclaim,
    /// Close a running group: no request is served from it.
    Close(GroupId),
    /// Give the pages of a closed group back to the driver.
    Pause(GroupId),
    /// Get the pages of a paused group anew, at their places.
    Resume(GroupId),
    /// Release what is idle already, without waiting, until no more than this number of bytes is reserved.
    TrimIdle(u64),
}

/// A request of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allocation {
    pub(crate) shard: ShardId,
    pub(crate) want: Want,
}

/// What is asked for. It stays as it is for the life of the plan, but for what it missed at, the allowance, and whether
/// it is short.
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
    /// Where its memory has to lie.
    pub(crate) placing: Placing,
    /// Whether the driver has refused whole pages of an expandable segment: no more than what is missing is mapped.
    pub(crate) is_short: bool,
    /// Whether the budget is asked for before anything is created.
    pub(crate) is_budgeted: bool,
    /// Whether the program is asked before the request is refused.
    pub(crate) appeals: bool,
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
    /// Nothing, ever: what is cached has to do.
    Nothing,
}

impl Allowance {
    /// Returns the most bytes that may be reserved, if that is known and bounded.
    pub(crate) fn most(self) -> Option<u64> {
        match self {
            Allowance::Any | Allowance::Unasked => None,
            Allowance::Most(bytes) => Some(bytes),
            Allowance::Nothing => Some(0),
        }
    }
}

/// Where the memory of a request has to lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placing {
    /// Anywhere.
    Anywhere,
    /// At home, in pages of its own, with addresses after it for this number of bytes in all.
    Growable(u64),
    /// Directly after this block, which becomes longer by it. The program has asked for this number of bytes of it
    /// then, in all.
    After(BlockId, u64),
}

impl Request {
    /// Returns whether free memory anywhere serves it.
    pub(crate) fn is_anywhere(&self) -> bool {
        self.placing == Placing::Anywhere
    }

    /// Returns the request that the plan is to serve.
    ///
    /// # Panics
    ///
    /// If the plan has another goal.
    pub(crate) fn allocation(&self) -> Allocation {
        let Goal::Allocate(allocation) = self.goal else {
            panic!("a plan for {:?} is asked for its request", self.goal)
        };
        allocation
    }

    /// Forgets what the request has met with so far.
    pub(crate) fn begin_again(&mut self) {
        self.allowance = if self.is_budgeted { Allowance::Unasked } else { Allowance::Any };
        (self.missed_at, self.is_short) = (None, false);
    }

    /// Returns whether what is cached has to do.
    pub(crate) fn is_cached_only(&self) -> bool {
        self.allowance == Allowance::Nothing
    }

    /// Returns the count of searches on the request's side.
    pub(crate) fn clock(&self) -> u64 {
        self.clocks[self.allocation().want.side.index()]
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
    /// The bytes that it has given back to the driver.
    pub(crate) released: u64,
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
            placing: Placing::Anywhere,
            is_short: false,
            is_budgeted: false,
            appeals: false,
        };
        Self {
            request,
            standing: Standing::default(),
            refused_addresses: None,
            emptied_pools: None,
            gathers: false,
            knows: Knows::default(),
            released: 0,
            phase: Phase::Begin,
        }
    }

    /// Returns a plan for a request that missed in its shard. `clocks` are the counts of searches on the small and the
    /// large side.
    pub fn allocate(shard: ShardId, want: Want, clocks: [u64; 2]) -> Self {
        Self::new(Goal::Allocate(Allocation { shard, want }), clocks)
    }

    /// Sets the requesting stream. The default is the one that the shard was opened for.
    pub fn for_stream(mut self, stream: StreamId) -> Self {
        self.request.stream = Some(stream);
        self
    }

    /// Sets the tick of the requesting stream that was open at the request. Work that it or a later tick covers counts
    /// as not submitted. By default, so does everything that is not reached.
    pub fn with_open_tick(mut self, open: Tick) -> Self {
        self.request.open = open;
        self
    }

    /// Sets the value of [`Shard::changes`](crate::Shard::changes) when the request missed. While it is unchanged, the
    /// plan polls the device before it searches.
    pub fn after_miss(mut self, changes: u64) -> Self {
        self.request.missed_at = Some(changes);
        self
    }

    /// Has the plan ask what the device's budget leaves ([`Step::Budget`]) before it creates anything, where the driver
    /// would grant more than that: cached memory is released or gathered before the budget is exceeded, and nothing is
    /// refused because of it.
    pub fn within_budget(mut self) -> Self {
        (self.request.allowance, self.request.is_budgeted) = (Allowance::Unasked, true);
        self
    }

    /// Has the request served from what is cached, or not at all. The plan asks the driver for no memory and releases
    /// none, and it waits neither on the host nor for other plans. It may map free pages into windows, for which it may
    /// take addresses, and have the stream wait on the device. It ends with [`Step::Done`] instead of a refusal, and
    /// nothing counts that.
    pub fn cached_only(mut self) -> Self {
        self.request.allowance = Allowance::Nothing;
        self
    }

    /// Has the plan ask the program ([`Step::Appeal`]) before it refuses the request.
    pub fn appealing(mut self) -> Self {
        self.request.appeals = true;
        self
    }

    /// Has the memory be at the front of `capacity` bytes of addresses, of which no other request gets any: both are
    /// as [`Coordinator::growable`](crate::Coordinator::growable) returns them.
    pub fn with_capacity(mut self, capacity: u64) -> Self {
        self.request.placing = Placing::Growable(capacity);
        self
    }

    /// Has the memory be directly after a block of the shard, which is handed out and becomes longer by it. The program
    /// has asked for `requested` bytes of it then. The plan ends with [`Step::Grown`], [`Step::Stuck`] or
    /// [`Step::Refuse`].
    pub fn after(mut self, block: BlockId, requested: u64) -> Self {
        self.request.placing = Placing::After(block, requested);
        self
    }

    /// Returns a plan that releases everything cached: it waits for pending work, then releases every free segment and
    /// page.
    pub fn empty_cache(clocks: [u64; 2]) -> Self {
        Self::new(Goal::EmptyCache, clocks)
    }

    /// Returns a plan that releases everything that one pool has cached: PyTorch's `emptyCache` of a private pool. It
    /// does nothing while the pool has references.
    pub fn empty_pool(pool: PoolId, clocks: [u64; 2]) -> Self {
        Self::new(Goal::EmptyPool(pool), clocks)
    }

    /// Returns a plan that releases cached memory until at most `bytes` are reserved, or nothing more can be released.
    pub fn trim(bytes: u64, clocks: [u64; 2]) -> Self {
        Self::new(Goal::Trim(bytes), clocks)
    }

    /// Returns a plan that closes a group: requests of its pools are [denied](Denied::Closed). It waits until no other
    /// plan holds anything. The shell then waits for the streams of the group. The plan ends [`Done`](Step::Done), or
    /// [`Denied`](Step::Denied) with the group running as before.
    pub fn close(group: GroupId, clocks: [u64; 2]) -> Self {
        Self::new(Goal::Close(group), clocks)
    }

    /// Returns a plan that unmaps and releases every page of a closed group. The pages keep their numbers and places.
    pub fn pause(group: GroupId, clocks: [u64; 2]) -> Self {
        Self::new(Goal::Pause(group), clocks)
    }

    /// Returns a plan that creates and maps every page of a paused group again, which is closed then. It ends
    /// [`Denied`](Step::Denied), with the group paused as before, where the driver or the limit has no room for all of
    /// them although everything cached was released.
    pub fn resume(group: GroupId, clocks: [u64; 2]) -> Self {
        Self::new(Goal::Resume(group), clocks)
    }

    /// Returns a plan that releases idle memory without waiting.
    pub fn reclaim(clocks: [u64; 2]) -> Self {
        Self::new(Goal::Reclaim, clocks)
    }

    /// Returns a plan that releases idle memory without waiting until at most `bytes` are reserved. It claims no more
    /// than it will release, ends where another plan waits for its turn, and releases nothing during a capture.
    pub(crate) fn trim_idle(bytes: u64, clocks: [u64; 2]) -> Self {
        Self::new(Goal::TrimIdle(bytes), clocks)
    }

    /// Returns the bytes that the plan has given back to the driver so far.
    pub fn released_bytes(&self) -> u64 {
        self.released
    }
}
