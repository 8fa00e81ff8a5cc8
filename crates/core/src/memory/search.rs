//! The search for free blocks.

use millpond_backend::StreamId;

use super::Memory;
use crate::block::{Block, State};
use crate::ids::{BlockId, Side};
use crate::index::FreeIndex;
use crate::size::Want;

/// The number of free blocks that a small request looks at where the best fit is not ready for its stream.
const LOOKS_MAX: usize = 16;

impl Memory {
    /// Returns the best fit in expandable segments, where a block counts with the size that it could grow to. The
    /// search goes on from `found` as long as that size shrinks.
    #[inline(never)]
    pub(crate) fn least_reach(&self, mut found: BlockId, side: Side) -> BlockId {
        let index = &self.pools[side.index()].free;
        while let Some(next) = index.next_after(self.entry(found)) {
            if self.reach(next) >= self.reach(found) {
                break;
            }
            found = next;
        }
        found
    }

    pub(crate) fn reach(&self, id: BlockId) -> u64 {
        self.blocks[id].size + self.unmapped_behind(id)
    }

    /// Returns the number of bytes of addresses without memory directly behind a block.
    pub(crate) fn unmapped_behind(&self, id: BlockId) -> u64 {
        let behind = self.blocks[id].next.some().map(|next| &self.blocks[next]);
        behind.filter(|next| next.state == State::Unmapped).map_or(0, |next| next.size)
    }

    /// Returns the free blocks that serve requests of a stream, if there are any.
    pub(crate) fn index_for(&self, side: Side, stream: StreamId) -> Option<&FreeIndex> {
        if self.is_in_slabs(side) { self.slabs.of(stream) } else { Some(&self.pools[side.index()].free) }
    }

    /// Returns the first few blocks of an index that have at least `bytes` bytes, in order.
    pub(crate) fn fitting(&self, index: &FreeIndex, bytes: u64) -> impl Iterator<Item = BlockId> {
        let first = index.best_fit(bytes, |id| self.blocks[id].size);
        core::iter::successors(first, move |&id| index.next_after(self.entry(id))).take(LOOKS_MAX)
    }

    /// Returns the bytes at the front of a block that a request gets.
    pub(crate) fn front_of(&self, id: BlockId, want: &Want) -> (u64, u64) {
        let begin = self.blocks[id].offset;
        (begin, begin + want.rounded)
    }

    /// Cuts a block behind its first `size` bytes. The rest becomes a free block.
    #[inline(always)]
    pub(crate) fn split(&mut self, id: BlockId, size: u64, clock: u64) {
        let rest = self.blocks.vacancy();
        let table = self.blocks.table();
        let front = &mut table[id.0 as usize];
        let (offset, bytes, next, side) = (front.offset + size, front.size - size, front.next, front.side);
        let state = State::Free;
        let behind = Block { offset, size: bytes, requested: 0, age: clock, prev: id, waits: 0, state, ..*front };
        front.size = size;
        front.next = rest;
        table[rest.0 as usize] = behind;
        if let Some(behind) = table.get_mut(next.0 as usize) {
            behind.prev = rest;
        }
        self.list(rest, bytes, side);
    }
}
