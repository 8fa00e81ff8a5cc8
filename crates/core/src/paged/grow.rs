//! Growable blocks, and blocks that become longer at their place.
//!
//! Their memory cannot be gathered in a window: a window has pages of other blocks, and ends where another one begins.
//! So they get new pages. Where those would exceed what the slack lets be created first, or the limit, idle memory goes
//! back before, as much as it takes.

use super::Pager;
use super::job::{Job, Target, Way};
use super::taker::{Taker, When};
use crate::books::{Addresses, Paging};
use crate::coordinator::Coordinator;
use crate::governor::Situation;
use crate::ids::{BlockId, Side};
use crate::memory::{Growth, Room, Tile};
use crate::size::Want;
use crate::units::REQUEST_BYTES_MAX;

/// A request for a growable block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growable {
    /// The request, in whole pages.
    pub want: Want,
    /// The bytes of addresses that are kept for the block, in whole pages.
    pub capacity: u64,
}

impl Coordinator {
    /// Returns a request for a growable block, which has at least one page. Returns `None` for 2^60 bytes and more.
    ///
    /// # Panics
    ///
    /// On a device without virtual memory.
    pub fn growable(&self, bytes: u64, capacity: u64) -> Option<Growable> {
        let unit = self.paging.governor.page_unit();
        let whole = |bytes: u64| (bytes < REQUEST_BYTES_MAX).then(|| bytes.max(1).next_multiple_of(unit));
        let want = Want { requested: bytes, rounded: whole(bytes)?, side: Side::Large };
        Some(Growable { want, capacity: whole(capacity.max(bytes))? })
    }
}

impl Pager<'_> {
    /// Serves a request for a growable block with new pages, where `room` bytes may be created.
    pub(crate) fn growable_way(&mut self, taker: Taker, room: u64, capacity: u64) -> Option<Way> {
        let bytes = taker.want.rounded;
        let growth = self.shards.with(taker.shard, |shard| shard.memory.growth_with_capacity(bytes, capacity));
        let Some(growth) = growth else {
            return (!taker.lacks.homes).then_some(Way::Range(Addresses::Home(capacity)));
        };
        self.create_at(taker, room, &growth, Target::Home)
    }

    /// Makes a block that is handed out longer: in the free memory after it, in new pages, or in both.
    pub(crate) fn after_way(&mut self, taker: Taker, room: u64, block: BlockId, requested: u64) -> Option<Way> {
        let target = Target::After(block, requested);
        match self.shards.with(taker.shard, |shard| shard.memory.room_after(block, taker.want.rounded)) {
            Err(why) => Some(Way::Stuck(why)),
            Ok(Room::Free(tile)) => self.take_after(taker, &tile, target),
            Ok(Room::Pages(growth)) => self.create_at(taker, room, &growth, target),
        }
    }

    /// Claims free memory that follows a block, if the stream can use it now or behind waits. What is free in a segment
    /// is not claimed while the stream waits.
    fn take_after(&mut self, taker: Taker, tile: &Tile, target: Target) -> Option<Way> {
        let (when, has_pages) = self.shards.with(taker.shard, |shard| {
            (taker.on(self.core, shard).when_free(tile), shard.memory.blocks[tile.block].expandable)
        });
        if when > if has_pages { When::BehindWait } else { When::Now } {
            return None;
        }
        let mut job = Job::new(taker, self.core.pending.reached(taker.by.stream));
        job.target = target;
        let claimed = self.shards.with(taker.shard, |shard| shard.memory.claim_part(tile, tile.begin, tile.end));
        let claimed = claimed.and_then(|claimed| self.keep_if_usable(&mut job, claimed));
        job.pieces.extend(claimed);
        Some(if job.pieces.is_empty() { Way::Spoiled(job) } else { Way::Job(job) })
    }

    /// Has new pages be created at a place, at most `room` bytes of them.
    fn create_at(&mut self, taker: Taker, room: u64, growth: &Growth, target: Target) -> Option<Way> {
        let created = growth.missing.next_multiple_of(self.core.paging.governor.page_unit());
        if let Some(before) = &growth.before
            && self.shards.with(taker.shard, |shard| taker.on(self.core, shard).when_free(before)) > When::BehindWait
        {
            return None;
        }
        let way = self.give_back_first(taker, room, created);
        if way.is_some() || created > room {
            return way;
        }
        if taker.lacks.budget {
            return Some(Way::Budget);
        }
        let sizes = self.page_sizes(taker.want.side, created);
        let mut job = Job::new(taker, self.core.pending.reached(taker.by.stream));
        job.target = target;
        Some(if self.claim_ground(&mut job, growth, &sizes) { Way::Job(job) } else { Way::Spoiled(job) })
    }

    /// Returns the way on which idle memory goes back first, if this number of bytes is more than may be created with
    /// it, and none has gone back for the request yet.
    fn give_back_first(&mut self, taker: Taker, room: u64, created: u64) -> Option<Way> {
        if taker.lacks.idle {
            return None;
        }
        let all = self.core.reserved_bytes();
        if created > room {
            return Some(Way::GiveBack { down_to: all.saturating_sub(created - room), of: None });
        }
        let (reserved, high_live) = (self.core.reserved_for(taker.shard), self.high_live(taker.shard, &taker.want));
        let Paging { governor, pace, .. } = &self.core.paging;
        let eager = governor.creation(&Situation {
            wanted: taker.want.rounded,
            high_live,
            reserved,
            is_behind: false,
            sharing: pace.sharing,
            may_find_out: pace.may_find_out(),
        });
        let excess = (reserved + created).saturating_sub(eager.eager);
        let of = self.core.pool_of(taker.shard);
        (excess > 0).then(|| Way::GiveBack { down_to: all.saturating_sub(excess), of: Some(of) })
    }
}
