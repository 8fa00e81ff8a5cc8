//! Plans beside each other: what one has claimed, another does without.

use millpond_backend::Tick;
use millpond_core::Step;
use millpond_core::settings::Growth;

use crate::driver::{Device, Held, MIB, gaps_on, is_pages, is_pause, is_stream_wait, mapped, with_gaps};

#[test]
fn two_plans_gather_from_the_same_stream() {
    let (mut device, _) = with_gaps(Growth::Tight, 1, &[24, 4, 44]);
    device.set_limit(74 * MIB);
    let (mut first, mut second) = (device.plan(0, 50 * MIB), device.plan(2, 20 * MIB));
    let (step, calls) = device.until_calls(&mut first);
    // 20 MiB are left for the second one: 18 that are free, and 2 that were never created.
    let (other, others) = device.until_calls(&mut second);
    assert!(mapped(&calls).iter().all(|page| !mapped(&others).contains(page)), "{calls:?} and {others:?}");
    device.done(&mut second, &other);
    device.done(&mut first, &step);
    let ends = [(second, 2), (first, 0)].map(|(mut plan, shard)| (device.end(&mut plan), shard));
    assert!(ends.iter().all(|(step, _)| matches!(step, Step::Grant(_))), "{ends:?}");
    device.check();
    assert_eq!(device.reserved(), 74 * MIB);
}

/// A plan has claimed a kept window, and its waits are being queued. Another plan of the same stream does not use that
/// window, nor the memory behind it.
#[test]
fn a_window_is_for_one_plan() {
    let mut device = Device::new(Growth::Tight, 36 * MIB);
    device.gpu.reached[0] = Tick(10);
    let (mut device, _) = gaps_on(device, 1, &[8, 4, 10, 4, 10]);
    let held = device.use_until(0, 18 * MIB, 2);
    // All of it is used at home once more.
    let again = [10, 10, 8].map(|mib| device.hit(1, mib * MIB).expect("it is at home"));
    again.into_iter().for_each(|held| device.free(held, 200));
    let (mut first, mut second) = (device.plan(0, 18 * MIB), device.plan(0, 18 * MIB));
    let waits = device.reach(&mut first, is_stream_wait);
    let pause = device.until(&mut second, |step| is_pages(step) || is_pause(step) || is_stream_wait(step));
    assert!(is_pause(&pause), "10 MiB are left: {pause:?}");
    device.done(&mut first, &waits);
    let served = device.finish(&mut first, 0).expect("it has claimed all that it needs");
    assert_eq!((served.offset, device.page_stats().returned), (held.offset, 1));
    device.free(served, 3);
    device.done(&mut second, &pause);
    let served = device.finish(&mut second, 0).expect("the window is free again");
    assert_eq!((served.offset, device.page_stats().returned), (held.offset, 2));
}

/// Two plans let the same home grow. Each has its own addresses and pages.
#[test]
fn two_plans_let_the_same_home_grow() {
    let mut device = Device::new(Growth::Balanced, 100 * MIB);
    device.use_until(0, 20 * MIB, 1);
    let (mut first, mut second) = (device.plan(0, 30 * MIB), device.plan(0, 26 * MIB));
    let (step, calls) = device.until_calls(&mut first);
    let (other, others) = device.until_calls(&mut second);
    assert_eq!((mapped(&calls).len(), mapped(&others).len()), (5, 13), "one has the free block in front");
    device.done(&mut second, &other);
    let second = device.end(&mut second);
    device.done(&mut first, &step);
    let first = device.end(&mut first);
    device.check();
    let held = [first, second].map(|step| match step {
        Step::Grant(grant) => Held { shard: 0, grant },
        step => panic!("{step:?}"),
    });
    assert!(!held[0].overlaps(&held[1]), "{held:?}");
    assert_eq!(device.reserved(), 56 * MIB);
}
