//! The stream that gets memory, the free memory of its home, and when it can use each part of that.

use alloc::vec::Vec;
use core::ops::Range;

use millpond_backend::{Point, Reuse, Tick};

use super::{Lacks, Pager};
use crate::books::Points;
use crate::coordinator::Coordinator;
use crate::ids::{Place, ShardId, Side};
use crate::looks;
use crate::memory::{Requester, Tile};
use crate::plan::Placing;
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
    pub(crate) by: Requester,
    /// What it requests.
    pub(crate) want: Want,
    /// Where that has to lie.
    pub(crate) placing: Placing,
    /// The counts of searches on the small and the large side when the request came.
    pub(crate) clocks: [u64; 2],
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

impl Taker {
    /// Returns the count of searches on the request's side.
    pub(crate) fn clock(&self) -> u64 {
        self.clocks[self.want.side.index()]
    }

    /// Returns what the stream sees of a shard.
    pub(crate) fn on<'a>(self, core: &'a Coordinator, shard: &'a Shard) -> Look<'a> {
        Look { taker: self, core, shard }
    }

    /// Returns when memory that was used up to a point can be used by a stream, at other addresses.
    pub(crate) fn when(self, core: &Coordinator, until: Point) -> When {
        if core.pending.is_reached(until) {
            return When::Now;
        }
        if until.stream == self.by.stream {
            let is_ordered = match core.reuse_anywhere() {
                Reuse::InOrder => true,
                Reuse::AfterSubmit => until.tick < self.open,
                Reuse::AfterDone => false,
            };
            return if is_ordered { When::Now } else { When::Later };
        }
        if self.is_capturing {
            return When::Later;
        }
        if core.paging.waited.covering(self.by.stream, until).is_some() {
            return When::Now;
        }
        // Where a stream's own work is not in order, a wait for another one says nothing of what it did before itself.
        let has_waits = core.facts.stream_wait && core.reuse_anywhere() == Reuse::InOrder;
        let can_wait = has_waits && !self.lacks.waits && core.pending.can_be_waited_for(until);
        if can_wait { When::BehindWait } else { When::Later }
    }
}

/// A shard as the stream of a taker sees it.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a> {
    taker: Taker,
    core: &'a Coordinator,
    shard: &'a Shard,
}

impl Look<'_> {
    /// Returns the first part of a free block that the stream can use at `latest` and that has this number of bytes.
    pub(crate) fn first_part(self, latest: When, tile: &Tile, bytes: u64) -> Option<Tile> {
        self.find_part(latest, tile, |begin, end| (end - begin >= bytes).then_some(Tile { begin, end, ..*tile }))
    }

    /// Calls `f` with each part of a free block that the stream can use at `latest`, by place, until it returns
    /// something. What several streams have freed there is one block, whose parts are ready at different times.
    pub(crate) fn find_part<R>(self, latest: When, tile: &Tile, mut f: impl FnMut(u64, u64) -> Option<R>) -> Option<R> {
        let is_usable = |point: Point| self.when(point) <= latest;
        if !tile.is_marked {
            return if is_usable(tile.point) { f(tile.begin, tile.end) } else { None };
        }
        // What nothing guards is over.
        let mut begun = tile.begin;
        for (part, Range { start: begin, end }) in self.shard.memory.guards.parts_in(tile.slot, tile.range()) {
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

    /// Returns when the stream can use a free block.
    pub(crate) fn when_free(self, tile: &Tile) -> When {
        if !tile.is_marked {
            return self.when(tile.point);
        }
        let memory = &self.shard.memory;
        let points = memory.guards.points_over(&memory.blocks[tile.block]);
        points.map(|point| self.when(point)).max().unwrap_or(When::Now)
    }

    fn when(self, until: Point) -> When {
        self.taker.when(self.core, until)
    }

    /// Returns by how many ticks another stream is behind with its use of the front of free memory, at most.
    pub(crate) fn ticks_behind(self, tile: &Tile, bytes: u64) -> u64 {
        let behind = |point: Point| match point.stream == self.taker.by.stream {
            true => 0,
            false => point.tick.0.saturating_sub(self.core.pending.reached(point.stream).0),
        };
        if !tile.is_marked {
            return behind(tile.point);
        }
        let parts = self.shard.memory.guards.parts_in(tile.slot, tile.begin..tile.begin + bytes);
        parts.flat_map(|(part, _)| part.points.iter().map(behind)).max().unwrap_or(0)
    }

    /// Returns the first part of some free blocks where a small block fits that the stream can use at `latest`.
    pub(crate) fn small_part(self, latest: When, mut tiles: impl Iterator<Item = Tile>) -> Option<Tile> {
        let want = self.taker.want;
        let place = |tile: Tile, begin: u64, end: u64| {
            let at = match tile.side {
                Side::Small => (begin + want.rounded <= end).then_some(begin..begin + want.rounded),
                Side::Large => self.shard.memory.within_slab(tile.range(), begin..end, want.rounded),
            };
            at.map(|at| Tile { begin: at.start, end: at.end, ..tile })
        };
        tiles.find_map(|tile| self.find_part(latest, &tile, |begin, end| place(tile, begin, end)))
    }
}

/// A stretch of free memory at a home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    pub(crate) home: Place,
    pub(crate) bytes: u64,
}

/// Adds a stretch behind others, joined with the last one if it goes on there.
pub(crate) fn add(stretches: &mut Vec<Stretch>, next: Stretch) {
    if let Some(last) = stretches.last_mut()
        && (last.home.shard, last.home.slot) == (next.home.shard, next.home.slot)
        && last.home.offset + last.bytes == next.home.offset
    {
        last.bytes += next.bytes;
    } else {
        stretches.push(next);
    }
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

impl Pager<'_> {
    /// Returns the free memory at home that can be used at `latest`: free blocks, and the parts of those that cannot be
    /// used as a whole.
    pub(crate) fn tiles_of(&mut self, taker: Taker, latest: When) -> Tiles {
        let all = self.shards.with(taker.shard, |shard| {
            shard.memory.list_by_place();
            let tiles = shard.memory.free_blocks_by_place();
            let mut all = Vec::with_capacity(tiles.size_hint().1.unwrap_or(0));
            for tile in tiles {
                if !tile.is_marked && self.core.pending.is_reached(tile.point) {
                    all.push(tile);
                } else {
                    let keep = |begin, end| {
                        all.push(Tile { begin, end, ..tile });
                        None::<()>
                    };
                    taker.on(self.core, shard).find_part(latest, &tile, keep);
                }
            }
            all
        });
        looks::note(all.len());
        Tiles(all)
    }

    /// Returns for each stream the first point that freed memory waits for, whether inside its block or as the last use
    /// of memory that could be gathered, or as a guard. Leaves out what does not keep `taker` from using free memory,
    /// and held pools that are not the taker's, whose memory neither serves it nor goes back.
    pub(crate) fn oldest_points(&mut self, taker: Taker) -> Points {
        let mut points = Points::default();
        let lower = |points: &mut Points, point| {
            if !self.core.pending.is_reached(point) {
                points.min(point);
            }
        };
        self.core.pending.first().iter().for_each(|point| lower(&mut points, point));
        let granularity = self.core.granularity();
        let of = self.core.pool_of(taker.shard);
        for id in self.core.shard_ids().filter(|&id| self.core.pool_of(id) == of || self.core.may_release(id)) {
            self.shards.with(id, |shard| {
                shard.settling_from().into_iter().for_each(|point| lower(&mut points, point));
                let free = shard.memory.pools[Side::Large.index()].free.iter_from(granularity);
                let free = free.map(|block| shard.memory.blocks[block].last_point());
                for point in shard.memory.guards.points().chain(free) {
                    if taker.when(self.core, point) > When::Now {
                        lower(&mut points, point);
                    }
                }
            });
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Slot;

    #[test]
    fn stretches_join_only_where_they_follow_each_other_in_one_range() {
        let at = |shard, slot, offset| Place { shard: ShardId(shard), slot: Slot(slot), offset };
        let all = [(at(0, 1, 0), 10), (at(0, 1, 10), 5), (at(1, 1, 15), 5), (at(1, 2, 20), 5), (at(1, 2, 30), 5)];
        let mut stretches = Vec::new();
        all.into_iter().for_each(|(home, bytes)| add(&mut stretches, Stretch { home, bytes }));
        let places: Vec<_> = stretches.iter().map(|stretch| (stretch.home, stretch.bytes)).collect();
        assert_eq!(places, [(at(0, 1, 0), 15), all[2], all[3], all[4]]);
    }
}
