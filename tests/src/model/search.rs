//! Finding a free block, splitting it, and taking it back.

use super::{Block, Extent, Model, Place, State, count};

/// A free block in the order of a search: size, then birth and offset.
pub(super) struct Candidate {
    pub(super) size: u64,
    birth: u64,
    offset: u64,
    /// Its size together with that of the unmapped addresses behind it.
    reach: u64,
    pub(super) number: u64,
}

impl Model {
    /// Returns the free blocks of a stream's pool in the order of a search.
    pub(super) fn free_list(&self, stream: usize, small: bool) -> Vec<Candidate> {
        let mut list = Vec::new();
        for extent in self.extents.iter().filter(|extent| (extent.stream, extent.small) == (stream, small)) {
            for (at, block) in extent.blocks.iter().enumerate().filter(|(_, block)| block.state == State::Free) {
                let after = extent.blocks.get(at + 1).filter(|after| after.state == State::Unmapped);
                list.push(Candidate {
                    size: block.size,
                    birth: extent.birth,
                    offset: block.offset,
                    reach: block.size + after.map_or(0, |after| after.size),
                    number: block.number,
                });
            }
        }
        list.sort_by_key(|c| (c.size, c.birth, c.offset));
        list
    }

    /// Returns the block that serves a request, or `None`.
    pub(super) fn search(&mut self, stream: usize, small: bool, size: u64) -> Option<u64> {
        if self.rules.gc_goal().is_some() {
            self.searches[usize::from(!small)] += 1;
        }
        let list = self.free_list(stream, small);
        let mut at = list.iter().position(|candidate| candidate.size >= size)?;
        while self.rules.expandable && list.get(at + 1).is_some_and(|next| next.reach < list[at].reach) {
            at += 1;
        }
        let found = &list[at];
        let too_large = if self.rules.is_oversize(size) {
            found.size >= size + self.rules.non_split_rounding()
        } else {
            self.rules.is_oversize(found.size)
        };
        (!too_large).then_some(found.number)
    }

    /// Grants a free block, without the part that is not needed. Returns its number and place.
    pub(super) fn take(&mut self, number: u64, size: u64, requested: u64) -> (u64, Place) {
        let (extent, at) = self.find(number);
        let small = self.extents[extent].small;
        let rest = self.extents[extent].blocks[at].size - size;
        let splits =
            if small || self.rules.expandable { rest >= 512 } else { !self.rules.is_oversize(size) && rest > 1 << 20 };
        self.count_taking(extent, at, size, splits);
        if splits {
            let tail_number = self.next_number();
            let blocks = &mut self.extents[extent].blocks;
            let mut tail = Block::new(tail_number, blocks[at].offset + size, rest, State::Free);
            tail.free_since = self.searches[usize::from(!small)];
            blocks[at].size = size;
            blocks.insert(at + 1, tail);
        }
        let Extent { birth, ref mut blocks, .. } = self.extents[extent];
        let block = &mut blocks[at];
        (block.state, block.requested) = (State::Live, requested);
        let place = Place { birth, offset: block.offset, size: block.size };
        count::up(&mut self.stats.allocation, small, 1);
        count::up(&mut self.stats.allocated_bytes, small, place.size);
        count::up(&mut self.stats.active, small, 1);
        count::up(&mut self.stats.active_bytes, small, place.size);
        count::up(&mut self.stats.requested_bytes, small, requested);
        if self.rules.is_oversize(place.size) {
            count::rise(&mut self.stats.oversize_allocations, 1);
        }
        (number, place)
    }

    /// Counts how taking a free block changes the split blocks.
    fn count_taking(&mut self, extent: usize, at: usize, size: u64, splits: bool) {
        let Extent { small, expandable, .. } = self.extents[extent];
        if expandable {
            return;
        }
        let was_split = self.extents[extent].is_split();
        let whole = self.extents[extent].blocks[at].size;
        match (splits, was_split) {
            (true, true) => count::down(&mut self.stats.inactive_split_bytes, small, size),
            (true, false) => {
                count::up(&mut self.stats.inactive_split_bytes, small, whole - size);
                count::up(&mut self.stats.inactive_split, small, 1);
            }
            (false, true) => {
                count::down(&mut self.stats.inactive_split_bytes, small, whole);
                count::down(&mut self.stats.inactive_split, small, 1);
            }
            (false, false) => {}
        }
    }

    /// Makes a block free that is no longer in use, and joins it with its neighbours.
    pub(super) fn retire(&mut self, number: u64) {
        let (index, at) = self.find(number);
        let extent = &mut self.extents[index];
        let small = extent.small;
        let (size, requested) = (extent.blocks[at].size, extent.blocks[at].requested);
        extent.blocks[at].state = State::Free;
        let (at, gone) = extent.merge(at);
        let block = &mut extent.blocks[at];
        block.uses.clear();
        block.until.clear();
        block.free_since = self.searches[usize::from(!small)];
        let merged = block.size;
        if !extent.expandable {
            let (count, bytes) = if extent.is_split() { (1, merged) } else { (0, 0) };
            count::net(&mut self.stats.inactive_split, small, count, gone.len() as u64);
            count::net(&mut self.stats.inactive_split_bytes, small, bytes, gone.iter().sum());
        }
        count::down(&mut self.stats.active, small, 1);
        count::down(&mut self.stats.active_bytes, small, size);
        count::down(&mut self.stats.requested_bytes, small, requested);
    }
}
