//! The free memory of a home, when each part of it can be used, and free blocks that serve a request where they lie,
//! without any page call.

use alloc::vec::Vec;

use millpond_backend::{Point, Reuse, StreamId, Tick};

use super::job::{Job, Target};
use super::ways::Way;
use crate::books::Points;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{Place, ShardId, Side};
use crate::looks;
use crate::memory::Tile;
use crate::plan::Lacks;
use crate::plan::Plan;
use crate::shard::Shard;
use crate::size::Want;

/// The time at which free memory can be used by a stream, at other addresses than before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum When {
    /// Now: the device no longer uses it, or later work of the same stream is ordered behind that use.
    Now,
    /// Now, if the stream that gets it waits on the device.
    BehindWait,
    /// Not before its last use is over.
    Later,
}

/// The stream that gets memory, and what it can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taker {
    pub(crate) shard: ShardId,
    pub(crate) stream: StreamId,
    /// What it requests.
    pub(crate) want: Want,
    /// What it has to do without.
    pub(crate) lacks: Lacks,
    /// Whether what it does is captured, or may be: then no wait may be queued, and one that was queued before orders
    /// nothing in the graph.
    pub(crate) is_capturing: bool,
    /// Its open tick.
    pub(crate) open: Tick,
    /// The number of reserved bytes up to which pages are created rather than that as much as can be is gathered.
    pub(crate) creates_up_to: u64,
}

/// The free blocks of a home, by slot and offset.
#[derive(Debug, Default)]
pub(crate) struct Tiles(Vec<Tile>);

impl Tiles {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Tile> {
        self.0.iter()
    }

    /// Returns the free block that has all of these bytes.
    pub(crate) fn around(&self, home: Place, bytes: u64) -> Option<&Tile> {
        let key = (home.slot, home.offset);
        let behind = self.0.partition_point(|tile| (tile.slot, tile.begin) <= key);
        let tile = self.0[..behind].last()?;
        (tile.slot == home.slot && home.offset + bytes <= tile.end).then_some(tile)
    }
}

/// The number of free blocks that a request looks at.
const LOOKS_MAX: usize = 32;

impl Coordinator {
    /// Returns the stream that a plan requests memory for.
    pub(crate) fn taker(&self, plan: &Plan) -> Taker {
        let (shard, want) = plan.request.allocation();
        let (stream, lacks) = (self.requester_of(plan).stream, plan.knows.lacks);
        let (is_capturing, open) = (self.is_capturing(stream, shard), plan.request.open);
        Taker { shard, stream, want, lacks, is_capturing, open, creates_up_to: 0 }
    }

    /// Returns the free memory at home that can be used at `latest`: free blocks, and the parts of those that cannot be
    /// used as a whole.
    pub(crate) fn tiles_of(&self, by: (Taker, When), shards: &mut dyn Shards) -> Tiles {
        let all = shards.with(by.0.shard, |shard| {
            shard.memory.list_by_place();
            let tiles = shard.memory.tiles_by_place();
            let mut all = Vec::with_capacity(tiles.size_hint().1.unwrap_or(0));
            for tile in tiles {
                if !tile.is_marked && self.pending.is_reached(tile.point) {
                    all.push(tile);
                } else {
                    let keep = |begin, end| {
                        all.push(Tile { begin, end, ..tile });
                        None::<()>
                    };
                    self.find_part(by, shard, &tile, keep);
                }
            }
            all
        });
        looks::note(all.len());
        Tiles(all)
    }

    /// Returns the first part of a free block that a stream can use at `latest` and that has this number of bytes.
    pub(crate) fn first_part(&self, by: (Taker, When), shard: &Shard, tile: &Tile, bytes: u64) -> Option<Tile> {
        let fits = |begin: u64, end: u64| (end - begin >= bytes).then_some(Tile { begin, end, ..*tile });
        self.find_part(by, shard, tile, fits)
    }

    /// Calls `f` with each part of a free block that a stream can use at `latest`, by place, until it returns
    /// something. What several streams have freed there is one block, whose parts are ready at different times.
    pub(crate) fn find_part<R>(
        &self,
        (taker, latest): (Taker, When),
        shard: &Shard,
        tile: &Tile,
        mut f: impl FnMut(u64, u64) -> Option<R>,
    ) -> Option<R> {
        let is_usable = |point: Point| self.when(taker, point) <= latest;
        if !tile.is_marked {
            return if is_usable(tile.point) { f(tile.begin, tile.end) } else { None };
        }
        // What nothing guards is over.
        let mut begun = tile.begin;
        for (part, (begin, end)) in shard.memory.guards.parts_in(tile.slot, (tile.begin, tile.end)) {
            if part.points.iter().all(is_usable) {
                continue;
            }
            if begun < begin
                && let Some(found) = f(begun, begin)
            {
                return Some(found);
            }
            begun = end;
        }
        if begun < tile.end { f(begun, tile.end) } else { None }
    }

    /// Returns when a free block can be used by a stream.
    pub(crate) fn when_free(&self, taker: Taker, shard: &Shard, tile: &Tile) -> When {
        match tile.is_marked {
            true => shard
                .memory
                .guards
                .points_over(&shard.memory.blocks[tile.block])
                .map(|point| self.when(taker, point))
                .max()
                .unwrap_or(When::Now),
            false => self.when(taker, tile.point),
        }
    }

    /// Returns when memory that was used up to a point can be used by a stream, at other addresses.
    pub(crate) fn when(&self, taker: Taker, until: Point) -> When {
        if self.pending.is_reached(until) {
            return When::Now;
        }
        if until.stream == taker.stream {
            let is_ordered = match self.reuse_anywhere() {
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
        // Where a stream's own work is not in order, a wait for another one says nothing of what it did before itself.
        let has_waits = self.facts.stream_wait && self.reuse_anywhere() == Reuse::InOrder;
        let can_wait = has_waits && !taker.lacks.waits && self.pending.can_be_waited_for(until);
        if can_wait { When::BehindWait } else { When::Later }
    }

    /// Serves a request from a free block of the large side. If only what is ready may be used: from any part of it,
    /// the shortest that the stream itself used last, or else the shortest of all. Behind waits: from the one that
    /// fits best, or from the one that is ready `soonest`, whose streams are fewest ticks behind. Looks at few blocks.
    pub(crate) fn block_way(
        &mut self,
        (taker, latest): (Taker, When),
        soonest: bool,
        shards: &mut dyn Shards,
    ) -> Option<Way> {
        let want = taker.want;
        let tile = shards.with(taker.shard, |shard| {
            let tiles = shard.memory.tiles_at_least(want.rounded).take(LOOKS_MAX);
            let mut parts = tiles.filter_map(|tile| self.first_part((taker, latest), shard, &tile, want.rounded));
            match latest {
                When::Now => parts.min_by_key(|part| (part.point.stream != taker.stream, part.end - part.begin)),
                _ if soonest => parts.min_by_key(|part| self.ticks_behind(taker, shard, part, want.rounded)),
                _ => parts.next(),
            }
        })?;
        Some(self.take(&tile, (Side::Large, want.rounded), taker, shards))
    }

    /// Returns by how many ticks another stream is behind with its use of the front of free memory, at most.
    fn ticks_behind(&self, taker: Taker, shard: &Shard, tile: &Tile, bytes: u64) -> u64 {
        let behind = |point: Point| match point.stream == taker.stream {
            true => 0,
            false => point.tick.0.saturating_sub(self.pending.reached(point.stream).0),
        };
        if !tile.is_marked {
            return behind(tile.point);
        }
        let parts = shard.memory.guards.parts_in(tile.slot, (tile.begin, tile.begin + bytes));
        parts.flat_map(|(part, _)| part.points.iter().map(behind)).max().unwrap_or(0)
    }

    /// Serves a small request from a part of a block of the small side that can be used at `latest`, or of a slab that
    /// can. Looks at few blocks.
    pub(crate) fn small_way(&mut self, by: (Taker, When), shards: &mut dyn Shards) -> Option<Way> {
        let (taker, want) = (by.0, by.0.want);
        let tile = shards.with(taker.shard, |shard| {
            let small = shard.memory.small_tiles_at_least(want.rounded, taker.stream).take(LOOKS_MAX);
            self.small_part(by, shard, small.chain(shard.memory.slabs().take(LOOKS_MAX)))
        })?;
        Some(self.take(&tile, (Side::Small, want.rounded), taker, shards))
    }

    /// Serves a small request from the slab of another stream, behind waits. Costs a look at each free small block that
    /// is long enough.
    pub(crate) fn other_slab_way(&mut self, taker: Taker, shards: &mut dyn Shards) -> Option<Way> {
        let (by, want) = ((taker, When::BehindWait), taker.want);
        let tile = shards.with(taker.shard, |shard| {
            self.small_part(by, shard, shard.memory.any_small_tiles_at_least(want.rounded))
        })?;
        Some(self.take(&tile, (Side::Small, want.rounded), taker, shards))
    }

    /// Returns the first part of some free blocks where a small block fits that a stream can use at `latest`.
    fn small_part(&self, by: (Taker, When), shard: &Shard, mut tiles: impl Iterator<Item = Tile>) -> Option<Tile> {
        let want = by.0.want;
        let place = |tile: Tile, begin: u64, end: u64| {
            let at = match tile.side {
                Side::Small => (begin + want.rounded <= end).then_some((begin, begin + want.rounded)),
                Side::Large => shard.memory.within_slab((tile.begin, tile.end), (begin, end), want.rounded),
            };
            at.map(|(begin, end)| Tile { begin, end, ..tile })
        };
        tiles.find_map(|tile| self.find_part(by, shard, &tile, |begin, end| place(tile, begin, end)))
    }

    /// Claims what the block that is handed out will have: some bytes at the front of a free block, or a small block in
    /// a slab, or in one that a free block of the large side has.
    fn take(&mut self, tile: &Tile, (side, bytes): (Side, u64), taker: Taker, shards: &mut dyn Shards) -> Way {
        let mut job = Job::new(taker, self.pending.reached(taker.stream));
        job.target = Target::Free(side);
        let claimed = shards.with(taker.shard, |shard| match side {
            Side::Small => shard.memory.claim_small(tile, taker.stream),
            Side::Large => shard.memory.claim_part(tile, tile.begin, tile.begin + bytes),
        });
        let claimed = claimed.and_then(|claimed| self.keep_if_usable(&mut job, claimed, shards));
        job.pieces.extend(claimed);
        if job.pieces.is_empty() { Way::Spoiled(job) } else { Way::Job(job) }
    }

    /// Returns for each stream the first point that freed memory waits for, whether inside its block or as the last use
    /// of memory that could be gathered, or as a guard. Leaves out what does not keep `taker` from using free memory,
    /// and held pools that are not the taker's, whose memory neither serves it nor goes back.
    pub(crate) fn oldest_points(&self, taker: Taker, shards: &mut dyn Shards) -> Points {
        let mut points = Points::default();
        let lower = |points: &mut Points, point| {
            if !self.pending.is_reached(point) {
                points.min(point);
            }
        };
        self.pending.first().iter().for_each(|point| lower(&mut points, point));
        let granularity = self.granularity();
        let of = self.pool_of(taker.shard);
        for id in self.shard_ids().filter(|&id| self.pool_of(id) == of || self.may_release(id)) {
            shards.with(id, |shard| {
                shard.settling_from().into_iter().for_each(|point| lower(&mut points, point));
                let free = shard.memory.pools[Side::Large.index()]
                    .free
                    .iter_from(granularity)
                    .map(|block| shard.memory.blocks[block].last_point());
                for point in shard.memory.guards.points().chain(free) {
                    if self.when(taker, point) > When::Now {
                        lower(&mut points, point);
                    }
                }
            });
        }
        points
    }
}
