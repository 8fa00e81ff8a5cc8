//! Blocks that a plan holds while the driver works: addresses being mapped, pages being unmapped, segments being given
//! back. A claimed block is in no index, so that no other thread can take it meanwhile.

use super::Shard;
use crate::block::{Block, State};
use crate::ids::BlockId;
use crate::last_use::LastUse;

impl Shard {
    /// Takes a free block out of the index.
    pub(crate) fn claim(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        assert_eq!(block.state, State::Free, "block {} is claimed and is not free", id.0);
        self.unlist(id);
        self.blocks[id].state = State::Claimed;
    }

    /// Claims the first `bytes` of an unmapped block. The rest stays unmapped.
    pub(crate) fn claim_addresses(&mut self, id: BlockId, bytes: u64) {
        let block = &self.blocks[id];
        assert_eq!(block.state, State::Unmapped, "block {} is mapped already", id.0);
        let side = block.side;
        assert!(bytes <= block.size, "{bytes} bytes of pages claimed in {} bytes of addresses", block.size);
        let key = self.unmapped_key(id);
        assert!(self.pool_mut(side).unmapped.remove(&key), "block {} is not listed as unmapped", id.0);
        if bytes < self.blocks[id].size {
            let rest = self.cut(id, bytes);
            self.blocks[rest].state = State::Unmapped;
            let key = self.unmapped_key(rest);
            self.pool_mut(side).unmapped.insert(key);
        }
        self.blocks[id].state = State::Claimed;
    }

    /// Claims a part of an unmapped block, in whole pages. What is left on both sides stays unmapped. Returns the
    /// claimed block.
    pub(crate) fn claim_hole(&mut self, id: BlockId, begin: u64, end: u64) -> BlockId {
        let front = begin - self.blocks[id].offset;
        let mut part = id;
        if front > 0 {
            // The block in front keeps its beginning, which is its key.
            part = self.cut(id, front);
            let key = self.unmapped_key(part);
            let side = self.blocks[part].side;
            self.pool_mut(side).unmapped.insert(key);
        }
        self.claim_addresses(part, end - begin);
        part
    }

    /// Notes that there is memory behind a claimed block now. Joins it with the block in front, if that is `before`
    /// (which the same plan has claimed) or free, and with a free one behind. Returns the claimed whole.
    pub(crate) fn mapped(&mut self, id: BlockId, before: Option<BlockId>) -> BlockId {
        let mut whole = id;
        if let Some(prev) = self.blocks[id].prev.some() {
            if Some(prev) == before {
                whole = self.absorb(prev, id);
            } else if self.blocks[prev].state == State::Free {
                self.unlist(prev);
                whole = self.absorb(prev, id);
            }
        }
        self.absorb_behind(whole);
        self.blocks[whole].state = State::Claimed;
        whole
    }

    /// Joins a claimed block with the one behind it if that is free on the same side. A free does not join with a
    /// claimed block, so a block that was freed there meanwhile is still separate.
    pub(crate) fn absorb_behind(&mut self, id: BlockId) {
        if let Some(next) = self.blocks[id].next.some()
            && (self.blocks[next].state, self.blocks[next].side) == (State::Free, self.blocks[id].side)
        {
            self.unlist(next);
            self.absorb(id, next);
        }
    }

    /// Notes that there is no memory behind a claimed block (any more): it is unmapped and joined with unmapped
    /// neighbours. Returns whether the whole range is unmapped now.
    pub(crate) fn unmapped(&mut self, id: BlockId) -> bool {
        let block = &mut self.blocks[id];
        debug_assert!(!block.used_elsewhere, "what is unmapped is guarded: {block:?}");
        block.state = State::Unmapped;
        block.last_use = LastUse::NEVER;
        let (prev, next, side) = (block.prev, block.next, block.side);
        let mut whole = id;
        for (neighbour, is_before) in [(prev, true), (next, false)] {
            if let Some(neighbour) = neighbour.some()
                && self.blocks[neighbour].state == State::Unmapped
            {
                let key = self.unmapped_key(neighbour);
                assert!(self.pool_mut(side).unmapped.remove(&key), "block {} is not listed as unmapped", neighbour.0);
                whole = if is_before { self.absorb(neighbour, whole) } else { self.absorb(whole, neighbour) };
            }
        }
        let key = self.unmapped_key(whole);
        self.pool_mut(side).unmapped.insert(key);
        !self.blocks[whole].is_split()
    }

    /// Cuts a claimed block down to the pages inside it; what is left before and behind becomes free. Returns the
    /// claimed block of exactly those pages.
    pub(crate) fn carve(&mut self, id: BlockId, offset: u64, bytes: u64, clocks: [u64; 2]) -> BlockId {
        let mut pages = id;
        let block = &self.blocks[id];
        let clock = clocks[block.side.index()];
        if block.offset < offset {
            let before = offset - block.offset;
            pages = self.cut(id, before);
            self.blocks[pages].state = State::Claimed;
            self.join(id, clock);
        }
        if self.blocks[pages].size > bytes {
            let behind = self.cut(pages, bytes);
            self.blocks[behind].state = State::Claimed;
            self.join(behind, clock);
        }
        pages
    }

    /// Cuts a block that is in no index behind its first `bytes`. The rest is a copy with its own offset and size, and
    /// is in no index either. Returns the rest.
    pub(super) fn cut(&mut self, id: BlockId, bytes: u64) -> BlockId {
        let front = &mut self.blocks[id];
        debug_assert!(bytes > 0 && bytes < front.size);
        let rest =
            Block { offset: front.offset + bytes, size: front.size - bytes, requested: 0, prev: id, ..front.clone() };
        front.size = bytes;
        let behind = rest.next;
        let rest = self.blocks.insert(rest);
        self.blocks[id].next = rest;
        if let Some(behind) = behind.some() {
            self.blocks[behind].prev = rest;
        }
        rest
    }
}
