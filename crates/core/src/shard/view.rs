//! A shard as others may see it: its layout, and where its bytes are.

use alloc::vec::Vec;

use millpond_backend::StreamId;

use super::Shard;
use crate::block::State;
use crate::ids::{PageId, PoolId, SegmentId, Side, Slot};
use crate::ledger::WasteLedger;
use crate::segment::{Mapping, Role};

/// What a block is doing, in PyTorch's words, and one of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    /// Handed out.
    ActiveAllocated,
    /// Freed by the program and waiting for a point.
    ActivePendingFree,
    /// Free.
    Inactive,
    /// Addresses of an expandable segment without memory.
    Unmapped,
}

/// One block of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockView {
    /// Where it starts in the segment, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub size: u64,
    /// What the program asked for, in bytes; 0 on blocks that are not active.
    pub requested: u64,
    /// What it is doing.
    pub state: BlockState,
}

/// One segment of a layout, with the blocks that tile it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentView {
    /// Which segment.
    pub id: SegmentId,
    /// Its place in the shard's table.
    pub slot: Slot,
    /// Whose stream.
    pub stream: StreamId,
    /// Which private pool.
    pub pool: PoolId,
    /// Which side.
    pub side: Side,
    /// The device address, 0 where there are none.
    pub address: u64,
    /// Its length in bytes; of an expandable segment, the addresses, mapped or not.
    pub bytes: u64,
    /// The page size of an expandable segment in bytes, 0 for a plain one.
    pub page_bytes: u64,
    /// Its blocks by offset.
    pub blocks: Vec<BlockView>,
    /// The pages mapped in it, by offset; of an expandable segment or an arena.
    pub pages: Vec<PageView>,
}

/// One page mapped in an address range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageView {
    /// Which page.
    pub page: PageId,
    /// Tells pages apart that had the same number one after the other: counts up from page to page of an allocator.
    pub birth: u64,
    /// Where it is mapped, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Here its memory is in use. Otherwise it was so once, and the addresses are out of use until it comes back.
    pub is_home: bool,
}

impl Shard {
    /// Every segment with its blocks, in order of birth.
    pub fn layout(&self) -> Vec<SegmentView> {
        let mut views: Vec<_> = self.segments.iter().map(|(slot, _)| self.segment_view(slot)).collect();
        views.sort_by_key(|view| view.id);
        views
    }

    /// Bytes of addresses in its ranges.
    pub(crate) fn range_bytes(&self) -> u64 {
        let ranges = self.segments.iter().map(|(_, segment)| segment).filter(|segment| segment.is_expandable());
        ranges.map(|range| range.bytes).sum()
    }

    fn segment_view(&self, slot: Slot) -> SegmentView {
        let segment = &self.segments[slot];
        let blocks = self.tiles(slot).map(|id| {
            let block = &self.blocks[id];
            let (state, requested) = match block.state {
                State::Live => (BlockState::ActiveAllocated, block.requested),
                State::Pending => (BlockState::ActivePendingFree, block.requested),
                // A claimed block is on its way to or from the driver: to others it is not in use.
                State::Free | State::Claimed => (BlockState::Inactive, 0),
                State::Unmapped => (BlockState::Unmapped, 0),
                State::PutOff | State::Vacant => panic!("block {} tiles {} as {:?}", id.0, segment.id, block.state),
            };
            BlockView { offset: block.offset, size: block.size, requested, state }
        });
        SegmentView {
            id: segment.id,
            slot,
            stream: self.stream,
            pool: self.pool,
            side: segment.side,
            address: segment.base,
            bytes: segment.bytes,
            page_bytes: segment.page_bytes,
            blocks: blocks.collect(),
            pages: segment.mappings.iter().map(|(&offset, mapping)| PageView::new(offset, mapping)).collect(),
        }
    }

    /// Where this shard's reserved bytes are. Walks every block.
    pub fn ledger(&self) -> WasteLedger {
        self.layout().iter().map(SegmentView::ledger).fold(WasteLedger::default(), |sum, part| sum + part)
    }
}

impl SegmentView {
    /// The bytes with memory behind them.
    pub fn mapped_bytes(&self) -> u64 {
        self.blocks.iter().filter(|block| block.state != BlockState::Unmapped).map(|block| block.size).sum()
    }

    /// Where this segment's bytes are.
    pub fn ledger(&self) -> WasteLedger {
        let mut ledger = WasteLedger::default();
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
                    let ready = self.releasable_bytes(block, is_pinned);
                    ledger.ready_bytes += ready;
                    ledger.stranded_bytes += block.size - ready;
                }
                BlockState::Unmapped => {}
            }
        }
        ledger
    }

    /// What of a free block could go back to the driver: whole pages of a range, a plain segment only when nothing pins
    /// it.
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

impl PageView {
    fn new(offset: u64, mapping: &Mapping) -> Self {
        let Mapping { page, birth, bytes, role } = *mapping;
        Self { page, birth, offset, bytes, is_home: role == Role::Home }
    }
}
