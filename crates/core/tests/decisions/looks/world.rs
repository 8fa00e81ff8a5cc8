//! An allocator whose plans are taken step by step, with operations of other threads before any look at a shard.

use millpond_backend::{PageCaps, Point, Reuse};
use millpond_core::settings::{Policy, RecordStream, Segments, Settings};
use millpond_core::{Outcome, PageCall, Plan, Polled, Shard, ShardId, Slot, Step};

use super::clock::Clock;
use super::scene::Scene;
use crate::driver::{self, Device, Lane, MIB, empty_cache};

/// The properties of a world.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) settings: Settings,
    pub(crate) reuse: Reuse,
    pub(crate) aliasing: bool,
    /// The number of pages in windows that the driver is taken to bear.
    pub(crate) mappings: u64,
    pub(crate) stream_wait: bool,
    /// Whether the application closes ticks.
    pub(crate) submits: bool,
    pub(crate) streams: usize,
    pub(crate) limit: Option<u64>,
}

impl Facts {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            reuse: Reuse::InOrder,
            aliasing: true,
            mappings: PageCaps::MAPPINGS,
            stream_wait: true,
            submits: false,
            streams: 2,
            limit: None,
        }
    }
}

/// The end of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Granted(u64),
    Refused,
    Done,
}

/// The failure of one of the driver's next fallible calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Failing {
    /// The number of fallible calls that succeed before one fails.
    pub(crate) after: Option<u32>,
    /// Whether the call fails for lack of memory.
    pub(crate) refused: bool,
}

pub(crate) struct World {
    pub(crate) device: Device,
    pub(crate) scene: Scene,
    pub(crate) failing: Failing,
    /// Whether streams can wait for each other.
    stream_wait: bool,
    /// The number of bytes that steps of other plans give back, where the steps were taken and are not performed yet.
    pub(crate) leaving: u64,
}

/// A number of looks that no plan reaches: `strike` is not called.
pub(crate) const NEVER: u32 = u32::MAX;

impl World {
    pub(crate) fn new(facts: &Facts) -> Self {
        let &Facts { reuse, aliasing, mappings, stream_wait, limit, .. } = facts;
        let pages = Some(PageCaps::new(2 * MIB).with_aliasing(aliasing).with_mappings(mappings));
        let of_device = driver::Facts::new(facts.settings.clone(), facts.streams as u32);
        let device = Device::of(&driver::Facts { reuse, pages, stream_wait, limit, ..of_device });
        let clock = Clock::new(facts.streams, facts.submits);
        let mut scene = Scene::new(clock, reuse, device.sizes.clone(), device.lanes.clone());
        scene.account.holds = facts.settings.record_stream == RecordStream::Hold;
        Self { device, scene, failing: Failing::default(), stream_wait, leaving: 0 }
    }

    /// Returns the next step of a plan, with `strike` called before one look at a shard.
    pub(crate) fn next(
        &mut self,
        plan: &mut Plan,
        looks: &mut u32,
        strike: &mut dyn FnMut(&mut Scene, &mut [Shard]),
    ) -> Step {
        self.tell();
        let Self { device, scene, .. } = self;
        let step = device.next_meddled(plan, looks, &mut |shards| strike(scene, shards));
        self.tell();
        step
    }

    /// Returns the next step of a plan without interference.
    pub(crate) fn next_alone(&mut self, plan: &mut Plan) -> Step {
        self.next(plan, &mut { NEVER }, &mut |_, _| ())
    }

    /// Does the work of [`perform`](Self::perform) without interference.
    pub(crate) fn perform_alone(&mut self, plan: &mut Plan, step: Step, user: usize) -> Option<End> {
        self.perform(plan, step, user, &mut { NEVER }, &mut |_, _| ())
    }

    /// Performs a step and passes the outcome to the plan. Returns the end of the plan if it has ended.
    pub(crate) fn perform(
        &mut self,
        plan: &mut Plan,
        step: Step,
        user: usize,
        looks: &mut u32,
        strike: &mut dyn FnMut(&mut Scene, &mut [Shard]),
    ) -> Option<End> {
        let Lane { stream, shard } = self.device.lanes[user];
        let outcome = match step {
            Step::Grant(grant) => return Some(End::Granted(self.scene.granted(shard, grant, stream))),
            Step::Lend { lender, grant } => return Some(End::Granted(self.scene.granted(lender, grant, stream))),
            Step::Refuse(_) => return Some(End::Refused),
            Step::Done => return Some(End::Done),
            step => self.outcome(step),
        };
        let Self { device, scene, .. } = self;
        device.learn_meddled(plan, outcome, looks, &mut |shards| strike(scene, shards));
        self.tell();
        None
    }

    /// Returns whether the driver fails now.
    fn fails(&mut self) -> bool {
        let now = self.failing.after == Some(0);
        self.failing.after = self.failing.after.and_then(|left| left.checked_sub(1));
        now
    }

    fn failure(&self) -> Outcome {
        if self.failing.refused { Outcome::Refused } else { Outcome::Failed }
    }

    fn outcome(&mut self, step: Step) -> Outcome {
        match step {
            Step::Reserve { shard, slot, bytes } => self.reserve(shard, slot, bytes, false),
            Step::ReserveRange { shard, slot, bytes } => self.reserve(shard, slot, bytes, true),
            // A device may become unable to wait, or to report how far it is.
            Step::Poll(_) | Step::Wait(_) | Step::Synchronize(_) if !self.failing.refused && self.fails() => {
                Outcome::Failed
            }
            Step::Poll(streams) => {
                let clock = &mut self.scene.clock;
                let polled = |&stream| {
                    let (reached, asked) = (clock.done(stream), clock.mark(stream));
                    Polled { stream, reached, asked, open: clock.submits.then_some(asked), closed: None }
                };
                let polled = streams.iter().map(polled).collect();
                if !clock.submits {
                    streams.iter().for_each(|&stream| clock.close(stream));
                }
                Outcome::Polled { streams: polled, time: None }
            }
            Step::Wait(points) => self.wait(&points),
            Step::Synchronize(stream) => {
                let tick = self.scene.clock.mark(stream);
                self.wait(&[Point { stream, tick }])
            }
            Step::StreamWait { stream, points } => {
                assert!(self.stream_wait, "stream {} is to wait for {points:?}, and cannot", stream.0);
                if self.fails() {
                    return self.failure();
                }
                points.iter().for_each(|&point| self.scene.clock.wait(stream, point));
                Outcome::Waits(self.scene.clock.mark(stream))
            }
            Step::Pages(calls) => self.page_calls(&calls),
            Step::Release { shard, slot, .. } => {
                self.scene.account.release((shard, slot), false, &self.scene.clock);
                Outcome::Done
            }
            Step::ReleaseRange { shard, slot } => {
                self.scene.account.release((shard, slot), true, &self.scene.clock);
                Outcome::Done
            }
            Step::Pause { .. } => Outcome::Done,
            step => panic!("{step:?} has no outcome"),
        }
    }

    fn reserve(&mut self, shard: ShardId, slot: Slot, bytes: u64, is_range: bool) -> Outcome {
        if self.fails() {
            return self.failure();
        }
        self.scene.account.reserve((shard, slot), bytes, is_range);
        self.within_limit();
        Outcome::Reserved { address: 0 }
    }

    fn page_calls(&mut self, calls: &[PageCall]) -> Outcome {
        for (done, call) in calls.iter().enumerate() {
            if matches!(call, PageCall::Create { .. } | PageCall::Map { .. }) && self.fails() {
                return Outcome::Stopped { done, refused: self.failing.refused };
            }
            self.scene.account.call(call, &self.scene.clock);
            self.within_limit();
        }
        Outcome::Done
    }

    /// Verifies that no more memory exists than is allowed, not counting what is being given back.
    fn within_limit(&self) {
        // As in PyTorch, the limit is compared with the request, which pages of 20 MiB round up: for each of three
        // plans.
        let rounding = if self.device.coordinator.settings().policy == Policy::Classic(Segments::Expandable) {
            60 * MIB
        } else {
            0
        };
        let there = self.scene.account.reserved().saturating_sub(rounding);
        let most = self.device.coordinator.limit().unwrap_or(u64::MAX);
        assert!(there - self.leaving.min(there) <= most, "{there} bytes are reserved, of which {} leave", self.leaving);
    }

    fn wait(&mut self, points: &[Point]) -> Outcome {
        let clock = &mut self.scene.clock;
        points.iter().for_each(|&point| clock.complete(point));
        let reached = |point: &Point| Point { tick: clock.done(point.stream), ..*point };
        Outcome::Reached(points.iter().map(reached).collect())
    }

    /// Passes to the coordinator what threads report once they have left their shards.
    pub(crate) fn tell(&mut self) {
        for (shard, block, points) in std::mem::take(&mut self.scene.untold) {
            self.device.coordinator.pend(shard, block, points, [0; 2], &mut self.device.shards);
        }
        for shard in std::mem::take(&mut self.scene.unsettled) {
            self.device.coordinator.settle(shard, &mut self.device.shards);
        }
    }

    /// Runs a plan to its end, with `strike` called before one look, and nothing else in between.
    pub(crate) fn run(
        &mut self,
        plan: &mut Plan,
        user: usize,
        looks: &mut u32,
        strike: &mut dyn FnMut(&mut Scene, &mut [Shard]),
    ) -> End {
        for _ in 0..1000 {
            let step = self.next(plan, looks, strike);
            if let Some(end) = self.perform(plan, step, user, looks, strike) {
                return end;
            }
        }
        panic!("a plan without an end: {plan:?}");
    }

    /// Runs a plan to its end without interference.
    pub(crate) fn run_alone(&mut self, plan: &mut Plan, user: usize) -> End {
        self.run(plan, user, &mut { NEVER }, &mut |_, _| ())
    }

    /// Allocates by a hit or by a plan, as the shell does.
    pub(crate) fn allocate(&mut self, shard: usize, bytes: u64) -> Option<u64> {
        if let Some(id) = self.scene.hit(&mut self.device.shards, shard, bytes) {
            self.tell();
            return Some(id);
        }
        let mut plan = self.device.plan(shard, bytes);
        match self.run_alone(&mut plan, shard) {
            End::Granted(id) => Some(id),
            End::Refused | End::Done => None,
        }
    }

    pub(crate) fn free(&mut self, id: u64) {
        self.scene.free(&mut self.device.shards, id);
        self.tell();
    }

    /// Verifies the allocator's own invariants, and its sums against the account.
    pub(crate) fn check(&mut self) {
        self.tell();
        self.device.check();
        assert_eq!(self.device.reserved(), self.scene.account.reserved(), "reserved, against the account");
        let ledger = self.device.ledger();
        let held: u64 = self.scene.live.values().map(|held| held.grant.size).sum();
        assert_eq!(ledger.live_bytes + ledger.rounding_bytes, held, "bytes in the program's hands, in the ledger");
        let live: u64 = self.device.shards.iter_mut().map(Shard::live_blocks).sum();
        assert_eq!(live, self.scene.live.len() as u64, "blocks in the program's hands");
    }

    /// Gives everything back. No memory, no claim and no wait may be left.
    pub(crate) fn drain(&mut self) {
        self.failing = Failing::default();
        for id in self.scene.live.keys().copied().collect::<Vec<_>>() {
            self.free(id);
        }
        self.scene.clock.finish();
        assert!(!self.device.coordinator.is_held(), "plans that ended are said to hold something");
        assert_eq!(self.run_alone(&mut empty_cache(), 0), End::Done);
        assert_eq!(self.device.reserved(), 0, "bytes that are said to be reserved after all is over");
        assert_eq!((self.scene.account.reserved(), self.scene.account.pages()), (0, 0), "reserved after all is over");
        assert_eq!(self.device.coordinator.mappings(), [], "pages that are known after all is over");
        assert_eq!(self.device.coordinator.waiters(), 0, "waits that are outstanding after all is over");
    }
}
