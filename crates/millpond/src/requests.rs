//! Requests that the hot path does not serve: those that search with more than their lane, and misses.

use millpond_backend::{Backend, Reuse, StreamId, Tick};
use millpond_core::{Grant, Plan, Requester, Shard, Want};

use crate::drive::Ending;
use crate::error::Error;
use crate::events::Event;
use crate::notes::note::Asked;
use crate::state::{Lane, LockedShards, State};
use crate::sync::{Arc, lock_soon};

impl<B: Backend> State<B> {
    /// Serves a request of at least one byte. Returns the block and the lane that it belongs to, which is not the lane
    /// of the request where the block is lent.
    #[inline(never)]
    pub(crate) fn allocate<'a>(
        this: &'a Arc<Self>,
        lane: &'a Lane<B>,
        want: &Want,
        asked: &Asked,
    ) -> Result<(Grant, &'a Lane<B>), Error<B::Error>> {
        if this.has_waiters() {
            this.retire_ready()?;
        }
        let by = Requester { stream: asked.stream, usable: this.usable(lane, asked.stream)? };
        let clock = this.count_search(want.side);
        let hit = {
            let mut state = lane.lock();
            let hit = state.shard.allocate(want, clock, by);
            // The lane holds the allocator before the block exists, so that the block is never without it.
            state.hold(this);
            if let Some(grant) = &hit {
                lane.count_out(grant.size);
                state.granted(asked, want.requested, grant);
            }
            hit.ok_or_else(|| state.shard.changes())
        };
        match hit {
            Ok(grant) => {
                if grant.unsettled {
                    this.settle(lane.shard);
                }
                Ok((grant, lane))
            }
            Err(changes) => Self::miss(this, lane, (*want, changes), asked),
        }
    }

    /// Returns the tick up to which memory freed on a stream may be handed out there again.
    fn usable(&self, lane: &Lane<B>, stream: StreamId) -> Result<Tick, Error<B::Error>> {
        match self.reuse {
            Reuse::InOrder => Ok(Tick(u64::MAX)),
            Reuse::AfterSubmit => Ok(Tick(lane.mark(&self.backend, stream).0.saturating_sub(1))),
            Reuse::AfterDone => lane.reached(&self.backend, stream).map_err(|e| Error::of_driver("reached", e)),
        }
    }

    /// Serves a request that missed in its shard, whose [`changes`](millpond_core::Shard::changes) were so many then.
    #[cold]
    pub(crate) fn miss<'a>(
        this: &'a Arc<Self>,
        lane: &'a Lane<B>,
        (want, changes): (Want, u64),
        asked: &Asked,
    ) -> Result<(Grant, &'a Lane<B>), Error<B::Error>> {
        if this.sinks.is_told() {
            this.sinks.tell(&Event::Miss { stream: asked.stream, requested: want.requested });
        }
        let mut plan = Plan::allocate(lane.shard, want, this.clocks()).after_miss(changes);
        plan = plan.for_stream(asked.stream).with_open_tick(lane.mark(&this.backend, asked.stream));
        if this.backend.caps().oversubscribes {
            plan = plan.within_budget();
        }
        if let Some(grant) = this.ask_first(lane, &mut plan, want.requested, asked)? {
            return Ok((grant, lane));
        }
        match this.run_for(&mut plan, Some(&(lane.shard, want, *asked)))? {
            Ending::Granted(grant) => {
                let _held = lane.lock();
                lane.count_out(grant.size);
                Ok((grant, lane))
            }
            Ending::Lent(lender, grant) => {
                let lender = this.lane(lender);
                // The lender's memory was granted by a miss of its own, and its handles still exist.
                let held = lender.lock();
                assert!(held.holds(), "shard {} lends and keeps no allocator", lender.shard.0);
                lender.count_out(grant.size);
                drop(held);
                Ok((grant, lender))
            }
            Ending::Done => panic!("a plan for {want:?} ended without an answer"),
        }
    }

    /// Asks the device how far the streams are that the request of a plan may have to wait for, and serves it if that
    /// is all it takes.
    fn ask_first(
        &self,
        lane: &Lane<B>,
        plan: &mut Plan,
        requested: u64,
        asked: &Asked,
    ) -> Result<Option<Grant>, Error<B::Error>> {
        let Some(streams) = self.first_question(lane) else { return Ok(None) };
        let polled = self.polled(&streams, Shard::BEHIND_MAX)?;
        let mut coordinator = lock_soon(&self.coordinator);
        let grant = coordinator.answer(plan, polled, &mut LockedShards(self));
        self.publish(&coordinator);
        if let Some(grant) = &grant {
            let mut held = lane.lock();
            lane.count_out(grant.size);
            held.granted(asked, requested, grant);
        }
        Ok(grant)
    }
}
