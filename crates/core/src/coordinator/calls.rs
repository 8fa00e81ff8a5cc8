//! Driver calls about pages, in batches: what they are for, and what is true once they are made.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::phase::Phase;
use super::plan::Plan;
use super::step::PageCall;
use super::sweep::Sweep;
use super::{Coordinator, Shards};
use crate::ids::{BlockId, PageId, Place, ShardId};
use crate::policy::ladder::Rung;
use crate::policy::paged::Job;
use crate::segment::{Mapping, Role};

/// What a batch of page calls is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// New pages for claimed addresses of an expandable segment.
    Extend(Extension),
    /// Taking back what was done of such an extension before a call failed, and whether that was refused: if not, the
    /// plan ends.
    Undo(Extension, bool),
    /// Unmapping and releasing the pages of a claimed block, of this many bytes, or spare pages; the rest of the sweep
    /// follows.
    GiveUp { of: Option<(ShardId, BlockId, u64)>, sweep: Box<Sweep> },
    /// Backing a window.
    Back(Box<Job>, Rung),
    /// Unmapping the pages of windows that end, before the attempt is made again.
    EndWindows(Rung),
}

/// Addresses that are being mapped, for an attempt of the ladder.
#[derive(Debug)]
pub(crate) struct Extension {
    /// The claimed addresses.
    pub(crate) gap: BlockId,
    pub(crate) bytes: u64,
    /// The plan's claimed block in front of them, if there is one.
    pub(crate) before: Option<BlockId>,
    /// Whether fewer bytes would not serve.
    pub(crate) is_least: bool,
    pub(crate) attempt: Rung,
}

impl Coordinator {
    /// Takes in that page calls were made: all of them, or the first `done` before one failed.
    pub(super) fn calls_made(
        &mut self,
        mut calls: Vec<PageCall>,
        purpose: Purpose,
        stopped: Option<(usize, bool)>,
        plan: &mut Plan,
        shards: &mut dyn Shards,
    ) -> Phase {
        let skipped = stopped.map_or(Vec::new(), |(done, _)| calls.split_off(done));
        match (purpose, stopped) {
            (Purpose::Extend(Extension { gap, bytes, before, attempt, .. }), None) => {
                for call in &calls {
                    if let PageCall::Map { page, at } = *call {
                        self.page_arrives(page, at, Role::Home, shards);
                    }
                }
                let (shard, want) = plan.request.allocation();
                self.headroom.end_ask(bytes);
                self.headroom.gain(want.side, bytes);
                Phase::Extend(shards.with(shard, |shard| shard.mapped(gap, before)), attempt)
            }
            (Purpose::Extend(extension), Some((_, refused))) => {
                self.forget_new(&skipped);
                // What was mapped before the call that failed is taken back, as PyTorch does.
                let undo = |call: &PageCall| match *call {
                    PageCall::Create { page, .. } => PageCall::Release { page },
                    PageCall::Map { page, at } => PageCall::Unmap { page, at },
                    other => panic!("{other:?} extends nothing"),
                };
                let calls: Vec<_> = calls.iter().rev().map(undo).collect();
                match calls.is_empty() {
                    true => self.extension_undone(extension, refused, plan, shards),
                    false => Phase::Undo(calls, extension, refused),
                }
            }
            (Purpose::Undo(extension, refused), None) => {
                self.forget_new(&calls);
                self.extension_undone(extension, refused, plan, shards)
            }
            (Purpose::GiveUp { of, sweep }, None) => Phase::Sweep(self.given_up(of, sweep, &calls, plan, shards)),
            (Purpose::Back(job, rung), stopped) => {
                self.backed(job, rung, &calls, stopped.map(|(_, refused)| refused), plan, shards)
            }
            (Purpose::EndWindows(rung), None) => {
                self.pages_released(&calls, shards);
                Phase::Climb(rung)
            }
            (purpose, Some(stopped)) => panic!("calls for {purpose:?} cannot fail and did: {stopped:?}"),
        }
    }

    /// Notes that a page is mapped at a place.
    pub(crate) fn page_arrives(&mut self, id: PageId, at: Place, role: Role, shards: &mut dyn Shards) {
        let (pool, page) = (self.pool_of(at.shard), &mut self.pages[id]);
        match role {
            Role::Home => {
                page.home = Some(at);
                self.pools.gain(pool, page.side, page.bytes);
            }
            Role::Window | Role::Leaving => page.windows.push(at),
        }
        let mapping = Mapping { page: id, birth: page.birth, bytes: page.bytes, role };
        shards.with(at.shard, |shard| shard.page_mapped(at, mapping));
    }

    /// Notes that a page is no longer mapped at a place.
    fn page_leaves(&mut self, id: PageId, at: Place, shards: &mut dyn Shards) {
        let (pool, page) = (self.pool_of(at.shard), &mut self.pages[id]);
        if page.home == Some(at) {
            page.home = None;
            self.pools.lose(pool, page.side, page.bytes);
        } else {
            self.pages.leaves_window(id, at);
            self.paging.stats.unmapped += 1;
        }
        shards.with(at.shard, |shard| shard.page_unmapped(at, id));
    }

    /// Returns the calls that unmap a page everywhere and release it. It is taken out of the windows that it is in.
    pub(super) fn calls_to_release(&mut self, id: PageId, shards: &mut dyn Shards) -> Vec<PageCall> {
        let mut calls = self.calls_to_leave_windows(id, shards);
        calls.extend(self.pages[id].home.map(|at| PageCall::Unmap { page: id, at }));
        calls.push(PageCall::Release { page: id });
        calls
    }

    /// Notes that calls of [`calls_to_release`](Self::calls_to_release) were made.
    pub(super) fn pages_released(&mut self, calls: &[PageCall], shards: &mut dyn Shards) {
        for call in calls {
            match *call {
                PageCall::Unmap { page, at } => self.page_leaves(page, at, shards),
                PageCall::Release { page } => {
                    self.pages.remove(page);
                    self.paging.stats.released += 1;
                }
                PageCall::Create { .. } | PageCall::Map { .. } => panic!("{call:?} releases nothing"),
            }
        }
        self.vacate_windows(shards);
    }

    /// Forgets new pages that were never created, or were released again: no plan has known of them.
    fn forget_new(&mut self, calls: &[PageCall]) {
        for call in calls {
            if let PageCall::Create { page, .. } | PageCall::Release { page } = *call {
                self.pages.remove(page);
            }
        }
    }
}
