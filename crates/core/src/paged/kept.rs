//! Kept windows: those that could be lengthened, and those that end or lose pages.

use alloc::vec::Vec;

use super::Pager;
use super::gather::FreeEnd;
use super::idle::IdlePages;
use crate::books::{PageCall, Part, WindowPart};
use crate::ids::{PageId, ShardBlock, ShardId, WindowId};
use crate::memory::TakenOut;

impl Pager<'_> {
    /// Returns the window of a shard with the most free bytes at its end that are fewer than `bytes`, of those that can
    /// be lengthened by the rest, and the oldest of those with equally many.
    pub(crate) fn longest_rear(&mut self, shard: ShardId, bytes: u64, idle: &IdlePages) -> Option<FreeEnd> {
        let windows = &self.core.paging.windows;
        let mut best: Option<FreeEnd> = None;
        self.shards.with(shard, |shard| {
            for (id, last) in windows.of(shard.id()).ending_with(|page| idle.is_free_at_end(page)) {
                let most = best.map_or(0, |best| best.bytes);
                let rear = idle.rear_of(last).unwrap_or_else(|| idle.rear(&windows[id]));
                if rear <= most || rear >= bytes {
                    continue;
                }
                let window = &windows[id];
                if let Some(behind) = shard.memory.room_behind(window.head, window.end())
                    && let room = shard.size_of(behind)
                    && rear + room >= bytes
                {
                    best = Some(FreeEnd { window: id, bytes: rear, room });
                }
            }
        });
        best
    }

    /// Ends windows of the shards that are asked, those first that were not used for longest, until the addresses that
    /// are free by that, or the mappings that ended, suffice. Returns the calls that unmap the pages.
    pub(crate) fn calls_to_end(
        &mut self,
        is_asked: impl Fn(ShardId) -> bool,
        suffice: impl Fn(u64, usize) -> bool,
    ) -> Vec<PageCall> {
        let (mut calls, mut freed, mut looked) = (Vec::new(), 0, None);
        while !suffice(freed, calls.len())
            && let Some(next @ (_, id)) = self.core.paging.windows.least_used(looked)
        {
            looked = Some(next);
            let window = &self.core.paging.windows[id];
            let length = window.bytes;
            if is_asked(window.shard) && self.may_end(id) {
                freed += length;
                calls.append(&mut self.end_window(id));
            }
        }
        calls
    }

    /// Returns whether a window can end: nothing of it is in use, all work through it is over, and no graph may use its
    /// addresses, as one may in a held pool.
    fn may_end(&mut self, id: WindowId) -> bool {
        let window = &self.core.paging.windows[id];
        let (head, end) = (window.head, window.end());
        self.core.may_release(window.shard)
            && self.shards.with(window.shard, |shard| {
                let mut points = shard.panes.points(head);
                shard.memory.is_idle_window(head, end) && points.all(|point| self.core.pending.is_reached(point))
            })
    }

    /// Takes a page out of all windows. Returns the calls that unmap it there.
    pub(crate) fn calls_to_leave_windows(&mut self, page: PageId) -> Vec<PageCall> {
        let mut calls = Vec::new();
        for at in self.core.pages[page].windows.clone() {
            // A window that ended has lost the page already.
            if let Some(WindowPart { window: id, part }) = self.core.paging.windows.at(at) {
                let window = &self.core.paging.windows[id];
                let (head, bytes, has_rest) = (window.head, window.parts[part].bytes, part + 1 < window.parts.len());
                let TakenOut { block, behind } = self.shards.with(at.shard, |shard| {
                    shard.memory.segments[at.slot].page_leaves(at);
                    shard.panes.take_out(&mut shard.memory, head, at.offset, bytes, has_rest)
                });
                self.core.paging.windows.take_out(id, part, behind);
                self.core.paging.ending.push(ShardBlock { shard: at.shard, block });
                calls.push(PageCall::Unmap { page, at });
            }
        }
        calls
    }

    /// Ends a window of which nothing is in use. Returns the calls that unmap its pages.
    fn end_window(&mut self, id: WindowId) -> Vec<PageCall> {
        let window = self.core.paging.windows.remove(id);
        self.core.paging.ending.push(ShardBlock { shard: window.shard, block: window.head });
        let leave = |part: &Part| {
            self.shards.with(part.at.shard, |shard| shard.memory.segments[part.at.slot].page_leaves(part.at));
            PageCall::Unmap { page: part.page, at: part.at }
        };
        window.parts.iter().map(leave).collect()
    }

    /// Returns the calls that unmap a page everywhere and release it. It is taken out of the windows that it is in.
    pub(crate) fn calls_to_release(&mut self, id: PageId) -> Vec<PageCall> {
        let mut calls = self.calls_to_leave_windows(id);
        calls.extend(self.core.pages[id].home.map(|at| PageCall::Unmap { page: id, at }));
        calls.push(PageCall::Release { page: id });
        calls
    }

    /// Notes that calls of [`calls_to_release`](Self::calls_to_release) were made.
    pub(crate) fn pages_released(&mut self, calls: &[PageCall]) {
        for call in calls {
            match *call {
                PageCall::Unmap { page, at } => self.core.page_leaves(page, at, self.shards),
                PageCall::Release { page } => {
                    self.core.pages.remove(page);
                    self.core.paging.stats.released += 1;
                }
                PageCall::Create { .. } | PageCall::Map { .. } => panic!("{call:?} releases nothing"),
            }
        }
        self.vacate_windows();
    }

    /// Makes the addresses of windows vacant that have ended and whose pages are unmapped.
    pub(crate) fn vacate_windows(&mut self) {
        self.core.paging.ending.retain(|&ShardBlock { shard, block }| {
            let is_bare = self.shards.with(shard, |shard| shard.memory.is_bare_window(block));
            if is_bare {
                self.shards.with(shard, |shard| shard.panes.vacate(&mut shard.memory, block));
            }
            !is_bare
        });
    }
}
