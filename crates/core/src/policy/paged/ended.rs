//! Windows that end, and pages that leave windows.

use alloc::vec::Vec;

use crate::books::{Part, WindowId};
use crate::coordinator::step::PageCall;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{PageId, ShardId};

impl Coordinator {
    /// Ends the windows of a shard that were not used for longest, until addresses for another one of that length are
    /// free. Returns the calls that unmap their pages: none if no window can end.
    pub(super) fn calls_to_free_addresses(
        &mut self,
        shard: ShardId,
        bytes: u64,
        shards: &mut dyn Shards,
    ) -> Vec<PageCall> {
        self.calls_to_end(|of| of == shard, |freed, _| freed >= bytes, shards)
    }

    /// Ends the windows, of all shards, that were not used for longest, until this number of mappings or more has
    /// ended. Returns the calls that unmap the pages: fewer, or none, if not as many can end.
    pub(super) fn calls_to_end_mappings(&mut self, mappings: usize, shards: &mut dyn Shards) -> Vec<PageCall> {
        self.calls_to_end(|_| true, |_, ended| ended >= mappings, shards)
    }

    /// Ends windows of the shards that are asked, those first that were not used for longest, until the addresses that
    /// are free by that, or the mappings that ended, suffice. Returns the calls that unmap the pages.
    fn calls_to_end(
        &mut self,
        is_asked: impl Fn(ShardId) -> bool,
        suffice: impl Fn(u64, usize) -> bool,
        shards: &mut dyn Shards,
    ) -> Vec<PageCall> {
        let (mut calls, mut freed, mut looked) = (Vec::new(), 0, None);
        while !suffice(freed, calls.len())
            && let Some(next @ (_, id)) = self.paging.windows.least_used(looked)
        {
            looked = Some(next);
            let window = &self.paging.windows[id];
            let length = window.bytes;
            if is_asked(window.shard) && self.may_end(id, shards) {
                freed += length;
                calls.append(&mut self.end_window(id, shards));
            }
        }
        calls
    }

    /// Returns whether a window can end: nothing of it is in use, all work through it is over, and no graph may use its
    /// addresses, as one may in a held pool.
    fn may_end(&self, id: WindowId, shards: &mut dyn Shards) -> bool {
        let window = &self.paging.windows[id];
        let (head, end) = (window.head, window.end());
        self.may_release(window.shard)
            && shards.with(window.shard, |shard| {
                let mut points = shard.window_points(head);
                shard.is_idle_window(head, end) && points.all(|point| self.pending.is_reached(point))
            })
    }

    /// Returns whether a page that is free, and whose last use is over, can be taken out of its windows: none of them
    /// is ending already. What was done through windows comes before that last use.
    pub(crate) fn can_leave_windows(&self, page: PageId) -> bool {
        self.pages[page].windows.iter().all(|&at| self.paging.windows.at(at).is_some())
    }

    /// Takes a page out of all windows. Returns the calls that unmap it there.
    pub(crate) fn calls_to_leave_windows(&mut self, page: PageId, shards: &mut dyn Shards) -> Vec<PageCall> {
        let mut calls = Vec::new();
        for at in self.pages[page].windows.clone() {
            // A window that ended has lost the page already.
            if let Some((id, part)) = self.paging.windows.at(at) {
                let window = &self.paging.windows[id];
                let (head, bytes, has_rest) = (window.head, window.parts[part].bytes, part + 1 < window.parts.len());
                let (block, behind) = shards.with(at.shard, |shard| {
                    shard.page_leaves(at);
                    shard.take_out(head, (at.offset, bytes), has_rest)
                });
                self.paging.windows.take_out(id, part, behind);
                self.paging.ending.push((at.shard, block));
                calls.push(PageCall::Unmap { page, at });
            }
        }
        calls
    }

    /// Ends a window of which nothing is in use. Returns the calls that unmap its pages.
    fn end_window(&mut self, id: WindowId, shards: &mut dyn Shards) -> Vec<PageCall> {
        let window = self.paging.windows.remove(id);
        self.paging.ending.push((window.shard, window.head));
        let leave = |part: &Part| {
            shards.with(part.at.shard, |shard| shard.page_leaves(part.at));
            PageCall::Unmap { page: part.page, at: part.at }
        };
        window.parts.iter().map(leave).collect()
    }

    /// Makes the addresses of windows vacant that have ended and whose pages are unmapped.
    pub(crate) fn vacate_windows(&mut self, shards: &mut dyn Shards) {
        let ending = core::mem::take(&mut self.paging.ending);
        for (id, block) in ending {
            let is_bare = shards.with(id, |shard| {
                let is_bare = shard.is_bare_window(block);
                if is_bare {
                    shard.vacate_window(block);
                }
                is_bare
            });
            if !is_bare {
                self.paging.ending.push((id, block));
            }
        }
    }

    /// Verifies that the book of windows agrees with itself and with the pages.
    pub(crate) fn check_windows(&self) {
        self.paging.windows.check();
        for (_, window) in self.paging.windows.iter() {
            for part in &window.parts {
                assert!(self.pages[part.page].windows.contains(&part.at), "{part:?} of a window is not mapped");
            }
        }
    }
}
