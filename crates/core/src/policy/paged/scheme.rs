//! The ways in which a window could be backed, and what each would cost.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::sizes;
use super::survey::{FreePage, Means, When};
use crate::books::Shadow;
use crate::coordinator::Coordinator;
use crate::ids::{BlockId, PageId, Place};
use crate::segment::{Mapping, Role};
use crate::shard::{Gap, Piece, Window};

/// The cost of the driver calls for a page, in nanoseconds, as measured on an H200. Only the proportions matter here.
const MOVE_NS: u64 = 27_000;
const CREATE_NS: u64 = 36_000;
const UNMAP_NS: u64 = 16_000;

/// A way to serve a request.
pub(super) struct Scheme {
    pub(super) window: Window,
    /// The end of the claim in each gap: pages may be larger than the need.
    pub(super) ends: Vec<u64>,
    /// Old mappings that have to be unmapped first.
    pub(super) clears: Vec<(PageId, u64)>,
    /// The pages, in order of addresses.
    pub(super) backings: Vec<Backing>,
    /// The number of bytes to create.
    pub(super) created: u64,
    /// The number of those bytes that lie beyond the slack.
    over: u64,
    ns: u64,
}

/// A page for a part of a gap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backing {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) source: Source,
}

/// The origin of a page.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// The page is mapped at these addresses already, as a shadow, and comes back.
    Back(FreePage),
    /// The page is mapped at new addresses.
    Move(FreePage),
    /// The page is spare.
    Spare(PageId),
    /// The page is created.
    New,
}

/// Returns the cheapest scheme: the one with the least memory beyond the slack, then with the least driver time, then
/// the first. `None` means that nothing available serves the request.
pub(super) fn choose(coordinator: &Coordinator, means: &Means, windows: Vec<Window>) -> Option<Scheme> {
    let mut best: Option<Scheme> = None;
    for window in windows {
        let ways: &[bool] = if means.settles { &[false] } else { &[true, false] };
        for &takes_back in ways {
            let most = best.as_ref().map(|best| (best.over, best.ns));
            let scheme = Filling::new(coordinator, means, &window, most).run(&window, takes_back);
            best = scheme.or(best);
        }
        if best.as_ref().is_some_and(|best| best.ns == 0) {
            break;
        }
    }
    best
}

/// A window while it is being filled.
struct Filling<'a> {
    coordinator: &'a Coordinator,
    means: &'a Means,
    used: BTreeSet<PageId>,
    /// The free blocks of the window itself, whose pages stay.
    own: Vec<BlockId>,
    clears: Vec<(PageId, u64)>,
    backings: Vec<Backing>,
    created: u64,
    ns: u64,
    /// The cost of the best scheme so far: the bytes beyond the slack, and the time.
    most: Option<(u64, u64)>,
}

impl<'a> Filling<'a> {
    fn new(coordinator: &'a Coordinator, means: &'a Means, window: &Window, most: Option<(u64, u64)>) -> Self {
        let own = window.pieces.iter().filter_map(|piece| match piece {
            Piece::Free { block, .. } => Some(*block),
            Piece::Gap(_) => None,
        });
        Self {
            coordinator,
            means,
            used: BTreeSet::new(),
            own: own.collect(),
            clears: Vec::new(),
            backings: Vec::new(),
            created: 0,
            ns: 0,
            most,
        }
    }

    /// Returns the number of bytes beyond the slack, and the time in nanoseconds.
    fn cost(&self) -> (u64, u64) {
        (self.created.saturating_sub(self.means.slack), self.ns)
    }

    /// Returns the scheme, if there is one and it is cheaper than the best so far.
    fn run(mut self, window: &Window, takes_back: bool) -> Option<Scheme> {
        let mut ends = Vec::new();
        for piece in &window.pieces {
            if let Piece::Gap(gap) = piece {
                ends.push(self.fill_gap(window, gap, takes_back)?);
            }
        }
        let (over, ns) = self.cost();
        self.most.is_none_or(|most| (over, ns) < most).then(|| Scheme {
            window: window.clone(),
            ends,
            clears: self.clears,
            backings: self.backings,
            created: self.created,
            over,
            ns,
        })
    }

    /// Backs a gap. Returns the end of its pages, or `None` if the gap cannot be backed.
    fn fill_gap(&mut self, window: &Window, gap: &Gap, takes_back: bool) -> Option<u64> {
        let mut at = gap.begin;
        for &(offset, mapping) in &gap.shadows {
            let home = self.usable(mapping.page).filter(|free| free.when == When::Now);
            match home.filter(|_| takes_back && mapping.role == Role::Shadow) {
                Some(free) => {
                    // The pages before it must fit exactly, and this page is not available for them.
                    self.used.insert(free.page);
                    self.fill(at, offset, offset)?;
                    self.back(offset, mapping.bytes, Source::Back(free));
                    at = offset + mapping.bytes;
                }
                None => self.clear(window, offset, mapping)?,
            }
        }
        if at < gap.end { self.fill(at, gap.end, gap.clear_to) } else { Some(at) }
    }

    fn clear(&mut self, window: &Window, offset: u64, mapping: Mapping) -> Option<()> {
        let place = Place { shard: self.means.shard, slot: window.slot, offset };
        let is_there = |shadow: &&Shadow| shadow.place == place;
        let shadow = self.coordinator.pages[mapping.page].shadows.iter().find(is_there)?;
        if mapping.role != Role::Shadow || !self.coordinator.pending.is_reached(shadow.until) {
            return None;
        }
        self.clears.push((mapping.page, offset));
        self.ns += UNMAP_NS;
        Some(())
    }

    /// Backs the addresses from `at` to `end` with pages that reach no farther than `limit`.
    fn fill(&mut self, mut at: u64, end: u64, limit: u64) -> Option<u64> {
        let means = self.means;
        while let Some(page) = self.spare_for(end.saturating_sub(at), limit - at) {
            at = self.back(at, page.1, Source::Spare(page.0));
        }
        if at < end && self.created + (end - at) <= means.slack {
            return Some(self.create(at, end));
        }
        at = self.move_in(at, end, limit, When::Now);
        if at < end && means.tight {
            at = self.move_in(at, end, limit, When::BehindWait);
        }
        if at < end && self.created + (end - at) <= means.room {
            at = self.create(at, end);
        }
        if at < end {
            at = self.move_in(at, end, limit, When::BehindWait);
        }
        (at >= end).then_some(at)
    }

    fn create(&mut self, mut at: u64, end: u64) -> u64 {
        self.created += end - at;
        for bytes in sizes::created(end - at, self.means.cap) {
            at = self.back(at, bytes, Source::New);
        }
        at
    }

    fn move_in(&mut self, mut at: u64, end: u64, limit: u64, when: When) -> u64 {
        while at < end && self.most.is_none_or(|most| self.cost() < most) {
            let Some(free) = self.free_for(end - at, limit - at, when) else { break };
            at = self.back(at, free.bytes, Source::Move(free));
        }
        at
    }

    /// Returns the page to move next: the largest that is needed in full, or else the smallest that is large enough.
    fn free_for(&self, need: u64, most: u64, when: When) -> Option<FreePage> {
        let by_size = &self.means.by_size;
        let fits = |(_, page): &(u64, Reverse<PageId>)| self.usable(page.0).filter(|free| free.when == when);
        let larger = by_size.partition_point(|&(bytes, _)| bytes <= need);
        let too_large = by_size.partition_point(|&(bytes, _)| bytes <= most);
        let within = by_size[..larger].iter().rev().find_map(fits);
        within.or_else(|| by_size[larger..too_large].iter().find_map(fits))
    }

    fn spare_for(&self, need: u64, most: u64) -> Option<(PageId, u64)> {
        let fits = |page: &&(PageId, u64)| need > 0 && page.1 <= most && !self.used.contains(&page.0);
        let fits = || self.means.spare.iter().filter(fits);
        fits()
            .filter(|page| page.1 <= need)
            .max_by_key(|page| page.1)
            .or_else(|| fits().min_by_key(|page| page.1))
            .copied()
    }

    fn usable(&self, page: PageId) -> Option<FreePage> {
        self.means.free.get(&page).filter(|free| self.is_free(free)).copied()
    }

    fn is_free(&self, free: &FreePage) -> bool {
        let is_own = free.at.shard == self.means.shard && self.own.contains(&free.block);
        !is_own && !self.used.contains(&free.page)
    }

    fn back(&mut self, offset: u64, bytes: u64, source: Source) -> u64 {
        self.ns += match source {
            Source::Back(_) => 0,
            Source::Move(_) | Source::Spare(_) => MOVE_NS,
            Source::New => CREATE_NS,
        };
        if let Source::Back(free) | Source::Move(free) = source {
            self.used.insert(free.page);
        }
        if let Source::Spare(page) = source {
            self.used.insert(page);
        }
        self.backings.push(Backing { offset, bytes, source });
        offset + bytes
    }
}
