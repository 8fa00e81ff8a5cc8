//! Getting segments from the driver, or from the source of a pool.

use alloc::boxed::Box;

use crate::coordinator::phase::{Asked, Phase, Reserve, Turned};
use crate::coordinator::plan::{Allowance, Plan};
use crate::coordinator::step::{Outcome, Step};
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{BlockId, ShardId};
use crate::last_use::LastUse;
use crate::policy::ranges::not_reserved;
use crate::policy::{Climb, Source};
use crate::shard::Arrival;
use crate::size::Want;

impl Coordinator {
    /// Asks the driver for what the request needs, if that may be reserved: PyTorch's `alloc_block`. `attempt` is the
    /// rung that tries it, `turn` the one that waits for the plan's turn.
    pub(crate) fn grow(&mut self, attempt: Climb, turn: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let (shard, want) = plan.request.allocation();
        let bytes = self.needed_for(shard, &want, shards);
        self.begin_attempt(plan);
        if self.settings.throw_on_oom && self.headroom.with_asked() + bytes > self.throw_above() {
            return self.reject(turn, plan, shards);
        }
        if plan.request.allowance == Allowance::Unasked {
            return Phase::Climb(attempt).after(Step::Budget);
        }
        if !self.headroom.admits(bytes, plan.request.allowance.most()) {
            return Phase::Climb(attempt.refused()).turn();
        }
        if self.traits_of(shard).source == Source::Ranges {
            return self.extend(None, attempt, plan, shards);
        }
        self.new_segment(shard, bytes, attempt, shards)
    }

    /// Asks the driver for a segment that may be reserved.
    pub(crate) fn new_segment(
        &mut self,
        shard: ShardId,
        bytes: u64,
        attempt: Climb,
        shards: &mut dyn Shards,
    ) -> Turned {
        let slot = shards.with(shard, |shard| shard.promise());
        self.headroom.ask(bytes);
        (
            Phase::Asked(Asked::Segment(Reserve { slot, bytes, attempt, has_windows: false })),
            Some(Step::Reserve { shard, slot, bytes }),
        )
    }

    /// Refuses without the retries, as `throw_on_cudamalloc_oom` asks; but not because of what other plans hold.
    pub(crate) fn reject(&mut self, turn: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        if self.others_hold(plan) {
            return Phase::Climb(turn).turn();
        }
        self.scalars.num_oom_rejections += 1;
        Phase::end(Step::Refuse(Box::new(self.report(plan, true, shards))))
    }

    /// Returns what `throw_on_cudamalloc_oom` compares with: the configured share of the device's bytes.
    pub(crate) fn throw_above(&self) -> u64 {
        self.headroom.share(self.settings.memory_fraction)
    }

    /// Takes in the driver's answer to a request for a segment.
    pub(crate) fn segment_answered(
        &mut self,
        reserve: Reserve,
        outcome: Outcome,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Phase {
        let Reserve { slot, bytes, attempt, .. } = reserve;
        let (shard, want) = plan.request.allocation();
        self.headroom.end_ask(bytes);
        let Outcome::Reserved { address } = outcome else { return not_reserved(shard, slot, attempt, outcome, shards) };
        self.headroom.gain_segment(want.side, bytes);
        self.pools.gain(self.pool_of(shard), want.side, bytes);
        let shared = self.segment_for(shard, &want, shards).1;
        let arrival = Arrival { shared, ..self.arrival(address, bytes, &want, 0) };
        Phase::Serve(shards.with(shard, |shard| shard.adopt(slot, arrival)))
    }

    /// Hands out a claimed block.
    pub(crate) fn serve(&mut self, block: BlockId, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let (shard, want) = plan.request.allocation();
        let clock = plan.request.clock();
        let to = (self.requester_of(plan).stream, LastUse::NEVER);
        let grant = shards.with(shard, |shard| shard.serve(block, &want, clock, to));
        Phase::end(Step::Grant(self.settled(shard, grant, shards)))
    }

    /// Returns the bytes of the segment that a miss takes, and whether blocks are cut from it.
    pub(crate) fn segment_for(&self, shard: ShardId, want: &Want, shards: &mut dyn Shards) -> (u64, bool) {
        let snug = shards.with(shard, |shard| shard.snug_segment(want));
        snug.unwrap_or_else(|| (self.sizes_of(shard).segment_bytes(want.rounded), true))
    }
}
