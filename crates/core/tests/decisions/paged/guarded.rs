//! Free memory that other streams may still use: who comes after whom, and when nobody has to any more.

use millpond_backend::Tick;
use millpond_core::Outcome;
use millpond_core::settings::Growth;

use crate::driver::{Device, MIB, is_stream_wait, point, with_gaps};

/// A guard is over once all of its points are reached, and not with the first of them.
#[test]
fn all_points_of_a_guard_come_first() {
    let (mut device, _) = with_gaps(Growth::Tight, 0, &[6]);
    let held = device.hit(0, 6 * MIB).expect("it is free");
    device.free_behind(held, 10, &[point(1, 209), point(2, 209)]);
    for (reached, is_free) in [([100, 100, 100], false), ([100, 209, 100], false), ([100, 209, 209], true)] {
        device.gpu.reached = reached.map(Tick).to_vec();
        device.poll();
        assert_eq!(device.hit(0, 6 * MIB).is_some(), is_free, "{reached:?}");
    }
}

/// The front of a free block is handed out, and what is behind it is guarded still.
#[test]
fn the_rest_of_a_block_stays_guarded() {
    let (mut device, _) = with_gaps(Growth::Tight, 0, &[6]);
    let [front, rear] = [2, 4].map(|mib| device.hit(0, mib * MIB).expect("it is free"));
    device.free_behind(rear, 10, &[point(1, 209)]);
    device.free(front, 10);
    assert_eq!(device.hit(0, 2 * MIB).map(|held| held.offset), Some(0));
    assert!(device.hit(0, 4 * MIB).is_none(), "another stream may still use it");
}

/// What a stream did in another stream's window is its own last use of the memory, when it gets that at home.
#[test]
fn what_a_stream_did_in_a_window_is_its_own_last_use() {
    for waits in [true, false] {
        let (mut device, _) = with_gaps(Growth::Tight, 1, &[6, 2, 6]);
        let window = device.allocate(0, 12 * MIB);
        assert_eq!(window.shard, 0);
        device.free_behind(window, 209, &[point(1, 215)]);
        let home = if waits {
            assert!(device.hit(1, 6 * MIB).is_none(), "the window's stream may still use it");
            device.allocate(1, 6 * MIB)
        } else {
            device.gpu.reached = [209, 100, 100].map(Tick).to_vec();
            device.poll();
            device.hit(1, 6 * MIB).expect("the window's stream is done with it")
        };
        assert_eq!(home.last_use.tick(), Tick(215), "waits: {waits}");
    }
}

/// A home grows behind a free block that another stream may still use: the whole comes after the wait for that.
#[test]
fn what_a_home_grows_by_comes_after_the_wait_for_what_is_in_front() {
    let mut device = Device::new(Growth::Tight, 8 * MIB);
    let front = device.allocate(0, 4 * MIB);
    device.free_behind(front, 10, &[point(1, 209)]);
    let whole = device.allocate(0, 8 * MIB);
    assert_eq!((whole.offset, device.reserved()), (0, 8 * MIB));
    assert!(device.steps.iter().any(is_stream_wait), "{:?}", device.steps);
    assert_eq!(whole.last_use.tick(), Tick(100), "where the stream was, and not where the front was freed");
}

/// A small block that another stream has used comes after what that stream did there.
#[test]
fn a_small_block_of_another_stream_comes_after_its_work() {
    let mut device = Device::new(Growth::Tight, 2 * MIB);
    device.use_until(0, MIB / 2, 209);
    device.steps.clear();
    let held = device.allocate(1, MIB / 2);
    assert_eq!((held.offset, held.last_use.tick()), (0, Tick(100)), "where the stream itself was");
    let waits = device.steps.iter().filter(|step| is_stream_wait(step)).count();
    assert_eq!(waits, 1, "{:?}", device.steps);
}

/// A page that was created for a plan that failed was not handed out, and is not new either.
#[test]
fn a_spare_page_is_not_fresh() {
    let mut device = Device::new(Growth::Tight, 1 << 30);
    let mut plan = device.plan(0, 2 * MIB);
    device.until_calls(&mut plan);
    device.learn(&mut plan, Outcome::Stopped { done: 1, refused: false });
    assert!(device.finish(&mut plan, 0).is_none());
    assert_eq!(device.reserved(), 2 * MIB);
    let held = device.allocate(0, 2 * MIB);
    assert_eq!((device.reserved(), held.last_use.is_never()), (2 * MIB, false));
}

/// Behind a wait memory has the last use of its own stream, and the tick that covers the wait: none of another stream.
#[test]
fn a_tick_of_another_stream_is_no_last_use() {
    let (mut device, _) = with_gaps(Growth::Tight, 0, &[6]);
    let held = device.hit(0, 6 * MIB).expect("it is free");
    device.free_behind(held, 10, &[point(1, 209)]);
    assert_eq!(device.allocate(0, 6 * MIB).last_use.tick(), Tick(100));
}

/// Memory of several places was used when the last of them was.
#[test]
fn a_window_has_the_latest_use_of_its_memory() {
    let (mut device, _) = with_gaps(Growth::Tight, 0, &[5, 2, 5]);
    let mut held = [5, 5].map(|mib| device.hit(0, mib * MIB).expect("it is free"));
    held.sort_by_key(|held| held.offset);
    device.free(held[0], 50);
    device.free(held[1], 40);
    assert_eq!(device.allocate(0, 10 * MIB).last_use.tick(), Tick(50), "it begins with the second place");
}

/// Memory that nothing has used is fresh for every stream.
#[test]
fn memory_is_fresh_until_it_is_used() {
    let mut device = Device::new(Growth::Tight, 1 << 30);
    let mut plan = device.plan(1, 4 * MIB);
    device.until_calls(&mut plan);
    device.learn(&mut plan, Outcome::Stopped { done: 2, refused: false });
    assert!(device.finish(&mut plan, 1).is_none());
    device.set_limit(device.reserved());
    let first = device.allocate(0, 2 * MIB);
    assert_eq!((first.offset, first.last_use.is_never()), (0, true), "one page has arrived");
    device.free(first, 20);
    let again = device.allocate(1, 2 * MIB);
    assert_eq!((again.offset, again.last_use.is_never()), (0, false));
}
