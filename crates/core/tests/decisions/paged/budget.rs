//! A device that grants more than it has: what its budget leaves is asked for before something is created, and only
//! then.

use millpond_backend::Tick;
use millpond_core::Step;
use millpond_core::settings::Growth;

use crate::driver::{Device, Held, MIB, is_pages, is_reserve, is_stream_wait};

impl Device {
    /// Makes a request within the budget. Returns the block and how often the budget was asked for.
    fn within_budget(&mut self, shard: usize, mib: u64) -> (Held, usize) {
        self.steps.clear();
        let mut plan = self.plan(shard, mib * MIB).within_budget();
        let held = self.finish(&mut plan, shard).expect("the driver grants it");
        let asks: Vec<_> = self.steps.iter().map(|step| *step == Step::Budget).collect();
        let acts = self.steps.iter().position(|step| is_pages(step) || is_reserve(step));
        let first = asks.iter().position(|&asks| asks);
        assert!(first.is_none() || acts.is_none() || first < acts, "{:?}", self.steps);
        (held, asks.into_iter().filter(|&asks| asks).count())
    }
}

/// What another stream has used, or the stream itself, creates nothing.
#[test]
fn what_is_served_from_what_there_is_asks_nothing() {
    // Also behind a wait: 100 ticks are reached.
    for (growth, used) in [(Growth::Tight, 1), (Growth::Tight, 200), (Growth::Balanced, 1)] {
        let mut device = Device::new(growth, 1 << 30);
        device.gpu.left = Some(1000 * MIB);
        let (first, asks) = device.within_budget(0, 40);
        assert_eq!(asks, 1, "{growth:?}: nothing is there");
        device.free(first, used);
        for stream in [1, 1, 0] {
            let (held, asks) = device.within_budget(stream, 40);
            assert_eq!((held.place(), asks), (first.place(), 0), "{growth:?}");
            device.free(held, used + 1);
        }
        let held = device.hit(0, 40 * MIB).expect("it is free");
        assert_eq!(held.place(), first.place());
        let (_, asks) = device.within_budget(0, 40);
        assert_eq!(asks, 1, "{growth:?}: nothing is free");
    }
}

/// Pages for what is missing stay within the budget. Where they would not, streams wait although they may create.
#[test]
fn free_memory_is_gathered_rather_than_that_the_budget_is_exceeded() {
    for (left, reserved) in [(None, 140), (Some(40 * MIB), 140), (Some(39 * MIB), 110), (Some(10 * MIB), 110)] {
        let mut device = Device::new(Growth::Balanced, 1 << 30);
        device.gpu.reached.fill(Tick(0));
        let [first, _second] = [30, 70].map(|mib| device.allocate(1, mib * MIB));
        device.free(first, 1);
        device.gpu.left = left;
        let (_, asks) = device.within_budget(0, 40);
        assert_eq!((asks, device.reserved()), (1, reserved * MIB), "{left:?}: {:?}", device.steps);
        assert_eq!(device.steps.iter().any(is_stream_wait), reserved == 110, "{left:?}");
    }
}

/// `tight` gathers what is free, with new pages for the rest alone. That they fit into the budget is asked for first.
#[test]
fn the_rest_of_a_window_is_created_within_the_budget() {
    for left in [10, 9] {
        let mut device = Device::new(Growth::Tight, 1 << 30);
        let [first, _second] = [30, 70].map(|mib| device.allocate(1, mib * MIB));
        device.free(first, 1);
        device.gpu.left = Some(left * MIB);
        let (_, asks) = device.within_budget(0, 40);
        assert_eq!((asks, device.reserved()), (1, 110 * MIB), "{left} MiB: {:?}", device.steps);
    }
}

/// What nothing within the budget serves is created nevertheless, and the budget is asked for once.
#[test]
fn beyond_the_budget_nothing_is_asked_again() {
    let mut device = Device::new(Growth::Tight, 1 << 30);
    device.gpu.left = Some(10 * MIB);
    let (_, asks) = device.within_budget(0, 40);
    assert_eq!((asks, device.reserved()), (1, 40 * MIB));
}

/// The query is no wait for the device: blocks that were freed meanwhile are looked at.
#[test]
fn what_was_freed_while_the_budget_was_asked_for_is_found() {
    let mut device = Device::new(Growth::Tight, 1 << 30);
    let held = device.allocate(0, 40 * MIB);
    device.gpu.left = Some(1000 * MIB);
    let mut plan = device.plan(0, 40 * MIB).within_budget();
    let step = device.until(&mut plan, |step| *step == Step::Budget);
    assert_eq!(step, Step::Budget);
    device.free_unchecked(held, 1);
    device.done(&mut plan, &step);
    assert!(device.finish(&mut plan, 0).is_some());
    assert_eq!(device.reserved(), 40 * MIB);
}
