//! The counts: requests, places, and releases that other plans wait for.

use millpond_core::settings::Settings;
use millpond_core::{Outcome, Plan, Step};

use super::world::{End, Facts, World};
use crate::driver::{MIB, empty_cache, is_pause, is_release, is_reserve};

fn classic(limit: Option<u64>) -> World {
    World::new(&Facts { limit, ..Facts::new(Settings::default()) })
}

/// The same block is freed and handed out, each time for another request of its size.
#[test]
fn a_swapped_block_counts_what_was_asked_for() {
    let mut world = classic(None);
    let mut held = world.allocate(0, 4 * MIB).expect("there is room");
    for less in [100, 7, 300, 0, 511, 1] {
        world.free(held);
        let World { scene, device, .. } = &mut world;
        held = scene.hit(&mut device.shards, 0, 4 * MIB - less).expect("the block that was freed");
        let requested = world.device.stats().requested_bytes.all;
        assert_eq!(requested.current, 4 * MIB - less);
        assert_eq!(requested.allocated - requested.freed, requested.current);
        assert_eq!(requested.peak, 4 * MIB, "the first was the largest");
        world.check();
    }
    world.drain();
}

/// Requests rise by little, in the same block. Each raises the peak.
#[test]
fn a_swapped_block_raises_the_peak_of_requested_bytes() {
    let mut world = classic(None);
    let mut held = world.allocate(0, 4 * MIB - 500).expect("there is room");
    for less in [400, 300, 200, 100, 0] {
        world.free(held);
        let World { scene, device, .. } = &mut world;
        held = scene.hit(&mut device.shards, 0, 4 * MIB - less).expect("the block that was freed");
        world.tell();
        world.device.shards[0].check();
        let requested = world.device.stats().requested_bytes.all;
        assert_eq!((requested.current, requested.peak), (4 * MIB - less, 4 * MIB - less));
    }
}

#[test]
fn resetting_totals_changes_nothing_of_what_is_there() {
    let mut world = classic(None);
    let held = [3, 12, 5].map(|mib| world.allocate(0, mib * MIB).expect("there is room"));
    world.free(held[0]);
    let before = world.device.stats();
    world.device.coordinator.reset_totals(&mut world.device.shards);
    let after = world.device.stats();
    assert_eq!(after.allocated_bytes.all.current, before.allocated_bytes.all.current);
    assert_eq!((after.allocated_bytes.all.allocated, after.allocated_bytes.all.freed), (0, 0));
    world.check();
    world.drain();
}

/// A segment's slot is used again once the segment is gone.
#[test]
fn the_place_of_a_released_segment_is_used_again() {
    let mut world = classic(None);
    for _ in 0..3 {
        let held = world.allocate(0, 12 * MIB).expect("there is room");
        assert_eq!(world.scene.live[&held].grant.slot.0, 0);
        world.drain();
    }
}

/// Takes the steps of a plan up to one for which `stop` holds, which is returned and not performed.
fn until(world: &mut World, plan: &mut Plan, stop: impl Fn(&Step) -> bool) -> Step {
    for _ in 0..100 {
        let step = world.next_alone(plan);
        if stop(&step) {
            return step;
        }
        assert_eq!(world.perform_alone(plan, step, 0), None, "the plan has ended");
    }
    panic!("a plan without an end: {plan:?}");
}

/// Sets up 40 MiB that are cached on stream 1, and a plan for 40 MiB on stream 0 that has asked the driver.
fn asked_while_another_may_release() -> (World, Plan, Plan) {
    let mut world = classic(None);
    let cached = world.allocate(1, 40 * MIB).expect("there is room");
    world.free(cached);
    world.scene.clock.finish();
    let mut plan = world.device.plan(0, 40 * MIB);
    until(&mut world, &mut plan, is_reserve);
    (world, plan, empty_cache())
}

/// The driver refuses while another plan's release is under way. The request waits for that, and asks again.
#[test]
fn a_request_waits_for_a_release_under_way() {
    let (mut world, mut plan, mut release) = asked_while_another_may_release();
    let gives = until(&mut world, &mut release, is_release);
    world.device.learn(&mut plan, Outcome::Refused);
    let pause = until(&mut world, &mut plan, |step| matches!(step, Step::Pause { .. } | Step::Refuse(_)));
    assert!(is_pause(&pause), "{pause:?}");
    assert_eq!(world.perform_alone(&mut release, gives, 0), None);
    assert_eq!(world.run_alone(&mut release, 0), End::Done);
    assert_eq!(world.perform_alone(&mut plan, pause, 0), None);
    assert!(matches!(world.run_alone(&mut plan, 0), End::Granted(_)));
    assert_eq!(world.device.stats().num_alloc_retries, 0, "nothing had to be released for it");
    world.drain();
}

/// The driver refuses, and meanwhile another plan has released all that there was. The same is asked again at once.
#[test]
fn a_refusal_is_out_of_date_once_another_plan_has_released() {
    let (mut world, mut plan, mut release) = asked_while_another_may_release();
    assert_eq!(world.run_alone(&mut release, 0), End::Done);
    world.device.learn(&mut plan, Outcome::Refused);
    assert!(matches!(world.run_alone(&mut plan, 0), End::Granted(_)));
    assert_eq!(world.device.stats().num_alloc_retries, 0, "nothing had to be released for it");
    world.drain();
}
