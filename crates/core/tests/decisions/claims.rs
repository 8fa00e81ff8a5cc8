//! What a plan has claimed or asked for comes back: when it is given up, refused or served.

use millpond_backend::{PageCaps, Point, Reuse, StreamId, Tick};
use millpond_core::settings::{Growth, Policy, Segments, Settings};
use millpond_core::{
    Coordinator, DeviceFacts, Freed, Grant, LastUse, Outcome, PageCall, PageId, Plan, PoolId, Shard, ShardId, Slot,
    Step,
};

const MIB: u64 = 1 << 20;
const PLAIN: Policy = Policy::Classic(Segments::Plain);
const EXPANDABLE: Policy = Policy::Classic(Segments::Expandable);
const TIGHT: Policy = Policy::paged(Growth::Tight);

/// An allocator of two streams whose steps are taken by hand.
struct Device {
    coordinator: Coordinator,
    shards: Vec<Shard>,
    /// The tick that both streams have reached when they are asked.
    reached: Tick,
}

impl Device {
    fn new(policy: Policy, reuse: Reuse, limit: u64) -> Self {
        let pages = Some(PageCaps::new(2 * MIB));
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse, pages, stream_wait: true };
        let mut coordinator = Coordinator::new(Settings { policy, ..Settings::default() }, facts);
        coordinator.set_limit(Some(limit));
        let shards = (0..2).map(|stream| coordinator.open_shard(StreamId(stream), PoolId::default())).collect();
        Self { coordinator, shards, reached: Tick(100) }
    }

    fn plan(&self, shard: u32, bytes: u64) -> Plan {
        Plan::allocate(ShardId(shard), self.coordinator.sizes().want(bytes).expect("a size"), [0; 2])
    }

    fn next(&mut self, plan: &mut Plan) -> Step {
        self.coordinator.next(plan, &mut self.shards)
    }

    fn learn(&mut self, plan: &mut Plan, outcome: Outcome) {
        self.coordinator.learn(plan, outcome, &mut self.shards);
    }

    /// Tells the plan that its step succeeded.
    fn done(&mut self, plan: &mut Plan, step: &Step) {
        let at = |stream: StreamId| Point { stream, tick: self.reached };
        let outcome = match step {
            Step::Reserve { .. } | Step::ReserveRange { .. } => Outcome::Reserved { address: 0 },
            Step::Poll(streams) => Outcome::Reached(streams.iter().map(|&stream| at(stream)).collect()),
            Step::Wait(points) => Outcome::Reached(points.clone()),
            Step::Synchronize(stream) => Outcome::Reached(vec![at(*stream)]),
            Step::StreamWait { .. } => Outcome::Waits(Tick(50)),
            _ => Outcome::Done,
        };
        self.learn(plan, outcome);
    }

    /// Takes steps, all of which succeed, up to one for which `stop` holds, or the end. That step is returned and not
    /// performed.
    fn until(&mut self, plan: &mut Plan, stop: impl Fn(&Step) -> bool) -> Step {
        for _ in 0..1000 {
            let step = self.next(plan);
            if stop(&step) || step.is_end() {
                return step;
            }
            self.done(plan, &step);
        }
        panic!("a plan without an end: {plan:?}");
    }

    /// Ends a plan before its time, and takes the steps that undo what it has done.
    fn give_up(&mut self, plan: &mut Plan) {
        self.coordinator.abandon(plan, &mut self.shards);
        assert_eq!(self.until(plan, |step| !matches!(step, Step::Pages(_))), Step::Done);
        self.coordinator.check(&mut self.shards);
    }

    fn allocate(&mut self, shard: u32, bytes: u64) -> Grant {
        let mut plan = self.plan(shard, bytes);
        match self.until(&mut plan, |_| false) {
            Step::Grant(grant) | Step::Lend { grant, .. } => grant,
            step => panic!("{bytes} bytes for shard {shard}: {step:?}"),
        }
    }

    fn hit(&mut self, shard: u32, bytes: u64) -> Option<Grant> {
        let want = self.coordinator.sizes().want(bytes).expect("a size");
        self.shards[shard as usize].allocate(&want, 0, Tick(u64::MAX))
    }

    fn free(&mut self, shard: u32, grant: &Grant, tick: u64) -> Freed {
        self.shards[shard as usize].free(grant.block, Tick(tick), 0)
    }

    /// Releases everything cached, and returns the bytes that stay reserved.
    fn empty(&mut self) -> u64 {
        assert_eq!(self.until(&mut Plan::empty_cache([0; 2]), |_| false), Step::Done);
        self.coordinator.check(&mut self.shards);
        self.coordinator.reserved_bytes()
    }
}

fn is_pages(step: &Step) -> bool {
    matches!(step, Step::Pages(_))
}

/// Returns the places that are asked for until the request is refused, when the driver refuses each.
fn refused(device: &mut Device, bytes: u64) -> Vec<Slot> {
    let (mut plan, mut slots) = (device.plan(0, bytes), Vec::new());
    loop {
        match device.until(&mut plan, |step| matches!(step, Step::Reserve { .. } | Step::ReserveRange { .. })) {
            Step::Reserve { slot, .. } | Step::ReserveRange { slot, .. } => slots.push(slot),
            Step::Refuse(_) => return slots,
            step => panic!("{step:?}"),
        }
        device.learn(&mut plan, Outcome::Refused);
    }
}

/// What the driver refused counts against the limit no longer, and its place is used again.
#[test]
fn a_refused_request_leaves_nothing_behind() {
    for policy in [PLAIN, EXPANDABLE, TIGHT] {
        let mut device = Device::new(policy, Reuse::InOrder, 40 * MIB);
        let slots = refused(&mut device, 40 * MIB);
        assert!(!slots.is_empty() && slots.iter().all(|slot| *slot == slots[0]), "{policy:?}: {slots:?}");
        let held = device.allocate(0, 40 * MIB);
        assert_eq!((held.slot, device.coordinator.reserved_bytes()), (slots[0], 40 * MIB), "{policy:?}");
    }
}

#[test]
fn the_place_of_a_segment_that_is_gone_is_used_again() {
    for policy in [PLAIN, EXPANDABLE] {
        let mut device = Device::new(policy, Reuse::InOrder, 40 * MIB);
        let first = device.allocate(0, 40 * MIB);
        device.free(0, &first, 5);
        assert_eq!(device.empty(), 0);
        assert_eq!(device.allocate(0, 40 * MIB).slot, first.slot, "{policy:?}");
    }
}

/// The driver refuses pages after some of them were mapped.
#[test]
fn refused_pages_of_an_expandable_segment_count_no_more() {
    for made in 0..4 {
        let mut device = Device::new(EXPANDABLE, Reuse::InOrder, 60 * MIB);
        let mut plan = device.plan(0, 60 * MIB);
        while is_pages(&device.until(&mut plan, is_pages)) {
            device.learn(&mut plan, Outcome::Stopped { done: made, refused: true });
            // What was made is undone, a step that cannot fail.
            if made > 0 {
                let undo = device.next(&mut plan);
                assert!(is_pages(&undo), "{undo:?}");
                device.done(&mut plan, &undo);
            }
            device.coordinator.check(&mut device.shards);
            assert_eq!((device.coordinator.reserved_bytes(), device.coordinator.mappings()), (0, vec![]));
        }
        assert_eq!(device.allocate(0, 60 * MIB).size, 60 * MIB, "after {made} calls");
    }
}

/// A free block was to become longer, and the driver fails.
#[test]
fn a_block_that_was_to_become_longer_is_free_once_that_fails() {
    let mut device = Device::new(EXPANDABLE, Reuse::InOrder, 200 * MIB);
    let held = device.allocate(0, 20 * MIB);
    device.free(0, &held, 5);
    let mut plan = device.plan(0, 40 * MIB);
    assert!(is_pages(&device.until(&mut plan, is_pages)));
    assert_eq!(device.hit(0, 20 * MIB), None, "the plan has claimed it");
    device.learn(&mut plan, Outcome::Stopped { done: 0, refused: false });
    assert_eq!(device.next(&mut plan), Step::Done);
    assert!(device.hit(0, 20 * MIB).is_some());
}

/// Of two plans that make the same segment longer, one takes what the other would need next. That one begins anew.
#[test]
fn an_extension_that_begins_anew_gives_its_claim_back() {
    let mut device = Device::new(EXPANDABLE, Reuse::InOrder, 400 * MIB);
    let [low, hole, high] = [20, 20, 20].map(|mib| device.allocate(0, mib * MIB));
    device.free(0, &hole, 5);
    assert_eq!(device.empty(), 40 * MIB);
    device.free(0, &low, 5);
    device.free(0, &high, 5);
    let (mut first, mut second) = (device.plan(0, 80 * MIB), device.plan(0, 40 * MIB));
    let step = device.until(&mut first, is_pages);
    let other = device.until(&mut second, is_pages);
    assert!(is_pages(&step) && is_pages(&other), "{step:?}, {other:?}");
    device.done(&mut first, &step);
    let granted = device.until(&mut first, |_| false);
    assert!(matches!(&granted, Step::Grant(grant) if grant.offset > high.offset), "{granted:?}");
    device.done(&mut second, &other);
    assert!(matches!(device.until(&mut second, |_| false), Step::Grant(_)));
    let begun = device.hit(0, 40 * MIB).map(|grant| grant.offset);
    assert_eq!(begun, Some(low.offset), "what the first plan had begun with is free");
}

/// Pages in the middle of a segment are given back. The new ones at the same addresses were never used.
#[test]
fn addresses_whose_pages_were_given_back_have_no_last_use() {
    let mut device = Device::new(EXPANDABLE, Reuse::InOrder, 400 * MIB);
    let [held, _behind] = [20, 20].map(|mib| device.allocate(0, mib * MIB));
    device.free(0, &held, 5);
    assert_eq!(device.empty(), 20 * MIB);
    let again = device.allocate(0, 20 * MIB);
    assert_eq!((again.slot, again.offset, again.last_use), (held.slot, held.offset, LastUse::NEVER));
}

/// A plan ends between the driver's answer and the grant.
#[test]
fn what_a_plan_was_to_hand_out_is_free_once_it_is_given_up() {
    for policy in [PLAIN, EXPANDABLE, TIGHT] {
        let mut device = Device::new(policy, Reuse::InOrder, 40 * MIB);
        let mut plan = device.plan(0, 40 * MIB);
        let last = |step: &Step| matches!(step, Step::Reserve { .. } | Step::Pages(_));
        let step = device.until(&mut plan, last);
        assert!(last(&step), "{step:?}");
        device.done(&mut plan, &step);
        device.give_up(&mut plan);
        assert!(device.hit(0, 40 * MIB).is_some(), "{policy:?}");
    }
}

/// A plan ends while what it has mapped is being undone. Without that it would go on with its ladder.
#[test]
fn a_plan_that_is_given_up_is_over_once_its_pages_are_undone() {
    let mut device = Device::new(EXPANDABLE, Reuse::InOrder, 60 * MIB);
    let mut plan = device.plan(0, 60 * MIB);
    assert!(is_pages(&device.until(&mut plan, is_pages)));
    device.learn(&mut plan, Outcome::Stopped { done: 3, refused: true });
    device.give_up(&mut plan);
    assert_eq!(device.coordinator.reserved_bytes(), 0);
    assert_eq!(device.allocate(0, 60 * MIB).size, 60 * MIB);
}

/// A plan ends when its waits are queued, before anything is lent.
#[test]
fn a_block_that_was_to_be_lent_is_free_once_its_plan_is_given_up() {
    let mut device = Device::new(TIGHT, Reuse::InOrder, 40 * MIB);
    device.reached = Tick::ZERO;
    let held = device.allocate(1, 40 * MIB);
    device.free(1, &held, 5);
    let mut plan = device.plan(0, 40 * MIB);
    let step = device.until(&mut plan, |step| matches!(step, Step::StreamWait { .. }));
    device.done(&mut plan, &step);
    device.give_up(&mut plan);
    assert!(device.hit(1, 40 * MIB).is_some());
}

/// A plan ends when its waits are queued, or when it has mapped the window. The memory is free at home, and what is
/// mapped serves the next request.
#[test]
fn gathered_memory_is_free_once_its_plan_is_given_up() {
    for maps in [false, true] {
        let mut device = Device::new(TIGHT, Reuse::InOrder, 44 * MIB);
        device.reached = Tick::ZERO;
        let [low, _fixed, high] = [20, 4, 20].map(|mib| device.allocate(1, mib * MIB));
        device.free(1, &low, 5);
        device.free(1, &high, 5);
        let mut plan = device.plan(0, 40 * MIB);
        let last = |step: &Step| if maps { is_pages(step) } else { matches!(step, Step::StreamWait { .. }) };
        let step = device.until(&mut plan, last);
        assert!(last(&step), "{step:?}");
        device.done(&mut plan, &step);
        device.give_up(&mut plan);
        assert_eq!(device.coordinator.page_stats().shadows, if maps { 20 } else { 0 });
        let again = [device.hit(1, 20 * MIB), device.hit(1, 20 * MIB)].map(|grant| grant.expect("it is free"));
        again.iter().for_each(|grant| assert_eq!(device.free(1, grant, 5), Freed::Done { unsettled: false }));
        device.allocate(0, 40 * MIB);
        assert_eq!(device.coordinator.page_stats().returned, u64::from(maps));
        device.coordinator.check(&mut device.shards);
    }
}

/// A plan has claimed all memory, and its waits are being queued. Another plan that finds nothing is not refused: it
/// has the memory once the first one has failed.
#[test]
fn no_request_is_refused_while_a_plan_may_give_its_claims_back() {
    let mut device = Device::new(TIGHT, Reuse::InOrder, 40 * MIB);
    device.reached = Tick::ZERO;
    let held = device.allocate(1, 40 * MIB);
    device.free(1, &held, 5);
    let (mut first, mut second) = (device.plan(0, 40 * MIB), device.plan(1, 40 * MIB));
    let waits = device.until(&mut first, |step| matches!(step, Step::StreamWait { .. }));
    assert!(matches!(waits, Step::StreamWait { .. }), "{waits:?}");
    let pause = device.until(&mut second, |step| matches!(step, Step::Pause { .. }));
    assert!(matches!(pause, Step::Pause { .. }), "{pause:?}");
    device.learn(&mut first, Outcome::Failed);
    assert_eq!(device.next(&mut first), Step::Done);
    device.done(&mut second, &pause);
    assert!(matches!(device.until(&mut second, |_| false), Step::Grant(_)));
}

/// A sweep ends while it waits, because the driver fails or the plan is given up.
#[test]
fn what_was_to_be_released_is_free_once_the_plan_ends() {
    for fails in [false, true] {
        let mut device = Device::new(PLAIN, Reuse::InOrder, 40 * MIB);
        let held = device.allocate(0, 40 * MIB);
        device.free(0, &held, 5);
        let mut plan = Plan::empty_cache([0; 2]);
        let step = device.until(&mut plan, |step| matches!(step, Step::Wait(_)));
        assert!(matches!(step, Step::Wait(_)), "{step:?}");
        assert_eq!(device.hit(0, 40 * MIB), None, "the sweep has claimed it");
        if fails {
            device.learn(&mut plan, Outcome::Failed);
        } else {
            device.done(&mut plan, &step);
            device.coordinator.abandon(&mut plan, &mut device.shards);
        }
        assert_eq!(device.next(&mut plan), Step::Done);
        assert!(device.hit(0, 40 * MIB).is_some(), "fails: {fails}");
    }
}

/// Has a plan fail when its first page is created and not mapped. Returns the page, which is spare then.
fn spare(device: &mut Device) -> PageId {
    let mut plan = device.plan(0, 20 * MIB);
    let step = device.until(&mut plan, is_pages);
    let Step::Pages(calls) = &step else { panic!("{step:?}") };
    let PageCall::Create { page, .. } = calls[0] else { panic!("{calls:?}") };
    device.learn(&mut plan, Outcome::Stopped { done: 1, refused: false });
    assert_eq!(device.next(&mut plan), Step::Done);
    device.coordinator.check(&mut device.shards);
    page
}

fn maps(step: &Step, page: PageId) -> bool {
    let is_it = |call: &PageCall| matches!(call, PageCall::Map { page: mapped, .. } if *mapped == page);
    matches!(step, Step::Pages(calls) if calls.iter().any(is_it))
}

#[test]
fn spare_pages_go_back_with_everything_cached() {
    let mut device = Device::new(TIGHT, Reuse::InOrder, 40 * MIB);
    spare(&mut device);
    assert_eq!(device.coordinator.reserved_bytes(), 2 * MIB);
    assert_eq!((device.empty(), device.coordinator.page_stats().pages), (0, 0));
}

#[test]
fn a_spare_page_stays_spare_where_its_plan_fails() {
    let mut device = Device::new(TIGHT, Reuse::InOrder, 40 * MIB);
    let page = spare(&mut device);
    let mut plan = device.plan(0, 20 * MIB);
    let step = device.until(&mut plan, is_pages);
    assert!(maps(&step, page), "{step:?}");
    device.learn(&mut plan, Outcome::Stopped { done: 0, refused: false });
    assert_eq!(device.next(&mut plan), Step::Done);
    device.coordinator.check(&mut device.shards);
    let mut again = device.plan(0, 20 * MIB);
    let step = device.until(&mut again, is_pages);
    assert!(maps(&step, page), "{step:?}");
}

#[test]
fn a_spare_page_is_for_one_plan() {
    let mut device = Device::new(TIGHT, Reuse::InOrder, 80 * MIB);
    let page = spare(&mut device);
    let (mut first, mut second) = (device.plan(0, 20 * MIB), device.plan(1, 20 * MIB));
    let (step, other) = (device.until(&mut first, is_pages), device.until(&mut second, is_pages));
    assert!(maps(&step, page) && is_pages(&other) && !maps(&other, page), "{step:?}, {other:?}");
}

/// Memory of the large side serves small requests of its stream, and its bytes count on the small side then. They are
/// on the large side again once nothing small is left there.
#[test]
fn the_bytes_of_a_slab_are_on_the_small_side_while_it_is_in_use() {
    let mut device = Device::new(TIGHT, Reuse::InOrder, 4 * MIB);
    let held = device.allocate(0, 4 * MIB);
    device.free(0, &held, 5);
    let small = device.allocate(0, MIB / 2);
    let by_side = |device: &mut Device| {
        device.coordinator.check(&mut device.shards);
        let reserved = device.coordinator.stats(&mut device.shards).reserved_bytes;
        (reserved.small_pool.current, reserved.large_pool.current)
    };
    assert_eq!(by_side(&mut device), (2 * MIB, 2 * MIB));
    device.free(0, &small, 6);
    assert_eq!(by_side(&mut device), (0, 4 * MIB));
}

#[test]
fn a_trim_stops_at_its_goal_within_a_block() {
    let mut device = Device::new(TIGHT, Reuse::InOrder, 40 * MIB);
    let held = device.allocate(0, 40 * MIB);
    device.free(0, &held, 5);
    assert_eq!(device.until(&mut Plan::trim(10 * MIB, [0; 2]), |_| false), Step::Done);
    assert_eq!(device.coordinator.reserved_bytes(), 10 * MIB);
    device.coordinator.check(&mut device.shards);
}

/// Two plans fail, each with a page that was created and not mapped. A trim releases one of the two.
#[test]
fn a_trim_stops_at_its_goal_among_spare_pages() {
    let mut device = Device::new(TIGHT, Reuse::InOrder, 80 * MIB);
    let mut plans = [0, 1].map(|shard| device.plan(shard, 20 * MIB));
    for plan in &mut plans {
        let step = device.until(plan, is_pages);
        assert!(is_pages(&step), "{step:?}");
    }
    for plan in &mut plans {
        device.learn(plan, Outcome::Stopped { done: 1, refused: false });
        assert_eq!(device.next(plan), Step::Done);
    }
    assert_eq!(device.coordinator.reserved_bytes(), 4 * MIB);
    assert_eq!(device.until(&mut Plan::trim(2 * MIB, [0; 2]), |_| false), Step::Done);
    assert_eq!((device.coordinator.reserved_bytes(), device.coordinator.page_stats().pages), (2 * MIB, 1));
    device.coordinator.check(&mut device.shards);
}

/// A freed block waits for another stream. What gives everything back waits for that, and releases the block as well.
#[test]
fn everything_cached_goes_back_with_what_the_wait_has_reached() {
    for policy in [PLAIN, TIGHT] {
        let mut device = Device::new(policy, Reuse::InOrder, 40 * MIB);
        let held = device.allocate(0, 40 * MIB);
        device.shards[0].record_stream(held.block, StreamId(1));
        assert!(matches!(device.free(0, &held, 5), Freed::Pending(_)));
        device.coordinator.pend(
            ShardId(0),
            held.block,
            [Point { stream: StreamId(1), tick: Tick(7) }],
            [0; 2],
            &mut device.shards,
        );
        assert_eq!(device.empty(), 0, "{policy:?}");
    }
}

/// While everything outstanding is waited for, another block is freed that a second stream still uses. It is released
/// with the rest, after one more wait.
#[test]
fn everything_cached_goes_back_with_what_was_freed_during_the_wait() {
    let mut device = Device::new(TIGHT, Reuse::InOrder, 40 * MIB);
    device.reached = Tick::ZERO;
    let held = [20, 20].map(|mib| device.allocate(0, mib * MIB));
    let at = |stream, tick| Point { stream: StreamId(stream), tick: Tick(tick) };
    let free = |device: &mut Device, held: &Grant, tick| {
        device.shards[0].record_stream(held.block, StreamId(1));
        assert!(matches!(device.free(0, held, tick), Freed::Pending(_)));
        device.coordinator.pend(ShardId(0), held.block, [at(1, tick)], [0; 2], &mut device.shards);
    };
    free(&mut device, &held[0], 7);
    let mut plan = Plan::empty_cache([0; 2]);
    let first = device.until(&mut plan, |step| matches!(step, Step::Wait(_)));
    assert_eq!(first, Step::Wait(vec![at(1, 7)]));
    free(&mut device, &held[1], 9);
    device.done(&mut plan, &first);
    let second = device.until(&mut plan, |step| matches!(step, Step::Wait(_)));
    assert_eq!(second, Step::Wait(vec![at(1, 9), at(0, 9)]));
    device.done(&mut plan, &second);
    assert_eq!(device.until(&mut plan, |_| false), Step::Done);
    assert_eq!(device.coordinator.reserved_bytes(), 0);
}

/// Freed memory waits for its home stream. A plan that finds nothing else waits for that.
#[test]
fn what_settles_is_a_reason_to_wait() {
    let mut device = Device::new(TIGHT, Reuse::AfterDone, 40 * MIB);
    device.reached = Tick::ZERO;
    let held = device.allocate(0, 40 * MIB);
    assert_eq!(device.free(0, &held, 5), Freed::Settling);
    let mut plan = device.plan(0, 40 * MIB);
    let step = device.until(&mut plan, |step| matches!(step, Step::Wait(_)));
    assert_eq!(step, Step::Wait(vec![Point { stream: StreamId(0), tick: Tick(5) }]));
    device.done(&mut plan, &step);
    assert!(matches!(device.until(&mut plan, |_| false), Step::Grant(_)));
}

/// A freed block waits for another stream, and then for its home stream. A plan that finds nothing else waits for both.
#[test]
fn what_a_freed_block_waits_for_is_a_reason_to_wait() {
    let mut device = Device::new(TIGHT, Reuse::AfterDone, 40 * MIB);
    device.reached = Tick::ZERO;
    let held = device.allocate(0, 40 * MIB);
    device.shards[0].record_stream(held.block, StreamId(1));
    assert!(matches!(device.free(0, &held, 5), Freed::Pending(_)));
    let [home, other] = [(0, 5), (1, 7)].map(|(stream, tick)| Point { stream: StreamId(stream), tick: Tick(tick) });
    device.coordinator.pend(ShardId(0), held.block, [other], [0; 2], &mut device.shards);
    let mut plan = device.plan(0, 40 * MIB);
    for point in [other, home] {
        let step = device.until(&mut plan, |step| matches!(step, Step::Wait(_)));
        assert_eq!(step, Step::Wait(vec![point]));
        device.done(&mut plan, &step);
    }
    let end = device.until(&mut plan, |_| false);
    assert!(matches!(end, Step::Grant(_)), "{end:?}");
}

/// A plan pauses in its turn. What the device has done meanwhile is asked for before the next attempt.
#[test]
fn a_plan_in_its_turn_asks_again_how_far_streams_are() {
    let mut device = Device::new(TIGHT, Reuse::InOrder, 40 * MIB);
    device.reached = Tick::ZERO;
    let _held = device.allocate(0, 20 * MIB);
    let (mut asks, mut waits) = (device.plan(0, 20 * MIB), device.plan(1, 20 * MIB));
    let calls = device.until(&mut asks, is_pages);
    assert!(is_pages(&calls), "{calls:?}");
    // The other plan repeats its attempt a bounded number of times, and then waits for its turn.
    let is_pause = |step: &Step| matches!(step, Step::Pause { .. });
    for _ in 0..100 {
        let step = device.until(&mut waits, is_pause);
        assert!(is_pause(&step), "{step:?}");
        device.done(&mut waits, &step);
    }
    assert!(is_pause(&device.until(&mut waits, is_pause)));
    device.done(&mut asks, &calls);
    assert!(matches!(device.until(&mut asks, |_| false), Step::Grant(_)));
    device.learn(&mut waits, Outcome::Done);
    let step = device.next(&mut waits);
    assert!(matches!(step, Step::Poll(_)), "{step:?}");
}
