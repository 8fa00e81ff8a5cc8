//! Ranges of addresses, for the policies that map pages in them.

use crate::coordinator::phase::{Asked, Phase, Reserve, Turned};
use crate::coordinator::plan::Plan;
use crate::coordinator::step::{Outcome, Step};
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{PoolId, ShardId, Side, Slot};
use crate::policy::{Climb, Source};
use crate::shard::Arrival;
use crate::size::Want;
use crate::units::{QUANTUM, SMALL_SEGMENT_BYTES};

/// What a range of addresses is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Addresses {
    /// Pages have their homes there. The number is the bytes of new pages that the range is needed for.
    Home(u64),
    /// Windows. The number is the length in bytes of the one that the range is needed for.
    Windows(u64),
}

/// The bytes of the first range of a private pool's home.
const PIECE_BYTES: u64 = 1 << 30;

/// Where addresses are scarce, a range takes what is left divided by this.
const PARTS: u64 = 64;

impl Coordinator {
    /// Reserves a range of addresses to grow in, in whole pages: 9/8 of the device, as PyTorch reserves. The home of a
    /// private pool begins with a [piece](PIECE_BYTES) of that, and each further range has as many bytes as all before
    /// it: there may be many pools, of which most are small. Where addresses are scarce, a part of what is left of
    /// them, so that there is always something left; but enough for the request. They are scarce where the device says
    /// how many it has, and where the driver has refused a range: then a part of that is tried, down to what the
    /// request needs. Before that, and before a private pool gets addresses, pools that are over give back what is idle
    /// of them, with its addresses; where addresses are not scarce, those alone in which no graph was captured.
    pub(crate) fn new_range(&mut self, attempt: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let (_, want) = plan.request.allocation();
        self.new_range_for(attempt, Addresses::Home(want.rounded), plan, shards)
    }

    /// Does the work of [`new_range`](Self::new_range) also for windows.
    pub(crate) fn new_range_for(
        &mut self,
        attempt: Climb,
        addresses: Addresses,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Turned {
        let (shard, want) = plan.request.allocation();
        let page = self.page_bytes(&want);
        let total = self.headroom.total_bytes();
        let most = total + total / 8;
        let left = self.ranges.left();
        let (needed, most, has_windows) = match addresses {
            Addresses::Home(bytes) => (bytes, most, false),
            // A window may be longer than the device: it has more of its pages than the request needs.
            Addresses::Windows(bytes) => (bytes, most.max(bytes), true),
        };
        let begins_small = self.is_shared(shard) && self.pool_of(shard) != PoolId::DEFAULT && !has_windows;
        let wished = match begins_small {
            true => shards.with(shard, |shard| shard.range_bytes()).max(PIECE_BYTES).max(needed).min(most),
            false => most,
        };
        let wished = wished.div_ceil(page).saturating_mul(page);
        let bytes = wished.min((left / PARTS).max(needed).div_ceil(page).saturating_mul(page));
        let is_scarce = left < wished;
        if (begins_small || is_scarce) && !core::mem::replace(&mut plan.emptied_pools, true) {
            // Pools that come and go keep no more memory than those that are there, and no more homes.
            let (sweep, streams) = self.sweep_pools_that_are_over(is_scarce, shards);
            let next = sweep.then(Phase::Climb(attempt));
            return if streams.is_empty() { next.turn() } else { next.after(Step::Poll(streams)) };
        }
        if bytes < needed || bytes > left {
            plan.refused_addresses = Some(needed);
            return self.without_range(attempt, has_windows, plan, shards);
        }
        let slot = shards.with(shard, |shard| shard.promise());
        let step = Step::ReserveRange { shard, slot, bytes };
        (Phase::Asked(Asked::Range(Reserve { slot, bytes, attempt, has_windows })), Some(step))
    }

    /// Goes on with a plan that gets no range: it makes do without a new window or without new pages, or with a segment
    /// of its own.
    fn without_range(&mut self, attempt: Climb, has_windows: bool, plan: &Plan, shards: &mut dyn Shards) -> Turned {
        let next = match attempt {
            Climb::Pages(climb) if has_windows => climb.without_windows(),
            Climb::Pages(climb) => climb.without_homes(),
            other => {
                let (shard, want) = plan.request.allocation();
                let room = self.headroom.room(plan.request.allowance.most()) / QUANTUM * QUANTUM;
                return match exact_segment(&want).min(room) {
                    bytes if bytes >= want.rounded => self.new_segment(shard, bytes, other, shards),
                    _ => Phase::Climb(other.refused()).turn(),
                };
            }
        };
        Phase::Climb(Climb::Pages(next)).turn()
    }

    /// Takes in the driver's answer to a request for a range.
    pub(crate) fn range_answered(
        &mut self,
        reserve: Reserve,
        outcome: Outcome,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Phase {
        let Reserve { slot, bytes, attempt, has_windows } = reserve;
        let (shard, want) = plan.request.allocation();
        let Outcome::Reserved { address } = outcome else {
            if outcome == Outcome::Refused {
                // There are fewer addresses than that: the attempt asks for a shorter range, or makes do with none.
                shards.with(shard, |shard| shard.unpromise(slot));
                self.ranges.refused(bytes);
                return Phase::Climb(attempt);
            }
            return not_reserved(shard, slot, attempt, outcome, shards);
        };
        let page = self.page_bytes(&want);
        let mut arrival = self.arrival(address, bytes, &want, page);
        arrival.has_windows = has_windows;
        if self.traits.source == Source::Pages {
            // Homes have memory of both sides, and new memory is on the large one.
            arrival.side = Side::Large;
        }
        shards.with(shard, |shard| shard.adopt(slot, arrival));
        self.ranges.gain(bytes);
        plan.refused_addresses = None;
        Phase::Climb(attempt)
    }

    /// Returns the bytes of a page: of classic's expandable segments, or under `paged` the unit of all pages.
    fn page_bytes(&self, want: &Want) -> u64 {
        match self.traits.source {
            Source::Pages => self.granularity(),
            _ => self.sizes.page_bytes(want.side, self.granularity()),
        }
    }

    /// Returns the least bytes of a page.
    ///
    /// # Panics
    ///
    /// On a device without virtual memory.
    pub(crate) fn granularity(&self) -> u64 {
        match self.facts.pages {
            Some(pages) => pages.granularity,
            None => panic!("a device without virtual memory is asked for pages"),
        }
    }

    /// Returns a new segment or range as its shard takes it in.
    pub(super) fn arrival(&mut self, base: u64, bytes: u64, want: &Want, page_bytes: u64) -> Arrival {
        Arrival { id: self.birth(), base, bytes, side: want.side, page_bytes, shared: true, has_windows: false }
    }
}

/// Returns the bytes of a segment that serves where there are no addresses: no more than the request needs, as many
/// requests may have to have one of their own.
pub(crate) fn exact_segment(want: &Want) -> u64 {
    want.rounded.next_multiple_of(SMALL_SEGMENT_BYTES)
}

/// Frees the place of a segment or a range that the driver did not give.
pub(super) fn not_reserved(
    shard: ShardId,
    slot: Slot,
    attempt: Climb,
    outcome: Outcome,
    shards: &mut dyn Shards,
) -> Phase {
    shards.with(shard, |shard| shard.unpromise(slot));
    match outcome {
        Outcome::Refused => Phase::Climb(attempt.refused()),
        Outcome::Failed => Phase::Over,
        other => panic!("{other:?} does not answer a request for memory"),
    }
}
