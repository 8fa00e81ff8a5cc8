//! Streams that borrow often, and memory of their own for them.
//!
//! Memory stays at the home that it was created for. A stream that comes late, when the slack is used up, finds nothing
//! there, and each of its requests is a miss that another stream's memory serves. That costs microseconds, and threads
//! that do so wait for each other. So after every [`EVERY`] of these requests its home may grow although the slack is
//! used up: by a few MiB for each such stream, which only small programs notice, or in place of what streams at rest
//! have free, as much as it was seen to borrow at once. That is released first: no more is reserved than before.
//! Each time a stream gets memory in that way, twice as many requests have to be served by others before the next time.
//! So the driver calls for it come to an end in a program that repeats itself.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::climb::{Climb, Released};
use super::sizes;
use super::tiles::{Taker, When};
use super::ways::Way;
use crate::coordinator::plan::Plan;
use crate::coordinator::sweep::{Sweep, claim_releasable};
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{ShardId, Side};
use crate::size::Want;
use crate::units::MIB;

/// How many requests other homes serve before a stream may get memory of its own, each time.
const EVERY: u32 = 64;
/// How many requests other homes serve before streams at rest release memory for a stream, for the first time.
const EVERY_AT_REST: u32 = 4096;
/// A divisor: they release this part of what is reserved at once,
const OF_RESERVED: u64 = 64;
/// or this number of bytes if that is more.
const AT_ONCE_BYTES: u64 = 8 * MIB;
/// How often they do that for one stream.
const MOVES_MAX: u32 = 12;

/// What is known of the streams that borrow.
#[derive(Debug, Default)]
pub(super) struct Borrowers(BTreeMap<ShardId, Borrower>);

/// A stream that borrows.
#[derive(Debug, Default)]
struct Borrower {
    /// The number of requests that other homes have served since they were last counted anew.
    times: u32,
    /// The same since it last asked for memory of its own.
    unasked: u32,
    /// Whether it has asked for any.
    is_frequent: bool,
    /// The most bytes that were seen to be lent to it at once, since the count began.
    most: u64,
    /// How often others have released memory for it.
    moves: u32,
    /// How many blocks each other stream had been granted when the count began.
    began: Vec<(ShardId, u64)>,
}

impl Borrower {
    /// Returns whether streams at rest may release memory for it.
    fn is_due_at_rest(&self) -> bool {
        self.moves < MOVES_MAX && self.times >= EVERY_AT_REST << self.moves
    }

    fn count_anew(&mut self) {
        (self.times, self.unasked, self.most) = (0, 0, 0);
    }
}

impl Borrowers {
    /// Notes that a request of a stream was served from other homes. Returns whether the count has just begun.
    pub(super) fn note(&mut self, borrower: ShardId) -> bool {
        let borrower = self.0.entry(borrower).or_default();
        borrower.times = borrower.times.saturating_add(1);
        borrower.unasked = borrower.unasked.saturating_add(1);
        borrower.times == 1
    }

    /// Returns the number of streams that have borrowed often.
    fn frequent(&self) -> u64 {
        self.0.values().filter(|borrower| borrower.is_frequent).count() as u64
    }
}

impl Coordinator {
    /// Notes that a request of a stream was served from other homes.
    pub(super) fn note_borrowed(&mut self, borrower: ShardId, shards: &mut dyn Shards) {
        if self.paging.borrowers.note(borrower) {
            let began = self.neighbours(borrower).map(|id| (id, self.own_grants(id, shards))).collect();
            self.borrower(borrower).began = began;
        }
    }

    /// Compares from now on with grants that are counted from 0 on. Streams that were granted something since a count
    /// began are no longer of those that may be at rest.
    pub(super) fn rebase_borrowers(&mut self, shards: &mut dyn Shards) {
        let mut borrowers = core::mem::take(&mut self.paging.borrowers);
        for borrower in borrowers.0.values_mut() {
            borrower.began.retain(|&(id, grants)| self.own_grants(id, shards) == grants);
            borrower.began.iter_mut().for_each(|(_, grants)| *grants = 0);
        }
        self.paging.borrowers = borrowers;
    }

    /// Returns whether the home of a stream that borrows may grow although the slack is used up.
    pub(super) fn is_due(&self, climb: &Climb, borrower: ShardId) -> bool {
        let borrower = self.paging.borrowers.0.get(&borrower);
        borrower.is_some_and(|borrower| climb.knows.released.up_to > 0 || borrower.unasked >= EVERY)
    }

    /// Lets the home of a stream that borrows often grow: by a few MiB, or else by what streams at rest release.
    pub(super) fn own_memory(
        &mut self,
        climb: &Climb,
        want: &Want,
        (taker, latest): (Taker, When),
        (high, room): (u64, u64),
        shards: &mut dyn Shards,
    ) -> Option<Way> {
        if !self.is_due(climb, taker.shard) {
            return None;
        }
        let has_released = climb.knows.released.up_to > 0;
        self.note_due(taker.shard, shards);
        let borrower = self.borrower(taker.shard);
        let (most_lent, is_due_at_rest) = (borrower.most, borrower.is_due_at_rest());
        let most = self.left_for_borrower(taker.shard, climb.knows.released.up_to, (high, room));
        let unit = sizes::least(self.granularity());
        let (least, wanted) = match want.side {
            Side::Small => (unit, unit),
            Side::Large => {
                let bytes = want.rounded.next_multiple_of(unit);
                (bytes, bytes + most_lent)
            }
        };
        let grows = (if has_released { most / unit * unit } else { 0 }, most);
        if let Some(way) = self.grow_home_by(climb, want, (taker, latest), grows, shards) {
            let borrower = self.borrower(taker.shard);
            match way {
                Way::Job(_) => borrower.count_anew(),
                // The next attempt for the same request is due, too.
                _ => borrower.unasked = EVERY,
            }
            return Some(way);
        }
        if !is_due_at_rest || has_released || !self.may_release(taker.shard) || self.pending.has_captures() {
            return None;
        }
        let at_rest = self.at_rest(taker.shard, shards);
        let has_enough = whole_bytes_of(&at_rest, shards) >= least;
        let borrower = self.borrower(taker.shard);
        borrower.count_anew();
        borrower.moves += u32::from(has_enough);
        let up_to = self.reserved_for(taker.shard);
        has_enough.then_some(Way::Release(Released { up_to, left: wanted }))
    }

    /// Has the streams at rest go on releasing memory for a stream that borrows, if anything is left of what they shall
    /// release. Chooses whole free pages, few of them at a time: a stream that goes on meanwhile finds all else that it
    /// had free, and what is released by then is no longer reserved.
    pub(super) fn release_at_rest(&mut self, climb: &mut Climb, plan: &Plan, shards: &mut dyn Shards) -> Option<Sweep> {
        let (borrower, _) = plan.request.allocation();
        let at_once = (self.reserved_for(borrower) / OF_RESERVED).max(AT_ONCE_BYTES);
        let most = climb.knows.released.left.min(at_once);
        if most == 0 {
            return None;
        }
        let at_rest = self.at_rest(borrower, shards);
        let mut blocks: Vec<_> = sides_of(&at_rest).flat_map(|(id, side)| claim_releasable(id, side, shards)).collect();
        let (mut chosen, mut bytes) = (0, 0);
        while bytes < most && chosen < blocks.len() {
            let (id, block) = blocks[chosen];
            let pages: Vec<_> = shards.with(id, |shard| shard.pages_in(block).map(|(_, page)| page).collect());
            for page in pages {
                if bytes < most && self.windows_may_end(page.page, shards) {
                    bytes += page.bytes;
                }
            }
            chosen += 1;
        }
        for (id, block) in blocks.split_off(chosen) {
            shards.with(id, |shard| shard.unclaim(block, plan.request.clocks));
        }
        climb.knows.released.left = if bytes == 0 { 0 } else { climb.knows.released.left.saturating_sub(bytes) };
        Some(Sweep::idle(blocks).up_to(most))
    }

    /// Returns whether a stream that is due could get memory of its own, for which the streams are asked first; of
    /// what streams at rest have, `least` bytes. If it could not it is due again later: a program that repeats itself
    /// asks at the same requests in each pass.
    pub(super) fn may_get_memory(
        &mut self,
        id: ShardId,
        least: u64,
        (high, room): (u64, u64),
        shards: &mut dyn Shards,
    ) -> bool {
        self.note_due(id, shards);
        if self.left_for_borrower(id, 0, (high, room)) >= sizes::least(self.granularity()) {
            self.borrower(id).unasked = EVERY;
            return true;
        }
        if self.borrower(id).is_due_at_rest() {
            let at_rest = self.at_rest(id, shards);
            if whole_bytes_of(&at_rest, shards) >= least {
                self.borrower(id).unasked = EVERY;
                return true;
            }
            self.borrower(id).count_anew();
        }
        false
    }

    /// Returns how many bytes may be created for a stream that borrows, where up to `up_to` may be reserved because
    /// others have released as much.
    fn left_for_borrower(&self, id: ShardId, up_to: u64, (high, room): (u64, u64)) -> u64 {
        let allowed = self.paging.slack.for_borrowers(high, self.paging.borrowers.frequent()).max(up_to);
        allowed.saturating_sub(self.reserved_for(id)).min(room)
    }

    /// Notes that a stream may ask for memory of its own, and how much is lent to it.
    fn note_due(&mut self, id: ShardId, shards: &mut dyn Shards) {
        let stream = self.stream_of(id);
        let lent = |id| shards.with(id, |shard| shard.lent_to(stream));
        let lent = self.neighbours(id).map(lent).sum();
        let borrower = self.borrower(id);
        (borrower.is_frequent, borrower.unasked, borrower.most) = (true, 0, borrower.most.max(lent));
    }

    fn borrower(&mut self, id: ShardId) -> &mut Borrower {
        self.paging.borrowers.0.entry(id).or_default()
    }

    /// Returns the streams that were granted nothing since the count of a borrower began.
    fn at_rest(&self, borrower: ShardId, shards: &mut dyn Shards) -> Vec<ShardId> {
        let began = self.paging.borrowers.0.get(&borrower).map_or(&[][..], |borrower| &borrower.began);
        let same = |&&(id, grants): &&(ShardId, u64)| self.own_grants(id, shards) == grants;
        began.iter().filter(same).map(|&(id, _)| id).collect()
    }
}

/// Returns both sides of some streams, all large ones first.
fn sides_of(streams: &[ShardId]) -> impl Iterator<Item = (ShardId, Side)> {
    let both = [Side::Large, Side::Small];
    both.into_iter().flat_map(move |side| streams.iter().map(move |&id| (id, side)))
}

/// Returns the bytes in whole free pages of some streams.
fn whole_bytes_of(streams: &[ShardId], shards: &mut dyn Shards) -> u64 {
    sides_of(streams).map(|(id, side)| shards.with(id, |shard| shard.whole_free_bytes(side))).sum()
}
