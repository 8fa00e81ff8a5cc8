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
//! the home grows, within the slack (balanced and behind: up to the cap)
//!   └▶ a small block or a slab, behind waits ─▶ the home grows ─▶ a block in another stream's slab ─▶ a large block
//! ```

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::gather::Gathered;
use super::job::{Job, Target};
use super::tiles::{Taker, When};
use crate::books::Addresses;
use crate::coordinator::{Coordinator, Shards};
use crate::governor::pace::Spends;
use crate::governor::sizes;
use crate::ids::{ShardId, Side};
use crate::plan::Plan;
use crate::plan::Rung;
use crate::plan::phase::Purpose;
use crate::plan::phase::{Phase, Turned};
use crate::plan::step::{PageCall, Step};
use crate::shard::Grant;
use crate::size::exact_segment;

/// The number of times that the addresses of a stream may be as many as the device has bytes.
const RANGES_MAX: u64 = 36;

/// What came of a way.
#[derive(Debug)]
pub(crate) enum Way {
    /// The job is claimed.
    Job(Job),
    /// Another thread has changed what the way needs.
    Spoiled(Job),
    /// A range of addresses has to be reserved first, as a home or for a window of some bytes.
    Range(Addresses),
    /// A free block of a segment serves.
    Found(Grant),
    /// There are no addresses for pages: a segment of this many bytes is taken from the driver.
    Segment(u64),
    /// Windows end first, by these calls, as too many pages are mapped in them.
    End(Vec<PageCall>),
    /// Pages would be created, and what the device's budget leaves has to be asked for first.
    Budget,
}

impl Coordinator {
    /// Takes the first way that serves the request.
    pub(crate) fn find_way(&mut self, rung: Rung, plan: &mut Plan, shards: &mut dyn Shards) -> Option<Turned> {
        let (shard, _) = plan.request.allocation();
        let way = self.first_way(plan, shards)?;
        Some(match way {
            Way::Job(job) => Phase::Window(Box::new(job), rung).turn(),
            Way::Spoiled(job) => {
                self.give_up_window(Box::new(job), plan, shards);
                if plan.standing.may_repeat() { rung } else { rung.refused() }.turn()
            }
            Way::Range(Addresses::Windows(bytes)) if self.has_few_addresses(shard, bytes, shards) => {
                let calls = self.calls_to_end(|of| of == shard, |freed, _| freed >= bytes, shards);
                if calls.is_empty() {
                    plan.knows.lacks.windows = true;
                    return Some(rung.turn());
                }
                Phase::call(calls, Purpose::EndWindows(rung))
            }
            Way::Range(addresses) => self.new_range(rung, addresses, plan, shards),
            Way::Found(grant) => Phase::end(Step::Grant(self.settled(shard, grant, shards))),
            Way::Segment(bytes) => self.new_segment(shard, bytes, rung, shards),
            Way::End(calls) => Phase::call(calls, Purpose::EndWindows(rung)),
            Way::Budget => Phase::Climb(rung).after(Step::Budget),
        })
    }

    /// Returns whether a shard gets no more addresses for windows while there are windows that can end.
    fn has_few_addresses(&self, shard: ShardId, bytes: u64, shards: &mut dyn Shards) -> bool {
        let taken = shards.with(shard, |shard| shard.memory.segments.range_bytes());
        self.ranges.left() < bytes || taken / RANGES_MAX > self.headroom.total_bytes().max(bytes)
    }

    fn first_way(&mut self, plan: &Plan, shards: &mut dyn Shards) -> Option<Way> {
        let (shard, want) = plan.request.allocation();
        if plan.knows.lacks.homes {
            let (clock, by) = (plan.request.clock(), self.requester_of(plan));
            if let Some(grant) = shards.with(shard, |shard| shard.take_in_segment(&want, clock, by)) {
                return Some(Way::Found(grant));
            }
        }
        let high = self.high_live(shard, &want, shards);
        let room = self.room(plan);
        let left = |most: u64, reserved: u64| most.saturating_sub(reserved).min(room);
        let reserved = self.reserved_for(shard);
        let eager = left(self.paging.slack.eager(high), reserved);
        let taker = Taker { creates_up_to: reserved + eager, ..self.taker(plan) };
        let is_large = want.side == Side::Large;
        let is_behind = self.is_behind(shard, taker.stream, shards);
        let spends = if is_behind { self.paging.pace.spends() } else { Spends::Nothing };
        let cap = sizes::cap_in_flight(spends, self.paging.slack, high);
        let cautious = match spends {
            Spends::Nothing => false,
            // Waits keep from being found out how streams share the device. Where that cannot be, places go by what is
            // free once no more may be created.
            Spends::Little => reserved + want.rounded <= cap || self.paging.pace.may_find_out(),
            Spends::Much => true,
        };
        let first = if cautious { When::Now } else { When::BehindWait };
        let way = match is_large {
            true => self.block_way((taker, first), false, shards),
            // What is ready behind bytes that are still in use serves before a new page does.
            false => self.small_way((taker, When::Now), shards),
        };
        let way = way.or_else(|| self.grow_home((taker, first), eager, shards));
        if way.is_some() {
            return way;
        }
        if cautious {
            let way = is_large.then(|| self.window_way((taker, When::Now), 0, shards)).flatten();
            let most = left(cap, reserved);
            let way = way.or_else(|| self.grow_home((taker, When::Now), most, shards));
            if way.is_some() {
                return way;
            }
        }
        let behind = (taker, When::BehindWait);
        if !is_large {
            let way = self.small_way(behind, shards);
            let way = way.or_else(|| self.grow_home(behind, room, shards));
            // The slab of another stream, or a block of the large side, comes rather than nothing.
            let way = way.or_else(|| self.other_slab_way(taker, shards));
            return way.or_else(|| self.block_way(behind, false, shards));
        }
        let way = cautious.then(|| self.block_way(behind, true, shards)).flatten();
        let way = way.or_else(|| self.window_way(behind, room, shards));
        way.or_else(|| self.grow_home(behind, room, shards))
    }

    /// Lets the home grow by what the request needs, if that is at most `most` bytes. The free block in front of the
    /// new pages is part of it if it can be used at `latest`.
    fn grow_home(&mut self, (taker, latest): (Taker, When), most: u64, shards: &mut dyn Shards) -> Option<Way> {
        let (want, lacks, unit) = (taker.want, taker.lacks, sizes::least(self.granularity()));
        if most < unit {
            return None;
        }
        let (bytes, joins) = match want.side {
            Side::Small => (unit, false),
            Side::Large => (want.rounded, true),
        };
        let mut growth = shards.with(taker.shard, |shard| shard.memory.growth(bytes, joins));
        if let Some(tile) = growth.as_ref().and_then(|growth| growth.before)
            && shards.with(taker.shard, |shard| self.when_free(taker, shard, &tile)) > latest
        {
            growth = shards.with(taker.shard, |shard| shard.memory.growth(bytes, false));
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
        let mut job = Job::new(taker, self.pending.reached(taker.stream));
        let claimed = self.claim_ground(&mut job, &growth, &sizes, shards);
        Some(if claimed { Way::Job(job) } else { Way::Spoiled(job) })
    }

    /// Returns the sizes of new pages for a number of bytes.
    pub(crate) fn page_sizes(&self, side: Side, bytes: u64) -> Vec<u64> {
        let cap = match side {
            Side::Small => sizes::least(self.granularity()),
            Side::Large => sizes::page_cap(self.headroom.with_asked() + bytes, self.granularity()),
        };
        sizes::created(bytes, cap).collect()
    }

    /// Serves a large request from free memory through a kept window or, unless only what is ready now may be used, a
    /// new one over all that is free. The home grows by what is missing for that, if it is at most `room` bytes.
    fn window_way(&mut self, (taker, latest): (Taker, When), room: u64, shards: &mut dyn Shards) -> Option<Way> {
        let (want, lacks) = (taker.want, taker.lacks);
        let tiles = &self.tiles_of((taker, latest), shards);
        if tiles.is_empty() {
            return None;
        }
        let mut job = Job::new(taker, self.pending.reached(taker.stream));
        let has_windows = !self.paging.windows.of(taker.shard).is_empty();
        let idle = has_windows.then(|| self.idle_pages(taker.shard, tiles, shards));
        if let Some((window, run)) = idle.as_ref().and_then(|idle| self.kept_window(taker.shard, want.rounded, idle)) {
            if !self.claim_stretches(&mut job, &run.stretches, tiles, shards) {
                return Some(Way::Spoiled(job));
            }
            self.paging.windows.note_use(window);
            let head = self.paging.windows[window].head;
            let run = shards.with(taker.shard, |shard| shard.memory.claim_run(head, run.offset, want.rounded));
            job.target = Target::Kept(run);
            return Some(Way::Job(job));
        }
        if latest == When::Now || lacks.windows || !self.has_windows() {
            return None;
        }
        let gathered = self.gather_best((taker, want.rounded), tiles, idle.as_ref(), shards);
        let created = self.created_for(&gathered);
        if gathered.stretches.is_empty() || created > room {
            return None;
        }
        if created > 0 && lacks.budget {
            return Some(Way::Budget);
        }
        let growth = (created > 0).then(|| shards.with(taker.shard, |shard| shard.memory.growth(created, false)));
        if let Some(None) = growth {
            return (!lacks.homes).then_some(Way::Range(Addresses::Home(created)));
        }
        let sizes = self.page_sizes(Side::Large, created);
        if let Some(lack) = self.lacks_room_for(&gathered, &sizes, taker, shards) {
            return Some(lack);
        }
        if let Some(growth) = growth.flatten()
            && !self.claim_ground(&mut job, &growth, &sizes, shards)
        {
            return Some(Way::Spoiled(job));
        }
        self.claim_addresses_for(&mut job, &gathered, shards);
        let claimed = self.claim_stretches(&mut job, &gathered.stretches, tiles, shards);
        Some(if claimed { Way::Job(job) } else { Way::Spoiled(job) })
    }

    /// Returns what to do first if the taker has no addresses for a window over gathered memory and new pages of some
    /// sizes, or if too many pages would be mapped in windows then. Where a window is lengthened there is room. Where
    /// no window can end, there are too many mappings for a while rather than that memory is created.
    fn lacks_room_for(
        &mut self,
        gathered: &Gathered,
        created: &[u64],
        taker: Taker,
        shards: &mut dyn Shards,
    ) -> Option<Way> {
        let length = gathered.length + created.iter().sum::<u64>();
        if gathered.rear.is_none() && !shards.with(taker.shard, |shard| shard.memory.has_vacant(length)) {
            return Some(Way::Range(Addresses::Windows(length)));
        }
        let most = self.facts.pages.map_or(0, |pages| usize::try_from(pages.mappings).unwrap_or(usize::MAX));
        let mappings = self.paging.windows.mappings() + gathered.pages + created.len();
        let calls = self.calls_to_end(|_| true, |_, ended| ended >= mappings.saturating_sub(most), shards);
        (!calls.is_empty()).then_some(Way::End(calls))
    }

    /// Returns whether all idle pages can be gathered for a request, so that releasing them would not help it. Spare
    /// pages have no home and cannot be gathered, and nor can segments. Where a new page has no addresses, idle pages
    /// are not gathered with any, and a segment serves once they went back.
    pub(crate) fn gathers_all(&self, taker: Taker) -> bool {
        let Taker { shard, want, lacks, .. } = taker;
        let same_pool = self.shard_ids().all(|id| self.pool_of(id) == self.pool_of(shard));
        let has_spare = self.pages.spare().next().is_some();
        let in_pages = || self.pages.iter().map(|(_, page)| page.bytes).sum::<u64>();
        same_pool
            && !has_spare
            && in_pages() == self.reserved_bytes()
            && self.has_windows()
            && !lacks.windows
            && !lacks.homes
            && want.side == Side::Large
    }

    /// Returns whether pages can be mapped in windows at all.
    fn has_windows(&self) -> bool {
        self.facts.pages.is_some_and(|pages| pages.aliasing)
    }
}
