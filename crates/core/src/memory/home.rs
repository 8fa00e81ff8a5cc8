//! The homes of pages: how a home grows, its slabs, and the parts that are in use elsewhere.

use millpond_backend::{Point, StreamId};

use super::{Claimed, Memory, Tile};
use crate::block::LastUse;
use crate::block::State;
use crate::books::Points;
use crate::ids::{BlockId, Side, Slot};

/// A place where a home can grow so that a request is served there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Growth {
    /// The free block in front of the addresses, if there is one.
    pub(crate) before: Option<Tile>,
    /// The block of addresses without memory.
    hole: BlockId,
    pub(crate) slot: Slot,
    /// Where the new pages begin.
    pub(crate) begin: u64,
    /// The bytes of new pages that the request needs.
    pub(crate) missing: u64,
    /// Where the addresses end.
    pub(crate) limit: u64,
}

/// What a plan has claimed to let a home grow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ground {
    pub(crate) before: Option<Claimed>,
    pub(crate) gap: BlockId,
}

impl Memory {
    /// Moves a claimed block of the large side to the small one, where it is a stream's.
    pub(crate) fn becomes_slab(&mut self, id: BlockId, stream: StreamId) {
        if self.blocks[id].user != stream {
            // The stream may still have to come after whoever used it.
            self.guards.record_user(&mut self.blocks[id]);
        }
        self.blocks[id].user = stream;
        self.blocks[id].side = Side::Small;
        self.small_bytes += self.blocks[id].size;
    }

    /// Moves a claimed block of the small side to the large one.
    pub(crate) fn leaves_slab(&mut self, id: BlockId) {
        self.blocks[id].side = Side::Large;
        self.small_bytes -= self.blocks[id].size;
        if self.small_bytes == 0 {
            self.gives_from = self.rules.slab;
        }
    }

    /// Returns where a home can grow for a request: the first hole that is long enough, together with the free block in
    /// front of it unless the request needs a place at a multiple of a page's size.
    pub(crate) fn growth(&self, bytes: u64, joins: bool) -> Option<Growth> {
        debug_assert!(bytes > 0, "a home grows by nothing");
        self.pools[Side::Large.index()].unmapped.iter().find_map(|&(_, hole)| {
            let block = &self.blocks[hole];
            let before = block.prev.some().filter(|&id| joins && self.is_free_on(id, Side::Large));
            // One that is long enough is not ready, or it would have served.
            let before = before.map(|id| self.tile(id)).filter(|tile| tile.end - tile.begin < bytes);
            let missing = bytes.saturating_sub(before.map_or(0, |tile| tile.end - tile.begin));
            let (slot, begin, limit) = (block.slot, block.offset, block.end());
            let fits = missing.next_multiple_of(self.rules.slab) <= block.size;
            fits.then_some(Growth { before, hole, slot, begin, missing, limit })
        })
    }

    /// Takes a place to grow for a plan, with `bytes` of its addresses, and the free block in front. Returns `None`,
    /// with nothing claimed, if another thread has changed it meanwhile.
    pub(crate) fn claim_growth(&mut self, growth: &Growth, bytes: u64) -> Option<Ground> {
        let hole = &self.blocks[growth.hole];
        let stands = (hole.state, hole.slot, hole.offset) == (State::Unmapped, growth.slot, growth.begin)
            && hole.size >= bytes
            && growth.before.is_none_or(|tile| {
                let block = &self.blocks[tile.block];
                (block.state, block.slot, block.offset, block.end()) == (State::Free, tile.slot, tile.begin, tile.end)
            });
        if !stands {
            return None;
        }
        let before = growth.before.map(|tile| {
            self.claim(tile.block);
            self.claimed(tile.block)
        });
        let gap = self.claim_hole(growth.hole, growth.begin, growth.begin + bytes);
        Some(Ground { before, gap })
    }

    /// Notes that claimed memory is in use through a window from now on.
    pub(crate) fn goes_away(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        assert_eq!(block.state, State::Claimed, "block {} goes away", id.0);
        block.state = State::Away;
    }

    /// Notes that a stream no longer uses memory through a window: it is free again, for whoever comes after that use
    /// and these points of others.
    ///
    /// # Panics
    ///
    /// If it was not away.
    pub(crate) fn comes_home(&mut self, id: BlockId, used: Point, points: &Points, clock: u64) {
        let block = &mut self.blocks[id];
        assert_eq!(block.state, State::Away, "block {} comes home", id.0);
        (block.user, block.last_use) = (used.stream, LastUse::at(used.tick));
        self.guards.used_by_others(&mut self.blocks[id], points.clone(), true);
        self.join(id, clock);
    }

    /// Returns where the first slab of a free block of the large side begins. Segments have no slabs.
    pub(crate) fn first_slab(&self, id: BlockId) -> Option<u64> {
        let block = &self.blocks[id];
        block.expandable.then(|| self.slab_in((block.offset, block.end()))).flatten()
    }

    /// Returns what a small block gets of the slabs of a free block of which a part is usable: all of a slab if that
    /// part has one, and else its own bytes in a slab that others still use.
    pub(crate) fn within_slab(&self, block: (u64, u64), part: (u64, u64), bytes: u64) -> Option<(u64, u64)> {
        let slab = self.rules.slab;
        if let Some(at) = self.slab_in(part) {
            return Some((at, at + slab));
        }
        let first = block.0.next_multiple_of(slab).max(part.0);
        let at = if first % slab + bytes > slab { first.next_multiple_of(slab) } else { first };
        (at + bytes <= part.1 && at / slab * slab + slab <= block.1).then_some((at, at + bytes))
    }

    /// Returns where the first slab in a part of a home begins.
    pub(crate) fn slab_in(&self, (begin, end): (u64, u64)) -> Option<u64> {
        let at = begin.next_multiple_of(self.rules.slab);
        (at + self.rules.slab <= end).then_some(at)
    }

    /// Returns whether a block is the first one of a slab of `whole` bytes that is free but for it, and a small request
    /// would get that slab if the block were freed and the slab given back. Returns `false` also where that would be
    /// costly to find out.
    pub(crate) fn would_get_slab(&self, id: BlockId, whole: u64) -> bool {
        let (slab, block) = (self.rules.slab, &self.blocks[id]);
        if whole != slab || !block.offset.is_multiple_of(slab) {
            return false;
        }
        let behind = block.next.some().filter(|_| whole > block.size);
        let behind = behind.map_or(block.next, |behind| self.blocks[behind].next);
        let beside = [block.prev, behind].map(|id| id.some().filter(|&id| self.is_free_on(id, Side::Large)));
        let (mut size, mut first) = (slab, id);
        for neighbour in beside.into_iter().flatten() {
            let other = &self.blocks[neighbour];
            let is_before = other.offset < block.offset;
            // Joined, what several streams have used is recorded by place, which could be seen afterwards.
            if other.used_elsewhere || other.user != block.user {
                return false;
            }
            // What guards the memory on either side of the slab does not guard the slab.
            if is_before && other.size >= slab {
                return false;
            }
            size += other.size;
            first = if is_before { neighbour } else { first };
        }
        let free = &self.pools[Side::Large.index()].free;
        let mut others = free.iter_from(slab).filter(|other| !beside.contains(&Some(*other)));
        others.find(|&other| self.first_slab(other).is_some()).is_none_or(|other| {
            let theirs = self.entry(other);
            (size, self.entry(first).rank) < (theirs.size, theirs.rank)
        })
    }

    /// Gives back to the large side what [`returnable`](Self::returnable) names of a block of the small side that is in
    /// no index. Returns whether it has given anything.
    #[inline(never)]
    pub(crate) fn gives_slabs(&mut self, id: BlockId) -> bool {
        let Some((begin, end)) = self.returnable(id) else { return false };
        let block = &mut self.blocks[id];
        block.state = State::Claimed;
        let clock = block.age;
        // What is left on both sides is a part of a slab that has other small blocks, so it stays small.
        let slabs = self.carve(id, begin, end - begin, [clock; 2]);
        self.leaves_slab(slabs);
        self.join(slabs, clock);
        true
    }

    /// Returns what of a free block of the small side belongs to the large side: its whole slabs. A restored block may
    /// have left a part of a slab to either side: that goes back where no small block is next to it.
    pub(crate) fn returnable(&self, id: BlockId) -> Option<(u64, u64)> {
        let (slab, block) = (self.rules.slab, &self.blocks[id]);
        let is_small = |id: BlockId| id.some().is_some_and(|id| self.blocks[id].side == Side::Small);
        let begin = if is_small(block.prev) { block.offset.next_multiple_of(slab) } else { block.offset };
        let end = if is_small(block.next) { block.end() / slab * slab } else { block.end() };
        (begin < end).then_some((begin, end))
    }

    /// Sets the last use of claimed memory.
    pub(crate) fn set_last_use(&mut self, id: BlockId, last_use: LastUse) {
        debug_assert_eq!(self.blocks[id].state, State::Claimed);
        self.blocks[id].last_use = last_use;
    }

    /// Keeps the first `backed` bytes of a claimed gap that a plan could not back in full: they become a free block.
    pub(crate) fn keep_backed(&mut self, id: BlockId, backed: u64, last_use: LastUse, clocks: [u64; 2]) {
        let clock = clocks[self.blocks[id].side.index()];
        self.blocks[id].last_use = last_use;
        if backed == 0 {
            self.unmapped(id);
        } else if backed < self.blocks[id].size {
            let rest = self.cut(id, backed);
            self.unmapped(rest);
            self.join(id, clock);
        } else {
            self.join(id, clock);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
