//! Views of a shard for other modules and for users, and its invariants. Each check panics with the numbers.
//!
//! Cost: every block is visited.

use alloc::vec::Vec;

use millpond_backend::StreamId;

use super::Shard;
use crate::block::State;
use crate::ids::{PageId, PoolId, SegmentId, Side, Slot};
use crate::meter::{COUNTERS, Counter, EVERY_COUNTER};
use crate::segment::{Mapping, Role};
use crate::stats::WasteLedger;

/// The state of a block, in PyTorch's words and one of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    /// Handed out.
    ActiveAllocated,
    /// Freed by the program and waiting for a point.
    ActivePendingFree,
    /// Free.
    Inactive,
    /// Addresses of a range without memory, or whose memory is in use at other addresses.
    Unmapped,
}

impl BlockState {
    /// Returns PyTorch's word for the state, as its snapshots have it; `unmapped` for what they leave out.
    pub fn name(self) -> &'static str {
        match self {
            BlockState::ActiveAllocated => "active_allocated",
            BlockState::ActivePendingFree => "active_pending_free",
            BlockState::Inactive => "inactive",
            BlockState::Unmapped => "unmapped",
        }
    }
}

/// One block of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockView {
    /// The offset in the segment at which it starts, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub size: u64,
    /// The bytes that the program asked for, or 0 for blocks that are not active.
    pub requested: u64,
    /// The bytes of a free block that other streams may still use.
    pub guarded: u64,
    /// Its state.
    pub state: BlockState,
    /// The side that it belongs to. Under `paged` a range has blocks of both.
    pub side: Side,
}

/// One segment of a layout, with the blocks that tile it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentView {
    /// Its id.
    pub id: SegmentId,
    /// Its slot in the shard's table.
    pub slot: Slot,
    /// The stream that it belongs to.
    pub stream: StreamId,
    /// The private pool that it belongs to.
    pub pool: PoolId,
    /// The side of the pool that it belongs to.
    pub side: Side,
    /// Its device address, or 0 on devices without addresses.
    pub address: u64,
    /// Its length in bytes. For an expandable segment this is the length of its addresses, mapped or not.
    pub bytes: u64,
    /// The page size of an expandable segment in bytes, or 0 for a plain one.
    pub page_bytes: u64,
    /// Its blocks, in order of their offsets.
    pub blocks: Vec<BlockView>,
    /// The pages that are mapped in it, in order of their offsets, for an expandable segment or a range of `paged`.
    pub pages: Vec<PageView>,
    /// Whether its group is paused: its pages are with the driver, and its blocks keep their places.
    pub is_paused: bool,
}

/// One page mapped in an address range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageView {
    /// Its number.
    pub page: PageId,
    /// A number that counts up from page to page of an allocator. It distinguishes pages that had the same `page`
    /// number one after the other.
    pub birth: u64,
    /// The offset at which it is mapped, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Whether this is the mapping that the page has for its whole life. Otherwise it is one of a window.
    pub is_home: bool,
    /// Whether the driver is unmapping it: no block is handed out there.
    pub is_leaving: bool,
}

impl Shard {
    /// Returns every segment with its blocks, in order of birth.
    pub fn layout(&self) -> Vec<SegmentView> {
        let mut views: Vec<_> = self.memory.segments.iter().map(|(slot, _)| self.segment_view(slot)).collect();
        views.sort_by_key(|view| view.id);
        views
    }

    fn segment_view(&self, slot: Slot) -> SegmentView {
        let segment = &self.memory.segments[slot];
        let blocks = self.memory.blocks_in(slot).map(|id| {
            let block = &self.memory.blocks[id];
            let (state, requested) = match block.state {
                State::Live => (BlockState::ActiveAllocated, block.requested),
                State::Pending => (BlockState::ActivePendingFree, block.requested),
                // The driver works on a claimed block or is about to: as seen from outside, it is not in use.
                State::Free | State::Claimed => (BlockState::Inactive, 0),
                State::Unmapped | State::Reserved | State::Away | State::Kept => (BlockState::Unmapped, 0),
                State::PutOff | State::Vacant => panic!("block {} tiles {} as {:?}", id.0, segment.id, block.state),
            };
            let is_free = state == BlockState::Inactive;
            let guarded = if is_free { self.memory.guards.guarded_bytes(block) } else { 0 };
            BlockView { offset: block.offset, size: block.size, requested, guarded, state, side: block.side }
        });
        let page_view = |(offset, &Mapping { page, birth, bytes, role }): (u64, &Mapping)| {
            let (is_home, is_leaving) = (role == Role::Home, role == Role::Leaving);
            PageView { page, birth, offset, bytes, is_home, is_leaving }
        };
        SegmentView {
            id: segment.id,
            slot,
            stream: self.memory.stream,
            pool: self.pool,
            side: segment.side,
            address: segment.base,
            bytes: segment.bytes,
            page_bytes: segment.page_bytes,
            blocks: blocks.collect(),
            pages: segment.mappings.iter().map(page_view).collect(),
            is_paused: self.is_paused(),
        }
    }

    /// Returns where this shard's reserved bytes are. Every block is visited.
    pub fn ledger(&self) -> WasteLedger {
        let mut sum = WasteLedger::default();
        self.layout().iter().for_each(|view| sum += view.ledger());
        sum
    }
}

impl SegmentView {
    /// Returns the number of bytes with memory behind them.
    pub fn mapped_bytes(&self) -> u64 {
        if self.is_paused {
            return 0;
        }
        self.blocks.iter().filter(|block| block.state != BlockState::Unmapped).map(|block| block.size).sum()
    }

    /// Returns where this segment's bytes are.
    pub fn ledger(&self) -> WasteLedger {
        let mut ledger = WasteLedger::default();
        if self.is_paused {
            return ledger;
        }
        let pinned = |b: &BlockView| matches!(b.state, BlockState::ActiveAllocated | BlockState::ActivePendingFree);
        let is_pinned = self.blocks.iter().any(pinned);
        for block in &self.blocks {
            match block.state {
                BlockState::ActiveAllocated => {
                    ledger.live_bytes += block.requested;
                    ledger.rounding_bytes += block.size - block.requested;
                }
                BlockState::ActivePendingFree => ledger.waiting_bytes += block.size,
                BlockState::Inactive => {
                    let free = block.size - block.guarded;
                    let ready = self.releasable_bytes(block, is_pinned).min(free);
                    ledger.guarded_bytes += block.guarded;
                    ledger.ready_bytes += ready;
                    ledger.stranded_bytes += free - ready;
                }
                BlockState::Unmapped => {}
            }
        }
        ledger
    }

    /// Returns the number of bytes of a free block that could go back to the driver: whole pages in a range, all of a
    /// plain segment if no block in use pins it.
    fn releasable_bytes(&self, block: &BlockView, is_pinned: bool) -> u64 {
        if self.page_bytes == 0 {
            return if is_pinned { 0 } else { block.size };
        }
        let end = block.offset + block.size;
        let first = self.pages.partition_point(|page| page.offset < block.offset);
        let inside = self.pages[first..].iter().take_while(|page| page.offset + page.bytes <= end);
        inside.map(|page| page.bytes).sum()
    }
}

impl Shard {
    /// Verifies every invariant of the shard.
    ///
    /// # Panics
    ///
    /// Panics at the first invariant that does not hold.
    pub fn check(&self) {
        self.memory.check();
        Side::BOTH.into_iter().for_each(|side| self.check_meter(side));
        self.meter.check_credit();
        self.check_waits();
        self.check_snug();
        self.panes.check(&self.memory);
    }

    /// Verifies A1: the counters are the sums over the blocks.
    fn check_meter(&self, side: Side) {
        let mut sums = [0; COUNTERS];
        let mut add = |counter: Counter, bytes: u64| sums[counter as usize] += bytes as i64;
        for (_, block) in self.memory.blocks.iter().filter(|(_, block)| block.side == side) {
            if block.state == State::Live {
                add(Counter::Allocation, 1);
                add(Counter::AllocatedBytes, block.size);
                add(Counter::Oversize, u64::from(block.size >= self.memory.rules.max_split));
            }
            if matches!(block.state, State::Live | State::Pending) {
                add(Counter::Active, 1);
                add(Counter::ActiveBytes, block.size);
                add(Counter::RequestedBytes, block.requested);
            }
            let expandable = self.memory.segments[block.slot].is_expandable();
            assert_eq!(block.expandable, expandable, "{block:?} against its segment");
            if block.state == State::Free && block.is_split() && !expandable {
                add(Counter::InactiveSplit, 1);
                add(Counter::InactiveSplitBytes, block.size);
            }
        }
        for counter in EVERY_COUNTER {
            let counted = self.meter.current(side, counter);
            assert_eq!(counted, sums[counter as usize], "{side:?} {counter:?}: counted against summed");
        }
    }

    /// Verifies W1: settling blocks are pending, in order of their ticks, and uses are kept for live blocks only.
    fn check_waits(&self) {
        assert!(self.settling.iter().is_sorted_by_key(|(tick, _)| *tick), "settling blocks out of order");
        for &(tick, id) in &self.settling {
            let block = &self.memory.blocks[id];
            assert_eq!(
                (block.state, block.last_use.tick(), block.waits),
                (State::Pending, tick, 0),
                "settling block {}",
                id.0
            );
        }
        for &id in self.uses.keys() {
            assert_eq!(self.memory.blocks[id].state, State::Live, "uses are kept for block {}", id.0);
        }
    }
}
