//! The ways to serve a request that missed, in the order in which they are tried.
//!
//! The place is chosen by what is free, whether the device is done with it or not, so that a program that repeats
//! itself gets the same places each time and its windows serve it again. Whether memory is created instead may depend
//! on how far the device is: that is bounded, so it ends.
//!
//! ```text
//! a free block ─▶ the home grows, within the slack ─▶ a kept window ─▶ free memory gathered, and what is missing
//!   created ─▶ the home grows by all of it ─▶ refused
//!
//! balanced, while the device is behind, and streams run side by side, or little memory suffices:
//! what is ready of a free block ─▶ the home grows, within the slack ─▶ what is ready, in a kept window
//!   └▶ the home grows, up to a cap ─▶ all of the above, behind waits
//!
//! a small request:
//! a small block or a slab that is ready ─▶ the home grows, within the slack (balanced and behind: up to the cap)
//!   └▶ a small block or a slab, behind waits ─▶ the home grows ─▶ a block in another stream's slab ─▶ a large block
//! ```

use alloc::vec::Vec;

use millpond_backend::{Point, StreamId};

use super::Pager;
use super::gather::Gathered;
use super::idle::{Found, memory_of};
use super::job::{Job, Target, Way};
use super::taker::{Taker, When};
use crate::books::{Addresses, Paging};
use crate::governor::{Creation, Situation, created};
use crate::ids::{ShardId, Side};
use crate::memory::Tile;
use crate::plan::Placing;
use crate::size::{Want, exact_segment};

/// The number of times that the addresses of a home may be as many as the device has bytes.
const RANGES_MAX: u64 = 36;

/// The number of free blocks that a request looks at.
const LOOKS_MAX: usize = 32;

impl Pager<'_> {
    /// Returns whether a shard gets no more addresses for windows while there are windows that can end.
    pub(crate) fn has_few_addresses(&mut self, shard: ShardId, bytes: u64) -> bool {
        let taken = self.shards.with(shard, |shard| shard.memory.segments.range_bytes());
        self.core.ranges.left() < bytes || taken / RANGES_MAX > self.core.headroom.total_bytes.max(bytes)
    }

    /// Takes the first way that serves the request, where `room` bytes may be created.
    pub(crate) fn first_way(&mut self, taker: Taker, room: u64) -> Option<Way> {
        let Taker { shard, want, by, .. } = taker;
        match taker.placing {
            Placing::Anywhere => {}
            Placing::Growable(capacity) => return self.growable_way(taker, room, capacity),
            Placing::After(block, requested) => return self.after_way(taker, room, block, requested),
        }
        if taker.lacks.homes {
            let clock = taker.clock();
            if let Some(grant) = self.shards.with(shard, |shard| shard.take_in_segment(&want, clock, by)) {
                return Some(Way::Found(grant));
            }
        }
        let high = self.high_live(shard, &want);
        let left = |most: u64, reserved: u64| most.saturating_sub(reserved).min(room);
        let reserved = self.core.reserved_for(shard);
        let is_behind = self.is_behind(shard, taker.by.stream);
        let Paging { governor, pace, .. } = &self.core.paging;
        let Creation { eager, instead_of_waiting } = governor.creation(&Situation {
            wanted: want.rounded,
            high_live: high,
            reserved,
            is_behind,
            sharing: pace.sharing,
            may_find_out: pace.may_find_out(),
        });
        let eager = left(eager, reserved);
        let taker = Taker { creates_up_to: reserved + eager, ..taker };
        let is_large = want.side == Side::Large;
        let is_cautious = instead_of_waiting.is_some();
        let first = if is_cautious { When::Now } else { When::BehindWait };
        let way = match is_large {
            true => self.block_way(taker, first, false),
            // What is ready behind bytes that are still in use serves before a new page does.
            false => self.small_way(taker, When::Now),
        };
        let way = way.or_else(|| self.grow_home(taker, first, eager));
        if way.is_some() {
            return way;
        }
        if let Some(cap) = instead_of_waiting {
            let way = is_large.then(|| self.window_way(taker, When::Now, 0)).flatten();
            let most = left(cap, reserved);
            let way = way.or_else(|| self.grow_home(taker, When::Now, most));
            if way.is_some() {
                return way;
            }
        }
        let behind = When::BehindWait;
        if !is_large {
            let way = self.small_way(taker, behind);
            let way = way.or_else(|| self.grow_home(taker, behind, room));
            // The slab of another stream, or a block of the large side, comes rather than nothing.
            let way = way.or_else(|| self.other_slab_way(taker));
            return way.or_else(|| self.block_way(taker, behind, false));
        }
        let way = is_cautious.then(|| self.block_way(taker, behind, true)).flatten();
        let way = way.or_else(|| self.window_way(taker, behind, room));
        way.or_else(|| self.grow_home(taker, behind, room))
    }

    /// Returns whether the device still uses free memory of a home that a stream would have to wait for, where that
    /// matters. Costs a look at each stream that is behind, and at each free block if one is.
    pub(crate) fn is_behind(&mut self, home: ShardId, stream: StreamId) -> bool {
        let is_behind = |point: Point| point.stream != stream && self.core.pending.is_behind(point);
        self.core.paging.governor.asks_whether_behind()
            && self.shards.with(home, |home| {
                home.memory.guards.seen.latest_points().any(is_behind) && home.memory.free_points().any(is_behind)
            })
    }

    /// Returns the most bytes that were live in the shard's pool since the program began anew, or will be once the
    /// request is served, where `live` bytes are now. A request that is refused leaves no trace in it. Where there is
    /// but one pool, and it has not begun anew since peaks were reset, that is what the device's peak says; else what
    /// was seen at requests that missed.
    pub(crate) fn high_live(&mut self, shard: ShardId, want: &Want) -> u64 {
        let live = self.shards.with(shard, |shard| shard.live_bytes());
        self.core.note_live(shard, live);
        let most = match self.core.pools.has_private() {
            false => self.core.most_live(),
            true => self.core.pools.most_live(self.core.pool_of(shard)),
        };
        most.max(live + want.rounded)
    }

    /// Lets the home grow by what the request needs, if that is at most `most` bytes. The free block in front of the
    /// new pages is part of it if it can be used at `latest`.
    fn grow_home(&mut self, taker: Taker, latest: When, most: u64) -> Option<Way> {
        let (want, lacks, unit) = (taker.want, taker.lacks, self.core.paging.governor.page_unit());
        if most < unit {
            return None;
        }
        let (bytes, joins) = match want.side {
            Side::Small => (unit, false),
            Side::Large => (want.rounded, true),
        };
        let mut growth = self.shards.with(taker.shard, |shard| shard.memory.growth(bytes, joins));
        if let Some(tile) = growth.as_ref().and_then(|growth| growth.before)
            && self.shards.with(taker.shard, |shard| taker.on(self.core, shard).when_free(&tile)) > latest
        {
            growth = self.shards.with(taker.shard, |shard| shard.memory.growth(bytes, false));
        }
        let Some(growth) = growth else {
            let new = match lacks.homes {
                // A segment has no more than the request needs: it serves this stream alone.
                true => Way::Segment(exact_segment(&want)),
                false => Way::Range(Addresses::Home(bytes.next_multiple_of(unit))),
            };
            let fits = bytes.next_multiple_of(unit) <= most;
            return fits.then_some(if lacks.budget { Way::Budget } else { new });
        };
        let missing = growth.missing.next_multiple_of(unit);
        if missing > most || growth.begin + missing > growth.limit {
            return None;
        }
        if lacks.budget {
            return Some(Way::Budget);
        }
        let sizes = self.page_sizes(want.side, missing);
        let mut job = Job::new(taker, self.core.pending.reached(taker.by.stream));
        let claimed = self.claim_ground(&mut job, &growth, &sizes);
        Some(if claimed { Way::Job(job) } else { Way::Spoiled(job) })
    }

    /// Returns the sizes of new pages for a number of bytes.
    pub(crate) fn page_sizes(&self, side: Side, bytes: u64) -> Vec<u64> {
        let governor = &self.core.paging.governor;
        let cap = match side {
            Side::Small => governor.page_unit(),
            Side::Large => governor.page_cap(self.core.headroom.with_asked() + bytes),
        };
        created(bytes, cap).collect()
    }

    /// Serves a request from a free block of the large side. If only what is ready may be used: from any part of it,
    /// the shortest that the stream itself used last, or else the shortest of all. Behind waits: from the one that
    /// fits best, or from the one that is ready `soonest`, whose streams are fewest ticks behind. Looks at few blocks.
    pub(crate) fn block_way(&mut self, taker: Taker, latest: When, soonest: bool) -> Option<Way> {
        let want = taker.want;
        let tile = self.shards.with(taker.shard, |shard| {
            let tiles = shard.memory.free_blocks_at_least(want.rounded).take(LOOKS_MAX);
            let look = taker.on(self.core, shard);
            let mut parts = tiles.filter_map(|tile| look.first_part(latest, &tile, want.rounded));
            match latest {
                When::Now => parts.min_by_key(|part| (part.point.stream != taker.by.stream, part.end - part.begin)),
                _ if soonest => parts.min_by_key(|part| look.ticks_behind(part, want.rounded)),
                _ => parts.next(),
            }
        })?;
        Some(self.take(&tile, Side::Large, taker))
    }

    /// Serves a small request from a part of a block of the small side that can be used at `latest`, or of a slab that
    /// can. Looks at few blocks.
    pub(crate) fn small_way(&mut self, taker: Taker, latest: When) -> Option<Way> {
        let tile = self.shards.with(taker.shard, |shard| {
            let memory = &shard.memory;
            let own = memory.slabs.of(taker.by.stream).into_iter();
            let small = own.flat_map(|index| memory.free_blocks_in(index, taker.want.rounded)).take(LOOKS_MAX);
            taker.on(self.core, shard).small_part(latest, small.chain(memory.slabs().take(LOOKS_MAX)))
        })?;
        Some(self.take(&tile, Side::Small, taker))
    }

    /// Serves a small request from the slab of another stream, behind waits. Costs a look at each free small block that
    /// is long enough.
    pub(crate) fn other_slab_way(&mut self, taker: Taker) -> Option<Way> {
        let tile = self.shards.with(taker.shard, |shard| {
            let memory = &shard.memory;
            let small = memory.slabs.each().flat_map(|index| memory.free_blocks_in(index, taker.want.rounded));
            taker.on(self.core, shard).small_part(When::BehindWait, small)
        })?;
        Some(self.take(&tile, Side::Small, taker))
    }

    /// Claims what the block that is handed out will have: some bytes at the front of a free block, or a small block in
    /// a slab, or in one that a free block of the large side has.
    fn take(&mut self, tile: &Tile, side: Side, taker: Taker) -> Way {
        let mut job = Job::new(taker, self.core.pending.reached(taker.by.stream));
        job.target = Target::Free(side);
        let claimed = self.shards.with(taker.shard, |shard| match side {
            Side::Small => shard.memory.claim_small(tile, taker.by.stream),
            Side::Large => shard.memory.claim_part(tile, tile.begin, tile.begin + taker.want.rounded),
        });
        let claimed = claimed.and_then(|claimed| self.keep_if_usable(&mut job, claimed));
        job.pieces.extend(claimed);
        if job.pieces.is_empty() { Way::Spoiled(job) } else { Way::Job(job) }
    }

    /// Serves a large request from free memory through a kept window or, unless only what is ready now may be used, a
    /// new one over all that is free. The home grows by what is missing for that, if it is at most `room` bytes.
    fn window_way(&mut self, taker: Taker, latest: When, room: u64) -> Option<Way> {
        let (want, lacks) = (taker.want, taker.lacks);
        let tiles = &self.tiles_of(taker, latest);
        if tiles.is_empty() {
            return None;
        }
        let mut job = Job::new(taker, self.core.pending.reached(taker.by.stream));
        let has_windows = !self.core.paging.windows.of(taker.shard).is_empty();
        let idle = has_windows.then(|| self.idle_pages(taker.shard, tiles));
        let windows = &self.core.paging.windows;
        let found = idle.as_ref().and_then(|idle| idle.oldest_run(windows, taker.shard, want.rounded));
        if let Some(Found { window, offset, .. }) = found {
            let stretches = memory_of(&windows[window], offset, want.rounded);
            if !self.claim_stretches(&mut job, &stretches, tiles) {
                return Some(Way::Spoiled(job));
            }
            self.core.paging.windows.note_use(window);
            let head = self.core.paging.windows[window].head;
            let run = self.shards.with(taker.shard, |shard| shard.memory.claim_run(head, offset, want.rounded));
            job.target = Target::Kept(run);
            return Some(Way::Job(job));
        }
        if latest == When::Now || lacks.windows || !self.has_windows() {
            return None;
        }
        let gathered = self.gather_best(taker, want.rounded, tiles, idle.as_ref());
        let created = self.created_for(&gathered);
        if gathered.stretches.is_empty() || created > room {
            return None;
        }
        if created > 0 && lacks.budget {
            return Some(Way::Budget);
        }
        let growth = (created > 0).then(|| self.shards.with(taker.shard, |shard| shard.memory.growth(created, false)));
        if let Some(None) = growth {
            return (!lacks.homes).then_some(Way::Range(Addresses::Home(created)));
        }
        let sizes = self.page_sizes(Side::Large, created);
        if let Some(lack) = self.lacks_room_for(&gathered, &sizes, taker) {
            return Some(lack);
        }
        if let Some(growth) = growth.flatten()
            && !self.claim_ground(&mut job, &growth, &sizes)
        {
            return Some(Way::Spoiled(job));
        }
        self.claim_addresses_for(&mut job, &gathered);
        let claimed = self.claim_stretches(&mut job, &gathered.stretches, tiles);
        Some(if claimed { Way::Job(job) } else { Way::Spoiled(job) })
    }

    /// Returns what to do first if the taker has no addresses for a window over gathered memory and new pages of some
    /// sizes, or if too many pages would be mapped in windows then. Where a window is lengthened there is room. Where
    /// no window can end, there are too many mappings for a while rather than that memory is created.
    fn lacks_room_for(&mut self, gathered: &Gathered, created: &[u64], taker: Taker) -> Option<Way> {
        let length = gathered.length + created.iter().sum::<u64>();
        if gathered.rear.is_none() && !self.shards.with(taker.shard, |shard| shard.memory.has_vacant(length)) {
            return Some(Way::Range(Addresses::Windows(length)));
        }
        let most = self.core.facts.pages.map_or(0, |pages| usize::try_from(pages.mappings).unwrap_or(usize::MAX));
        let mappings = self.core.paging.windows.mappings() + gathered.pages + created.len();
        let calls = self.calls_to_end(|_| true, |_, ended| ended >= mappings.saturating_sub(most));
        (!calls.is_empty()).then_some(Way::End(calls))
    }

    /// Returns whether all idle pages can be gathered for a request, so that releasing them would not help it. Spare
    /// pages have no home and cannot be gathered, and nor can segments. Where a new page has no addresses, idle pages
    /// are not gathered with any, and a segment serves once they went back.
    pub(crate) fn gathers_all(&self, taker: Taker) -> bool {
        let Taker { shard, want, lacks, .. } = taker;
        let same_pool = self.core.shard_ids().all(|id| self.core.pool_of(id) == self.core.pool_of(shard));
        let has_spare = self.core.pages.spare().next().is_some();
        let in_pages = || self.core.pages.iter().map(|(_, page)| page.bytes).sum::<u64>();
        same_pool
            && taker.placing == Placing::Anywhere
            && !has_spare
            && in_pages() == self.core.reserved_bytes()
            && self.has_windows()
            && !lacks.windows
            && !lacks.homes
            && want.side == Side::Large
    }

    /// Returns whether pages can be mapped in windows at all.
    fn has_windows(&self) -> bool {
        self.core.facts.pages.is_some_and(|pages| pages.aliasing)
    }
}
