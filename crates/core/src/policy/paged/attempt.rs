//! One attempt to serve a request that missed.

use millpond_backend::Point;

use super::climb::{Climb, Knows, Times};
use super::overview::Overview;
use crate::coordinator::phase::{Phase, Turned};
use crate::coordinator::plan::{Allowance, Plan};
use crate::coordinator::step::Step;
use crate::coordinator::{Coordinator, Shards};
use crate::ids::ShardId;
use crate::policy::Source;
use crate::shard::Grant;
use crate::size::Want;

impl Coordinator {
    /// Makes one attempt to serve a request that missed.
    pub(super) fn attempt(&mut self, mut climb: Climb, plan: &mut Plan, shards: &mut dyn Shards) -> Turned {
        let (_, want) = plan.request.allocation();
        // What is not known to be over may be. Asking first makes what follows depend on how far the device is, and not
        // on which plan asked last.
        if let Times::Unasked | Times::Unlent = climb.knows.times {
            if climb.knows.times == Times::Unasked
                && let Some(turned) = self.lend_known(&climb, plan, shards)
            {
                return turned;
            }
            climb.knows.times = Times::Told;
            return climb.again().after(Step::Poll(self.every_stream()));
        }
        let (found, overview) = self.retire_and_find(&mut climb.knows, plan, shards);
        if let Some(grant) = found {
            return Phase::end(Step::Grant(grant));
        }
        self.begin_attempt(plan);
        if !plan.standing.keeps_turn() {
            self.note_frees(plan, overview.frees);
        }
        if !self.headroom.could_hold(want.rounded) {
            // No wait would help.
            return if self.settings.throw_on_oom {
                self.reject(climb.turn(), plan, shards)
            } else {
                climb.hopeless().turn()
            };
        }
        let is_rejected =
            self.settings.throw_on_oom && !climb.knows.lacks.new_pages && plan.request.allowance.most().is_none();
        climb.knows.lacks.budget = plan.request.allowance == Allowance::Unasked;
        match self.find_way(climb.clone(), &overview, plan, shards) {
            Some(turned) => turned,
            // Neither idle memory nor what may be created suffices: refused at once, where that is asked for.
            None if is_rejected => self.reject(climb.turn(), plan, shards),
            None => climb.refused().again().turn(),
        }
    }

    /// Takes in how far the streams were at a time, and marks those of which a tick was closed then.
    pub(crate) fn note_pace(&mut self, reached: &[Point], (closed, time): (&[Point], u64), shards: &mut dyn Shards) {
        if self.traits.source != Source::Pages {
            return;
        }
        self.paging.pace.look(reached, time);
        for &point in closed {
            let same = |id: &ShardId| self.stream_of(*id) == point.stream;
            let granted = self.shard_ids().filter(same).map(|id| self.grants_to(id, shards)).sum();
            let is_reached = reached.iter().any(|at| at.stream == point.stream && at.tick >= point.tick);
            self.paging.pace.mark(point, is_reached, granted);
        }
    }

    /// Makes free the blocks whose points are reached by now, which no plan waits for any more and which therefore must
    /// not be missed; what another plan was told is among it. Then looks for a free block, if there is any news. Also
    /// returns what there was to see of all streams before that look.
    fn retire_and_find(
        &mut self,
        knows: &mut Knows,
        plan: &Plan,
        shards: &mut dyn Shards,
    ) -> (Option<Grant>, Overview) {
        let waiters = self.pending.waiters();
        self.retire_pending(plan.request.clocks, shards);
        let (shard, want) = plan.request.allocation();
        let overview = self.overview(shard, &want, shards);
        let was_told = core::mem::replace(&mut knows.times, Times::Seen) == Times::Told;
        let has_news = was_told || self.pending.waiters() != waiters;
        (if has_news { self.find(plan, shards) } else { None }, overview)
    }

    /// Returns the most bytes that were live in the shard's pool since the program began anew, or will be once the
    /// request is served, where `live` bytes are now. A request that is refused leaves no trace in it. Where there is
    /// but one pool, and it has not begun anew since peaks were reset, that is what the device's peak says; else what
    /// was seen at requests that missed.
    pub(super) fn high_live(&mut self, shard: ShardId, want: &Want, live: u64) -> u64 {
        self.note_live(shard, live);
        let most = match self.pools.has_private() {
            false => self.most_live(),
            true => self.pools.most_live(self.pool_of(shard)),
        };
        most.max(live + want.rounded)
    }

    /// Returns the number of bytes that may be created at all.
    pub(super) fn room(&self, knows: &Knows, plan: &Plan) -> u64 {
        if knows.lacks.new_pages {
            return 0;
        }
        let throw_above = if self.settings.throw_on_oom { self.throw_above() } else { u64::MAX };
        self.headroom.room(Some(throw_above.min(plan.request.allowance.most().unwrap_or(u64::MAX))))
    }
}
