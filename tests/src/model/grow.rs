//! Taking memory from the driver.

use super::{Block, Extent, Model, State, count};

impl Model {
    /// Returns a free block of at least `size` bytes made of new memory, or `None`.
    pub(super) fn grow(&mut self, stream: usize, small: bool, size: u64) -> Option<u64> {
        let segment = self.rules.segment(size);
        if self.rules.limit.is_some_and(|limit| self.reserved() + segment > limit) {
            return None;
        }
        if self.rules.expandable {
            return self.expand(stream, small, size);
        }
        if segment > self.driver_free() {
            return None;
        }
        let extent = self.open(stream, small, segment, State::Free);
        count::up(&mut self.stats.segment, small, 1);
        count::up(&mut self.stats.reserved_bytes, small, segment);
        if self.rules.is_oversize(segment) {
            count::rise(&mut self.stats.oversize_segments, 1);
        }
        self.stats.num_device_alloc += 1;
        Some(self.extents[extent].blocks[0].number)
    }

    /// Creates an extent of one block. Returns its place in the list, which is the last.
    fn open(&mut self, stream: usize, small: bool, bytes: u64, state: State) -> usize {
        let block = Block::new(self.next_number(), 0, bytes, state);
        let expandable = self.rules.expandable;
        self.extents.push(Extent { birth: self.births, stream, small, expandable, bytes, blocks: vec![block] });
        self.births += 1;
        self.extents.len() - 1
    }

    /// Maps pages where the request then fits. Returns the number of the block.
    fn expand(&mut self, stream: usize, small: bool, size: u64) -> Option<u64> {
        let (extent, at) = match self.room(stream, small, size) {
            Some(place) => place,
            None => {
                let reservation = (self.rules.total + self.rules.total / 8).next_multiple_of(self.rules.page(small));
                // PyTorch would reserve, fail to map, and keep the addresses.
                if size > reservation {
                    return None;
                }
                (self.open(stream, small, reservation, State::Unmapped), 0)
            }
        };
        if self.extents[extent].blocks[at].state == State::Unmapped && !self.map(extent, at, size) {
            return None;
        }
        loop {
            let missing = size.saturating_sub(self.extents[extent].blocks[at].size);
            if missing == 0 {
                return Some(self.extents[extent].blocks[at].number);
            }
            // Mapping joins the new pages with the free block before them, whose place they take.
            if !self.map(extent, at + 1, missing) {
                return None;
            }
        }
    }

    /// Returns the first place, over unmapped blocks in address order, where free and unmapped neighbours add up to the
    /// size.
    fn room(&self, stream: usize, small: bool, size: u64) -> Option<(usize, usize)> {
        let open = |block: &Block| matches!(block.state, State::Free | State::Unmapped);
        for (index, extent) in self.extents.iter().enumerate() {
            if (extent.stream, extent.small) != (stream, small) {
                continue;
            }
            for (at, block) in extent.blocks.iter().enumerate() {
                if block.state != State::Unmapped {
                    continue;
                }
                let start = if at > 0 && open(&extent.blocks[at - 1]) { at - 1 } else { at };
                let reach: u64 = extent.blocks[start..].iter().take_while(|b| open(b)).map(|b| b.size).sum();
                if reach >= size {
                    return Some((index, start));
                }
            }
        }
        None
    }

    /// Maps whole pages from the start of an unmapped block: `bytes` rounded up, or the block if that is less. Returns
    /// whether the driver had the memory.
    fn map(&mut self, extent: usize, at: usize, bytes: u64) -> bool {
        let small = self.extents[extent].small;
        let unmapped = self.extents[extent].blocks[at].size;
        let mapped = bytes.next_multiple_of(self.rules.page(small)).min(unmapped);
        if mapped > self.driver_free() {
            return false;
        }
        let rest_number = self.next_number();
        let free_since = self.searches[usize::from(!small)];
        let extent = &mut self.extents[extent];
        if mapped < unmapped {
            let offset = extent.blocks[at].offset + mapped;
            extent.blocks.insert(at + 1, Block::new(rest_number, offset, unmapped - mapped, State::Unmapped));
        }
        let block = &mut extent.blocks[at];
        (block.size, block.state) = (mapped, State::Free);
        let (at, _) = extent.merge(at);
        extent.blocks[at].free_since = free_since;
        count::up(&mut self.stats.reserved_bytes, small, mapped);
        self.stats.num_device_alloc += 1;
        true
    }
}
