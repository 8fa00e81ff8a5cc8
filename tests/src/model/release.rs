//! Giving memory back to the driver: garbage, oversize blocks, everything.

use super::{Block, Model, State, count};

impl Model {
    /// Releases unsplit large segments that were not used for a long time, where more than the goal is reserved.
    pub(super) fn collect_garbage(&mut self) {
        let Some(goal) = self.rules.gc_goal() else { return };
        if self.reserved() <= goal {
            return;
        }
        let excess = self.reserved() - goal;
        let mut gone = 0;
        loop {
            let aged: Vec<(u64, u64, u64)> = self.unsplit(false).map(|b| (b.number, b.size, self.age(b))).collect();
            let (Some(ages), count) = (aged.iter().map(|(.., age)| *age).reduce(|a, b| a + b), aged.len()) else {
                return;
            };
            let cut = ages as f64 / count as f64;
            let old: Vec<_> = aged.iter().filter(|(.., age)| *age as f64 >= cut).collect();
            for (number, size, _) in &old {
                self.release_segment(*number);
                gone += size;
                self.collected += 1;
            }
            if gone >= excess || old.is_empty() {
                return;
            }
        }
    }

    fn age(&self, block: &Block) -> u64 {
        // Only the large pool is collected.
        self.searches[1] - block.free_since
    }

    /// Returns the free blocks of one kind of pool that are whole segments.
    fn unsplit(&self, small: bool) -> impl Iterator<Item = &Block> {
        let whole = self.extents.iter().filter(move |extent| {
            extent.small == small && !extent.expandable && !extent.is_split() && extent.blocks[0].state == State::Free
        });
        whole.map(|extent| &extent.blocks[0])
    }

    /// Releases oversize blocks of one pool so that `size` bytes can be reserved again. Returns whether enough were
    /// released.
    pub(super) fn release_oversize(&mut self, stream: usize, small: bool, size: u64) -> bool {
        let Some(max_split) = self.rules.max_split else { return false };
        if self.rules.expandable {
            return false;
        }
        let want = size.max(max_split);
        let list = self.free_list(stream, small);
        if let Some(enough) = list.iter().find(|candidate| candidate.size >= want) {
            self.release_segment(enough.number);
            self.oversize_released += 1;
            return true;
        }
        let mut gone = 0;
        for candidate in list.iter().rev().take_while(|candidate| candidate.size >= max_split) {
            if gone >= want {
                break;
            }
            self.release_segment(candidate.number);
            gone += candidate.size;
            self.oversize_released += 1;
        }
        gone >= want
    }

    /// Waits for every event and retires the blocks that waited.
    pub(super) fn wait_for_everything(&mut self) {
        self.stats.num_sync_all_streams += 1;
        for (stream, queue) in std::mem::take(&mut self.queues) {
            for waiting in queue {
                self.device.wait(stream, waiting.until.need);
                self.event_is_over(waiting.block);
            }
        }
    }

    /// Releases free blocks that are whole segments, and unmaps free pages.
    pub(super) fn release_cached(&mut self) {
        for small in [false, true] {
            let whole: Vec<u64> = self.unsplit(small).map(|block| block.number).collect();
            for number in whole {
                self.release_segment(number);
            }
            self.unmap_all(small);
        }
    }

    fn release_segment(&mut self, number: u64) {
        let (index, _) = self.find(number);
        let extent = self.extents.remove(index);
        assert!(!extent.is_split() && !extent.expandable, "extent {} cannot be released", extent.birth);
        count::down(&mut self.stats.segment, extent.small, 1);
        count::down(&mut self.stats.reserved_bytes, extent.small, extent.bytes);
        if self.rules.is_oversize(extent.bytes) {
            count::fall(&mut self.stats.oversize_segments, 1);
        }
        self.stats.num_device_free += 1;
        // The driver's release waits for the device.
        self.device.synchronize();
    }

    /// Unmaps the whole pages inside free blocks, and drops the reservations that this leaves with nothing mapped.
    fn unmap_all(&mut self, small: bool) {
        let expandable = self.extents.iter().filter(|extent| extent.expandable && extent.small == small);
        let free = expandable.flat_map(|extent| &extent.blocks).filter(|block| block.state == State::Free);
        let free: Vec<u64> = free.map(|block| block.number).collect();
        for number in free {
            self.unmap(number, small);
        }
    }

    fn unmap(&mut self, number: u64, small: bool) {
        let (index, at) = self.find(number);
        let block = &self.extents[index].blocks[at];
        let (offset, end) = (block.offset, block.offset + block.size);
        let Some((first, last)) = self.extents[index].pages_within(offset, end) else { return };
        self.extents[index].pages.retain(|page| !(first..last).contains(&page.0));
        let mut parts = vec![Block::new(number, first, last - first, State::Unmapped)];
        if offset < first {
            parts.insert(0, Block::new(self.next_number(), offset, first - offset, State::Free));
        }
        if last < end {
            parts.push(Block::new(self.next_number(), last, end - last, State::Free));
        }
        for part in &mut parts {
            part.free_since = self.searches[usize::from(!small)];
        }
        self.extents[index].blocks.splice(at..=at, parts);
        let (index, at) = self.find(number);
        self.extents[index].merge(at);
        // The pages must be idle: the host waits for the stream they were used on, and for no other.
        self.device.complete(self.extents[index].stream);
        if !self.extents[index].is_split() {
            self.extents.remove(index);
        }
        count::down(&mut self.stats.reserved_bytes, small, last - first);
        self.stats.num_device_free += 1;
    }
}
