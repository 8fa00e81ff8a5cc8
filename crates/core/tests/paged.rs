//! Operations of other threads during a plan of `paged`: between two of its steps, and between two of its looks at a
//! shard.

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, Settings};
use millpond_core::{
    Coordinator, DeviceFacts, Freed, Grant, Outcome, PageCall, Plan, PoolId, Shard, ShardId, Shards, Sizes, Step,
};

const MIB: u64 = 1 << 20;

/// A block that is held, with the shard that it belongs to and its place there.
#[derive(Clone, Copy, Debug)]
struct Held {
    shard: usize,
    grant: Grant,
}

/// An allocator of three streams whose steps are taken by hand.
struct Device {
    coordinator: Coordinator,
    shards: Vec<Shard>,
    sizes: Sizes,
    /// The ticks that are reported as reached when they are queried, by stream.
    reached: [Tick; 3],
}

impl Device {
    /// Creates a device on which all work is done when it is queried, unless a test says otherwise.
    fn new(growth: Growth, limit: u64) -> Self {
        Self::with(growth, limit, PageCaps::new(2 * MIB), true)
    }

    fn with(growth: Growth, limit: u64, pages: PageCaps, stream_wait: bool) -> Self {
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse: Reuse::InOrder, pages: Some(pages), stream_wait };
        let settings = Settings { policy: Policy::Paged(growth), ..Settings::default() };
        let mut coordinator = Coordinator::new(settings, facts);
        coordinator.set_limit(Some(limit));
        let shards = (0..3).map(|stream| coordinator.open_shard(StreamId(stream), PoolId::default())).collect();
        let sizes = coordinator.sizes().clone();
        Self { coordinator, shards, sizes, reached: [Tick(100); 3] }
    }

    fn plan(&self, shard: usize, bytes: u64) -> Plan {
        Plan::allocate(ShardId(shard as u32), self.sizes.want(bytes).expect("a size that exists"), [0; 2])
    }

    fn next(&mut self, plan: &mut Plan) -> Step {
        self.coordinator.next(plan, &mut self.shards)
    }

    /// Reports to the plan that its step succeeded.
    fn done(&mut self, plan: &mut Plan, step: &Step) {
        let reached = |stream: &StreamId| Point { stream: *stream, tick: self.reached[stream.0 as usize] };
        let outcome = match step {
            Step::Grant(_) | Step::Lend { .. } | Step::Done | Step::Refuse(_) => panic!("{step:?} has no outcome"),
            Step::Reserve { .. } | Step::ReserveRange { .. } => Outcome::Reserved { address: 0 },
            Step::Poll(streams) => Outcome::Reached(streams.iter().map(reached).collect()),
            Step::Wait(points) => Outcome::Reached(points.clone()),
            Step::Synchronize(stream) => Outcome::Reached(vec![reached(stream)]),
            Step::StreamWait { .. } => Outcome::Waits(Tick(50)),
            Step::Pages(_) | Step::Release { .. } | Step::ReleaseRange { .. } | Step::Pause { .. } => Outcome::Done,
        };
        self.learn(plan, outcome);
    }

    fn learn(&mut self, plan: &mut Plan, outcome: Outcome) {
        self.coordinator.learn(plan, outcome, &mut self.shards);
    }

    /// Takes steps up to one for which `stop` holds, which is returned and not performed.
    fn until(&mut self, plan: &mut Plan, stop: impl Fn(&Step) -> bool) -> Step {
        for _ in 0..1000 {
            let step = self.next(plan);
            if stop(&step) || is_end(&step) {
                return step;
            }
            self.done(plan, &step);
        }
        panic!("a plan without an end: {plan:?}");
    }

    /// Runs a plan to its end. Returns the block that it was granted.
    fn finish(&mut self, plan: &mut Plan, shard: usize) -> Option<Held> {
        match self.until(plan, |_| false) {
            Step::Grant(grant) => Some(Held { shard, grant }),
            Step::Lend { lender, grant } => Some(Held { shard: lender.0 as usize, grant }),
            _ => None,
        }
    }

    fn allocate(&mut self, shard: usize, bytes: u64) -> Held {
        let mut plan = self.plan(shard, bytes);
        self.finish(&mut plan, shard).expect("there is room")
    }

    fn free(&mut self, held: Held, tick: u64) {
        let freed = self.shards[held.shard].free(held.grant.block, Tick(tick), 0);
        assert_eq!(freed, Freed::Done { unsettled: false });
    }

    fn reserved(&self) -> u64 {
        self.coordinator.reserved_bytes()
    }
}

fn is_end(step: &Step) -> bool {
    matches!(step, Step::Grant(_) | Step::Lend { .. } | Step::Done | Step::Refuse(_))
}

fn is_pages(step: &Step) -> bool {
    matches!(step, Step::Pages(_))
}

fn overlap(a: &Held, b: &Held) -> bool {
    let (x, y) = (&a.grant, &b.grant);
    let apart = x.offset + x.size <= y.offset || y.offset + y.size <= x.offset;
    (a.shard, x.slot) == (b.shard, y.slot) && !apart
}

/// Shards with an operation that is made just before the first look after `looks` others.
struct Meddled<'a> {
    shards: &'a mut Vec<Shard>,
    looks: &'a mut u32,
    meddle: &'a mut dyn FnMut(&mut Vec<Shard>),
}

impl Shards for Meddled<'_> {
    fn with<R>(&mut self, shard: ShardId, f: impl FnOnce(&mut Shard) -> R) -> R {
        if *self.looks == 0 {
            (self.meddle)(self.shards);
        }
        *self.looks = self.looks.wrapping_sub(1);
        self.shards.with(shard, f)
    }
}

/// Runs a plan for `bytes` on stream 0 once for each look that it takes, with `meddle` done just before that look. Each
/// run must be granted memory that no other block has, and all invariants must hold. Returns the number of looks.
fn at_each_look(
    set_up: impl Fn() -> (Device, u64),
    mut meddle: impl FnMut(&mut Vec<Shard>, &Sizes) -> Option<Held>,
) -> u32 {
    for place in 0.. {
        let (mut device, bytes) = set_up();
        let mut plan = device.plan(0, bytes);
        let sizes = device.sizes.clone();
        let (mut looks, mut taken, mut struck) = (place, None, false);
        let granted = loop {
            let mut strike = |shards: &mut Vec<Shard>| {
                struck = true;
                taken = meddle(shards, &sizes);
            };
            let mut shards = Meddled { shards: &mut device.shards, looks: &mut looks, meddle: &mut strike };
            let step = device.coordinator.next(&mut plan, &mut shards);
            match step {
                Step::Grant(grant) => break Held { shard: 0, grant },
                Step::Lend { lender, grant } => break Held { shard: lender.0 as usize, grant },
                Step::Refuse(report) => panic!("look {place}: refused: {report:?}"),
                step => device.done(&mut plan, &step),
            }
        };
        device.coordinator.check(&mut device.shards);
        if let Some(taken) = taken {
            assert!(!overlap(&taken, &granted), "look {place}: {taken:?} and {granted:?}");
        }
        if !struck {
            return place;
        }
    }
    unreachable!("a plan looks for ever")
}

/// Sets up stream 0 with 20 MiB free before a hole of 20 MiB, and a request for 30 MiB, which takes both.
fn free_block_before_a_hole() -> (Device, u64) {
    let mut device = Device::new(Growth::Balanced, 200 * MIB);
    let blocks: Vec<_> = [20, 20, 20].map(|mib| device.allocate(0, mib * MIB)).into();
    device.free(blocks[1], 1);
    device.finish(&mut Plan::empty_cache([0; 2]), 0);
    device.free(blocks[0], 2);
    device.coordinator.check(&mut device.shards);
    (device, 30 * MIB)
}

#[test]
fn a_free_block_of_the_window_is_taken_by_another_thread() {
    let looks = at_each_look(free_block_before_a_hole, |shards, sizes| {
        let want = sizes.want(16 * MIB)?;
        let grant = shards[0].allocate(&want, 0, Tick(u64::MAX))?;
        Some(Held { shard: 0, grant })
    });
    assert!(looks > 10, "only {looks} looks");
}

/// The rest of the block is taken, and its front is free again: it is the same block, but smaller.
#[test]
fn a_free_block_of_the_window_shrinks() {
    let looks = at_each_look(free_block_before_a_hole, |shards, sizes| {
        let mut take = |mib: u64| shards[0].allocate(&sizes.want(mib * MIB)?, 0, Tick(u64::MAX));
        let (front, rest) = (take(16)?, take(4)?);
        assert_eq!(shards[0].free(front.block, Tick(3), 0), Freed::Done { unsettled: false });
        Some(Held { shard: 0, grant: rest })
    });
    assert!(looks > 10, "only {looks} looks");
}

/// Sets up stream 1 with all that the limit allows, free in two pieces. Stream 0 needs most of it.
fn pages_of_another_stream() -> (Device, u64) {
    pages_of(Device::new(Growth::Tight, 80 * MIB))
}

fn pages_of(mut device: Device) -> (Device, u64) {
    let blocks: Vec<_> = [24, 4, 44].map(|mib| device.allocate(1, mib * MIB)).into();
    device.free(blocks[0], 1);
    device.free(blocks[2], 2);
    device.coordinator.check(&mut device.shards);
    (device, 50 * MIB)
}

#[test]
fn a_page_that_is_to_move_is_taken_by_another_thread() {
    let looks = at_each_look(pages_of_another_stream, |shards, sizes| {
        let want = sizes.want(20 * MIB)?;
        let grant = shards[1].allocate(&want, 0, Tick(u64::MAX))?;
        Some(Held { shard: 1, grant })
    });
    assert!(looks > 10, "only {looks} looks");
}

/// The page is taken, used by work that is still running, and free again, all between two looks. What moves then moves
/// behind the later use.
#[test]
fn a_page_that_is_to_move_is_used_once_more_by_another_thread() {
    at_each_look(pages_of_another_stream, |shards, sizes| {
        let want = sizes.want(44 * MIB)?;
        let grant = shards[1].allocate(&want, 0, Tick(u64::MAX))?;
        assert_eq!(shards[1].free(grant.block, Tick(200), 0), Freed::Done { unsettled: false });
        None
    });
}

#[test]
fn two_plans_want_the_same_pages() {
    let (mut device, bytes) = pages_of_another_stream();
    let (mut first, mut second) = (device.plan(0, bytes), device.plan(2, 20 * MIB));
    let step = device.until(&mut first, is_pages);
    assert!(is_pages(&step), "{step:?}");
    // 26 MiB are left for the second one: 18 on stream 1, and 8 that were never created.
    let other = device.until(&mut second, is_pages);
    let (Step::Pages(calls), Step::Pages(others)) = (&step, &other) else { panic!("{step:?}, {other:?}") };
    let moved = |calls: &[PageCall]| -> Vec<_> {
        calls.iter().filter(|call| matches!(call, PageCall::Map { .. })).map(page_of).collect()
    };
    assert!(moved(calls).iter().all(|page| !moved(others).contains(page)), "{calls:?} and {others:?}");
    device.done(&mut second, &other);
    device.done(&mut first, &step);
    assert!(device.finish(&mut second, 2).is_some() && device.finish(&mut first, 0).is_some());
    device.coordinator.check(&mut device.shards);
}

fn page_of(call: &PageCall) -> millpond_core::PageId {
    match *call {
        PageCall::Create { page, .. }
        | PageCall::Map { page, .. }
        | PageCall::Unmap { page, .. }
        | PageCall::Release { page } => page,
    }
}

/// A plan claims more than it needs, and gives the rest back when it is served. Another plan that finds nothing
/// meanwhile must not be refused.
#[test]
fn what_a_plan_claims_beyond_its_need_is_no_reason_to_refuse_another() {
    let mut device = Device::new(Growth::Tight, 140 * MIB);
    let blocks: Vec<_> = [50, 60, 20].map(|mib| device.allocate(0, mib * MIB)).into();
    let _fixed = device.allocate(1, 10 * MIB);
    device.free(blocks[0], 1);
    device.finish(&mut Plan::empty_cache([0; 2]), 0);
    device.free(blocks[1], 2);
    // There is a hole of 50 MiB before 60 MiB that are free. The first plan claims all of it for 62 MiB.
    let mut first = device.plan(0, 62 * MIB);
    let step = device.until(&mut first, is_pages);
    assert!(is_pages(&step), "{step:?}");
    // The second plan could have what the first will not need.
    let mut second = device.plan(2, 30 * MIB);
    let waits = device.until(&mut second, |step| matches!(step, Step::Pause { .. } | Step::Pages(_)));
    assert!(!is_end(&waits), "{waits:?}");
    device.done(&mut first, &step);
    assert!(device.finish(&mut first, 0).is_some());
    device.done(&mut second, &waits);
    assert!(device.finish(&mut second, 2).is_some());
    device.coordinator.check(&mut device.shards);
}

/// The driver refuses a page while another plan is giving memory back. It is asked again once that is over.
#[test]
fn a_refusal_is_out_of_date_once_another_plan_has_released() {
    let mut device = Device::new(Growth::Balanced, 200 * MIB);
    let old = device.allocate(1, 60 * MIB);
    device.free(old, 1);
    let mut release = Plan::empty_cache([0; 2]);
    let releasing = device.until(&mut release, is_pages);
    assert!(is_pages(&releasing), "{releasing:?}");

    let mut plan = device.plan(0, 30 * MIB);
    let step = device.until(&mut plan, is_pages);
    assert!(is_pages(&step), "{step:?}");
    device.learn(&mut plan, Outcome::Stopped { done: 0, refused: true });
    let pause = device.until(&mut plan, |step| matches!(step, Step::Pause { .. }));
    assert!(matches!(pause, Step::Pause { .. }), "{pause:?}");
    device.done(&mut release, &releasing);
    device.finish(&mut release, 1);
    device.done(&mut plan, &pause);
    assert!(device.finish(&mut plan, 0).is_some(), "refused after everything was released");
    assert_eq!(device.reserved(), 30 * MIB);
}

/// One plan is unmapping a page's old mapping. Another plan moves the page meanwhile, and not back to that place.
#[test]
fn an_old_mapping_is_being_unmapped_while_its_page_is_wanted_back() {
    let mut device = Device::new(Growth::Tight, 40 * MIB);
    let first = device.allocate(0, 40 * MIB);
    device.free(first, 1);
    // All of it moves to stream 1, and its old places on stream 0 are retired.
    let moved = device.allocate(1, 40 * MIB);
    device.free(moved, 2);
    let before = device.coordinator.page_stats();
    assert!(before.shadows > 0, "{before:?}");
    // Everything is to be released, old mappings first. Meanwhile stream 0 requests memory.
    let mut release = Plan::empty_cache([0; 2]);
    let releasing = device.until(&mut release, is_pages);
    let mut plan = device.plan(0, 10 * MIB);
    let pause = device.until(&mut plan, |step| matches!(step, Step::Pause { .. }));
    assert!(matches!(pause, Step::Pause { .. }), "{pause:?}");
    device.done(&mut release, &releasing);
    device.finish(&mut release, 1);
    device.done(&mut plan, &pause);
    assert!(device.finish(&mut plan, 0).is_some());
    let after = device.coordinator.page_stats();
    assert_eq!((after.returned, after.shadows), (before.returned, 0), "{after:?}");
}

/// A range is emptied by one plan, and filled by another before the first gives the range back.
#[test]
fn an_emptied_range_is_used_before_it_is_released() {
    let mut device = Device::new(Growth::Balanced, 200 * MIB);
    let old = device.allocate(0, 60 * MIB);
    device.free(old, 1);
    let mut release = Plan::empty_cache([0; 2]);
    let releasing = device.until(&mut release, is_pages);
    device.done(&mut release, &releasing);
    assert_eq!(device.reserved(), 0);
    let held = device.allocate(0, 20 * MIB);
    let last = device.until(&mut release, |_| false);
    assert!(matches!(last, Step::Done), "{last:?}");
    device.coordinator.check(&mut device.shards);
    device.free(held, 2);
    device.finish(&mut Plan::empty_cache([0; 2]), 0);
    assert_eq!((device.reserved(), device.coordinator.layout(&mut device.shards).len()), (0, 0));
}

/// A plan fails half-way through its calls while another is under way with other pages.
#[test]
fn a_plan_fails_beside_another() {
    for made in 0..6 {
        let (mut device, bytes) = pages_of_another_stream();
        let (mut first, mut second) = (device.plan(0, bytes), device.plan(2, 20 * MIB));
        let step = device.until(&mut first, is_pages);
        let other = device.until(&mut second, is_pages);
        assert!(is_pages(&step) && is_pages(&other), "{step:?}, {other:?}");
        device.learn(&mut first, Outcome::Stopped { done: made, refused: false });
        let end = device.until(&mut first, |_| false);
        assert!(matches!(end, Step::Done), "{made} calls made: {end:?}");
        device.done(&mut second, &other);
        let held = device.finish(&mut second, 2).expect("its pages were its own");
        // All that the first plan had is available to others.
        device.free(held, 3);
        let all = device.allocate(2, 70 * MIB);
        device.coordinator.check(&mut device.shards);
        device.free(all, 4);
    }
}

/// The waits cannot be queued: no page has moved, and nothing is claimed any more.
#[test]
fn a_plan_fails_at_its_waits() {
    let mut busy = Device::new(Growth::Tight, 80 * MIB);
    busy.reached = [Tick::ZERO; 3];
    let (mut device, bytes) = pages_of(busy);
    let mut plan = device.plan(0, bytes);
    let step = device.until(&mut plan, |step| matches!(step, Step::StreamWait { .. }));
    assert!(matches!(step, Step::StreamWait { .. }), "{step:?}");
    device.learn(&mut plan, Outcome::Failed);
    let end = device.until(&mut plan, |_| false);
    assert!(matches!(end, Step::Done), "{end:?}");
    assert_eq!(device.coordinator.page_stats().moved_behind_wait, 0);
    assert!(device.shards[1].allocate(&device.sizes.want(44 * MIB).expect("a size"), 0, Tick(u64::MAX)).is_some());
}

/// A stream that has marked nothing yet has no tick to wait for, so what moved there can move on at once.
#[test]
fn what_came_to_a_stream_without_ticks_moves_on() {
    let mut device = Device::new(Growth::Tight, 40 * MIB);
    let old = device.allocate(1, 40 * MIB);
    device.free(old, 1);
    device.reached = [Tick::ZERO, Tick(1), Tick::ZERO];
    let mut plan = device.plan(0, 40 * MIB);
    let step = device.until(&mut plan, is_pages);
    let Step::Pages(calls) = &step else { panic!("{step:?}") };
    // Half of the pages arrive, and stay there as free memory.
    device.learn(&mut plan, Outcome::Stopped { done: calls.len() / 2, refused: false });
    device.until(&mut plan, |_| false);
    let mut plan = device.plan(2, 40 * MIB);
    let step = device.until(&mut plan, |step| matches!(step, Step::StreamWait { .. } | Step::Wait(_)));
    assert!(matches!(step, Step::Grant(_)), "{step:?}");
}

/// The device has no waits, or cannot queue this one on the stream. No page moves behind a wait then, and the host
/// waits instead.
#[test]
fn no_page_moves_behind_a_wait_that_cannot_be_queued() {
    for stream_wait in [true, false] {
        let mut device = Device::with(Growth::Tight, 40 * MIB, PageCaps::new(2 * MIB), stream_wait);
        device.reached = [Tick::ZERO; 3];
        let old = device.allocate(1, 40 * MIB);
        device.free(old, 1);
        let mut plan = device.plan(0, 40 * MIB);
        let mut asked = 0;
        let points = loop {
            match device.until(&mut plan, |step| matches!(step, Step::StreamWait { .. } | Step::Wait(_))) {
                Step::StreamWait { .. } => {
                    asked += 1;
                    assert_eq!((asked, stream_wait), (1, true), "a wait that cannot be queued is asked for");
                    device.learn(&mut plan, Outcome::Refused);
                }
                Step::Wait(points) => break points,
                step => panic!("{step:?}"),
            }
        };
        assert_eq!(points, [Point { stream: StreamId(1), tick: Tick(1) }]);
        device.learn(&mut plan, Outcome::Reached(points));
        assert!(device.finish(&mut plan, 0).is_some());
    }
}

/// Blocks that waited for the points that a plan waits for are free when the points are reached, before any further
/// step.
#[test]
fn a_wait_frees_at_once_what_waited_for_its_points() {
    let mut device = Device::new(Growth::Tight, 40 * MIB);
    device.reached = [Tick::ZERO; 3];
    let held = device.allocate(0, 40 * MIB);
    device.shards[0].record_stream(held.grant.block, StreamId(1));
    assert!(matches!(device.shards[0].free(held.grant.block, Tick(1), 0), Freed::Pending(_)));
    let point = Point { stream: StreamId(1), tick: Tick(3) };
    device.coordinator.pend(ShardId(0), held.grant.block, [point]);
    let mut plan = device.plan(0, 40 * MIB);
    let step = device.until(&mut plan, |step| matches!(step, Step::Wait(_)));
    assert_eq!(step, Step::Wait(vec![point]));
    device.learn(&mut plan, Outcome::Reached(vec![point]));
    let step = device.next(&mut plan);
    assert!(matches!(step, Step::Grant(_)), "{step:?}");
}

/// Sets up stream 0 with 40 MiB that stream 1 had before. They are still mapped where stream 1 used them, and it gets
/// no other addresses.
fn left_behind(address_bytes: u64) -> (Device, Held) {
    let pages = PageCaps { address_bytes, ..PageCaps::new(2 * MIB) };
    let mut device = Device::with(Growth::Tight, 80 * MIB, pages, true);
    let old = device.allocate(1, 40 * MIB);
    device.free(old, 1);
    let moved = device.allocate(0, 40 * MIB);
    assert_eq!(device.reserved(), 40 * MIB, "no page was created for it");
    (device, moved)
}

/// A plan unmaps an old mapping. Another plan, which gives back all that is cached, does not release that page.
#[test]
fn a_page_whose_old_mapping_is_being_unmapped_stays() {
    let (mut device, moved) = left_behind(80 * MIB);
    let mut plan = device.plan(1, 40 * MIB);
    let step = device.until(&mut plan, is_pages);
    let unmaps = matches!(&step, Step::Pages(calls) if matches!(calls[0], PageCall::Unmap { .. }));
    assert!(unmaps, "{step:?}");
    device.free(moved, 2);
    let mut release = Plan::empty_cache([0; 2]);
    let end = device.until(&mut release, is_pages);
    assert!(matches!(end, Step::Done), "{end:?}");
    device.done(&mut plan, &step);
    assert!(device.finish(&mut plan, 1).is_some());
    device.coordinator.check(&mut device.shards);
}

/// A page is being released, and unmapped at its former place. Another plan that needs those addresses waits.
#[test]
fn addresses_that_are_being_unmapped_are_not_unmapped_again() {
    let (mut device, moved) = left_behind(80 * MIB);
    device.free(moved, 2);
    let mut release = Plan::empty_cache([0; 2]);
    let unmaps = device.until(&mut release, is_pages);
    let mut plan = device.plan(1, 40 * MIB);
    let step = device.until(&mut plan, |step| is_pages(step) || matches!(step, Step::Pause { .. }));
    assert!(matches!(step, Step::Pause { .. }), "{step:?}");
    device.done(&mut release, &unmaps);
    device.until(&mut release, |_| false);
    device.done(&mut plan, &step);
    assert!(device.finish(&mut plan, 1).is_some());
    device.coordinator.check(&mut device.shards);
}

/// The pages of a stream were used up to different ticks. The plan waits for the first tick, which suffices.
#[test]
fn the_oldest_point_of_a_stream_is_waited_for_first() {
    for ticks in [[3, 9], [9, 3]] {
        let mut device = Device::with(Growth::Tight, 40 * MIB, PageCaps::new(2 * MIB), false);
        device.reached = [Tick::ZERO; 3];
        let [low, _between, high] = [16, 8, 16].map(|mib| device.allocate(1, mib * MIB));
        device.free(low, ticks[0]);
        device.free(high, ticks[1]);
        let mut plan = device.plan(0, 16 * MIB);
        let step = device.until(&mut plan, |step| matches!(step, Step::Wait(_)));
        assert_eq!(step, Step::Wait(vec![Point { stream: StreamId(1), tick: Tick(3) }]));
        device.done(&mut plan, &step);
        assert!(device.finish(&mut plan, 0).is_some());
    }
}

/// A plan was to create a part of what it needs, and fails before it does. Other plans may then create that part.
#[test]
fn what_an_abandoned_plan_did_not_create_counts_no_more() {
    let mut device = Device::new(Growth::Tight, 60 * MIB);
    device.reached = [Tick::ZERO; 3];
    let old = device.allocate(1, 40 * MIB);
    device.free(old, 1);
    let mut plan = device.plan(0, 50 * MIB);
    let step = device.until(&mut plan, |step| matches!(step, Step::StreamWait { .. }));
    assert!(matches!(step, Step::StreamWait { .. }), "{step:?}");
    device.learn(&mut plan, Outcome::Failed);
    device.until(&mut plan, |_| false);
    device.reached = [Tick(100); 3];
    assert_eq!(device.allocate(2, 60 * MIB).grant.size, 60 * MIB);
    assert_eq!(device.reserved(), 60 * MIB);
}

/// A plan was to unmap old mappings, and fails before it does. They stay, and the next plan unmaps them.
#[test]
fn old_mappings_stay_where_a_plan_fails_before_it_unmaps_them() {
    let (mut device, _moved) = left_behind(120 * MIB);
    let other = device.allocate(2, 40 * MIB);
    device.free(other, 200);
    let mut plan = device.plan(1, 40 * MIB);
    let step = device.until(&mut plan, |step| matches!(step, Step::StreamWait { .. }));
    assert!(matches!(step, Step::StreamWait { .. }), "{step:?}");
    device.learn(&mut plan, Outcome::Failed);
    device.until(&mut plan, |_| false);
    device.coordinator.check(&mut device.shards);
    let held = device.allocate(1, 40 * MIB);
    assert_eq!((held.shard, held.grant.size), (1, 40 * MIB));
    assert_eq!(device.coordinator.page_stats().unmapped, 20, "pages of 2 MiB");
}
