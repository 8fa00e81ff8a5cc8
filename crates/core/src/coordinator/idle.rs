//! The release of memory that nothing has needed for a while: when it is due, and how much goes.

use super::{Coordinator, Shards};
use crate::books::Watch;
use crate::ids::ShardId;
use crate::plan::Plan;
use crate::settings::Backing;
use crate::stats::IdleStats;
use crate::units::SMALL_SEGMENT_BYTES;

impl Coordinator {
    /// Returns a plan that gives back what nothing has needed for as long as [`IdleRelease::after`] says, if it is time
    /// for that and there is any. Once the plan has ended, in whatever way, [`idle_released`](Self::idle_released) is
    /// called. `now` is the time in nanoseconds since any moment, the same for all calls, and `clocks` are the counts
    /// of searches. The first call begins to measure.
    ///
    /// What was needed is what the policy may reserve for the most that was live meanwhile, and
    /// [`IdleRelease::keep_bytes`]. Memory of held pools, and what came from sources of pools, is not touched, and
    /// nothing happens during a capture.
    ///
    /// Costs one comparison until it is due, and then a visit of every shard.
    ///
    /// [`IdleRelease::after`]: crate::settings::IdleRelease::after
    /// [`IdleRelease::keep_bytes`]: crate::settings::IdleRelease::keep_bytes
    pub fn idle_release(&mut self, now: u64, clocks: [u64; 2], shards: &mut dyn Shards) -> Option<Plan> {
        let after = self.settings.idle.after.filter(|_| self.settings.policy.caches())?;
        if self.idle.is_off() {
            self.watch(now, shards);
        }
        if self.pending.has_captures() {
            return None;
        }
        let watch = self.idle.take_over(now, after)?;
        let stats = self.stats_since(watch.scope, shards);
        self.idle.learn(now, after, stats.reserved_bytes.all.peak);
        let plan = self.plan_for_idle(&watch, stats.allocated_bytes.all.peak, clocks, shards);
        self.close_scope(watch.scope);
        if plan.is_none() {
            self.idle_released(now, 0, shards);
        }
        plan
    }

    /// Notes that a plan of [`idle_release`](Self::idle_release) has ended, which has released this number of bytes.
    pub fn idle_released(&mut self, now: u64, bytes: u64, shards: &mut dyn Shards) {
        self.idle.end(now, bytes, self.reserved_bytes());
        self.watch(now, shards);
    }

    /// Returns what was given back as idle so far.
    pub fn idle_stats(&self, now: u64) -> IdleStats {
        self.idle.stats(now)
    }

    fn watch(&mut self, now: u64, shards: &mut dyn Shards) {
        let scope = self.open_scope(shards);
        let live_in_held = self.live_in_held(shards);
        self.idle.watch(Watch { begun: now, scope, live_in_held });
    }

    /// Returns a plan for what was not needed in a watch in which so many bytes were live at most, if there is any.
    fn plan_for_idle(&mut self, watch: &Watch, most: u64, clocks: [u64; 2], shards: &mut dyn Shards) -> Option<Plan> {
        // What was live in held pools all the time was live in no other one.
        let elsewhere = most.saturating_sub(watch.live_in_held.min(self.live_in_held(shards)));
        let needed = match self.backing {
            Backing::Pages => self.paging.governor.needed(elsewhere, self.paging.pace.sharing),
            // Of each side a segment, or a page of a range, is in use in part.
            Backing::Ranges | Backing::Segments => {
                let in_part = self.settings.large_segment_bytes + SMALL_SEGMENT_BYTES;
                self.paging.governor.bound(elsewhere).saturating_add(in_part)
            }
        };
        let stays = self.pools.reserved_in_held();
        let to = stays.saturating_add(needed).saturating_add(self.settings.idle.keep_bytes);
        (self.reserved_bytes() > to).then(|| {
            self.forget_beyond(most);
            Plan::trim_idle(to, clocks)
        })
    }

    /// Returns the bytes that are live in pools whose free memory stays, because they are held or have a source.
    fn live_in_held(&self, shards: &mut dyn Shards) -> u64 {
        if !self.pools.has_private() {
            return 0;
        }
        let stays = self.shard_ids().filter(|&id| !self.is_trimmed(id));
        stays.map(|id| shards.with(id, |shard| shard.live_bytes())).sum()
    }

    /// Returns whether free memory of a shard goes back to the driver once it is not needed.
    pub(crate) fn is_trimmed(&self, id: ShardId) -> bool {
        self.may_release(id) && !self.has_source(self.pool_of(id))
    }
}
