//! Devices that grant more memory than they have: the cache gives memory back before the budget is exceeded, and no
//! request is refused because of it.

use millpond::settings::{Growth, Policy, Segments, Settings};
use millpond::{Allocator, Stream};
use millpond_sim::{CostModel, Sim};

const MIB: u64 = 1 << 20;

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
    for policy in [Policy::Classic(Segments::Plain), Policy::paged(Growth::Balanced), Policy::Direct] {
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
    for policy in [Policy::Classic(Segments::Plain), Policy::paged(Growth::Balanced), Policy::Direct] {
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
