//! Growth: the driver is asked for a segment, or for pages of an expandable one.

use alloc::boxed::Box;
use alloc::vec::Vec;

use millpond_backend::PageCaps;

use super::calls::{Batch, Purpose};
use super::plan::{Attempt, Awaited, Plan, REPEATS_MAX, Rung};
use super::step::{Outcome, PageCall, Step};
use super::{Coordinator, Shards};
use crate::block::State;
use crate::ids::{BlockId, Place, ShardId};
use crate::shard::{Arrival, Shard};
use crate::size::Want;

/// The divisor of the addresses that are left: where addresses are scarce, a new range takes one part of this many.
const PARTS: u64 = 64;

/// The next thing to do for an expandable segment that is to serve a request.
enum Extend {
    /// The claimed block is large enough and is handed out.
    Serve(BlockId),
    /// These addresses, now claimed, are to be mapped.
    Map(BlockId),
    /// Another plan took the block behind the claimed one: the extension begins anew.
    Restart,
    /// No range has room: one is to be reserved.
    NewRange,
}

impl Coordinator {
    /// Grows as PyTorch's `alloc_block` does.
    pub(super) fn grow(
        &mut self,
        plan: &mut Plan,
        attempt: Attempt,
        shard: ShardId,
        want: Want,
        shards: &mut impl Shards,
    ) -> Option<Step> {
        if plan.refused {
            self.after_refusal(plan, attempt, shards);
            return None;
        }
        let bytes = self.segment_for(shard, &want, shards).0;
        // An extension under way was admitted when it began.
        if plan.growing.is_none() {
            let after = self.reserved.all.current + self.reserving + bytes;
            self.begin_attempt(plan);
            if self.settings.throw_on_oom && after > self.throw_above() {
                return self.reject(plan, shard, want, shards);
            }
            let most = self.limit.unwrap_or(u64::MAX).min(plan.allowance.unwrap_or(u64::MAX));
            if after > most {
                plan.refused = true;
                return None;
            }
        }
        if self.settings.expands() || plan.growing.is_some() {
            return self.extend(plan, shard, want, shards);
        }
        let slot = shards.with(shard, |shard| shard.promise());
        self.reserving += bytes;
        Some(plan.awaits(Awaited::Segment { slot, bytes }, Step::Reserve { shard, slot, bytes }))
    }

    /// Refuses without the retries, as `throw_on_cudamalloc_oom` asks, unless other plans hold something: then the plan
    /// waits for its turn first.
    pub(super) fn reject(
        &mut self,
        plan: &mut Plan,
        shard: ShardId,
        want: Want,
        shards: &mut impl Shards,
    ) -> Option<Step> {
        if self.others_hold(plan) {
            plan.rung = Rung::Turn;
            return None;
        }
        self.scalars.num_oom_rejections += 1;
        Some(Step::Refuse(Box::new(self.report(shard, want, true, shards))))
    }

    /// Returns the number of bytes that `throw_on_cudamalloc_oom` compares with: the configured share of the device's
    /// bytes.
    pub(super) fn throw_above(&self) -> u64 {
        (self.settings.memory_fraction * self.facts.total_bytes as f64) as u64
    }

    /// Goes on to the next rung after the driver or the limit refused. Only one plan at a time uses the rest of the
    /// ladder.
    fn after_refusal(&mut self, plan: &mut Plan, attempt: Attempt, shards: &mut impl Shards) {
        plan.refused = false;
        match attempt {
            Attempt::First => plan.rung = Rung::Turn,
            Attempt::AfterOversize | Attempt::AfterWait => plan.rung = Rung::Flush,
            Attempt::Last => self.end_turn(plan, shards),
        }
    }

    /// Extends an expandable segment one step at a time, as PyTorch's `try_allocate_expandable_block` does.
    fn extend(&mut self, plan: &mut Plan, shard: ShardId, want: Want, shards: &mut impl Shards) -> Option<Step> {
        let growing = plan.growing;
        let clock = plan.clocks[want.side.index()];
        let (extend, growing) = shards.with(shard, |shard| next_extension(shard, growing, &want));
        plan.growing = growing;
        match extend {
            Extend::Serve(block) => {
                plan.growing = None;
                let grant = shards.with(shard, |shard| {
                    shard.absorb_behind(block);
                    shard.hand_out(block, &want, clock)
                });
                Some(Step::Grant(self.settled(shard, grant, shards)))
            }
            Extend::Restart => {
                self.give_up_growing(plan, shard, shards);
                plan.repeats += 1;
                plan.refused = plan.repeats > REPEATS_MAX;
                None
            }
            Extend::Map(block) => Some(self.map_new(plan, shard, block, shards)),
            Extend::NewRange => self.new_range(plan, shard, want, shards),
        }
    }

    /// Reserves a range of addresses to grow in: 9/8 of the device, in whole pages, as PyTorch does. Where addresses
    /// are scarce it takes a part of those that are left, so that some always remain, but enough for the request.
    pub(super) fn new_range(
        &mut self,
        plan: &mut Plan,
        shard: ShardId,
        want: Want,
        shards: &mut impl Shards,
    ) -> Option<Step> {
        let page = self.page_bytes(&want);
        let wished = (self.facts.total_bytes + self.facts.total_bytes / 8).div_ceil(page) * page;
        let left = self.addresses_left(shards);
        let bytes = wished.min((left / PARTS).max(want.rounded).div_ceil(page).saturating_mul(page));
        if bytes < want.rounded || bytes > left {
            plan.refused = true;
            return None;
        }
        let slot = shards.with(shard, |shard| shard.promise());
        Some(plan.awaits(Awaited::Range { slot, bytes }, Step::ReserveRange { shard, slot, bytes }))
    }

    /// Returns the number of bytes of addresses that are in no range yet.
    fn addresses_left(&self, shards: &mut impl Shards) -> u64 {
        match self.facts.pages {
            Some(PageCaps { address_bytes, .. }) if address_bytes < u64::MAX => {
                let taken: u64 = self.shard_ids().map(|id| shards.with(id, |shard| shard.range_bytes())).sum();
                address_bytes.saturating_sub(taken)
            }
            _ => u64::MAX,
        }
    }

    /// Creates and maps new pages, all of one size, for a claimed block of addresses.
    fn map_new(&mut self, plan: &mut Plan, shard: ShardId, block: BlockId, shards: &mut impl Shards) -> Step {
        let (slot, side, begin, bytes, page_bytes) = shards.with(shard, |shard| {
            let b = &shard.blocks[block];
            (b.slot, b.side, b.offset, b.size, shard.segments[b.slot].page_bytes)
        });
        self.reserving += bytes;
        let offsets = (0..bytes / page_bytes).map(|at| begin + at * page_bytes);
        let calls = offsets.flat_map(|offset| {
            let page = self.pages.insert(page_bytes, side);
            let at = Place { shard, slot, offset };
            [PageCall::Create { page, bytes: page_bytes }, PageCall::Map { page, at }]
        });
        let calls = calls.collect();
        self.make(plan, Purpose::Extend { block, bytes }, calls)
    }

    /// Books an extension all of whose pages are mapped.
    pub(super) fn extended(
        &mut self,
        plan: &mut Plan,
        block: BlockId,
        bytes: u64,
        calls: &[PageCall],
        shards: &mut impl Shards,
    ) {
        let (shard, want) = plan.request();
        for call in calls {
            if let PageCall::Map { page, at } = *call {
                self.moves_in(page, at, shards);
            }
        }
        self.reserving -= bytes;
        self.book_reserved(want.side, bytes);
        let before = plan.growing;
        plan.growing = Some(shards.with(shard, |shard| shard.mapped(block, before)));
    }

    /// Takes back what was mapped of an extension that failed after some calls, as PyTorch does.
    pub(super) fn undo_extension(
        &mut self,
        plan: &mut Plan,
        undo: Purpose,
        made: &[PageCall],
        shards: &mut impl Shards,
    ) {
        let calls: Vec<_> = made
            .iter()
            .rev()
            .map(|call| match *call {
                PageCall::Create { page, .. } => PageCall::Release { page },
                PageCall::Map { page, at } => PageCall::Unmap { page, at },
                other => panic!("{other:?} extends nothing"),
            })
            .collect();
        let Purpose::Undo { block, bytes, refused } = undo else { panic!("{undo:?} undoes nothing") };
        if calls.is_empty() {
            self.extension_undone(plan, block, bytes, refused, shards);
        } else {
            plan.batch = Some(Batch { calls, purpose: undo });
        }
    }

    /// Ends an extension that failed, after everything done for it was undone.
    pub(super) fn extension_undone(
        &mut self,
        plan: &mut Plan,
        block: BlockId,
        bytes: u64,
        refused: bool,
        shards: &mut impl Shards,
    ) {
        let (shard, _) = plan.request();
        self.reserving -= bytes;
        shards.with(shard, |shard| shard.unmapped(block));
        self.give_up_growing(plan, shard, shards);
        plan.not_grown(refused);
    }

    /// Returns the size of a page of `classic`'s expandable segments or, under `paged`, the unit of all page sizes, in
    /// bytes.
    fn page_bytes(&self, want: &Want) -> u64 {
        if self.settings.is_paged() {
            return self.granularity();
        }
        match self.facts.pages {
            Some(pages) => self.sizes.page_bytes(want.side, pages.granularity),
            None => panic!("a device without virtual memory is asked for pages"),
        }
    }

    /// Puts a claimed block that will not be handed out back into the index.
    fn give_up_growing(&mut self, plan: &mut Plan, shard: ShardId, shards: &mut impl Shards) {
        if let Some(block) = plan.growing.take() {
            let clock = plan.clocks[plan.request().1.side.index()];
            shards.with(shard, |shard| shard.unclaim(block, clock));
        }
    }

    /// Processes the outcome of a step that asked the driver for memory.
    pub(super) fn learn_growth(
        &mut self,
        plan: &mut Plan,
        awaited: Awaited,
        outcome: Outcome,
        shards: &mut impl Shards,
    ) {
        let (shard, want) = plan.request();
        match (awaited, outcome) {
            (Awaited::Segment { slot, bytes }, Outcome::Reserved { address }) => {
                self.reserving -= bytes;
                self.book_reserved(want.side, bytes);
                self.book_segment(want.side, bytes, true);
                let shared = self.segment_for(shard, &want, shards).1;
                let arrival = Arrival { shared, ..self.arrival(address, bytes, &want, 0) };
                plan.growing = Some(shards.with(shard, |shard| shard.adopt(slot, arrival)));
            }
            (Awaited::Range { slot, bytes }, Outcome::Reserved { address }) => {
                let page = self.page_bytes(&want);
                let arrival = self.arrival(address, bytes, &want, page);
                shards.with(shard, |shard| shard.adopt(slot, arrival));
            }
            (Awaited::Segment { slot, bytes }, outcome @ (Outcome::Refused | Outcome::Failed)) => {
                self.reserving -= bytes;
                shards.with(shard, |shard| shard.unpromise(slot));
                plan.not_grown(outcome == Outcome::Refused);
            }
            (Awaited::Range { slot, .. }, outcome @ (Outcome::Refused | Outcome::Failed)) => {
                shards.with(shard, |shard| shard.unpromise(slot));
                plan.not_grown(outcome == Outcome::Refused);
            }
            (awaited, outcome) => panic!("{outcome:?} does not answer {awaited:?}"),
        }
    }

    /// Returns the length in bytes of the segment to take after a miss, and whether blocks are cut from it.
    pub(super) fn segment_for(&self, shard: ShardId, want: &Want, shards: &mut impl Shards) -> (u64, bool) {
        let snug = shards.with(shard, |shard| shard.snug_segment(want));
        snug.unwrap_or_else(|| (self.sizes.segment_bytes(want.rounded), true))
    }

    fn arrival(&mut self, base: u64, bytes: u64, want: &Want, page_bytes: u64) -> Arrival {
        Arrival { id: self.birth(), base, bytes, side: want.side, page_bytes, shared: true }
    }
}

/// Decides how to go on with an expandable segment, and claims what that needs.
fn next_extension(shard: &mut Shard, growing: Option<BlockId>, want: &Want) -> (Extend, Option<BlockId>) {
    let growing = match growing {
        Some(block) => block,
        None => match shard.room_to_grow(want) {
            None => return (Extend::NewRange, None),
            Some(start) if shard.blocks[start].state == State::Free => {
                shard.claim(start);
                start
            }
            Some(start) => {
                let bytes = want.rounded.min(shard.blocks[start].size);
                shard.claim_addresses(start, bytes);
                return (Extend::Map(start), None);
            }
        },
    };
    let block = &shard.blocks[growing];
    if block.size >= want.rounded {
        return (Extend::Serve(growing), Some(growing));
    }
    let missing = want.rounded - block.size;
    match block.next.some().filter(|&next| shard.blocks[next].state == State::Unmapped) {
        Some(next) => {
            let bytes = missing.min(shard.blocks[next].size);
            shard.claim_addresses(next, bytes);
            (Extend::Map(next), Some(growing))
        }
        None => (Extend::Restart, Some(growing)),
    }
}
