//! Expandable segments: ranges of addresses that grow by pages, which stay where they are.

use alloc::vec::Vec;

use crate::coordinator::calls::{After, Batch, Extension, Purpose};
use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::plan::Plan;
use crate::coordinator::step::PageCall;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{BlockId, Place, ShardId};
use crate::policy::Climb;
use crate::segment::Role;
use crate::shard::{Addresses, Extend};

impl Coordinator {
    /// Makes an expandable segment long enough for the request: PyTorch's `try_allocate_expandable_block`, a step at a
    /// time. `growing` is the plan's own claimed block, if it has one already.
    pub(crate) fn extend(
        &mut self,
        growing: Option<BlockId>,
        attempt: Climb,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Turned {
        let (shard, want) = plan.request.allocation();
        match shards.with(shard, |shard| shard.extend(growing, &want)) {
            Extend::Serve(block) => self.serve(block, plan, shards),
            Extend::Restart(block) => {
                shards.with(shard, |shard| shard.unclaim(block, plan.request.clocks));
                let next = if plan.standing.may_repeat() { attempt } else { attempt.refused() };
                Phase::Climb(next).turn()
            }
            Extend::Map { gap, before } => self.map_new(shard, gap, before, attempt, shards),
            Extend::NewRange => self.new_range(attempt, plan, shards),
        }
    }

    /// Creates pages for claimed addresses, all of one size.
    fn map_new(
        &mut self,
        shard: ShardId,
        gap: BlockId,
        before: Option<BlockId>,
        attempt: Climb,
        shards: &mut dyn Shards,
    ) -> Turned {
        let Addresses { slot, side, begin, bytes, page_bytes } = shards.with(shard, |shard| shard.addresses_of(gap));
        self.headroom.ask(bytes);
        let offsets = (0..bytes / page_bytes).map(|at| begin + at * page_bytes);
        let calls = offsets.flat_map(|offset| {
            let page = self.pages.insert(page_bytes, side);
            let at = Place { shard, slot, offset };
            [PageCall::Create { page, bytes: page_bytes }, PageCall::Map { page, at }]
        });
        let calls = calls.collect();
        Phase::call(Batch::new(calls, Purpose::Extend(Extension { gap, bytes, before, attempt })))
    }

    /// Notes that all pages of an extension are mapped.
    pub(crate) fn extended(
        &mut self,
        extension: Extension,
        calls: &[PageCall],
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Phase {
        let Extension { gap, bytes, before, attempt } = extension;
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
        let Extension { gap, bytes, before, attempt } = extension;
        let (shard, _) = plan.request.allocation();
        self.headroom.end_ask(bytes);
        shards.with(shard, |shard| {
            shard.unmapped(gap);
            if let Some(before) = before {
                shard.unclaim(before, plan.request.clocks);
            }
        });
        match after {
            After::Refused => Phase::Climb(attempt.refused()),
            After::Over => Phase::Over,
        }
    }
}
