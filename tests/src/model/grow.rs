//! Taking memory from the driver.

use super::{Block, Extent, Model, State, count};

/// The unit in which the device maps memory.
const UNIT: u64 = 2 << 20;

/// Why an expandable segment does not grow.
enum Refused {
    /// The driver has not got a whole page, and a shorter one may serve.
    ShorterServes,
    NothingServes,
}

impl Model {
    /// Returns the bytes of new memory that a request needs which nothing free serves.
    pub(super) fn needed(&self, stream: usize, small: bool, size: u64) -> u64 {
        if !self.rules.shortens() {
            return self.rules.segment(size);
        }
        let least = self.rooms(stream, small, size).into_iter().map(|(_, _, bytes)| bytes).min();
        least.unwrap_or(size.next_multiple_of(UNIT))
    }

    /// Returns a free block of at least `size` bytes made of new memory, or `None`.
    pub(super) fn grow(&mut self, stream: usize, small: bool, size: u64) -> Option<u64> {
        let needed = self.needed(stream, small, size);
        if self.rules.limit.is_some_and(|limit| self.reserved() + needed > limit) {
            return None;
        }
        if self.rules.expandable {
            return match self.expand(stream, small, size) {
                Err(Refused::ShorterServes) => {
                    self.is_short = true;
                    self.grow(stream, small, size)
                }
                served => served.ok(),
            };
        }
        let segment = needed;
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
        self.extents.push(Extent {
            birth: self.births,
            stream,
            small,
            expandable,
            bytes,
            blocks: vec![block],
            pages: vec![],
        });
        self.births += 1;
        self.extents.len() - 1
    }

    /// Maps pages where the request then fits. Returns the number of the block.
    fn expand(&mut self, stream: usize, small: bool, size: u64) -> Result<u64, Refused> {
        let rooms = self.rooms(stream, small, size);
        let left = if self.rules.shortens() { self.left() } else { u64::MAX };
        let mut fitting = rooms.iter().filter(|(_, _, bytes)| *bytes <= left);
        let found = if self.is_short { fitting.min_by_key(|(_, _, bytes)| *bytes) } else { fitting.next() };
        let (extent, at) = match found {
            Some(&(extent, at, _)) => (extent, at),
            None if !rooms.is_empty() => return Err(Refused::NothingServes),
            None => {
                let reservation = (self.rules.total + self.rules.total / 8).next_multiple_of(self.rules.page(small));
                // PyTorch would reserve, fail to map, and keep the addresses.
                if size > reservation {
                    return Err(Refused::NothingServes);
                }
                (self.open(stream, small, reservation, State::Unmapped), 0)
            }
        };
        if self.extents[extent].blocks[at].state == State::Unmapped {
            self.map(extent, at, size)?;
        }
        loop {
            let missing = size.saturating_sub(self.extents[extent].blocks[at].size);
            if missing == 0 {
                return Ok(self.extents[extent].blocks[at].number);
            }
            // Mapping joins the new pages with the free block before them, whose place they take.
            self.map(extent, at + 1, missing)?;
        }
    }

    /// Returns the bytes that the limit leaves.
    fn left(&self) -> u64 {
        self.rules.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.reserved()))
    }

    /// Returns the places, over unmapped blocks in address order, where free and unmapped neighbours add up to the
    /// size, with the least bytes to map there.
    fn rooms(&self, stream: usize, small: bool, size: u64) -> Vec<(usize, usize, u64)> {
        let mut rooms = Vec::new();
        let unit = if self.rules.shortens() { UNIT } else { self.rules.page(small) };
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
                let (mut reach, mut bytes) = (0, 0);
                for block in extent.blocks[start..].iter().take_while(|b| open(b)) {
                    if reach < size && block.state == State::Unmapped {
                        bytes += (size - reach).next_multiple_of(unit).min(block.size);
                    }
                    reach += block.size;
                }
                if reach >= size {
                    rooms.push((index, start, bytes));
                }
            }
        }
        rooms
    }

    /// Maps whole pages from the start of an unmapped block: `bytes` rounded up, or the block if that is less. Where
    /// those have no room, no more than what is missing.
    fn map(&mut self, extent: usize, at: usize, bytes: u64) -> Result<(), Refused> {
        let small = self.extents[extent].small;
        let unmapped = self.extents[extent].blocks[at].size;
        let whole = bytes.next_multiple_of(self.rules.page(small)).min(unmapped);
        let least = if self.rules.shortens() { bytes.next_multiple_of(UNIT).min(unmapped) } else { whole };
        let is_bounded = self.rules.shortens() && whole > self.left();
        let mapped = if self.is_short || is_bounded { least } else { whole };
        if mapped > self.driver_free() {
            return Err(if mapped > least { Refused::ShorterServes } else { Refused::NothingServes });
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
        let (begin, page) = (block.offset, self.rules.page(small));
        extent.map(begin, begin + mapped, page);
        let (at, _) = extent.merge(at);
        extent.blocks[at].free_since = free_since;
        count::up(&mut self.stats.reserved_bytes, small, mapped);
        self.stats.num_device_alloc += 1;
        Ok(())
    }
}
