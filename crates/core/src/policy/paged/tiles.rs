//! The free memory of a home, and when each part of it can be used.

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

/// The free blocks of a home, by slot and offset.
#[derive(Debug, Default)]
pub(super) struct Tiles(Vec<Tile>);

impl Tiles {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Tile> {
        self.0.iter()
    }

    /// Returns the free block that has all of these bytes.
    pub(super) fn around(&self, home: Place, bytes: u64) -> Option<&Tile> {
        let key = (home.slot, home.offset);
        let behind = self.0.partition_point(|tile| (tile.slot, tile.begin) <= key);
        let tile = self.0[..behind].last()?;
        (tile.slot == home.slot && home.offset + bytes <= tile.end).then_some(tile)
    }
}

impl Coordinator {
    /// Returns the stream that a plan requests memory for.
    pub(super) fn taker(&self, climb: &Climb, plan: &Plan) -> Taker {
        let (shard, _) = plan.request.allocation();
        let stream = self.requester_of(plan).stream;
        let (can_wait, is_capturing) = (!climb.knows.lacks.waits, self.is_capturing(stream, shard));
        Taker { shard, stream, can_wait, is_capturing, open: plan.request.open, creates_up_to: 0 }
    }

    /// Returns the free memory at home that can be used at `latest`: free blocks, and the parts of those that cannot be
    /// used as a whole.
    pub(super) fn tiles_of(&self, by: (Taker, When), shards: &mut dyn Shards) -> Tiles {
        let all = shards.with(by.0.shard, |shard| {
            shard.list_by_place();
            let tiles = shard.tiles_by_place();
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
        let is_usable = |point: Point| self.when(taker, point) <= latest;
        if !tile.is_marked {
            return if is_usable(tile.point) { f(tile.begin, tile.end) } else { None };
        }
        // What nothing guards is over.
        let mut begun = tile.begin;
        for (part, (begin, end)) in shard.guarded_parts_of(tile.slot, (tile.begin, tile.end)) {
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
    pub(super) fn when_free(&self, taker: Taker, shard: &Shard, tile: &Tile) -> When {
        match tile.is_marked {
            true => shard.guards_over(tile.block).map(|point| self.when(taker, point)).max().unwrap_or(When::Now),
            false => self.when(taker, tile.point),
        }
    }

    /// Returns when memory that was used up to a point can be used by a stream, at other addresses.
    pub(super) fn when(&self, taker: Taker, until: Point) -> When {
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
        let can_wait = has_waits && taker.can_wait && self.pending.can_be_waited_for(until);
        if can_wait { When::BehindWait } else { When::Later }
    }
}
