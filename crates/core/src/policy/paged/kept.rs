//! Windows: those that are kept and could serve a request again, and those that end.

use alloc::vec::Vec;

use millpond_backend::Point;

use super::tiles::Tiles;
use crate::books::{Part, WindowId};
use crate::coordinator::step::PageCall;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{PageId, Place, ShardId};

/// A stretch of free memory at a home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stretch {
    pub(super) home: Place,
    pub(super) bytes: u64,
}

impl Coordinator {
    /// Returns the oldest kept window of a shard whose memory is free as far as the request goes, with that memory in
    /// order of addresses.
    ///
    /// The oldest one, so that a program that repeats itself makes no new windows: a request that comes again in the
    /// same state of the memory finds all windows that there were the last time, and takes the same one, or the one
    /// that was made for it. Windows that were made later in the last round do not change that.
    pub(super) fn kept_window(&self, shard: ShardId, bytes: u64, tiles: &Tiles) -> Option<(WindowId, Vec<Stretch>)> {
        self.paging.windows.at_least(shard, bytes).find_map(|(id, window)| {
            // What was in the way last time probably is so still.
            let first = window.parts[window.in_the_way.get()];
            if window.from(window.in_the_way.get()) < bytes && tiles.around(first.home, 1).is_none() {
                return None;
            }
            let mut left = bytes;
            let mut stretches: Vec<Stretch> = Vec::new();
            for (at, part) in window.parts.iter().enumerate() {
                let bytes = part.bytes.min(left);
                if tiles.around(part.home, bytes).is_none() {
                    window.in_the_way.set(at);
                    return None;
                }
                add(&mut stretches, Stretch { home: part.home, bytes });
                left -= bytes;
                if left == 0 {
                    break;
                }
            }
            Some((id, stretches))
        })
    }

    /// Ends the windows of a shard that were not used for longest, nothing of which is in use, so that there are
    /// addresses for another one of that length. Returns the calls that unmap their pages: none if there is no such
    /// window.
    pub(super) fn calls_to_end_windows(
        &mut self,
        shard: ShardId,
        bytes: u64,
        shards: &mut impl Shards,
    ) -> Vec<PageCall> {
        let (mut calls, mut freed) = (Vec::new(), 0);
        for id in self.paging.windows.by_age() {
            let window = &self.paging.windows[id];
            if window.shard != shard || freed >= bytes {
                continue;
            }
            let (is_kept, point) =
                shards.with(shard, |shard| (shard.is_kept(window.block), shard.window_point(window.block)));
            if is_kept && self.pending.is_reached(point) {
                freed += window.bytes;
                calls.append(&mut self.cut_window(id, 0, shards));
            }
        }
        calls
    }

    /// Returns whether the windows that a page is in can end in front of it: all work through them is over, and no
    /// other plan is unmapping the page there.
    pub(crate) fn windows_may_end(&self, page: PageId, shards: &mut impl Shards) -> bool {
        self.pages[page].windows.iter().all(|&at| {
            let Some((id, _)) = self.paging.windows.at(at) else { return false };
            let window = &self.paging.windows[id];
            let point = shards.with(window.shard, |shard| shard.window_point(window.block));
            self.pending.is_reached(point)
        })
    }

    /// Returns the points up to which the windows were used that a page is in.
    pub(crate) fn window_points(&self, page: PageId, shards: &mut impl Shards) -> Vec<Point> {
        let windows = self.pages[page].windows.iter().filter_map(|&at| self.paging.windows.at(at));
        let point = |(id, _): (WindowId, usize)| {
            let window = &self.paging.windows[id];
            shards.with(window.shard, |shard| shard.window_point(window.block))
        };
        windows.map(point).collect()
    }

    /// Ends the windows that a page is in, in front of it. Returns the calls that unmap what they lose.
    pub(crate) fn calls_to_cut_windows(&mut self, page: PageId, shards: &mut impl Shards) -> Vec<PageCall> {
        let mut calls = Vec::new();
        for at in self.pages[page].windows.clone() {
            // A page that is released with it may have ended the window already.
            if let Some((id, part)) = self.paging.windows.at(at) {
                calls.append(&mut self.cut_window(id, part, shards));
            }
        }
        calls
    }

    /// Ends a window behind its first `keep` parts. Returns the calls that unmap the others.
    fn cut_window(&mut self, id: WindowId, keep: usize, shards: &mut impl Shards) -> Vec<PageCall> {
        let gone = if keep > 0 {
            self.paging.windows.cut(id, keep)
        } else {
            let window = self.paging.windows.remove(id);
            let front = window.parts.first().map_or(0, |part| self.front_of(part));
            self.paging.ending.push((window.shard, window.block, front));
            window.parts
        };
        let leave = |part: &Part| {
            shards.with(part.at.shard, |shard| shard.page_leaves(part.at));
            PageCall::Unmap { page: part.page, at: part.at }
        };
        gone.iter().map(leave).collect()
    }

    /// Returns the bytes between the beginning of a page and that of its part.
    pub(super) fn front_of(&self, part: &Part) -> u64 {
        let home = self.pages[part.page].home.map_or(part.home.offset, |home| home.offset);
        part.home.offset - home
    }

    /// Makes the addresses of windows vacant that have ended and whose pages are unmapped.
    pub(crate) fn vacate_windows(&mut self, shards: &mut impl Shards) {
        let ending = core::mem::take(&mut self.paging.ending);
        for (id, block, front) in ending {
            let is_bare = shards.with(id, |shard| {
                let is_bare = shard.is_bare_window(block);
                if is_bare {
                    shard.vacate_window(block, front);
                }
                is_bare
            });
            if !is_bare {
                self.paging.ending.push((id, block, front));
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

/// Adds a stretch behind others, joined with the last one if it goes on there.
pub(super) fn add(stretches: &mut Vec<Stretch>, next: Stretch) {
    if let Some(last) = stretches.last_mut()
        && (last.home.shard, last.home.slot) == (next.home.shard, next.home.slot)
        && last.home.offset + last.bytes == next.home.offset
    {
        last.bytes += next.bytes;
    } else {
        stretches.push(next);
    }
}
