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
        if self.settings.idle.after.is_some() {
            self.watch(now, shards);
        }
    }

    /// Ends the watch if memory goes back no longer. A release that is under way goes on.
    pub(crate) fn end_watch_if_off(&mut self) {
        if self.settings.idle.after.is_none()
            && let Some(watch) = self.idle.give_up()
        {
            self.close_scope(watch.scope);
        }
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

    /// Returns a plan that releases what a watch did not need, if there is any. `most` is the peak of live bytes in it.
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

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;
    use core::time::Duration;

    use millpond_backend::{Reuse, StreamId, Tick};

    use super::*;
    use crate::coordinator::DeviceFacts;
    use crate::ids::PoolId;
    use crate::plan::{Outcome, Step};
    use crate::settings::{IdleRelease, Settings};
    use crate::shard::Shard;
    use crate::units::MIB;

    /// Has the shard get a segment for each of two blocks, and free both.
    fn with_two_segments() -> (Coordinator, Vec<Shard>) {
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse: Reuse::InOrder, pages: None, stream_wait: true };
        let idle = IdleRelease { after: Some(Duration::from_nanos(10)), ..IdleRelease::default() };
        let mut coordinator = Coordinator::new(Settings { idle, ..Settings::default() }, facts);
        let mut shards = vec![coordinator.open_shard(StreamId(0), PoolId::DEFAULT)];
        for mib in [40, 30] {
            let want = coordinator.sizes().want(mib * MIB).expect("a size");
            let mut plan = Plan::allocate(ShardId(0), want, [0; 2]);
            while !matches!(coordinator.next(&mut plan, &mut shards), Step::Grant(_)) {
                coordinator.learn(&mut plan, Outcome::Reserved { address: 0 }, &mut shards);
            }
        }
        let live: Vec<_> = shards[0].memory.blocks.iter().map(|(id, _)| id).collect();
        live.into_iter().for_each(|block| drop(shards[0].free(block, Tick(1), 0)));
        coordinator.note_reached(StreamId(0), Tick(1));
        (coordinator, shards)
    }

    /// Begins a release, which is for both segments, and returns it once one of them has gone.
    fn half_done(coordinator: &mut Coordinator, shards: &mut Vec<Shard>) -> Plan {
        assert!([0, 9].iter().all(|&now| coordinator.idle_release(now, [0; 2], shards).is_none()), "it is measured");
        let mut plan = coordinator.idle_release(10, [0; 2], shards).expect("it is time");
        let step = coordinator.next(&mut plan, shards);
        assert!(matches!(step, Step::Release { bytes, .. } if bytes == 40 * MIB), "the largest first: {step:?}");
        coordinator.learn(&mut plan, Outcome::Done, shards);
        plan
    }

    #[test]
    fn what_is_beyond_a_segment_in_use_goes() {
        let (mut coordinator, mut shards) = with_two_segments();
        let mut plan = half_done(&mut coordinator, &mut shards);
        assert!(coordinator.idle_release(99, [0; 2], &mut shards).is_none(), "one is under way");
        assert!(matches!(coordinator.next(&mut plan, &mut shards), Step::Release { .. }));
        coordinator.learn(&mut plan, Outcome::Done, &mut shards);
        assert_eq!(coordinator.next(&mut plan, &mut shards), Step::Done);
        assert_eq!((plan.released_bytes(), coordinator.reserved_bytes()), (70 * MIB, 0));
        coordinator.idle_released(25, plan.released_bytes(), &mut shards);
        assert_eq!(coordinator.idle_stats(25).released_bytes, 70 * MIB);
        coordinator.check(&mut shards);
    }

    #[test]
    fn a_capture_ends_a_release_that_is_under_way() {
        let (mut coordinator, mut shards) = with_two_segments();
        let mut plan = half_done(&mut coordinator, &mut shards);
        assert!(coordinator.begin_capture(StreamId(1), PoolId::DEFAULT, Tick(1)));
        assert_eq!(coordinator.next(&mut plan, &mut shards), Step::Done);
        assert_eq!(coordinator.reserved_bytes(), 30 * MIB, "the rest stays, and is free again");
        coordinator.check(&mut shards);
    }
}
