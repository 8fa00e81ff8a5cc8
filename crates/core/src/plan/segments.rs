//! Getting memory from the driver, or from the source of a pool: segments, and ranges of addresses with pages in them.
//!
//! PyTorch tests the size of a plain segment against the limit and then maps whole pages, which are 20 MiB for large
//! requests: more than the limit, and more than a device may have left for a request that it has memory for. Unless the
//! settings ask for just that, an expandable segment ends in a shorter page where a whole one has no room.

use alloc::boxed::Box;

use crate::block::LastUse;
use crate::books::Addresses;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{BlockId, Place, PoolId, SegmentId, ShardId, Side};
use crate::memory::{Arrival, Extend, Growing, least_to_map};
use crate::plan::Rung;
use crate::plan::phase::{Asked, Phase, Reserve, Turned};
use crate::plan::phase::{Extension, Purpose};
use crate::plan::step::{Outcome, PageCall, Step};
use crate::plan::{Allowance, Plan};
use crate::policy::Source;
use crate::size::{Want, exact_segment};
use crate::units::QUANTUM;

/// The bytes of the first range of a private pool's home.
const PIECE_BYTES: u64 = 1 << 30;

/// Where addresses are scarce, a range takes what is left divided by this.
const PARTS: u64 = 64;

impl Coordinator {
    /// Asks the driver for what the request needs, if that may be reserved: PyTorch's `alloc_block`. `attempt` is the
    /// rung that tries it.
    pub(crate) fn grow(&mut self, attempt: Rung, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let (shard, want) = plan.request.allocation();
        let bytes = self.needed_for(shard, &want, shards);
        self.turns.begin_attempt(&mut plan.standing);
        if let Some(turned) = self.empty_pools_that_are_over(false, attempt, plan, shards) {
            return turned;
        }
        if self.settings.throw_on_oom && self.headroom.with_asked() + bytes > self.throw_above() {
            return self.reject(plan, shards);
        }
        if plan.request.allowance == Allowance::Unasked {
            return Phase::Climb(attempt).after(Step::Budget);
        }
        if !self.headroom.admits(bytes, plan.request.allowance.most()) {
            return attempt.refused().turn();
        }
        if self.traits_of(shard).source == Source::Ranges {
            return self.extend(None, attempt, plan, shards);
        }
        self.new_segment(shard, bytes, attempt, shards)
    }

    /// Asks the driver for a segment that may be reserved.
    pub(crate) fn new_segment(&mut self, shard: ShardId, bytes: u64, attempt: Rung, shards: &mut dyn Shards) -> Turned {
        let slot = shards.with(shard, |shard| shard.memory.segments.promise());
        self.headroom.ask(bytes);
        let reserve = Reserve { slot, bytes, attempt, addresses: None };
        (Phase::Asked(Asked::Memory(reserve)), Some(Step::Reserve { shard, slot, bytes }))
    }

    /// Refuses without the retries, as `throw_on_cudamalloc_oom` asks; but not because of what other plans hold.
    pub(crate) fn reject(&mut self, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        if self.turns.others_hold(&plan.standing) {
            return Rung::Turn.turn();
        }
        self.scalars.num_oom_rejections += 1;
        Phase::end(Step::Refuse(Box::new(self.report(plan, true, shards))))
    }

    /// Returns what `throw_on_cudamalloc_oom` compares with: the configured share of the device's bytes.
    pub(crate) fn throw_above(&self) -> u64 {
        self.headroom.share(self.settings.memory_fraction)
    }

    /// Reserves a range of addresses to grow in, in whole pages: 9/8 of the device, as PyTorch reserves. The home of a
    /// private pool begins with a [piece](PIECE_BYTES) of that, and each further range has as many bytes as all before
    /// it: there may be many pools, of which most are small. Where addresses are scarce, a part of what is left of
    /// them, so that there is always something left; but enough for the request. They are scarce where the device says
    /// how many it has, and where the driver has refused a range: then a part of that is tried, down to what the
    /// request needs. Before that, and before a private pool gets addresses, pools that are over give back what is idle
    /// of them, with its addresses; where addresses are not scarce, those alone in which no graph was captured.
    pub(crate) fn new_range(
        &mut self,
        attempt: Rung,
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
            true => {
                shards.with(shard, |shard| shard.memory.segments.range_bytes()).max(PIECE_BYTES).max(needed).min(most)
            }
            false => most,
        };
        let wished = wished.div_ceil(page).saturating_mul(page);
        let bytes = wished.min((left / PARTS).max(needed).div_ceil(page).saturating_mul(page));
        let is_scarce = left < wished;
        if let Some(turned) = self.empty_pools_that_are_over(is_scarce, attempt, plan, shards) {
            return turned;
        }
        if bytes < needed || bytes > left {
            plan.refused_addresses = Some(needed);
            // The plan makes do without a new window or without new pages, or with a segment of its own.
            if plan.gathers {
                let lacks = &mut plan.knows.lacks;
                *if has_windows { &mut lacks.windows } else { &mut lacks.homes } = true;
                return attempt.turn();
            }
            let room = self.headroom.room(plan.request.allowance.most()) / QUANTUM * QUANTUM;
            return match exact_segment(&want).min(room) {
                bytes if bytes >= want.rounded => self.new_segment(shard, bytes, attempt, shards),
                _ => attempt.refused().turn(),
            };
        }
        let slot = shards.with(shard, |shard| shard.memory.segments.promise());
        let reserve = Reserve { slot, bytes, attempt, addresses: Some(addresses) };
        (Phase::Asked(Asked::Memory(reserve)), Some(Step::ReserveRange { shard, slot, bytes }))
    }

    /// Takes in the driver's answer to a request for a segment or a range.
    pub(crate) fn memory_answered(
        &mut self,
        reserve: Reserve,
        outcome: Outcome,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Phase {
        let Reserve { slot, bytes, attempt, addresses } = reserve;
        let (shard, want) = plan.request.allocation();
        if addresses.is_none() {
            self.headroom.end_ask(bytes);
        }
        let Outcome::Reserved { address: base } = outcome else {
            shards.with(shard, |shard| shard.memory.segments.vacate(slot));
            return match outcome {
                // There are fewer addresses than that: the attempt asks for a shorter range, or makes do with none.
                Outcome::Refused if addresses.is_some() => {
                    self.ranges.refused(bytes);
                    Phase::Climb(attempt)
                }
                Outcome::Refused => Phase::Climb(attempt.refused()),
                Outcome::Failed => Phase::Over,
                other => panic!("{other:?} does not answer a request for memory"),
            };
        };
        let (id, side) = (SegmentId(self.births), want.side);
        self.births += 1;
        let mut arrival = Arrival { id, base, bytes, side, page_bytes: 0, shared: true, has_windows: false };
        let Some(addresses) = addresses else {
            self.headroom.gain_segment(side, bytes);
            self.pools.gain(self.pool_of(shard), side, bytes);
            arrival.shared = self.segment_for(shard, &want, shards).1;
            return Phase::Serve(shards.with(shard, |shard| shard.memory.adopt(slot, arrival)));
        };
        arrival.page_bytes = self.page_bytes(&want);
        arrival.has_windows = matches!(addresses, Addresses::Windows(_));
        if self.traits.source == Source::Pages {
            // Homes have memory of both sides, and new memory is on the large one.
            arrival.side = Side::Large;
        }
        shards.with(shard, |shard| shard.memory.adopt(slot, arrival));
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
        self.facts.pages.expect("a device without virtual memory is asked for pages").granularity
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

    /// Returns the unit of new memory in expandable segments, in bytes: a whole page where the settings follow PyTorch.
    fn unit_of(&self, want: &Want) -> u64 {
        if self.settings.shorter_pages { self.granularity() } else { self.page_bytes(want) }
    }

    /// Returns the bytes that the driver has to give for a request that nothing free serves: PyTorch's `alloc_size`, or
    /// in expandable segments no more than what is missing.
    pub(crate) fn needed_for(&self, shard: ShardId, want: &Want, shards: &mut dyn Shards) -> u64 {
        if self.traits_of(shard).source == Source::Ranges && self.settings.shorter_pages {
            let unit = self.unit_of(want);
            return shards.with(shard, |shard| least_to_map(&shard.memory, want, unit));
        }
        self.segment_for(shard, want, shards).0
    }

    /// Makes an expandable segment long enough for the request: PyTorch's `try_allocate_expandable_block`, a step at a
    /// time. `claimed` is the plan's own claimed block, if it has one already.
    pub(crate) fn extend(
        &mut self,
        claimed: Option<BlockId>,
        attempt: Rung,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Turned {
        let (shard, want) = plan.request.allocation();
        let is_bounded = self.settings.shorter_pages;
        let growing = Growing {
            unit: self.unit_of(&want),
            room: if is_bounded { self.headroom.room(plan.request.allowance.most()) } else { u64::MAX },
            is_short: plan.request.is_short,
        };
        match shards.with(shard, |shard| growing.extend(&mut shard.memory, claimed, &want)) {
            Extend::Serve(block) => self.serve(block, plan, shards),
            Extend::NoRoom => attempt.refused().turn(),
            Extend::Restart(block) => {
                shards.with(shard, |shard| shard.memory.unclaim(block, plan.request.clocks));
                let next = if plan.standing.may_repeat() { attempt } else { attempt.refused() };
                next.turn()
            }
            Extend::Map { gap, at, bytes, page_bytes, before, is_least } => {
                self.headroom.ask(bytes);
                // All pages are of one size but for the last one.
                let offsets = (0..bytes.div_ceil(page_bytes)).map(|number| number * page_bytes);
                let calls = offsets.flat_map(|offset| {
                    let length = page_bytes.min(bytes - offset);
                    let page = self.pages.insert(length, want.side);
                    let at = Place { offset: at.offset + offset, ..at };
                    [PageCall::Create { page, bytes: length }, PageCall::Map { page, at }]
                });
                let calls = calls.collect();
                Phase::call(calls, Purpose::Extend(Extension { gap, bytes, before, is_least, attempt }))
            }
            Extend::NewRange => self.new_range(attempt, Addresses::Home(want.rounded), plan, shards),
        }
    }

    /// Notes that nothing is left of an extension that failed.
    pub(crate) fn extension_undone(
        &mut self,
        extension: Extension,
        refused: bool,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Phase {
        let Extension { gap, bytes, before, is_least, attempt } = extension;
        let (shard, _) = plan.request.allocation();
        self.headroom.end_ask(bytes);
        shards.with(shard, |shard| {
            shard.memory.unmapped(gap);
            if let Some(before) = before {
                shard.memory.unclaim(before, plan.request.clocks);
            }
        });
        match refused {
            // The driver may have what is missing, and no more.
            true if !is_least && !plan.request.is_short => {
                plan.request.is_short = true;
                Phase::Climb(attempt)
            }
            true => Phase::Climb(attempt.refused()),
            false => Phase::Over,
        }
    }
}
