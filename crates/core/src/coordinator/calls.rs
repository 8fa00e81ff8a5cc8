//! Driver calls about pages, in batches: what they are for, and what is true once they are made.

use alloc::boxed::Box;
use alloc::vec::Vec;

use millpond_backend::Point;

use super::phase::Phase;
use super::plan::Plan;
use super::step::PageCall;
use super::{Coordinator, Shards};
use crate::books::{Page, Shadow};
use crate::ids::{BlockId, PageId, Place, ShardId};
use crate::policy::Climb;
use crate::policy::paged::Job;
use crate::segment::Role;

use super::sweep::Sweep;

/// Calls that the shell is to make, in order, and what they are for.
#[derive(Debug)]
pub(crate) struct Batch {
    calls: Vec<PageCall>,
    purpose: Purpose,
}

/// What a batch of page calls is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// New pages for claimed addresses of an expandable segment.
    Extend(Extension),
    /// Taking back what was done of such an extension before a call failed.
    Undo(Extension, After),
    /// Unmapping and releasing the pages of a claimed block; the rest of the sweep follows.
    GiveUp { shard: ShardId, block: BlockId, bytes: u64, sweep: Sweep, then: Box<Phase> },
    /// Releasing spare pages; the rest of the sweep follows.
    GiveUpSpare { sweep: Sweep, then: Box<Phase> },
    /// Backing a window.
    Back(Box<Job>, Climb),
}

/// Addresses that are being mapped, for an attempt of the ladder.
#[derive(Debug)]
pub(crate) struct Extension {
    /// The claimed addresses.
    pub(crate) gap: BlockId,
    pub(crate) bytes: u64,
    /// The plan's claimed block in front of them, if there is one.
    pub(crate) before: Option<BlockId>,
    pub(crate) attempt: Climb,
}

/// What follows an extension that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// The attempt was refused: the ladder goes on.
    Refused,
    /// The driver failed otherwise: the plan ends.
    Over,
}

impl Batch {
    pub(crate) fn new(calls: Vec<PageCall>, purpose: Purpose) -> Self {
        Self { calls, purpose }
    }

    pub(crate) fn calls(&self) -> &[PageCall] {
        &self.calls
    }

    /// Returns the same calls, with the end of the plan behind them.
    pub(super) fn then_over(self) -> Self {
        let purpose = match self.purpose {
            Purpose::Undo(extension, _) => Purpose::Undo(extension, After::Over),
            other => panic!("a plan is given up before its calls for {other:?} were made"),
        };
        Self { purpose, ..self }
    }
}

impl Coordinator {
    /// Takes in that page calls were made: all of them, or the first `done` before one failed.
    pub(super) fn calls_made(
        &mut self,
        batch: Batch,
        stopped: Option<(usize, bool)>,
        plan: &mut Plan,
        shards: &mut impl Shards,
    ) -> Phase {
        let Batch { mut calls, purpose } = batch;
        let skipped = stopped.map_or(Vec::new(), |(done, _)| calls.split_off(done));
        match (purpose, stopped) {
            (Purpose::Extend(extension), None) => self.extended(extension, &calls, plan, shards),
            (Purpose::Extend(extension), Some((_, refused))) => {
                self.forget_uncreated(&skipped);
                let after = if refused { After::Refused } else { After::Over };
                self.undo_extension(extension, after, &calls, plan, shards)
            }
            (Purpose::Undo(extension, after), None) => {
                self.pages_undone(&calls);
                self.extension_undone(extension, after, plan, shards)
            }
            (Purpose::GiveUp { shard, block, bytes, sweep, then }, None) => {
                self.pages_released(&calls, shards);
                let sweep = self.unmapped(sweep, shard, block, bytes, plan, shards);
                Phase::Sweep(sweep, then)
            }
            (Purpose::GiveUpSpare { sweep, then }, None) => {
                self.spare_released(&calls, plan, shards);
                Phase::Sweep(sweep, then)
            }
            (Purpose::Back(job, climb), stopped) => {
                self.backed(*job, climb, &calls, stopped.map(|(_, refused)| refused), plan, shards)
            }
            (purpose, Some(stopped)) => panic!("calls for {purpose:?} cannot fail and did: {stopped:?}"),
        }
    }

    /// Notes that a page is at home at a place now.
    pub(crate) fn moves_in(&mut self, id: PageId, at: Place, shards: &mut impl Shards) {
        let page = &mut self.pages[id];
        page.home = Some(at);
        let Page { bytes, birth, .. } = *page;
        let before = shards.with(at.shard, |shard| shard.map_home(at, id, birth, bytes));
        if let Some(before) = before {
            assert_eq!((before.page, before.role), (id, Role::Shadow), "page {} moves in on {before:?}", id.0);
            self.pages.take_shadow(id, at);
        }
    }

    /// Notes that a page leaves its home: it stays mapped there as a shadow until a point, or the driver has unmapped
    /// it.
    pub(crate) fn moves_out(&mut self, id: PageId, until: Option<Point>, shards: &mut impl Shards) {
        let page = &mut self.pages[id];
        let Some(home) = page.home.take() else { panic!("page {} has no home to leave", id.0) };
        match until {
            Some(until) => {
                page.shadows.push(Shadow { place: home, until });
                shards.with(home.shard, |shard| shard.home_to_shadow(home, id));
            }
            None => shards.with(home.shard, |shard| shard.unmap_home(home, id)),
        }
    }

    /// Notes that a shadow is being unmapped: no plan takes the page back through it any more.
    pub(crate) fn shadow_leaves(&mut self, at: Place, shards: &mut impl Shards) {
        shards.with(at.shard, |shard| shard.shadow_leaves(at));
    }

    /// Notes that the driver has unmapped a shadow.
    pub(crate) fn shadow_left(&mut self, id: PageId, at: Place, shards: &mut impl Shards) {
        self.pages.take_shadow(id, at);
        shards.with(at.shard, |shard| shard.shadow_left(at, id));
        self.paging.stats.unmapped += 1;
    }

    /// Returns the calls that unmap a page everywhere and release it. Its shadows are noted as leaving.
    pub(super) fn calls_to_release(&mut self, id: PageId, shards: &mut impl Shards) -> Vec<PageCall> {
        let page = &self.pages[id];
        let mut places: Vec<Place> = page.shadows.iter().map(|shadow| shadow.place).collect();
        let home = page.home;
        for &at in &places {
            self.shadow_leaves(at, shards);
        }
        places.extend(home);
        let unmaps = places.into_iter().map(|at| PageCall::Unmap { page: id, at });
        unmaps.chain([PageCall::Release { page: id }]).collect()
    }

    /// Notes that calls of [`calls_to_release`](Self::calls_to_release) were made.
    pub(super) fn pages_released(&mut self, calls: &[PageCall], shards: &mut impl Shards) {
        for call in calls {
            match *call {
                PageCall::Unmap { page, at } if self.pages[page].home == Some(at) => self.moves_out(page, None, shards),
                PageCall::Unmap { page, at } => self.shadow_left(page, at, shards),
                PageCall::Release { page } => {
                    self.pages.remove(page);
                    self.paging.stats.released += 1;
                }
                PageCall::Create { .. } | PageCall::Map { .. } => panic!("{call:?} releases nothing"),
            }
        }
    }

    /// Forgets the pages that were promised to calls that were never made.
    fn forget_uncreated(&mut self, calls: &[PageCall]) {
        for call in calls {
            if let PageCall::Create { page, .. } = *call {
                self.pages.remove(page);
            }
        }
    }

    /// Forgets new pages that were unmapped and released again: no plan has known of them.
    fn pages_undone(&mut self, calls: &[PageCall]) {
        for call in calls {
            if let PageCall::Release { page } = *call {
                self.pages.remove(page);
            }
        }
    }
}
