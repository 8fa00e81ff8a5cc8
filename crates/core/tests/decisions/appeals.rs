//! Plans that ask the program before they refuse, and plans that what is cached has to serve.

use millpond_core::settings::{Growth, Policy, Segments};
use millpond_core::{Conditions, Outcome, Step};

use crate::driver::{Device, Facts, MIB, is_pause};

fn is_appeal(step: &Step) -> bool {
    matches!(step, Step::Appeal(_))
}

/// Returns devices of three streams under each kind of policy, with a limit.
fn devices(limit: u64) -> [Device; 3] {
    let of = |policy| Device::of(&Facts { limit: Some(limit), ..Facts::under(policy, 3) });
    let expandable = Policy::Classic(Segments::Expandable);
    [of(Policy::default()), of(expandable), of(Policy::paged(Growth::Tight))]
}

/// The program may do anything meanwhile, also what takes plans of its own: nothing of the plan is in their way.
#[test]
fn a_plan_holds_nothing_while_the_program_is_asked() {
    for mut device in devices(48 * MIB) {
        let held = [20, 20].map(|mib| device.allocate(0, mib * MIB));
        let mut plan = device.plan(0, 20 * MIB).appealing();
        let Step::Appeal(report) = device.reach(&mut plan, is_appeal) else { unreachable!() };
        assert_eq!((report.requested_bytes, report.reserved_bytes), (20 * MIB, 40 * MIB));
        assert!(!device.coordinator.is_held() && device.coordinator.turn().is_none());
        assert_eq!(device.stats().num_ooms, 0, "it is not refused yet");
        device.free(held[0], 1);
        device.empty();
        let mut other = device.plan(1, 1000);
        assert!(matches!(device.end(&mut other), Step::Grant(_)));
        device.learn(&mut plan, Outcome::Retry);
        assert!(matches!(device.end(&mut plan), Step::Grant(_)));
        assert_eq!(device.stats().num_ooms, 0);
        device.check();
    }
}

/// A refusal is counted once, whatever the number of appeals.
#[test]
fn without_room_the_plan_ends_with_the_refusal() {
    for mut device in devices(48 * MIB) {
        let _held = device.allocate(0, 40 * MIB);
        let mut plan = device.plan(0, 20 * MIB).appealing();
        for _ in 0..3 {
            device.reach(&mut plan, is_appeal);
            device.learn(&mut plan, Outcome::Retry);
        }
        device.reach(&mut plan, is_appeal);
        device.learn(&mut plan, Outcome::Done);
        assert!(matches!(device.next(&mut plan), Step::Refuse(_)), "at once");
        assert_eq!(device.stats().num_ooms, 1);
        device.check();
    }
}

/// What was found out about the budget is out of date once the program has made room.
#[test]
fn the_budget_is_asked_for_again_after_an_appeal() {
    for mut device in devices(48 * MIB) {
        device.gpu.left = Some(64 * MIB);
        let _held = device.allocate(0, 40 * MIB);
        let mut plan = device.plan(0, 20 * MIB).within_budget().appealing();
        device.reach(&mut plan, is_appeal);
        device.coordinator.set_limit(Some(100 * MIB));
        device.steps.clear();
        device.learn(&mut plan, Outcome::Retry);
        assert!(matches!(device.end(&mut plan), Step::Grant(_)));
        let asked = device.steps.iter().filter(|step| **step == Step::Budget).count();
        assert_eq!(asked, 1, "{:?}", device.steps);
    }
}

/// What the cache has to serve waits for no other plan: neither for what it holds, nor for its turn.
#[test]
fn a_plan_for_cached_memory_waits_for_no_other_plan() {
    for mut device in devices(40 * MIB) {
        let _held = device.allocate(0, 20 * MIB);
        let (mut asks, mut waits) = (device.plan(1, 20 * MIB), device.plan(2, 20 * MIB));
        device.until(&mut asks, |step| matches!(step, Step::Reserve { .. } | Step::Pages(_)));
        device.reach(&mut waits, is_pause);
        device.steps.clear();
        let mut cached = device.plan(0, 20 * MIB).cached_only();
        assert_eq!(device.end(&mut cached), Step::Done);
        let is_quiet = |step: &Step| matches!(step, Step::Poll(_) | Step::Done);
        assert!(device.steps.iter().all(is_quiet), "{:?}", device.steps);
    }
}

/// A rehearsal leaves no trace, and says what the plan then does.
#[test]
fn a_rehearsal_changes_nothing() {
    for mut device in devices(48 * MIB) {
        let held = [12, 12, 20].map(|mib| device.allocate(1, mib * MIB));
        device.free(held[1], 1);
        device.free(held[2], 1);
        device.poll();
        for mib in [1, 12, 30, 40] {
            let before = (device.stats(), device.ledger(), device.page_stats());
            let conditions = Conditions { polled: vec![], time: None, submitted: vec![], left: None };
            let plan = device.plan(0, mib * MIB);
            let told = device.coordinator.rehearse(plan, &conditions, &mut device.shards);
            assert_eq!((device.stats(), device.ledger(), device.page_stats()), before, "{mib} MiB: {told:?}");
            let reserved = device.reserved();
            let mut plan = device.plan(0, mib * MIB);
            let is_served = matches!(device.end(&mut plan), Step::Grant(_));
            assert_eq!(told.is_served, is_served, "{mib} MiB: {told:?}");
            let expected = reserved + told.reserves_bytes - told.releases_bytes;
            assert!(!is_served || device.reserved() == expected, "{mib} MiB: {told:?}");
            assert_eq!(told.report.is_some(), !is_served);
            device.check();
        }
    }
}

/// What another stream has cached would serve it after a release, which a request of the cache does not make.
#[test]
fn a_plan_for_what_is_cached_releases_nothing() {
    for policy in [Policy::default(), Policy::Classic(Segments::Expandable)] {
        let mut device = Device::of(&Facts { limit: Some(40 * MIB), ..Facts::under(policy, 3) });
        let cached = device.allocate(1, 40 * MIB);
        device.free(cached, 1);
        device.steps.clear();
        let mut plan = device.plan(0, 20 * MIB).cached_only();
        assert_eq!(device.end(&mut plan), Step::Done);
        assert_eq!((&*device.steps, device.reserved()), (&[Step::Done][..], 40 * MIB), "{policy:?}");
        let mut plan = device.plan(0, 20 * MIB);
        assert!(matches!(device.end(&mut plan), Step::Grant(_)), "{policy:?}");
        let mut plan = device.plan(1, 20 * MIB).cached_only();
        assert_eq!(device.end(&mut plan), Step::Done, "{policy:?}: it was released");
    }
}
