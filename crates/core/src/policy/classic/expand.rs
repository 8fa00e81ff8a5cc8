//! Expandable segments: ranges of addresses that grow by pages, which stay where they are.
//!
//! PyTorch tests the size of a plain segment against the limit and then maps whole pages, which are 20 MiB for large
//! requests: more than the limit, and more than a device may have left for a request that it has memory for. Unless the
//! settings ask for just that, a range ends in a shorter page where a whole one has no room.

use alloc::vec::Vec;

use crate::coordinator::calls::{After, Batch, Extension, Purpose};
use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::plan::Plan;
use crate::coordinator::step::PageCall;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{BlockId, Place, ShardId};
use crate::policy::{Climb, Source};
use crate::segment::Role;
use crate::shard::{Addresses, Extend, Growing};
use crate::size::Want;

impl Coordinator {
    /// Returns the unit of new memory in expandable segments, in bytes: a whole page where the settings follow PyTorch.
    fn unit_of(&self, want: &Want) -> u64 {
        if self.settings.shorter_pages {
            self.granularity()
        } else {
            self.sizes.page_bytes(want.side, self.granularity())
        }
    }

    /// Returns the bytes that the driver has to give for a request that nothing free serves: PyTorch's `alloc_size`, or
    /// in expandable segments no more than what is missing.
    pub(crate) fn needed_for(&self, shard: ShardId, want: &Want, shards: &mut dyn Shards) -> u64 {
        if self.traits_of(shard).source == Source::Ranges && self.settings.shorter_pages {
            let unit = self.unit_of(want);
            return shards.with(shard, |shard| shard.least_to_map(want, unit));
        }
        self.segment_for(shard, want, shards).0
    }

    /// Makes an expandable segment long enough for the request: PyTorch's `try_allocate_expandable_block`, a step at a
    /// time. `claimed` is the plan's own claimed block, if it has one already.
    pub(crate) fn extend(
        &mut self,
        claimed: Option<BlockId>,
        attempt: Climb,
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
        match shards.with(shard, |shard| shard.extend(claimed, &want, growing)) {
            Extend::Serve(block) => self.serve(block, plan, shards),
            Extend::NoRoom => Phase::Climb(attempt.refused()).turn(),
            Extend::Restart(block) => {
                shards.with(shard, |shard| shard.unclaim(block, plan.request.clocks));
                let next = if plan.standing.may_repeat() { attempt } else { attempt.refused() };
                Phase::Climb(next).turn()
            }
            Extend::Map { gap, before, is_least } => {
                let extension = Extension { gap, bytes: 0, before, is_least, attempt };
                self.map_new(shard, extension, shards)
            }
            Extend::NewRange => self.new_range(attempt, plan, shards),
        }
    }

    /// Creates pages for claimed addresses, all of one size but for the last one.
    fn map_new(&mut self, shard: ShardId, extension: Extension, shards: &mut dyn Shards) -> Turned {
        let Addresses { slot, side, begin, bytes, page_bytes } =
            shards.with(shard, |shard| shard.addresses_of(extension.gap));
        self.headroom.ask(bytes);
        let offsets = (0..bytes.div_ceil(page_bytes)).map(|at| at * page_bytes);
        let calls = offsets.flat_map(|offset| {
            let length = page_bytes.min(bytes - offset);
            let page = self.pages.insert(length, side);
            let at = Place { shard, slot, offset: begin + offset };
            [PageCall::Create { page, bytes: length }, PageCall::Map { page, at }]
        });
        let calls = calls.collect();
        Phase::call(Batch::new(calls, Purpose::Extend(Extension { bytes, ..extension })))
    }

    /// Notes that all pages of an extension are mapped.
    pub(crate) fn extended(
        &mut self,
        extension: Extension,
        calls: &[PageCall],
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Phase {
        let Extension { gap, bytes, before, attempt, .. } = extension;
        let (shard, want) = plan.request.allocation();
        for call in calls {
            if let PageCall::Map { page, at } = *call {
                self.page_arrives(page, at, Role::Home, shards);
            }
        }
        self.headroom.end_ask(bytes);
        self.headroom.gain(want.side, bytes);
        Phase::Extend(shards.with(shard, |shard| shard.mapped(gap, before)), attempt)
    }

    /// Begins to take back what was mapped before a call of an extension failed, as PyTorch does.
    pub(crate) fn undo_extension(
        &mut self,
        extension: Extension,
        after: After,
        made: &[PageCall],
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Phase {
        let undo = |call: &PageCall| match *call {
            PageCall::Create { page, .. } => PageCall::Release { page },
            PageCall::Map { page, at } => PageCall::Unmap { page, at },
            other => panic!("{other:?} extends nothing"),
        };
        let calls: Vec<_> = made.iter().rev().map(undo).collect();
        if calls.is_empty() {
            return self.extension_undone(extension, after, plan, shards);
        }
        Phase::Calls(Batch::new(calls, Purpose::Undo(extension, after)))
    }

    /// Notes that nothing is left of an extension that failed.
    pub(crate) fn extension_undone(
        &mut self,
        extension: Extension,
        after: After,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Phase {
        let Extension { gap, bytes, before, is_least, attempt } = extension;
        let (shard, _) = plan.request.allocation();
        self.headroom.end_ask(bytes);
        shards.with(shard, |shard| {
            shard.unmapped(gap);
            if let Some(before) = before {
                shard.unclaim(before, plan.request.clocks);
            }
        });
        match after {
            // The driver may have what is missing, and no more.
            After::Refused if !is_least && !plan.request.is_short => {
                plan.request.is_short = true;
                Phase::Climb(attempt)
            }
            After::Refused => Phase::Climb(attempt.refused()),
            After::Over => Phase::Over,
        }
    }
}
