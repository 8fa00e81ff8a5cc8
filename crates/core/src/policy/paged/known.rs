//! Loans of memory that is known to be ready, without a question.
//!
//! To ask all streams how far they are takes several driver calls for each stream that has work. Where the place of a
//! request would be the same whatever they answered, and the memory there is known to be ready by what was seen of them
//! before, or by the order of the requesting stream's own work, no question is needed. That holds for most loans: what
//! is free was often freed before the streams were asked last, or was borrowed by the same stream before.

use alloc::boxed::Box;

use millpond_backend::Point;

use super::climb::Climb;
use super::sizes;
use super::tiles::{Idle, Taker, When};
use super::ways::Way;
use super::{Growth, Work};
use crate::coordinator::phase::Turned;
use crate::coordinator::plan::Plan;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::{ShardId, Side};
use crate::size::Want;

impl Coordinator {
    /// Has another stream lend a free block before any stream is asked how far it is. It is the block that would be
    /// lent if all of them were done: the requesting stream has none that it could get once others are done with it,
    /// its home may not grow, and the block is known to be ready.
    pub(super) fn lend_known(&mut self, climb: &Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Option<Turned> {
        let (shard, want) = plan.request.allocation();
        let is_asking = self.paging.growth == Growth::Balanced && self.paging.pace.is_finding_out();
        let may_lend = self.guards() && self.pending.waiters() == 0 && !self.pending.has_captures() && !is_asking;
        if !may_lend || climb.knows.released.up_to > 0 {
            return None;
        }
        let (live, best) = self.look_elsewhere(shard, &want, shards)?;
        let high = self.high_live(shard, &want, live);
        let room = self.room(&climb.knows, plan);
        let left = self.paging.slack.eager(high).saturating_sub(self.reserved_for(shard)).min(room);
        if left >= sizes::least(self.granularity()) {
            return None;
        }
        if self.is_due(climb, shard) && self.may_get_memory(shard, want.rounded, (high, room), shards) {
            return None;
        }
        self.paging.largest = self.paging.largest.max(want.rounded);
        let taker = self.taker(climb, plan);
        let way = match want.side {
            Side::Large => {
                let front = best.filter(|idle| self.is_known(idle, want.rounded, taker, shards))?;
                self.take(front, &want, taker, shards)
            }
            Side::Small if self.has_full_slabs(&want, taker, shards) => return None,
            Side::Small => {
                // Whether a stream could wait for it now has no part in the choice: on another device it could.
                let idle = self.small_offer(&want, (taker, When::Later), shards)?;
                if !self.is_known(&idle, idle.tile.end - idle.tile.begin, taker, shards) {
                    return None;
                }
                self.small_way(&want, (taker, idle.shard), &idle.tile, shards)
            }
        };
        match way {
            Way::Job(job) => Some(self.serve_without_waits(job, plan, shards)),
            Way::Spoiled(job) => {
                self.give_up_window(Work::Order(Box::new(job)), plan, shards);
                None
            }
            Way::Range(_) | Way::End(_) | Way::Budget | Way::Release(..) => panic!("a loan is no way to grow"),
        }
    }

    /// Returns the bytes live in the pool of a shard and, of the free blocks of its other streams, the one that fits a
    /// large request best. Returns `None` if the shard has free memory of its own for the request.
    fn look_elsewhere(&self, of: ShardId, want: &Want, shards: &mut dyn Shards) -> Option<(u64, Option<Idle>)> {
        let mut live = shards.with(of, |own| (!own.has_free_for(want)).then(|| own.live_bytes()))?;
        let mut best: Option<(u64, Idle)> = None;
        for id in self.neighbours(of) {
            let is_large = want.side == Side::Large;
            let (bytes, tile) =
                shards.with(id, |shard| (shard.live_bytes(), if is_large { shard.best_tile(want) } else { None }));
            live += bytes;
            if let Some(tile) = tile {
                let size = tile.end - tile.begin;
                if best.is_none_or(|(least, _)| size < least) {
                    best = Some((size, Idle { shard: id, tile }));
                }
            }
        }
        Some((live, best.map(|(_, idle)| idle)))
    }

    /// Returns whether the front of a free block is known to be ready for a stream.
    fn is_known(&self, idle: &Idle, bytes: u64, taker: Taker, shards: &mut dyn Shards) -> bool {
        let Idle { shard, tile } = *idle;
        let is_ready = |tick| self.when(taker, Point { stream: self.stream_of(shard), tick }) == When::Now;
        let is_plain_ready = is_ready(tile.last_use.tick());
        if !tile.is_marked {
            return is_plain_ready;
        }
        let (begin, end) = (tile.begin, tile.begin + bytes);
        shards.with(shard, |shard| {
            let mut parts = shard.guarded_parts_in(tile.slot, (begin, end));
            let mut guarded = 0;
            let all_ready = parts.all(|part| {
                guarded += part.end.min(end) - part.begin.max(begin);
                is_ready(part.last_use.tick()) && part.points.iter().all(|point| self.when(taker, point) == When::Now)
            });
            all_ready && (is_plain_ready || guarded == bytes)
        })
    }
}
