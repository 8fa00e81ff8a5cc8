//! The places in its ranges where a shard could serve a request that missed, and the memory that is missing there.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Grant, Shard};
use crate::block::State;
use crate::ids::{BlockId, PageId, Side, Slot};
use crate::last_use::LastUse;
use crate::segment::{Mapping, Role};
use crate::size::Want;

/// The largest number of windows that are worked out in full.
const WINDOWS_MAX: usize = 8;

/// Addresses for a request: free blocks, and gaps that need memory.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) slot: Slot,
    /// The parts in order of addresses, each beginning where the one before ends.
    pub(crate) pieces: Vec<Piece>,
}

/// The disadvantages of a window, the most important first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Lacks {
    /// The bytes without memory, less those of pages that come back.
    missing: u64,
    /// The number of old mappings that do not come back.
    in_the_way: u32,
}

/// The beginning of a window: an offset in a free or unmapped block.
#[derive(Clone, Copy, Debug)]
struct Start {
    block: BlockId,
    offset: u64,
}

/// A part of a window.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// A free block, as it was found.
    Free { block: BlockId, offset: u64, size: u64 },
    /// Addresses without memory, in whole pages.
    Gap(Gap),
}

/// Addresses without memory inside a window.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    /// The unmapped block, which may be longer than the gap.
    pub(crate) block: BlockId,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// The old mappings that overlap the gap.
    pub(crate) shadows: Vec<(u64, Mapping)>,
    /// The offset up to which pages may reach: the end of the unmapped block, or the first old mapping behind the gap.
    pub(crate) clear_to: u64,
}

/// A claimed piece of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) block: BlockId,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) is_gap: bool,
}

impl Shard {
    /// Returns at most [`WINDOWS_MAX`] windows, those in which the least memory is missing when pages that come back
    /// are not counted as missing. In every run of free and unmapped neighbours that has a hole, a window can begin at
    /// each free block, at each hole, inside a hole at the place where most memory comes back, and behind the last old
    /// mapping of a hole.
    pub(crate) fn windows(&self, want: &Want, page: u64, comes_back: impl Fn(PageId) -> bool) -> Vec<Window> {
        let mut found: Vec<(Lacks, Start)> = Vec::new();
        let mut seen = None;
        for &(_, hole) in &self.pools[want.side.index()].unmapped {
            let (slot, offset) = (self.blocks[hole].slot, self.blocks[hole].offset);
            if seen.is_some_and(|(run, end)| run == slot && offset < end) {
                continue;
            }
            let mut starts = Vec::new();
            let mut end = offset;
            for id in self.run_around(hole) {
                end = self.blocks[id].end();
                self.starts_in(id, want, &comes_back, &mut starts);
            }
            seen = Some((slot, end));
            let reaches = |start: &Start| end - start.offset >= want.rounded;
            found.extend(
                starts.into_iter().filter(reaches).map(|start| (self.lacks(start, want, page, &comes_back), start)),
            );
        }
        // A window in which nothing is missing would be a free block that is large enough, which another thread has
        // just freed.
        found.retain(|(_, start)| {
            self.blocks[start.block].state == State::Unmapped || self.blocks[start.block].size < want.rounded
        });
        found.sort_by_key(|&(lacks, _)| lacks);
        found.truncate(WINDOWS_MAX);
        found.into_iter().map(|(_, start)| self.window_from(start, want, page)).collect()
    }

    /// Returns the window behind everything else: in the last hole of the newest range, behind its old mappings.
    pub(crate) fn last_window(&self, want: &Want, page: u64) -> Option<Window> {
        let &(_, hole) = self.pools[want.side.index()].unmapped.last()?;
        let block = &self.blocks[hole];
        let last = self.segments[block.slot].mapped_in(block.offset, block.end()).last();
        let offset = last.map_or(block.offset, |(at, mapping)| (at + mapping.bytes).max(block.offset));
        let start = Start { block: hole, offset };
        (offset < block.end() && block.end() - offset >= want.rounded).then(|| self.window_from(start, want, page))
    }

    /// Returns the run of free and unmapped neighbours around its leftmost hole.
    fn run_around(&self, hole: BlockId) -> impl Iterator<Item = BlockId> {
        let usable = |id: &BlockId| matches!(self.blocks[*id].state, State::Free | State::Unmapped);
        let start = self.blocks[hole].prev.some().filter(usable).unwrap_or(hole);
        self.run_from(start)
    }

    /// Returns a free or unmapped block and those behind it.
    fn run_from(&self, start: BlockId) -> impl Iterator<Item = BlockId> {
        let usable = |id: &BlockId| matches!(self.blocks[*id].state, State::Free | State::Unmapped);
        core::iter::successors(Some(start), move |&id| self.blocks[id].next.some().filter(usable))
    }

    /// Adds the places in a block at which a window could begin.
    fn starts_in(&self, id: BlockId, want: &Want, comes_back: &impl Fn(PageId) -> bool, starts: &mut Vec<Start>) {
        let block = &self.blocks[id];
        starts.push(Start { block: id, offset: block.offset });
        let segment = &self.segments[block.slot];
        if block.state == State::Free || segment.mappings.is_empty() {
            return;
        }
        // A window of the request's length slides over the old mappings of the hole.
        let mut inside: VecDeque<(u64, u64)> = VecDeque::new();
        let (mut sum, mut best, mut last) = (0, (0, block.offset), block.offset);
        for (at, mapping) in segment.mapped_in(block.offset, block.end()) {
            last = at + mapping.bytes;
            if mapping.role != Role::Shadow || !comes_back(mapping.page) {
                continue;
            }
            inside.push_back((at, mapping.bytes));
            sum += mapping.bytes;
            while let Some(&(first, bytes)) = inside.front()
                && last - first > want.rounded + mapping.bytes
            {
                inside.pop_front();
                sum -= bytes;
            }
            if let Some(&(first, _)) = inside.front()
                && sum > best.0
            {
                best = (sum, first);
            }
        }
        for offset in [best.1, last] {
            if offset > block.offset && offset < block.end() && starts.last().is_none_or(|start| start.offset != offset)
            {
                starts.push(Start { block: id, offset });
            }
        }
    }

    /// Returns what is missing in the window that begins there, and what obstructs it.
    fn lacks(&self, start: Start, want: &Want, page: u64, comes_back: &impl Fn(PageId) -> bool) -> Lacks {
        let until = start.offset + want.rounded;
        let mut lacks = Lacks { missing: 0, in_the_way: 0 };
        for id in self.run_from(start.block) {
            let block = &self.blocks[id];
            let begin = block.offset.max(start.offset);
            if block.state == State::Unmapped {
                let end = block.end().min(until.div_ceil(page) * page);
                lacks.missing += end - begin;
                for (at, mapping) in self.segments[block.slot].mapped_in(begin, end) {
                    if at >= begin && mapping.role == Role::Shadow && comes_back(mapping.page) {
                        lacks.missing = lacks.missing.saturating_sub(mapping.bytes);
                    } else {
                        lacks.in_the_way += 1;
                    }
                }
            }
            if block.end() >= until {
                break;
            }
        }
        lacks
    }

    fn window_from(&self, start: Start, want: &Want, page: u64) -> Window {
        let until = start.offset + want.rounded;
        let mut window = Window { slot: self.blocks[start.block].slot, pieces: Vec::new() };
        for id in self.run_from(start.block) {
            let block = &self.blocks[id];
            window.pieces.push(if block.state == State::Free {
                Piece::Free { block: id, offset: block.offset, size: block.size }
            } else {
                let end = block.end().min(until.div_ceil(page) * page);
                Piece::Gap(self.gap(id, block.offset.max(start.offset), end))
            });
            if block.end() >= until {
                break;
            }
        }
        window
    }

    fn gap(&self, block: BlockId, begin: u64, end: u64) -> Gap {
        let hole = &self.blocks[block];
        let segment = &self.segments[hole.slot];
        let shadows: Vec<_> = segment.mapped_in(begin, end).collect();
        let from = shadows.last().map_or(end, |(at, mapping)| (at + mapping.bytes).max(end));
        let clear_to = segment.mappings.range(from..hole.end().max(from)).next().map_or(hole.end(), |(&at, _)| at);
        Gap { block, begin, end, shadows, clear_to }
    }

    /// Takes a window for a plan, the gaps up to the given ends (at least their own). Returns the claimed pieces in
    /// order, or `None`, with nothing claimed, if another thread has changed one of its free blocks meanwhile.
    pub(crate) fn claim_window(&mut self, window: &Window, ends: &[u64]) -> Option<Vec<Part>> {
        let stands = |piece: &Piece| match *piece {
            Piece::Free { block, offset, size } => {
                let now = &self.blocks[block];
                (now.state, now.slot, now.offset, now.size) == (State::Free, window.slot, offset, size)
            }
            Piece::Gap(_) => true,
        };
        if !window.pieces.iter().all(stands) {
            return None;
        }
        let mut ends = ends.iter();
        let claim = |piece: &Piece| match piece {
            Piece::Free { block, .. } => {
                self.claim(*block);
                (*block, false)
            }
            Piece::Gap(gap) => {
                let end = ends.next().copied().unwrap_or(gap.end);
                (self.claim_hole(gap.block, gap.begin, end), true)
            }
        };
        let claimed: Vec<_> = window.pieces.iter().map(claim).collect();
        let part = |(block, is_gap): (BlockId, bool)| {
            let b = &self.blocks[block];
            Part { block, begin: b.offset, end: b.end(), is_gap }
        };
        Some(claimed.into_iter().map(part).collect())
    }

    /// Claims a page inside a free block; what is left of the block stays free. Returns the claimed block and the last
    /// use of its memory, or `None` if another thread has taken it meanwhile.
    pub(crate) fn claim_page(
        &mut self,
        id: BlockId,
        (slot, offset): (Slot, u64),
        bytes: u64,
    ) -> Option<(BlockId, LastUse)> {
        let block = &self.blocks[id];
        let inside = block.slot == slot && block.offset <= offset && offset + bytes <= block.end();
        if block.state != State::Free || !inside {
            return None;
        }
        let age = block.age;
        self.claim(id);
        let page = self.carve(id, offset, bytes, [age; 2]);
        Some((page, self.blocks[page].last_use))
    }

    /// Keeps the first `backed` bytes of a claimed gap that a plan could not back in full: they become a free block,
    /// with `last_use`.
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

    /// Joins the claimed pieces of a window, with a free neighbour behind them, and hands the whole out. `last_use` is
    /// that of the memory that came into it.
    pub(crate) fn serve_window(&mut self, parts: &[Part], last_use: LastUse, want: &Want, clock: u64) -> Grant {
        let whole = parts.iter().map(|part| part.block).reduce(|whole, part| self.absorb(whole, part));
        let Some(whole) = whole else { panic!("a window without parts") };
        self.absorb_behind(whole);
        let block = &mut self.blocks[whole];
        block.last_use = block.last_use.max(last_use);
        self.hand_out(whole, want, clock)
    }

    /// Returns the free blocks that may hold a whole page of that size, with their slots and last uses.
    pub(crate) fn free_with_pages(&self, page: u64) -> impl Iterator<Item = (BlockId, Slot, LastUse)> {
        let ids = Side::BOTH.into_iter().flat_map(move |side| self.pools[side.index()].free.iter_from(page));
        ids.map(|id| (id, self.blocks[id].slot, self.blocks[id].last_use))
    }
}
