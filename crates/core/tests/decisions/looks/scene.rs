//! The operations of the program and its threads on the shards, with the account that is kept beside them.

use std::collections::BTreeMap;

use millpond_backend::{Point, Reuse, StreamId, Tick};
use millpond_core::{BlockId, Freed, Grant, Requester, Shard, ShardId, Sizes};

use super::account::{Account, Uses};
use super::clock::Clock;
use crate::driver::Lane;

/// A block that the program holds.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) shard: ShardId,
    pub(crate) grant: Grant,
    /// The stream that works with it, in order of time.
    pub(crate) user: StreamId,
    /// Other streams on which it was recorded. The points up to which it is used are in `points`.
    others: Vec<StreamId>,
    points: Vec<Point>,
}

/// Everything but the allocator.
pub(crate) struct Scene {
    pub(crate) clock: Clock,
    pub(crate) account: Account,
    pub(crate) reuse: Reuse,
    pub(crate) sizes: Sizes,
    /// The streams, each with its shard.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) live: BTreeMap<u64, Held>,
    /// Freed blocks whose points are still to be passed to the coordinator, as a thread does after it has left the
    /// shard.
    pub(crate) untold: Vec<(ShardId, BlockId, Vec<Point>)>,
    /// Shards that are short of room for a peak.
    pub(crate) unsettled: Vec<ShardId>,
    granted: u64,
    /// The number of blocks that were granted and freed so far.
    pub(crate) events: u64,
}

impl Scene {
    pub(crate) fn new(clock: Clock, reuse: Reuse, sizes: Sizes, lanes: Vec<Lane>) -> Self {
        let (account, live, untold, unsettled) = (Account::default(), BTreeMap::new(), Vec::new(), Vec::new());
        Self { clock, account, reuse, sizes, lanes, live, untold, unsettled, granted: 0, events: 0 }
    }

    /// Returns the tick up to which freed memory of a stream may be handed out there.
    fn usable(&self, stream: StreamId) -> Tick {
        match self.reuse {
            Reuse::InOrder => Tick(u64::MAX),
            Reuse::AfterSubmit => Tick(self.clock.mark(stream).0 - 1),
            Reuse::AfterDone => self.clock.done(stream),
        }
    }

    /// Notes a block that was granted by a shard, for use on a stream. Returns its number.
    pub(crate) fn granted(&mut self, shard: ShardId, grant: Grant, user: StreamId) -> u64 {
        self.granted += 1;
        self.events += 1;
        let (clock, reuse) = (&self.clock, self.reuse);
        let may_follow = |point: Point| match reuse {
            _ if point.stream != user => clock.comes_after(user, clock.mark(user), point),
            Reuse::InOrder => true,
            Reuse::AfterSubmit => point.tick < clock.mark(user),
            Reuse::AfterDone => clock.is_done(point),
        };
        self.account.grant(self.granted, shard, &grant, user, may_follow, clock);
        let held = Held { shard, grant, user, others: Vec::new(), points: Vec::new() };
        self.live.insert(self.granted, held);
        self.granted
    }

    /// Makes a request that its shard may serve alone.
    pub(crate) fn hit(&mut self, shards: &mut [Shard], lane: usize, bytes: u64) -> Option<u64> {
        let (want, Lane { stream, shard }) = (self.sizes.want(bytes)?, self.lanes[lane]);
        let by = Requester { stream, usable: self.usable(stream) };
        let grant = shards[shard.0 as usize].allocate(&want, 0, by);
        // A miss goes to the coordinator, which settles first: blocks that were freed may have been the reason for the
        // miss.
        if grant.is_none_or(|grant| grant.unsettled) {
            self.unsettled.push(shard);
        }
        Some(self.granted(shard, grant?, stream))
    }

    /// Records that the block is used on another stream as well.
    pub(crate) fn record(&mut self, shards: &mut [Shard], id: u64, stream: StreamId) {
        if let Some(held) = self.live.get_mut(&id) {
            shards[held.shard.0 as usize].record_stream(held.grant.block, stream);
            held.others.push(stream);
        }
    }

    /// Records that the block is used up to a point.
    pub(crate) fn until(&mut self, shards: &mut [Shard], id: u64, point: Point) {
        if let Some(held) = self.live.get_mut(&id) {
            shards[held.shard.0 as usize].used_until(held.grant.block, point);
            held.points.push(point);
        }
    }

    /// Frees a block, after work on all of its streams.
    pub(crate) fn free(&mut self, shards: &mut [Shard], id: u64) {
        let Some(held) = self.live.remove(&id) else { return };
        self.events += 1;
        let mark = |stream: StreamId| Point { stream, tick: self.clock.mark(stream) };
        let others = held.others.iter().map(|&stream| mark(stream)).chain(held.points.iter().copied());
        let of_others: Vec<Point> = others.filter(|point| point.stream != held.user).collect();
        let points = of_others.iter().copied().chain([mark(held.user)]).chain(held.points.iter().copied()).collect();
        self.account.free(id, held.shard, &held.grant, &Uses { points, of_others });
        let tick = self.clock.mark(held.user);
        match shards[held.shard.0 as usize].free(held.grant.block, tick, 0) {
            Freed::Done { unsettled } | Freed::Settling { unsettled } => {
                self.unsettled.extend(unsettled.then_some(held.shard))
            }
            Freed::Pending(uses) => {
                let mut waits: Vec<Point> = uses.streams.iter().map(|&stream| mark(stream)).collect();
                waits.extend(uses.points.iter());
                self.untold.push((held.shard, held.grant.block, waits));
            }
        }
    }
}
