//! The free memory of a home, when each part of it can be used, and free blocks that serve a request where they lie,
//! without any page call.

use alloc::vec::Vec;

use super::Pager;
use super::taker::{Taker, When};
use crate::books::Points;
use crate::ids::{Place, Side};
use crate::looks;
use crate::memory::Tile;

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
            let tiles = shard.memory.tiles_by_place();
            let mut all = Vec::with_capacity(tiles.size_hint().1.unwrap_or(0));
            for tile in tiles {
                if !tile.is_marked && self.core.pending.is_reached(tile.point) {
                    all.push(tile);
                } else {
                    let keep = |begin, end| {
                        all.push(Tile { begin, end, ..tile });
                        None::<()>
                    };
                    taker.find_part(self.core, latest, shard, &tile, keep);
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
                let free = shard.memory.pools[Side::Large.index()]
                    .free
                    .iter_from(granularity)
                    .map(|block| shard.memory.blocks[block].last_point());
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
