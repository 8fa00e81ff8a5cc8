//! Getting memory from the driver, or from the source of a pool: segments, and ranges of addresses with pages in them.
//!
//! PyTorch tests the size of a plain segment against the limit and then maps whole pages, which are 20 MiB for large
//! requests: more than the limit, and more than a device may have left for a request that it has memory for. Unless the
//! settings ask for just that, an expandable segment ends in a shorter page where a whole one has no room.

use alloc::boxed::Box;

use super::phase::{Asked, Extension, Phase, Purpose, Reserve, Rung, Turned};
use super::step::{Outcome, Step};
use super::{Allocation, Allowance, Run};
use crate::books::{Addresses, PageCall};
use crate::ids::{BlockId, Place, PoolId, SegmentId, ShardId, Side};
use crate::memory::{Arrival, Extend, Growing};
use crate::settings::Backing;
use crate::size::exact_segment;
use crate::units::QUANTUM;

/// The bytes of the first range of a private pool's home.
const PIECE_BYTES: u64 = 1 << 30;

/// Where addresses are scarce, a range takes what is left divided by this.
const PARTS: u64 = 64;

impl Run<'_> {
    /// Asks the driver for what the request needs, if that may be reserved: PyTorch's `alloc_block`. `attempt` is the
    /// rung that tries it.
    pub(crate) fn grow(&mut self, attempt: Rung) -> Turned {
        let Allocation { shard, want } = self.plan.request.allocation();
        let bytes = self.core.needed_for(shard, &want, self.shards);
        self.core.turns.begin_attempt(&mut self.plan.standing);
        if let Some(turned) = self.empty_pools_that_are_over(false, attempt) {
            return turned;
        }
        if self.core.settings.throw_on_oom && self.core.headroom.with_asked() + bytes > self.core.throw_above() {
            return self.reject();
        }
        if self.plan.request.allowance == Allowance::Unasked {
            return Phase::Climb(attempt).after(Step::Budget);
        }
        if !self.core.headroom.admits(bytes, self.plan.request.allowance.most()) {
            return attempt.refused().turn();
        }
        if self.core.backing_of(shard) == Backing::Ranges {
            return self.extend(None, attempt);
        }
        self.new_segment(shard, bytes, attempt)
    }

    /// Asks the driver for a segment that may be reserved.
    pub(crate) fn new_segment(&mut self, shard: ShardId, bytes: u64, attempt: Rung) -> Turned {
        let slot = self.shards.with(shard, |shard| shard.memory.segments.promise());
        self.core.headroom.ask(bytes);
        let reserve = Reserve { slot, bytes, attempt, addresses: None };
        Asked::Memory(reserve).by(Step::Reserve { shard, slot, bytes })
    }

    /// Refuses without the retries, as `throw_on_cudamalloc_oom` asks; but not because of what other plans hold.
    pub(crate) fn reject(&mut self) -> Turned {
        if self.core.turns.others_hold(&self.plan.standing) {
            return Rung::Turn.turn();
        }
        let report = Box::new(self.report(true));
        self.appeal(report)
    }

    /// Reserves a range of addresses to grow in, in whole pages: 9/8 of the device, as PyTorch reserves. The home of a
    /// private pool begins with a [piece](PIECE_BYTES) of that, and each further range has as many bytes as all before
    /// it: there may be many pools, of which most are small. Where addresses are scarce, a part of what is left of
    /// them, so that there is always something left; but enough for the request. They are scarce where the device says
    /// how many it has, and where the driver has refused a range: then a part of that is tried, down to what the
    /// request needs. Before that, and before a private pool gets addresses, pools that are over give back what is idle
    /// of them, with its addresses; where addresses are not scarce, those alone in which no graph was captured.
    pub(crate) fn new_range(&mut self, attempt: Rung, addresses: Addresses) -> Turned {
        let Allocation { shard, want } = self.plan.request.allocation();
        let page = self.core.page_bytes(&want);
        let total = self.core.headroom.total_bytes;
        let most = total + total / 8;
        let left = self.core.ranges.left();
        let (needed, most, has_windows) = match addresses {
            // A block may have a capacity that the device has no memory for.
            Addresses::Home(bytes) if !self.plan.request.is_anywhere() => (bytes, most.max(bytes), false),
            Addresses::Home(bytes) => (bytes, most, false),
            // A window may be longer than the device: it has more of its pages than the request needs.
            Addresses::Windows(bytes) => (bytes, most.max(bytes), true),
        };
        let begins_small = self.core.is_shared(shard) && self.core.pool_of(shard) != PoolId::DEFAULT && !has_windows;
        let wished = match begins_small {
            true => {
                let had = self.shards.with(shard, |shard| shard.memory.segments.range_bytes());
                had.max(PIECE_BYTES).max(needed).min(most)
            }
            false => most,
        };
        let wished = wished.div_ceil(page).saturating_mul(page);
        let bytes = wished.min((left / PARTS).max(needed).div_ceil(page).saturating_mul(page));
        let is_scarce = left < wished;
        if let Some(turned) = self.empty_pools_that_are_over(is_scarce, attempt) {
            return turned;
        }
        if bytes < needed || bytes > left {
            self.plan.refused_addresses = Some(needed);
            // The plan makes do without a new window or without new pages, or with a segment of its own.
            if self.plan.gathers {
                let lacks = &mut self.plan.knows.lacks;
                *if has_windows { &mut lacks.windows } else { &mut lacks.homes } = true;
                return attempt.turn();
            }
            let room = self.core.headroom.room(self.plan.request.allowance.most()) / QUANTUM * QUANTUM;
            return match exact_segment(&want).min(room) {
                bytes if bytes >= want.rounded => self.new_segment(shard, bytes, attempt),
                _ => attempt.refused().turn(),
            };
        }
        let slot = self.shards.with(shard, |shard| shard.memory.segments.promise());
        let reserve = Reserve { slot, bytes, attempt, addresses: Some(addresses) };
        Asked::Memory(reserve).by(Step::ReserveRange { shard, slot, bytes })
    }

    /// Takes in the driver's answer to a request for a segment or a range.
    pub(crate) fn memory_answered(&mut self, reserve: Reserve, outcome: Outcome) -> Phase {
        let Reserve { slot, bytes, attempt, addresses } = reserve;
        let Allocation { shard, want } = self.plan.request.allocation();
        if addresses.is_none() {
            self.core.headroom.end_ask(bytes);
        }
        let Outcome::Reserved { address: base } = outcome else {
            self.shards.with(shard, |shard| shard.memory.segments.vacate(slot));
            return match outcome {
                // There are fewer addresses than that: the attempt asks for a shorter range, or makes do with none.
                Outcome::Refused if addresses.is_some() => {
                    self.core.ranges.refused(bytes);
                    Phase::Climb(attempt)
                }
                Outcome::Refused => Phase::Climb(attempt.refused()),
                Outcome::Failed => Phase::Over,
                other => panic!("{other:?} does not answer a request for memory"),
            };
        };
        let (id, side) = (SegmentId(self.core.births), want.side);
        self.core.births += 1;
        let mut arrival = Arrival { id, base, bytes, side, page_bytes: 0, shared: true, has_windows: false };
        let Some(addresses) = addresses else {
            self.core.headroom.gain_segment(side, bytes);
            self.core.pools.gain(self.core.pool_of(shard), side, bytes);
            arrival.shared = self.core.segment_for(shard, &want, self.shards).shared;
            return Phase::Serve(self.shards.with(shard, |shard| shard.memory.adopt(slot, arrival)));
        };
        arrival.page_bytes = self.core.page_bytes(&want);
        arrival.has_windows = matches!(addresses, Addresses::Windows(_));
        if self.core.backing == Backing::Pages {
            // Homes have memory of both sides, and new memory is on the large one.
            arrival.side = Side::Large;
        }
        self.shards.with(shard, |shard| shard.memory.adopt(slot, arrival));
        self.core.ranges.gain(bytes);
        self.plan.refused_addresses = None;
        Phase::Climb(attempt)
    }

    /// Makes an expandable segment long enough for the request: PyTorch's `try_allocate_expandable_block`, a step at a
    /// time. `claimed` is the plan's own claimed block, if it has one already.
    pub(crate) fn extend(&mut self, claimed: Option<BlockId>, attempt: Rung) -> Turned {
        let Allocation { shard, want } = self.plan.request.allocation();
        let is_bounded = self.core.settings.shorter_pages;
        let growing = Growing {
            unit: self.core.unit_of(&want),
            room: if is_bounded { self.core.headroom.room(self.plan.request.allowance.most()) } else { u64::MAX },
            is_short: self.plan.request.is_short,
        };
        match self.shards.with(shard, |shard| growing.extend(&mut shard.memory, claimed, &want)) {
            Extend::Serve(block) => self.serve(block),
            Extend::NoRoom => attempt.refused().turn(),
            Extend::Restart(block) => {
                self.shards.with(shard, |shard| shard.memory.unclaim(block, self.plan.request.clocks));
                let next = if self.plan.standing.may_repeat() { attempt } else { attempt.refused() };
                next.turn()
            }
            Extend::Map { gap, at, bytes, page_bytes, before, is_least } => {
                self.core.headroom.ask(bytes);
                // All pages are of one size but for the last one.
                let offsets = (0..bytes.div_ceil(page_bytes)).map(|number| number * page_bytes);
                let calls = offsets.flat_map(|offset| {
                    let length = page_bytes.min(bytes - offset);
                    let page = self.core.pages.insert(length, want.side);
                    let at = Place { offset: at.offset + offset, ..at };
                    [PageCall::Create { page, bytes: length }, PageCall::Map { page, at }]
                });
                let calls = calls.collect();
                Phase::call(calls, Purpose::Extend(Extension { gap, bytes, before, is_least, attempt }))
            }
            Extend::NewRange => self.new_range(attempt, Addresses::Home(want.rounded)),
        }
    }

    /// Notes that nothing is left of an extension that failed.
    pub(crate) fn extension_undone(&mut self, extension: Extension, refused: bool) -> Phase {
        let Extension { gap, bytes, before, is_least, attempt } = extension;
        let shard = self.plan.request.allocation().shard;
        self.core.headroom.end_ask(bytes);
        self.shards.with(shard, |shard| {
            shard.memory.unmapped(gap);
            if let Some(before) = before {
                shard.memory.unclaim(before, self.plan.request.clocks);
            }
        });
        match refused {
            // The driver may have what is missing, and no more.
            true if !is_least && !self.plan.request.is_short => {
                self.plan.request.is_short = true;
                Phase::Climb(attempt)
            }
            true => Phase::Climb(attempt.refused()),
            false => Phase::Over,
        }
    }
}
