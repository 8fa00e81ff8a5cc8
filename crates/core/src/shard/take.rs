//! Finding a free block and handing it out.

use millpond_backend::Tick;

use super::{Grant, Shard};
use crate::block::{Block, State};
use crate::ids::{BlockId, Side};
use crate::index::Entry;
use crate::meter::SplitChange;
use crate::size::Want;
use crate::units::{QUANTUM, SMALL_BYTES};

impl Shard {
    /// Hands out a free block of this shard, or reports a miss.
    ///
    /// `usable` is the tick of the home stream up to which freed memory may be handed out again, `clock` the count of
    /// searches on that side (0 unless garbage collection counts them).
    #[inline]
    pub fn allocate(&mut self, want: &Want, clock: u64, usable: Tick) -> Option<Grant> {
        if !self.settling.is_empty() && self.settle_home(usable, clock) {
            // A peak is to be settled first; the way of a miss does that and comes back here.
            return None;
        }
        let found = self.find(want)?;
        Some(self.take(found.block, want, clock))
    }

    /// PyTorch's `get_free_block`: best fit, with the rules for expandable and for oversize blocks. Only one candidate
    /// is tested; there is no look further along.
    #[inline]
    pub(crate) fn find(&self, want: &Want) -> Option<Entry> {
        if !self.rules.caches {
            return None;
        }
        let mut found = self.pools[want.side.index()].free.best_fit(want.rounded)?;
        if self.rules.expandable {
            found = self.least_reach(found, want.side);
        }
        let max_split = self.rules.max_split;
        if want.rounded < max_split {
            // Oversize blocks are kept for oversize requests.
            (found.size < max_split).then_some(found)
        } else {
            (found.size < want.rounded.saturating_add(self.rules.non_split_rounding)).then_some(found)
        }
    }

    /// For best fit in expandable segments a block counts with what it could grow to: go on while that shrinks.
    fn least_reach(&self, mut found: Entry, side: Side) -> Entry {
        while let Some(next) = self.pools[side.index()].free.next_after(&found) {
            if self.reach(next.block) >= self.reach(found.block) {
                break;
            }
            found = next;
        }
        found
    }

    fn reach(&self, id: BlockId) -> u64 {
        let block = &self.blocks[id];
        let behind = block.next.some().map(|next| &self.blocks[next]);
        block.size + behind.filter(|next| next.state == State::Unmapped).map_or(0, |next| next.size)
    }

    /// Hands out the front of a free block.
    #[inline]
    pub(crate) fn take(&mut self, id: BlockId, want: &Want, clock: u64) -> Grant {
        let entry = self.entry(id);
        self.pool_mut(want.side).free.remove(&entry);
        self.hand_out(id, want, clock)
    }

    /// Hands out the front of a block that is in no index, and puts what is left over into the index.
    pub(crate) fn hand_out(&mut self, id: BlockId, want: &Want, clock: u64) -> Grant {
        let block = &self.blocks[id];
        assert!(block.size >= want.rounded, "block of {} bytes taken for {}", block.size, want.rounded);
        let was_split = block.is_split();
        let rest = block.size - want.rounded;
        let segment = &self.segments[block.slot];
        let (segment_id, base, expandable) = (segment.id, segment.base, segment.is_expandable());
        let splits = self.splits(want, rest);
        if splits {
            self.split(id, want.rounded, clock);
        }
        let block = &mut self.blocks[id];
        block.state = State::Live;
        block.requested = want.requested;
        let change = match (expandable, splits, was_split) {
            (true, ..) | (_, false, false) => SplitChange::default(),
            (_, true, true) => SplitChange { blocks: 0, bytes: -(want.rounded as i64) },
            (_, true, false) => SplitChange { blocks: 1, bytes: rest as i64 },
            (_, false, true) => SplitChange { blocks: -1, bytes: -(block.size as i64) },
        };
        let oversize = block.size >= self.rules.max_split;
        let unsettled = self.meter.grant(want.side, block.size, want.requested, oversize, change);
        Grant {
            block: id,
            shard: self.id,
            slot: block.slot,
            segment: segment_id,
            offset: block.offset,
            size: block.size,
            base,
            last_use: block.tick,
            unsettled,
        }
    }

    /// PyTorch's `should_split`.
    fn splits(&self, want: &Want, rest: u64) -> bool {
        if !self.rules.caches {
            return false;
        }
        match want.side {
            Side::Small => rest >= QUANTUM,
            Side::Large if self.rules.expandable => rest >= QUANTUM,
            Side::Large => want.rounded < self.rules.max_split && rest > SMALL_BYTES,
        }
    }

    /// Cuts a block behind its first `size` bytes; the rest becomes a free block of its own.
    fn split(&mut self, id: BlockId, size: u64, clock: u64) {
        let front = &mut self.blocks[id];
        let rest = Block {
            offset: front.offset + size,
            size: front.size - size,
            requested: 0,
            age: clock,
            prev: id,
            state: State::Free,
            waits: 0,
            used_elsewhere: false,
            ..front.clone()
        };
        front.size = size;
        let (behind, side) = (rest.next, rest.side);
        let rest = self.blocks.insert(rest);
        self.blocks[id].next = rest;
        if let Some(behind) = behind.some() {
            self.blocks[behind].prev = rest;
        }
        let entry = self.entry(rest);
        self.pool_mut(side).free.insert(entry);
    }
}
