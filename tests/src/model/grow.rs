//! Taking memory from the driver.

use super::{Arena, Block, Model, State, count};

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
        let arena = self.open(stream, small, segment, State::Free);
        count::up(&mut self.stats.segment, small, 1);
        count::up(&mut self.stats.reserved_bytes, small, segment);
        if self.rules.is_oversize(segment) {
            count::rise(&mut self.stats.oversize_segments, 1);
        }
        self.stats.num_device_alloc += 1;
        Some(self.arenas[arena].blocks[0].number)
    }

    /// Creates an arena of one block. Returns its place in the list, which is the last.
    fn open(&mut self, stream: usize, small: bool, bytes: u64, state: State) -> usize {
        let block = Block::new(self.next_number(), 0, bytes, state);
        let expandable = self.rules.expandable;
        self.arenas.push(Arena { birth: self.births, stream, small, expandable, bytes, blocks: vec![block] });
        self.births += 1;
        self.arenas.len() - 1
    }

    /// Maps pages where the request then fits. Returns the number of the block.
    fn expand(&mut self, stream: usize, small: bool, size: u64) -> Option<u64> {
        let (arena, at) = match self.room(stream, small, size) {
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
        if self.arenas[arena].blocks[at].state == State::Unmapped && !self.map(arena, at, size) {
            return None;
        }
        loop {
            let missing = size.saturating_sub(self.arenas[arena].blocks[at].size);
            if missing == 0 {
                return Some(self.arenas[arena].blocks[at].number);
            }
            // Mapping joins the new pages with the free block before them, whose place they take.
            if !self.map(arena, at + 1, missing) {
                return None;
            }
        }
    }

    /// Returns the first place, over unmapped blocks in address order, where free and unmapped neighbours add up to the
    /// size.
    fn room(&self, stream: usize, small: bool, size: u64) -> Option<(usize, usize)> {
        let open = |block: &Block| matches!(block.state, State::Free | State::Unmapped);
        for (index, arena) in self.arenas.iter().enumerate() {
            if (arena.stream, arena.small) != (stream, small) {
                continue;
            }
            for (at, block) in arena.blocks.iter().enumerate() {
                if block.state != State::Unmapped {
                    continue;
                }
                let start = if at > 0 && open(&arena.blocks[at - 1]) { at - 1 } else { at };
                let reach: u64 = arena.blocks[start..].iter().take_while(|b| open(b)).map(|b| b.size).sum();
                if reach >= size {
                    return Some((index, start));
                }
            }
        }
        None
    }

    /// Maps whole pages from the start of an unmapped block: `bytes` rounded up, or the block if that is less. Returns
    /// whether the driver had the memory.
    fn map(&mut self, arena: usize, at: usize, bytes: u64) -> bool {
        let small = self.arenas[arena].small;
        let unmapped = self.arenas[arena].blocks[at].size;
        let mapped = bytes.next_multiple_of(self.rules.page(small)).min(unmapped);
        if mapped > self.driver_free() {
            return false;
        }
        let rest_number = self.next_number();
        let free_since = self.searches[usize::from(!small)];
        let arena = &mut self.arenas[arena];
        if mapped < unmapped {
            let offset = arena.blocks[at].offset + mapped;
            arena.blocks.insert(at + 1, Block::new(rest_number, offset, unmapped - mapped, State::Unmapped));
        }
        let block = &mut arena.blocks[at];
        (block.size, block.state) = (mapped, State::Free);
        let (at, _) = arena.merge(at);
        arena.blocks[at].free_since = free_since;
        count::up(&mut self.stats.reserved_bytes, small, mapped);
        self.stats.num_device_alloc += 1;
        true
    }
}
