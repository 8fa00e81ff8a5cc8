//! Streams that borrow often, and the memory of their own that they get.

use millpond_core::Step;
use millpond_core::settings::Growth;

use super::device::{Device, Held, MIB, is_pages, mapped, released};

/// Returns a device on which stream 1 has 64 MiB free, and stream 0 has used up the slack.
fn with_a_lender() -> Device {
    let mut device = Device::new(Growth::Tight, 1 << 30);
    let lent = device.allocate(1, 64 * MIB);
    device.free(lent, 1);
    let held: Vec<_> = (0..2).map(|_| device.allocate(0, 4 * MIB)).collect();
    assert!(held.iter().all(|held| held.shard == 0));
    assert_eq!(device.reserved(), 72 * MIB, "2 % and 8 MiB");
    device
}

fn serve(device: &mut Device, shard: usize, bytes: u64) -> Held {
    device.hit(shard, bytes).unwrap_or_else(|| device.allocate(shard, bytes))
}

/// Has stream 0 ask for a block and free it until its own home serves it, at most a number of times. Returns how many
/// requests stream 1 has served before, and calls `between` after each.
fn loans(device: &mut Device, bytes: u64, most: usize, mut between: impl FnMut(&mut Device, usize)) -> usize {
    for number in 0..most {
        let held = serve(device, 0, bytes);
        let lender = held.shard;
        device.free(held, 2);
        if lender == 0 {
            return number;
        }
        between(device, number);
    }
    most
}

#[test]
fn a_stream_that_borrows_often_gets_a_few_bytes_of_its_own() {
    let mut device = with_a_lender();
    assert_eq!(loans(&mut device, 4 * MIB, 200, |_, _| ()), 64);
    assert_eq!(device.reserved(), 76 * MIB);
    let held = device.hit(0, 4 * MIB).expect("from now on it finds memory at home");
    assert_eq!(loans(&mut device, 4 * MIB, 200, |_, _| ()), 200, "a stream gets that once, held: {held:?}");
    assert_eq!(device.reserved(), 76 * MIB);
}

/// A stream that borrows large blocks gets as much as it had borrowed at once of what a stream at rest has free, and no
/// more is reserved than before.
#[test]
fn what_a_stream_at_rest_has_free_is_released_for_one_that_borrows() {
    let mut device = with_a_lender();
    device.steps.clear();
    assert_eq!(loans(&mut device, 20 * MIB, 10_000, |_, _| ()), 4096, "then its home has enough");
    assert_eq!(device.reserved(), 72 * MIB);
    let calls = device.steps.iter().filter(|step| is_pages(step)).count();
    assert_eq!(calls, 4, "8 MiB are released at once, the last time 4 MiB, and others are created");
    device.check();
    // With that in use it borrows again: twice as often before the next time.
    let held = device.hit(0, 20 * MIB).expect("it finds memory at home");
    assert_eq!(loans(&mut device, 20 * MIB, 10_000, |_, _| ()), 8192);
    assert_eq!(device.reserved(), 72 * MIB);
    device.free(held, 3);
    assert!(device.hit(0, 40 * MIB).is_some(), "both are its own, one behind the other");
}

/// While a stream at rest releases memory, it finds all that is not being released at that time. Once it was granted
/// something it is no longer at rest, and releases no more.
#[test]
fn a_stream_at_rest_that_goes_on_finds_most_of_what_it_had() {
    let mut device = with_a_lender();
    let [front, _between] = [20, 4].map(|mib| device.hit(1, mib * MIB).expect("it has 64 MiB"));
    device.free(front, 1);
    assert_eq!(loans(&mut device, 20 * MIB, 4096, |_, _| ()), 4096);
    let mut plan = device.plan(0, 20 * MIB);
    let (step, calls) = device.until_calls(&mut plan);
    assert!(released(&calls).len() == 4 && mapped(&calls).is_empty(), "8 MiB: {calls:?}");
    let found = [40, 12].map(|mib| device.hit(1, mib * MIB).expect("it is all that it had but for 8 MiB"));
    device.done(&mut plan, &step);
    device.steps.clear();
    let served = device.finish(&mut plan, 0).expect("it is served from what there is");
    assert_eq!(served.shard, 0);
    let calls = device.steps.iter().filter_map(|step| if let Step::Pages(calls) = step { Some(calls) } else { None });
    assert_eq!(calls.map(|calls| released(calls).len()).sum::<usize>(), 0, "no more is released");
    found.into_iter().for_each(|held| device.free(held, 2));
}

#[test]
fn what_is_lent_at_once_moves_at_once() {
    let mut device = with_a_lender();
    let sizes = [12 * MIB, 8 * MIB, 10 * MIB];
    for round in 0.. {
        assert!(round < 3000, "nothing has moved");
        let held = sizes.map(|bytes| serve(&mut device, 0, bytes));
        let is_own = held.iter().all(|held| held.shard == 0);
        held.into_iter().for_each(|held| device.free(held, 2));
        if is_own {
            break;
        }
    }
    assert!(device.reserved() <= 76 * MIB, "{}: the slack and what one such stream may have", device.reserved());
    for _ in 0..100 {
        let held = sizes.map(|bytes| device.hit(0, bytes).expect("it finds memory at home"));
        held.into_iter().for_each(|held| device.free(held, 2));
    }
}

#[test]
fn a_stream_at_work_keeps_what_it_has() {
    let mut device = with_a_lender();
    works_beside_loans(&mut device);
}

/// Totals that are reset change nothing of that: a stream that was at rest is, and one that was at work is at work.
#[test]
fn streams_at_rest_are_known_after_totals_were_reset() {
    for is_at_work in [false, true] {
        let mut device = with_a_lender();
        let resets = |device: &mut Device, number: usize| {
            if is_at_work && number == 10 {
                let held = serve(device, 1, 20 * MIB);
                device.free(held, 2);
            }
            if number.is_multiple_of(1000) {
                device.coordinator.reset_totals(&mut device.shards);
            }
        };
        let expected = if is_at_work { 6000 } else { 4096 };
        assert_eq!(loans(&mut device, 20 * MIB, 6000, resets), expected, "{is_at_work}");
    }
    // Nor does what a stream has lent before hide what it is granted from then on.
    let mut device = with_a_lender();
    assert_eq!(loans(&mut device, 20 * MIB, 4000, |_, _| ()), 4000);
    device.coordinator.reset_totals(&mut device.shards);
    works_beside_loans(&mut device);
}

/// Has stream 0 borrow more often than it takes until a stream at rest releases memory for it, while stream 1 works now
/// and then.
fn works_beside_loans(device: &mut Device) {
    let works = |device: &mut Device, number: usize| {
        if number.is_multiple_of(2000) {
            let held = serve(device, 1, 20 * MIB);
            assert_eq!(held.shard, 1);
            device.free(held, 2);
        }
    };
    assert_eq!(loans(device, 20 * MIB, 6000, works), 6000);
}
