//! Requests that the device's answer serves, so that no plan begins.

use millpond_backend::{PageCaps, Reuse, Tick};
use millpond_core::settings::{Growth, Policy, Settings};
use millpond_core::{Freed, Grant, Outcome, Plan, Shard, Step};

use crate::driver::{Device, Facts, MIB, Meddled, is_pages, is_pause, is_poll};

/// Asks the device what a plan of stream 1 would ask first, which is how far stream 0 is.
fn answer(device: &mut Device, plan: &mut Plan) -> Option<Grant> {
    let asked = device.shards[0].first_question().expect("the shard is a home");
    let outcome = device.gpu.perform(&Step::Poll(asked));
    device.coordinator.answer(plan, outcome, &mut device.shards)
}

#[test]
fn what_the_device_is_done_with_serves_at_once() {
    let mut device = Device::new(Growth::Balanced, 1 << 30);
    let used = device.use_until(0, 40 * MIB, 150);
    device.gpu.reached[0] = Tick(150);
    assert_eq!(device.hit(1, 40 * MIB), None, "the device was not asked yet");
    let mut plan = device.plan(1, 40 * MIB);
    let grant = answer(&mut device, &mut plan).expect("the device is done with it");
    assert_eq!(grant.offset, used.offset);
    assert!(!device.coordinator.is_held());
    device.check();
}

/// A plan that follows an answer does not ask once more.
#[test]
fn what_the_device_still_uses_is_left_to_the_plan() {
    let mut device = Device::new(Growth::Balanced, 1 << 30);
    device.use_until(0, 40 * MIB, 150);
    let mut plan = device.plan(1, 40 * MIB);
    assert_eq!(answer(&mut device, &mut plan), None);
    device.steps.clear();
    device.finish(&mut plan, 1).expect("there is room");
    assert!(!device.steps.iter().any(is_poll), "{:?}", device.steps);
}

/// What becomes free is for the plan that has its turn to look at first.
#[test]
fn no_answer_serves_while_a_plan_waits_for_its_turn() {
    let mut device = Device::new(Growth::Balanced, 24 * MIB);
    let small = device.allocate(0, 2 * MIB);
    let (mut makes_pages, mut waits) = (device.plan(1, 20 * MIB), device.plan(2, 20 * MIB));
    device.reach(&mut makes_pages, is_pages);
    device.reach(&mut waits, is_pause);
    while device.coordinator.turn().is_none() {
        device.learn(&mut waits, Outcome::Done);
        device.reach(&mut waits, is_pause);
    }
    device.free_unchecked(small, 150);
    device.gpu.reached[0] = Tick(150);
    let mut plan = device.plan(1, 2 * MIB);
    assert_eq!(answer(&mut device, &mut plan), None);
    device.coordinator.lose(&mut waits);
    assert!(answer(&mut device, &mut plan).is_some(), "no plan waits now");
}

/// A block that becomes free after an answer that served nothing is found by the plan, wherever it came meanwhile: no
/// page is made, and nothing is waited for.
#[test]
fn what_becomes_free_after_an_answer_serves_the_plan() {
    for looks in [Some(1), None] {
        let settings = Settings { policy: Policy::paged(Growth::Balanced), throw_on_oom: true, ..Settings::default() };
        let pages = Some(PageCaps::new(2 * MIB).with_alias_reuse(Reuse::AfterDone));
        let mut device = Device::of(&Facts { pages, limit: Some(40 * MIB), ..Facts::new(settings, 2) });
        let held = device.allocate(1, 40 * MIB);
        assert_eq!(device.hit(1, 40 * MIB), None);
        let mut plan = device.plan(1, 40 * MIB).after_miss(device.shards[0].changes()).with_open_tick(Tick(200));
        let asked = device.shards[0].first_question().expect("the shard is a home");
        let outcome = device.gpu.perform(&Step::Poll(asked));
        let mut free = |shards: &mut Vec<Shard>| {
            assert!(matches!(shards[0].free(held.block, Tick(200), 0), Freed::Done { .. }));
        };
        let grant = match looks {
            // After the search, which was one look, and before the next.
            Some(mut looks) => {
                let mut shards = Meddled { shards: &mut device.shards, looks: &mut looks, meddle: &mut free };
                device.coordinator.answer(&mut plan, outcome, &mut shards)
            }
            None => device.coordinator.answer(&mut plan, outcome, &mut device.shards),
        };
        assert_eq!(grant, None);
        if looks.is_none() {
            free(&mut device.shards);
        }
        device.steps.clear();
        let end = device.end(&mut plan);
        assert!(matches!(end, Step::Grant(_)), "{looks:?}: {end:?}");
        assert_eq!(device.steps, [end], "{looks:?}");
    }
}
