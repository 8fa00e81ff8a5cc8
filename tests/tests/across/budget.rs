//! Devices that grant more memory than they have: the cache gives memory back before the budget is exceeded, and no
//! request is refused because of it.

use millpond::backend::Fault;
use millpond::settings::{Growth, Policy, Segments, Settings};
use millpond::{Allocator, Stream};
use millpond_sim::{CallKind, CostModel, Sim};

const MIB: u64 = 1 << 20;

const POLICIES: [Policy; 3] = [Policy::Classic(Segments::Plain), Policy::paged(Growth::Balanced), Policy::Direct];

/// Creates a device of 1 GiB of which other processes hold half, and an allocator on it with two streams.
fn crowded(policy: Policy, oversubscribes: bool) -> (Sim, Allocator<Sim>, [Stream<Sim>; 2]) {
    let sim = Sim::builder().total_bytes(1024 * MIB).cost(CostModel::free()).oversubscribes(oversubscribes).build();
    sim.set_others(512 * MIB);
    let settings = Settings { policy, ..Settings::default() };
    let allocator = Allocator::builder(sim.clone()).settings(settings).build().expect("settings that exist");
    let streams = [(); 2].map(|()| allocator.create_stream().expect("a stream"));
    (sim, allocator, streams)
}

#[test]
fn cached_memory_goes_before_the_budget_is_exceeded() {
    for policy in POLICIES {
        let (sim, allocator, [one, two]) = crowded(policy, true);
        drop(one.allocate(300 * MIB).expect("within the budget"));
        let held = two.allocate(400 * MIB).expect("within the budget, once the first is given back");
        assert_eq!(allocator.memory_reserved(), 400 * MIB, "{policy:?}");
        assert_eq!(allocator.stats().num_ooms, 0, "{policy:?}");
        drop(held);
        allocator.check();
        assert_eq!(sim.violations(), []);
    }
}

#[test]
fn what_nothing_else_serves_is_granted_beyond_the_budget() {
    for policy in POLICIES {
        let (_, allocator, [one, two]) = crowded(policy, true);
        let first = one.allocate(400 * MIB).expect("within the budget");
        let second = two.allocate(200 * MIB).expect("the driver grants it");
        assert_eq!(allocator.memory_reserved(), 600 * MIB, "{policy:?}");
        let refused = one.allocate(600 * MIB).expect_err("more than the device has");
        assert!(matches!(refused, millpond::Error::OutOfMemory(_)), "{policy:?}: {refused}");
        drop((first, second));
        allocator.check();
    }
}

/// A request that is served from what there is asks nothing; one that creates something asks once, first.
#[test]
fn the_budget_is_asked_for_once_and_only_before_something_is_created() {
    for policy in POLICIES {
        let (sim, allocator, [one, two]) = crowded(policy, true);
        let asked = |bytes: u64, stream: &Stream<Sim>| {
            let before = sim.calls();
            let held = stream.allocate(bytes).expect("there is room");
            let calls = sim.calls().since(&before);
            (held, calls.budget, calls.create_page + calls.reserve)
        };
        let (first, asks, creates) = asked(100 * MIB, &one);
        assert_eq!((asks, creates > 0), (1, true), "{policy:?}");
        drop(first);
        // Under `paged` the streams have what is free together, as it is or gathered.
        for (bytes, stream) in [(100 * MIB, &one), (60 * MIB, &two), (90 * MIB, &two), (200 * MIB, &two)] {
            let (held, asks, creates) = asked(bytes, stream);
            assert_eq!(asks, u64::from(creates > 0), "{policy:?}: {bytes} bytes, {creates} calls that create");
            let is_cached = bytes <= 100 * MIB && policy.moves_pages();
            assert!(!is_cached || creates == 0, "{policy:?}: {bytes} bytes");
            drop(held);
        }
        drop((one, two));
        allocator.check();
    }
}

/// Others take memory between two requests: the next one that creates something stays within what is left then.
#[test]
fn a_budget_that_shrinks_is_seen_by_the_next_request_that_creates() {
    for policy in POLICIES {
        let (sim, allocator, [one, two]) = crowded(policy, true);
        let held = one.allocate(100 * MIB).expect("within the budget");
        drop(two.allocate(200 * MIB).expect("within the budget"));
        sim.set_others(712 * MIB);
        let more = one.allocate(210 * MIB).expect("within the budget, once what is free is used or given back");
        assert!(allocator.memory_reserved() <= 312 * MIB, "{policy:?}: {}", allocator.memory_reserved());
        drop((held, more));
        allocator.check();
    }
}

/// A device that does not say what is left decides itself what it grants.
#[test]
fn without_an_answer_the_driver_decides() {
    for policy in POLICIES {
        let (sim, allocator, [one, two]) = crowded(policy, true);
        sim.fail(CallKind::Budget, 1, Fault::Other);
        sim.fail(CallKind::Budget, 2, Fault::Other);
        drop(one.allocate(300 * MIB).expect("the driver grants it"));
        drop(two.allocate(400 * MIB).expect("the driver grants it"));
        assert_eq!(sim.calls().budget, 2, "{policy:?}");
        allocator.check();
    }
}

/// The budget of a device that refuses what it does not have is never queried.
#[test]
fn the_budget_is_asked_for_only_where_the_driver_grants_too_much() {
    for oversubscribes in [false, true] {
        let (sim, _allocator, [one, _]) = crowded(Policy::Classic(Segments::Plain), oversubscribes);
        let held = one.allocate(100 * MIB).expect("there is room");
        assert_eq!(sim.calls().budget > 0, oversubscribes);
        drop(held);
    }
}
