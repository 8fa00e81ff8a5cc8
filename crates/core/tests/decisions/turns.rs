//! Plans that wait for their turn where memory is short, step by step.

use millpond_core::settings::Settings;
use millpond_core::{Freed, Outcome, Plan, Shard, ShardId, Shards, Step};

use crate::driver::{Device, Facts, Held, MIB, is_pause, is_release, is_reserve, is_wait, point};

/// Returns an allocator of three streams, whose memory is all in one pool.
fn three(limit: u64) -> Device {
    let mut device = Device::of(&Facts { pages: None, limit: Some(limit), ..Facts::new(Settings::default(), 3) });
    device.gpu.answers = |step| match step {
        Step::Reserve { .. } | Step::Wait(_) | Step::Release { .. } | Step::Pause { .. } => None,
        other => panic!("{other:?}"),
    };
    device
}

/// Shards that record whether they are held together, and whether they were held at each look.
struct Watched<'a> {
    shards: &'a mut Vec<Shard>,
    is_held: bool,
    all_held: bool,
}

impl Shards for Watched<'_> {
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

/// Frees a block that stream 1 used up to a tick, and its own stream never used.
fn free_used(device: &mut Device, held: Held, tick: u64) {
    device.shards[held.shard].used_until(held.block, point(1, tick));
    assert!(matches!(device.take_back(held, 0), Freed::Pending(_)));
    device.pend(held, &[point(1, tick)]);
}

/// Lets a first plan ask for the last 12 MiB of the limit. The second plan would be refused, and waits for its turn.
fn in_turn(device: &mut Device) -> (Plan, Plan) {
    let (mut asks, mut waits) = (device.plan(1, 12 * MIB), device.plan(0, 12 * MIB));
    device.reach(&mut asks, is_reserve);
    device.reach(&mut waits, is_pause);
    (asks, waits)
}

#[test]
fn a_free_waits_for_no_turn() {
    let mut device = three(24 * MIB);
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
    let mut device = three(36 * MIB);
    let (_held, cached) = (device.allocate(0, 12 * MIB), device.allocate(2, 12 * MIB));
    device.free(cached, 3);
    let (mut asks, mut waits) = in_turn(&mut device);
    device.learn(&mut asks, Outcome::Failed);
    assert_eq!(device.next(&mut asks), Step::Done);
    device.learn(&mut waits, Outcome::Done);
    let end = device.until(&mut waits, is_release);
    assert!(matches!(end, Step::Grant(_)), "{end:?}");
    assert_eq!(device.reserved(), 36 * MIB, "with what is cached");
}

/// A plan that only stood back continues beside other plans.
#[test]
fn a_plan_that_stood_back_gives_its_place_up_once_it_asks_the_driver() {
    let mut device = three(24 * MIB);
    let _held = device.allocate(0, 12 * MIB);
    let (mut asks, mut waits) = in_turn(&mut device);
    let mut stands_back = device.plan(2, 12 * MIB);
    assert!(is_pause(&device.next(&mut stands_back)));
    device.learn(&mut asks, Outcome::Reserved { address: 0 });
    assert!(matches!(device.end(&mut asks), Step::Grant(_)));
    device.learn(&mut waits, Outcome::Done);
    assert!(matches!(device.end(&mut waits), Step::Refuse(_)));
    device.coordinator.set_limit(None);
    device.learn(&mut stands_back, Outcome::Done);
    let step = device.next(&mut stands_back);
    assert!(is_reserve(&step), "{step:?}");
    let mut another = device.plan(0, 12 * MIB);
    let step = device.next(&mut another);
    assert!(is_reserve(&step), "{step:?}");
}

/// What becomes free while a plan is about to be refused is for that plan to look at first.
#[test]
fn what_becomes_free_waits_for_the_plan_that_has_its_turn() {
    let mut device = three(24 * MIB);
    let held = device.allocate(0, 12 * MIB);
    let (_asks, mut waits) = in_turn(&mut device);
    free_used(&mut device, held, 3);
    device.note_reached(1, 3);
    assert_eq!(device.hit(0, 12 * MIB), None);
    // Once the plan is lost, its turn is over and the block becomes free.
    device.coordinator.lose(&mut waits);
    device.coordinator.retire_ready([0; 2], &mut device.shards);
    assert!(device.hit(0, 12 * MIB).is_some());
}

/// While a plan waits in its turn, a block is freed that another stream still uses. The plan waits for that as well.
#[test]
fn a_plan_in_its_turn_waits_for_what_was_freed_meanwhile() {
    let mut device = three(14 * MIB);
    let (held, small) = (device.allocate(0, 12 * MIB), device.allocate(2, 1000));
    free_used(&mut device, small, 3);
    let mut plan = device.plan(0, 12 * MIB);
    assert_eq!(device.until(&mut plan, is_wait), Step::Wait(vec![point(1, 3)]));
    free_used(&mut device, held, 9);
    device.learn(&mut plan, Outcome::Reached(vec![point(1, 3)]));
    assert_eq!(device.until(&mut plan, is_wait), Step::Wait(vec![point(1, 9)]));
    device.learn(&mut plan, Outcome::Reached(vec![point(1, 9)]));
    let end = device.end(&mut plan);
    assert!(matches!(end, Step::Grant(_)), "{end:?}");
}

/// In its turn a plan sees all shards at one moment, in each of its steps.
#[test]
fn a_plan_in_its_turn_looks_at_all_shards_at_one_moment() {
    let mut device = three(14 * MIB);
    let (_held, small) = (device.allocate(0, 12 * MIB), device.allocate(2, 1000));
    free_used(&mut device, small, 3);
    let mut plan = device.plan(0, 12 * MIB);
    assert_eq!(device.until(&mut plan, is_wait), Step::Wait(vec![point(1, 3)]));
    device.learn(&mut plan, Outcome::Reached(vec![point(1, 3)]));
    let mut watched = Watched { shards: &mut device.shards, is_held: false, all_held: true };
    let step = device.coordinator.next(&mut plan, &mut watched);
    assert!(is_release(&step), "{step:?}");
    assert!(watched.all_held && !watched.is_held);
}

/// While a plan goes through the last part of its ladder for the second time, a block is freed once more. The plan is
/// refused all the same.
#[test]
fn a_plan_in_its_turn_waits_a_second_time_at_most() {
    let mut device = three(14 * MIB);
    let _held = device.allocate(0, 12 * MIB);
    let small: Vec<_> = [3, 5, 7].map(|tick| (tick, device.allocate(2, 1000))).into();
    free_used(&mut device, small[0].1, 3);
    let mut plan = device.plan(0, 12 * MIB);
    for (round, &(tick, _)) in small[..2].iter().enumerate() {
        assert_eq!(device.until(&mut plan, is_wait), Step::Wait(vec![point(1, tick)]));
        let (next, block) = &small[round + 1];
        free_used(&mut device, *block, *next);
        device.learn(&mut plan, Outcome::Reached(vec![point(1, tick)]));
    }
    let end = device.until(&mut plan, is_wait);
    assert!(matches!(end, Step::Refuse(_)), "{end:?}");
}

/// A plan that stood back would then be refused, and keeps its place until it is answered. What becomes free is for it
/// to look at first.
#[test]
fn a_plan_that_stood_back_has_its_turn() {
    let mut device = three(24 * MIB);
    let held = device.allocate(0, 12 * MIB);
    let (_asks, mut waits) = in_turn(&mut device);
    let mut stands_back = device.plan(0, 12 * MIB);
    assert!(is_pause(&device.next(&mut stands_back)));
    device.coordinator.lose(&mut waits);
    device.learn(&mut stands_back, Outcome::Done);
    let step = device.until(&mut stands_back, is_pause);
    assert!(is_pause(&step), "another plan holds memory: {step:?}");
    free_used(&mut device, held, 3);
    device.note_reached(1, 3);
    assert_eq!(device.hit(0, 12 * MIB), None);
}
