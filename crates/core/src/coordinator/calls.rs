//! Driver calls about pages, in batches: what they are for, and what they change.

use alloc::vec::Vec;

use millpond_backend::Point;

use super::plan::{Awaited, Plan};
use super::step::{PageCall, Step};
use super::{Coordinator, Shards};
use crate::ids::{BlockId, PageId, Place, ShardId};
use crate::page::{Page, Shadow};
use crate::segment::{Mapping, Role};

/// The calls that the shell is making, or is to make next.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) calls: Vec<PageCall>,
    pub(super) purpose: Purpose,
}

/// The purpose of a batch of page calls.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The creation and mapping of new pages for a claimed block of addresses of an expandable segment.
    Extend { block: BlockId, bytes: u64 },
    /// The reversal of what was done of such an extension before a call failed.
    Undo { block: BlockId, bytes: u64, refused: bool },
    /// The unmapping and release of the pages of a claimed block.
    GiveUp { shard: ShardId, block: BlockId, bytes: u64 },
    /// The release of spare pages.
    GiveUpSpare,
    /// The backing of the window of the plan's job.
    Back,
}

impl Coordinator {
    pub(super) fn make(&mut self, plan: &mut Plan, purpose: Purpose, calls: Vec<PageCall>) -> Step {
        let step = Step::Pages(calls.clone());
        plan.batch = Some(Batch { calls, purpose });
        plan.awaits(Awaited::Pages, step)
    }

    /// Notes that a page has its home at a place now: the blocks there use its memory.
    pub(super) fn moves_in(&mut self, id: PageId, at: Place, shards: &mut impl Shards) {
        let page = &mut self.pages[id];
        page.home = Some(at);
        let Page { bytes, birth, .. } = *page;
        let before = shards.with(at.shard, |shard| {
            let mapping = Mapping { page: id, birth, bytes, role: Role::Home };
            shard.note_page(at, bytes);
            shard.segments[at.slot].mappings.insert(at.offset, mapping)
        });
        if let Some(before) = before {
            assert_eq!((before.page, before.role), (id, Role::Shadow), "page {} moves in on {before:?}", id.0);
            self.pages.take_shadow(id, at);
        }
    }

    /// Notes that a page leaves its home. It stays mapped there as a shadow until the given point, or the driver has
    /// unmapped it.
    pub(super) fn moves_out(&mut self, id: PageId, until: Option<Point>, shards: &mut impl Shards) {
        let page = &mut self.pages[id];
        let Some(home) = page.home.take() else { panic!("page {} has no home to leave", id.0) };
        if let Some(until) = until {
            page.shadows.push(Shadow { place: home, until });
        }
        shards.with(home.shard, |shard| {
            let mappings = &mut shard.segments[home.slot].mappings;
            let mapping = match until {
                Some(_) => mappings.get_mut(&home.offset).map(|mapping| {
                    mapping.role = Role::Shadow;
                    *mapping
                }),
                None => mappings.remove(&home.offset),
            };
            assert!(mapping.is_some_and(|m| m.page == id), "page {} is not mapped at its home: {mapping:?}", id.0);
        });
    }

    /// Notes that a shadow is being unmapped: from here on the page cannot be taken back through it.
    pub(super) fn shadow_leaves(&mut self, at: Place, shards: &mut impl Shards) {
        shards.with(at.shard, |shard| match shard.segments[at.slot].mappings.get_mut(&at.offset) {
            Some(mapping) if mapping.role == Role::Shadow => mapping.role = Role::Leaving,
            other => panic!("no shadow to unmap at {at:?}: {other:?}"),
        });
    }

    /// Notes that a shadow that was to be unmapped stays.
    pub(super) fn shadow_stays(&mut self, at: Place, shards: &mut impl Shards) {
        shards.with(at.shard, |shard| match shard.segments[at.slot].mappings.get_mut(&at.offset) {
            Some(mapping) if mapping.role == Role::Leaving => mapping.role = Role::Shadow,
            other => panic!("no shadow was leaving at {at:?}: {other:?}"),
        });
    }

    /// Notes that the driver has unmapped a shadow.
    pub(super) fn shadow_left(&mut self, id: PageId, at: Place, shards: &mut impl Shards) {
        self.pages.take_shadow(id, at);
        let mapping = shards.with(at.shard, |shard| shard.segments[at.slot].mappings.remove(&at.offset));
        assert!(mapping.is_some_and(|m| m.page == id && m.role == Role::Leaving), "unmapped at {at:?}: {mapping:?}");
    }

    /// Returns the calls that unmap a page everywhere and release it. Notes its shadows as leaving.
    pub(super) fn calls_to_release(&mut self, id: PageId, shards: &mut impl Shards) -> Vec<PageCall> {
        let page = &self.pages[id];
        let mut places: Vec<Place> = page.shadows.iter().map(|shadow| shadow.place).collect();
        for &at in &places {
            self.shadow_leaves(at, shards);
        }
        places.extend(self.pages[id].home);
        let unmaps = places.into_iter().map(|at| PageCall::Unmap { page: id, at });
        unmaps.chain([PageCall::Release { page: id }]).collect()
    }

    /// Notes that calls of [`calls_to_release`](Self::calls_to_release) were made.
    pub(super) fn pages_released(&mut self, calls: &[PageCall], shards: &mut impl Shards) {
        for call in calls {
            match *call {
                PageCall::Unmap { page, at } if self.pages[page].home == Some(at) => {
                    self.moves_out(page, None, shards);
                }
                PageCall::Unmap { page, at } => {
                    self.shadow_left(page, at, shards);
                    self.paging.stats.unmapped += 1;
                }
                PageCall::Release { page } => {
                    self.pages.remove(page);
                    self.paging.stats.released += 1;
                }
                PageCall::Create { .. } | PageCall::Map { .. } => panic!("{call:?} releases nothing"),
            }
        }
    }

    /// Removes the pages that belong to calls that were never made.
    pub(super) fn forget_uncreated(&mut self, calls: &[PageCall]) {
        for call in calls {
            if let PageCall::Create { page, .. } = *call {
                self.pages.remove(page);
            }
        }
    }

    /// Removes new pages that were unmapped and released again. No other plan has ever seen them.
    pub(super) fn pages_undone(&mut self, calls: &[PageCall]) {
        for call in calls {
            if let PageCall::Release { page } = *call {
                self.pages.remove(page);
            }
        }
    }
}
