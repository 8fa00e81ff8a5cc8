//! Plans that wait for their turn where memory is short, step by step.

use millpond_backend::{Point, Reuse, StreamId, Tick};
use millpond_core::settings::Settings;
use millpond_core::{Coordinator, DeviceFacts, Freed, Grant, Outcome, Plan, PoolId, Shard, ShardId, Shards, Step};

const MIB: u64 = 1 << 20;

/// Three streams, whose memory is all in one allocator.
struct Device {
    coordinator: Coordinator,
    shards: Watched,
}

/// Shards that record whether they are held together, and whether they were held at each look.
struct Watched {
    shards: Vec<Shard>,
    is_held: bool,
    all_held: bool,
}

impl Shards for Watched {
    fn visit(&mut self, shard: ShardId, f: &mut dyn FnMut(&mut Shard)) {
        self.all_held &= self.is_held;
        self.shards.visit(shard, f);
    }

    fn hold(&mut self) {
        self.is_held = true;
    }

    fn let_go(&mut self) {
        self.is_held = false;
    }
}

impl Device {
    fn new(limit: u64) -> Self {
        let facts = DeviceFacts { total_bytes: 1 << 30, reuse: Reuse::InOrder, pages: None, stream_wait: true };
        let mut coordinator = Coordinator::new(Settings::default(), facts);
        coordinator.set_limit(Some(limit));
        let shards = (0..3).map(|stream| coordinator.open_shard(StreamId(stream), PoolId::default())).collect();
        Self { coordinator, shards: Watched { shards, is_held: false, all_held: true } }
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

    /// Takes steps, all of which succeed, up to one for which `stop` holds, or the end. That step is returned and not
    /// performed.
    fn until(&mut self, plan: &mut Plan, stop: impl Fn(&Step) -> bool) -> Step {
        for _ in 0..100 {
            let step = self.next(plan);
            if stop(&step) || matches!(step, Step::Grant(_) | Step::Refuse(_) | Step::Done) {
                return step;
            }
            let outcome = match step {
                Step::Reserve { .. } => Outcome::Reserved { address: 0 },
                Step::Wait(points) => Outcome::Reached(points),
                Step::Release { .. } | Step::Pause { .. } => Outcome::Done,
                other => panic!("{other:?}"),
            };
            self.learn(plan, outcome);
        }
        panic!("a plan without an end: {plan:?}");
    }

    fn allocate(&mut self, shard: u32, bytes: u64) -> Grant {
        let mut plan = self.plan(shard, bytes);
        match self.until(&mut plan, |_| false) {
            Step::Grant(grant) => grant,
            other => panic!("{other:?}"),
        }
    }

    /// Frees a block that stream 1 used up to a tick, and its own stream never used.
    fn free_used(&mut self, shard: u32, grant: &Grant, tick: u64) {
        let home = &mut self.shards.shards[shard as usize];
        home.used_until(grant.block, point(tick));
        assert!(matches!(home.free(grant.block, Tick::ZERO, 0), Freed::Pending(_)));
        self.coordinator.pend(ShardId(shard), grant.block, [point(tick)], [0; 2], &mut self.shards);
    }
}

/// Returns a point of stream 1.
fn point(tick: u64) -> Point {
    Point { stream: StreamId(1), tick: Tick(tick) }
}

fn is_pause(step: &Step) -> bool {
    matches!(step, Step::Pause { .. })
}

/// Lets a first plan ask for the last 12 MiB of the limit. The second plan would be refused, and waits for its turn.
fn in_turn(device: &mut Device) -> (Plan, Plan) {
    let (mut asks, mut waits) = (device.plan(1, 12 * MIB), device.plan(0, 12 * MIB));
    let step = device.until(&mut asks, |step| matches!(step, Step::Reserve { .. }));
    assert!(matches!(step, Step::Reserve { .. }), "{step:?}");
    let step = device.until(&mut waits, is_pause);
    assert!(is_pause(&step), "{step:?}");
    (asks, waits)
}

#[test]
fn a_free_waits_for_no_turn() {
    let mut device = Device::new(24 * MIB);
    let _held = device.allocate(0, 12 * MIB);
    let _plans = in_turn(&mut device);
    assert!(is_pause(&{
        let mut other = device.plan(2, MIB);
        device.next(&mut other)
    }));
    assert_eq!(device.next(&mut Plan::reclaim([0; 2])), Step::Done);
}

/// A request is refused because another plan asks for the rest of the bytes. Nothing cached goes back for it before its
/// turn, and it is served without that once the other plan has failed.
#[test]
fn a_plan_releases_nothing_before_its_turn() {
    let mut device = Device::new(36 * MIB);
    let (_held, cached) = (device.allocate(0, 12 * MIB), device.allocate(2, 12 * MIB));
    assert_eq!(device.shards.shards[2].free(cached.block, Tick(3), 0), Freed::Done { unsettled: false });
    let (mut asks, mut waits) = in_turn(&mut device);
    device.learn(&mut asks, Outcome::Failed);
    assert_eq!(device.next(&mut asks), Step::Done);
    device.learn(&mut waits, Outcome::Done);
    let end = device.until(&mut waits, |step| matches!(step, Step::Release { .. }));
    assert!(matches!(end, Step::Grant(_)), "{end:?}");
    assert_eq!(device.coordinator.reserved_bytes(), 36 * MIB, "with what is cached");
}

/// A plan that only stood back continues beside other plans.
#[test]
fn a_plan_that_stood_back_gives_its_place_up_once_it_asks_the_driver() {
    let mut device = Device::new(24 * MIB);
    let _held = device.allocate(0, 12 * MIB);
    let (mut asks, mut waits) = in_turn(&mut device);
    let mut stands_back = device.plan(2, 12 * MIB);
    assert!(is_pause(&device.next(&mut stands_back)));
    device.learn(&mut asks, Outcome::Reserved { address: 0 });
    assert!(matches!(device.until(&mut asks, |_| false), Step::Grant(_)));
    device.learn(&mut waits, Outcome::Done);
    assert!(matches!(device.until(&mut waits, |_| false), Step::Refuse(_)));
    device.coordinator.set_limit(None);
    device.learn(&mut stands_back, Outcome::Done);
    let step = device.next(&mut stands_back);
    assert!(matches!(step, Step::Reserve { .. }), "{step:?}");
    let mut another = device.plan(0, 12 * MIB);
    let step = device.next(&mut another);
    assert!(matches!(step, Step::Reserve { .. }), "{step:?}");
}

/// What becomes free while a plan is about to be refused is for that plan to look at first.
#[test]
fn what_becomes_free_waits_for_the_plan_that_has_its_turn() {
    let mut device = Device::new(24 * MIB);
    let held = device.allocate(0, 12 * MIB);
    let (_asks, mut waits) = in_turn(&mut device);
    device.free_used(0, &held, 3);
    device.coordinator.note_reached(StreamId(1), Tick(3));
    device.coordinator.retire_ready([0; 2], &mut device.shards);
    let want = device.coordinator.sizes().want(12 * MIB).expect("a size");
    assert_eq!(device.shards.shards[0].allocate(&want, 0, Tick(u64::MAX)), None);
    // Once the plan is lost, its turn is over and the block becomes free.
    device.coordinator.lose(&mut waits);
    device.coordinator.retire_ready([0; 2], &mut device.shards);
    assert!(device.shards.shards[0].allocate(&want, 0, Tick(u64::MAX)).is_some());
}

/// While a plan waits in its turn, a block is freed that another stream still uses. The plan waits for that as well.
#[test]
fn a_plan_in_its_turn_waits_for_what_was_freed_meanwhile() {
    let mut device = Device::new(14 * MIB);
    let (held, small) = (device.allocate(0, 12 * MIB), device.allocate(2, 1000));
    device.free_used(2, &small, 3);
    let mut plan = device.plan(0, 12 * MIB);
    let is_wait = |step: &Step| matches!(step, Step::Wait(_));
    assert_eq!(device.until(&mut plan, is_wait), Step::Wait(vec![point(3)]));
    device.free_used(0, &held, 9);
    device.learn(&mut plan, Outcome::Reached(vec![point(3)]));
    assert_eq!(device.until(&mut plan, is_wait), Step::Wait(vec![point(9)]));
    device.learn(&mut plan, Outcome::Reached(vec![point(9)]));
    let end = device.until(&mut plan, |_| false);
    assert!(matches!(end, Step::Grant(_)), "{end:?}");
}

/// In its turn a plan sees all shards at one moment, in each of its steps.
#[test]
fn a_plan_in_its_turn_looks_at_all_shards_at_one_moment() {
    let mut device = Device::new(14 * MIB);
    let (_held, small) = (device.allocate(0, 12 * MIB), device.allocate(2, 1000));
    device.free_used(2, &small, 3);
    let mut plan = device.plan(0, 12 * MIB);
    assert_eq!(device.until(&mut plan, |step| matches!(step, Step::Wait(_))), Step::Wait(vec![point(3)]));
    device.learn(&mut plan, Outcome::Reached(vec![point(3)]));
    device.shards.all_held = true;
    let step = device.next(&mut plan);
    assert!(matches!(step, Step::Release { .. }), "{step:?}");
    assert!(device.shards.all_held && !device.shards.is_held);
}

/// While a plan goes through the last part of its ladder for the second time, a block is freed once more. The plan is
/// refused all the same.
#[test]
fn a_plan_in_its_turn_waits_a_second_time_at_most() {
    let mut device = Device::new(14 * MIB);
    let _held = device.allocate(0, 12 * MIB);
    let small: Vec<_> = [3, 5, 7].map(|tick| (tick, device.allocate(2, 1000))).into();
    device.free_used(2, &small[0].1, 3);
    let mut plan = device.plan(0, 12 * MIB);
    let is_wait = |step: &Step| matches!(step, Step::Wait(_));
    for (round, &(tick, _)) in small[..2].iter().enumerate() {
        assert_eq!(device.until(&mut plan, is_wait), Step::Wait(vec![point(tick)]));
        let (next, block) = &small[round + 1];
        device.free_used(2, block, *next);
        device.learn(&mut plan, Outcome::Reached(vec![point(tick)]));
    }
    let end = device.until(&mut plan, is_wait);
    assert!(matches!(end, Step::Refuse(_)), "{end:?}");
}

/// A plan that stood back would then be refused, and keeps its place until it is answered. What becomes free is for it
/// to look at first.
#[test]
fn a_plan_that_stood_back_has_its_turn() {
    let mut device = Device::new(24 * MIB);
    let held = device.allocate(0, 12 * MIB);
    let (_asks, mut waits) = in_turn(&mut device);
    let mut stands_back = device.plan(0, 12 * MIB);
    assert!(is_pause(&device.next(&mut stands_back)));
    device.coordinator.lose(&mut waits);
    device.learn(&mut stands_back, Outcome::Done);
    let step = device.until(&mut stands_back, is_pause);
    assert!(is_pause(&step), "another plan holds memory: {step:?}");
    device.free_used(0, &held, 3);
    device.coordinator.note_reached(StreamId(1), Tick(3));
    device.coordinator.retire_ready([0; 2], &mut device.shards);
    let want = device.coordinator.sizes().want(12 * MIB).expect("a size");
    assert_eq!(device.shards.shards[0].allocate(&want, 0, Tick(u64::MAX)), None);
}
