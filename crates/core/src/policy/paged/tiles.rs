//! The free memory of the homes, and when each part of it can be used.

use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, StreamId, Tick};

use super::climb::Climb;
use crate::coordinator::plan::Plan;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{Place, ShardId};
use crate::looks;
use crate::shard::{Shard, Tile};

/// The time at which free memory can be used by a stream, at other addresses than before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum When {
    /// Now: the device no longer uses it, or later work of the same stream is ordered behind that use.
    Now,
    /// Now, if the stream that gets it waits on the device.
    BehindWait,
    /// Not before its last use is over.
    Later,
}

/// The stream that gets memory, and what it can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taker {
    pub(super) shard: ShardId,
    pub(super) stream: StreamId,
    /// Whether it can wait for other streams now.
    pub(super) can_wait: bool,
    /// Whether what it does is captured, or may be: then no wait may be queued, and one that was queued before orders
    /// nothing in the graph.
    pub(super) is_capturing: bool,
    /// Its open tick.
    pub(super) open: Tick,
    /// The number of reserved bytes up to which pages are created rather than that as much as can be is gathered.
    pub(super) creates_up_to: u64,
}

/// A free block of a home, as a stream may use it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    pub(super) shard: ShardId,
    pub(super) tile: Tile,
}

/// The free blocks of some homes, by shard, slot and offset.
#[derive(Debug, Default)]
pub(super) struct Tiles(Vec<Idle>);

impl Tiles {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the free block that has all of these bytes.
    pub(super) fn around(&self, home: Place, bytes: u64) -> Option<&Idle> {
        let key = (home.shard, home.slot, home.offset);
        let behind = self.0.partition_point(|idle| (idle.shard, idle.tile.slot, idle.tile.begin) <= key);
        let idle = self.0[..behind].last()?;
        let same = (idle.shard, idle.tile.slot) == (home.shard, home.slot);
        (same && home.offset + bytes <= idle.tile.end).then_some(idle)
    }

    /// Returns the free blocks of each home.
    pub(super) fn by_shard(&self) -> impl Iterator<Item = (ShardId, &[Idle])> {
        self.0.chunk_by(|one, next| one.shard == next.shard).map(|tiles| (tiles[0].shard, tiles))
    }
}

impl Coordinator {
    /// Returns the stream that a plan requests memory for.
    pub(super) fn taker(&self, climb: &Climb, plan: &Plan) -> Taker {
        let (shard, _) = plan.request.allocation();
        let (stream, is_capturing) = (self.stream_of(shard), self.is_capturing(shard));
        let can_wait = !climb.knows.lacks.waits;
        Taker { shard, stream, can_wait, is_capturing, open: plan.request.open, creates_up_to: 0 }
    }

    /// Returns the free memory at the homes of some shards that can be used at `latest`: free blocks, and the parts of
    /// those that cannot be used as a whole. Leaves a home out that has less than `least` bytes.
    pub(super) fn tiles_of(
        &self,
        homes: impl Iterator<Item = ShardId>,
        (taker, latest): (Taker, When),
        least: u64,
        shards: &mut dyn Shards,
    ) -> Tiles {
        let mut all = Vec::new();
        for id in homes {
            shards.with(id, |shard| {
                let bytes = shard.list_by_place();
                let tiles = shard.tiles_by_place().filter(|_| bytes >= least);
                all.reserve(tiles.size_hint().1.unwrap_or(0));
                let reached = self.pending.reached(shard.stream());
                for tile in tiles {
                    if !tile.is_marked && tile.last_use.tick() <= reached {
                        all.push(Idle { shard: id, tile });
                    } else {
                        self.usable_parts((taker, latest), shard, &tile, &mut all);
                    }
                }
            });
        }
        looks::note(all.len());
        Tiles(all)
    }

    /// Adds the parts of a free block that a stream can use at `latest`, by place.
    pub(super) fn usable_parts(&self, by: (Taker, When), shard: &Shard, tile: &Tile, parts: &mut Vec<Idle>) {
        let id = shard.id();
        let keep = |begin, end| {
            parts.push(Idle { shard: id, tile: Tile { begin, end, ..*tile } });
            None::<()>
        };
        self.find_part(by, shard, tile, keep);
    }

    /// Returns the first part of a free block that a stream can use at `latest` and that has this number of bytes.
    pub(super) fn first_part(&self, by: (Taker, When), shard: &Shard, tile: &Tile, bytes: u64) -> Option<Tile> {
        let fits = |begin: u64, end: u64| (end - begin >= bytes).then_some(Tile { begin, end, ..*tile });
        self.find_part(by, shard, tile, fits)
    }

    /// Calls `f` with each part of a free block that a stream can use at `latest`, by place, until it returns
    /// something. What several streams have freed there is one block, whose parts are ready at different times.
    pub(super) fn find_part<R>(
        &self,
        (taker, latest): (Taker, When),
        shard: &Shard,
        tile: &Tile,
        mut f: impl FnMut(u64, u64) -> Option<R>,
    ) -> Option<R> {
        let stream = shard.stream();
        let is_usable = |point: Point| self.when(taker, point) <= latest;
        let is_plain_usable = is_usable(Point { stream, tick: tile.last_use.tick() });
        // Usable bytes begin at `begun` and go on to `at`, at least.
        let (mut begun, mut at) = (tile.begin, tile.begin);
        let guarded = tile.is_marked.then(|| shard.guarded_parts_of(tile.slot, (tile.begin, tile.end)));
        for (part, (begin, end)) in guarded.into_iter().flatten() {
            if !is_plain_usable && at < begin {
                if begun < at
                    && let Some(found) = f(begun, at)
                {
                    return Some(found);
                }
                begun = begin;
            }
            let own = Point { stream, tick: part.last_use.tick() };
            if !part.points.iter().chain([own]).all(is_usable) {
                if begun < begin
                    && let Some(found) = f(begun, begin)
                {
                    return Some(found);
                }
                begun = end;
            }
            at = end;
        }
        let until = if is_plain_usable { tile.end } else { at };
        if begun < until { f(begun, until) } else { None }
    }

    /// Returns when a free block can be used by a stream.
    pub(super) fn when_free(&self, taker: Taker, shard: &Shard, tile: &Tile) -> When {
        let own = Point { stream: shard.stream(), tick: tile.last_use.tick() };
        let guards = tile.is_marked.then(|| shard.guards_over(tile.block)).into_iter().flatten();
        guards.map(|point| self.when(taker, point)).fold(self.when(taker, own), When::max)
    }

    /// Returns when memory that was used up to a point can be used by a stream, at other addresses.
    pub(super) fn when(&self, taker: Taker, until: Point) -> When {
        if self.pending.is_reached(until) {
            return When::Now;
        }
        if until.stream == taker.stream {
            let is_ordered = match self.facts.pages.map_or(Reuse::AfterDone, |pages| pages.alias_reuse) {
                Reuse::InOrder => true,
                Reuse::AfterSubmit => until.tick < taker.open,
                Reuse::AfterDone => false,
            };
            return if is_ordered { When::Now } else { When::Later };
        }
        if taker.is_capturing {
            return When::Later;
        }
        if self.paging.waited.covering(taker.stream, until).is_some() {
            return When::Now;
        }
        let can_wait = self.facts.stream_wait && taker.can_wait && self.pending.can_be_waited_for(until);
        if can_wait { When::BehindWait } else { When::Later }
    }

    /// Returns the other shards of the same pool.
    pub(super) fn neighbours(&self, shard: ShardId) -> impl Iterator<Item = ShardId> {
        self.shards_of(self.pool_of(shard)).filter(move |&id| id != shard)
    }
}
