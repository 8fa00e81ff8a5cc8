//! An allocator under `paged` whose steps are taken by hand.

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, Settings};
use millpond_core::{
    Coordinator, DeviceFacts, Freed, Grant, Outcome, PageCall, PageId, Place, Plan, PoolId, Shard, ShardId, Sizes, Step,
};

pub(crate) const MIB: u64 = 1 << 20;

/// The last tick of each stream that there is when it is asked how far it is: behind all that a test has freed by then.
pub(crate) const ASKED: u64 = 1 << 40;

/// A block that is held, with the shard that it belongs to and its place there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) shard: usize,
    pub(crate) grant: Grant,
}

/// An allocator of three streams whose steps are taken by hand.
pub(crate) struct Device {
    pub(crate) coordinator: Coordinator,
    pub(crate) shards: Vec<Shard>,
    pub(crate) sizes: Sizes,
    /// The ticks that are reported as reached when they are queried, by stream.
    pub(crate) reached: [Tick; 3],
    /// The bytes that the device's budget leaves, for plans that ask.
    pub(crate) left: Option<u64>,
    /// The time that is told with a poll, if any is.
    pub(crate) time: Option<u64>,
    /// The last tick of each stream that is told with a poll; `u64::MAX` where the device does not tell its ticks.
    pub(crate) asked: u64,
    /// The steps that were taken since a test forgot them.
    pub(crate) steps: Vec<Step>,
}

impl Device {
    /// Creates a device on which all work is done when it is queried, unless a test says otherwise.
    pub(crate) fn new(growth: Growth, limit: u64) -> Self {
        Self::with(growth, limit, PageCaps::new(2 * MIB), true)
    }

    pub(crate) fn with(growth: Growth, limit: u64, pages: PageCaps, stream_wait: bool) -> Self {
        Self::under(Policy::paged(growth), limit, pages, stream_wait)
    }

    /// Creates a device with a slack of its own.
    pub(crate) fn with_slack(growth: Growth, slack: f64) -> Self {
        Self::under(Policy::Paged { growth, slack }, 1 << 30, PageCaps::new(2 * MIB), true)
    }

    pub(crate) fn under(policy: Policy, limit: u64, pages: PageCaps, stream_wait: bool) -> Self {
        Self::by(Settings { policy, ..Settings::default() }, limit, pages, stream_wait)
    }

    /// Creates a device with settings of its own.
    pub(crate) fn by(settings: Settings, limit: u64, pages: PageCaps, stream_wait: bool) -> Self {
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse: Reuse::InOrder, pages: Some(pages), stream_wait };
        let mut coordinator = Coordinator::new(settings, facts);
        coordinator.set_limit(Some(limit));
        let shards = (0..3).map(|stream| coordinator.open_shard(StreamId(stream), PoolId::default())).collect();
        let sizes = coordinator.sizes().clone();
        Self {
            coordinator,
            shards,
            sizes,
            reached: [Tick(100); 3],
            left: None,
            time: None,
            asked: ASKED,
            steps: Vec::new(),
        }
    }

    pub(crate) fn plan(&self, shard: usize, bytes: u64) -> Plan {
        Plan::allocate(ShardId(shard as u32), self.sizes.want(bytes).expect("a size that exists"), [0; 2])
    }

    pub(crate) fn next(&mut self, plan: &mut Plan) -> Step {
        let step = self.coordinator.next(plan, &mut self.shards);
        self.steps.push(step.clone());
        step
    }

    /// Reports to the plan that its step succeeded.
    pub(crate) fn done(&mut self, plan: &mut Plan, step: &Step) {
        let reached = |stream: &StreamId| Point { stream: *stream, tick: self.reached[stream.0 as usize] };
        let outcome = match step {
            Step::Grant(_) | Step::Lend { .. } | Step::Done | Step::Refuse(_) => panic!("{step:?} has no outcome"),
            Step::Reserve { .. } | Step::ReserveRange { .. } => Outcome::Reserved { address: 0 },
            Step::Poll(streams) => {
                let reached = streams.iter().map(reached).collect();
                let asked = streams.iter().map(|stream| point(stream.0, self.asked)).collect();
                Outcome::Polled { reached, open: Vec::new(), closed: Vec::new(), asked, time: self.time }
            }
            Step::Budget => Outcome::Left(self.left),
            Step::Wait(points) => Outcome::Reached(points.clone()),
            Step::Synchronize(stream) => Outcome::Reached(vec![reached(stream)]),
            Step::StreamWait { .. } => Outcome::Waits(Tick(50)),
            Step::Pages(_) | Step::Release { .. } | Step::ReleaseRange { .. } | Step::Pause { .. } => Outcome::Done,
        };
        self.learn(plan, outcome);
    }

    pub(crate) fn learn(&mut self, plan: &mut Plan, outcome: Outcome) {
        self.coordinator.learn(plan, outcome, &mut self.shards);
    }

    /// Takes steps up to one for which `stop` holds, which is returned and not performed.
    pub(crate) fn until(&mut self, plan: &mut Plan, stop: impl Fn(&Step) -> bool) -> Step {
        for _ in 0..1000 {
            let step = self.next(plan);
            if stop(&step) || step.is_end() {
                return step;
            }
            self.done(plan, &step);
        }
        panic!("a plan without an end: {plan:?}");
    }

    /// Takes steps up to one that has pages mapped, unmapped or released.
    ///
    /// # Panics
    ///
    /// If the plan ends without one.
    pub(crate) fn until_calls(&mut self, plan: &mut Plan) -> (Step, Vec<PageCall>) {
        let step = self.until(plan, is_pages);
        let Step::Pages(calls) = &step else { panic!("{step:?}") };
        (step.clone(), calls.clone())
    }

    /// Takes steps up to one for which `stop` holds, and tells the plan then that the driver fails. It has to end.
    pub(crate) fn fail_at(&mut self, plan: &mut Plan, stop: impl Fn(&Step) -> bool, outcome: Outcome) {
        let step = self.until(plan, &stop);
        assert!(stop(&step), "{step:?}");
        self.learn(plan, outcome);
        assert_eq!(self.until(plan, |_| false), Step::Done);
        self.check();
    }

    /// Runs a plan to its end. Returns the block that it was granted.
    pub(crate) fn finish(&mut self, plan: &mut Plan, shard: usize) -> Option<Held> {
        let held = match self.until(plan, |_| false) {
            Step::Grant(grant) => Some(Held { shard, grant }),
            Step::Lend { lender, grant } => Some(Held { shard: lender.0 as usize, grant }),
            _ => None,
        };
        self.check();
        held
    }

    /// Makes a request that misses.
    pub(crate) fn try_allocate(&mut self, shard: usize, bytes: u64) -> Option<Held> {
        let mut plan = self.plan(shard, bytes);
        self.finish(&mut plan, shard)
    }

    pub(crate) fn allocate(&mut self, shard: usize, bytes: u64) -> Held {
        self.try_allocate(shard, bytes).expect("there is room")
    }

    /// Makes the same request again, which must need no driver call.
    pub(crate) fn allocate_at_no_cost(&mut self, shard: usize, bytes: u64) -> Held {
        self.steps.clear();
        let held = self.allocate(shard, bytes);
        assert!(!self.steps.iter().any(|step| is_pages(step) || is_reserve(step)), "{:?}", self.steps);
        held
    }

    /// Makes a request of a stream that finds free memory at home.
    pub(crate) fn hit(&mut self, shard: usize, bytes: u64) -> Option<Held> {
        let want = self.sizes.want(bytes).expect("a size that exists");
        let grant = self.shards[shard].allocate(&want, 0, Tick(u64::MAX))?;
        Some(Held { shard, grant })
    }

    /// Frees a block. `tick` covers its use on each stream that it is used on.
    pub(crate) fn free(&mut self, held: Held, tick: u64) {
        self.free_unchecked(held, tick);
        self.check();
    }

    /// Does the work of [`free`](Self::free) while a plan is under way, whose claims the checks do not know.
    pub(crate) fn free_unchecked(&mut self, held: Held, tick: u64) {
        match self.shards[held.shard].free(held.grant.block, Tick(tick), 0) {
            Freed::Pending(uses) => {
                let points: Vec<_> = uses.streams.iter().map(|&stream| point(stream.0, tick)).collect();
                self.coordinator.pend(ShardId(held.shard as u32), held.grant.block, points, [0; 2], &mut self.shards);
                self.poll();
            }
            freed => assert_eq!(freed, Freed::Done { unsettled: false }),
        }
    }

    /// Has the coordinator learn how far all streams are.
    pub(crate) fn poll(&mut self) {
        for (stream, &tick) in self.reached.iter().enumerate() {
            self.coordinator.note_reached(StreamId(stream as u32), tick);
        }
        self.coordinator.retire_ready([0; 2], &mut self.shards);
    }

    /// Gives back all that is cached, and returns the bytes that stay reserved.
    pub(crate) fn empty(&mut self) -> u64 {
        let mut plan = Plan::empty_cache([0; 2]);
        assert!(self.finish(&mut plan, 0).is_none());
        self.reserved()
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.coordinator.reserved_bytes()
    }

    /// Returns the number of mappings of pages in windows.
    pub(crate) fn in_windows(&self) -> u64 {
        self.coordinator.page_stats().shadows
    }

    pub(crate) fn check(&mut self) {
        self.coordinator.check(&mut self.shards);
    }
}

pub(crate) fn point(stream: u32, tick: u64) -> Point {
    Point { stream: StreamId(stream), tick: Tick(tick) }
}

pub(crate) fn is_pages(step: &Step) -> bool {
    matches!(step, Step::Pages(_))
}

pub(crate) fn is_reserve(step: &Step) -> bool {
    matches!(step, Step::Reserve { .. } | Step::ReserveRange { .. })
}

pub(crate) fn is_stream_wait(step: &Step) -> bool {
    matches!(step, Step::StreamWait { .. })
}

pub(crate) fn is_pause(step: &Step) -> bool {
    matches!(step, Step::Pause { .. })
}

pub(crate) fn overlap(a: &Held, b: &Held) -> bool {
    let (x, y) = (&a.grant, &b.grant);
    let apart = x.offset + x.size <= y.offset || y.offset + y.size <= x.offset;
    (a.shard, x.slot) == (b.shard, y.slot) && !apart
}

/// Returns the pages that calls map.
pub(crate) fn mapped(calls: &[PageCall]) -> Vec<PageId> {
    calls.iter().filter_map(|call| if let PageCall::Map { page, .. } = *call { Some(page) } else { None }).collect()
}

/// Returns the pages that calls unmap, with the places.
pub(crate) fn unmapped(calls: &[PageCall]) -> Vec<(PageId, Place)> {
    let unmapped = |call: &PageCall| match *call {
        PageCall::Unmap { page, at } => Some((page, at)),
        _ => None,
    };
    calls.iter().filter_map(unmapped).collect()
}

/// Returns the pages that calls release.
pub(crate) fn released(calls: &[PageCall]) -> Vec<PageId> {
    calls.iter().filter_map(|call| if let PageCall::Release { page } = *call { Some(page) } else { None }).collect()
}

/// Sets up a stream with blocks of these lengths in MiB, one behind the other, of which every other one is free,
/// beginning with the first. They are all that the limit allows. Returns the blocks between them.
pub(crate) fn with_gaps(growth: Growth, shard: usize, mib: &[u64]) -> (Device, Vec<Held>) {
    let limit = mib.iter().sum::<u64>() * MIB;
    gaps_on(Device::new(growth, limit), shard, mib)
}

/// Does the work of [`with_gaps`] on a device.
pub(crate) fn gaps_on(mut device: Device, shard: usize, mib: &[u64]) -> (Device, Vec<Held>) {
    let blocks: Vec<_> = mib.iter().map(|mib| device.allocate(shard, mib * MIB)).collect();
    let mut between = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        if at % 2 == 0 { device.free(block, 1) } else { between.push(block) }
    }
    (device, between)
}
