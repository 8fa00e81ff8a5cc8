//! Memory of which a part is ready while the rest is not, and what is taken where a wait cannot be avoided.

use millpond_backend::{StreamId, Tick};
use millpond_core::Step;
use millpond_core::settings::Growth;

use crate::driver::{Device, Held, MIB, is_pages, is_stream_wait, point};

/// Returns a device of `balanced` where one free block has two parts: 40 MiB that stream 0 has used until a tick that
/// it has not reached, and behind them 40 MiB that stream 1 has used until a tick that it has not reached.
fn one_block_of_two_streams() -> Device {
    let mut device = Device::new(Growth::Balanced, 1 << 30);
    device.use_until(1, 80 * MIB, 1);
    let front = device.allocate(0, 40 * MIB);
    assert_eq!(front.offset, 0);
    let rest = device.hit(1, 40 * MIB).expect("the rest is free");
    device.free(rest, 150);
    device.free(front, 160);
    device.steps.clear();
    device
}

/// Returns where a block begins, in MiB.
fn place(held: Held) -> u64 {
    held.offset / MIB
}

fn waits_or_pages(device: &Device) -> usize {
    device.steps.iter().filter(|step| is_pages(step) || is_stream_wait(step)).count()
}

/// Each of two streams gets back what it has freed itself, without a wait and without a page, although both parts are
/// one free block now. A third stream gets pages of its own.
#[test]
fn each_stream_takes_its_own_part_of_what_was_joined() {
    let mut device = one_block_of_two_streams();
    let first = device.allocate(0, 40 * MIB);
    assert_eq!((place(first), first.last_use.tick()), (0, Tick(160)), "its own part");
    assert_eq!(waits_or_pages(&device), 0, "{:?}", device.steps);
    let mut device = one_block_of_two_streams();
    let second = device.allocate(1, 40 * MIB);
    assert_eq!((place(second), second.last_use.tick()), (40, Tick(150)), "its own part");
    assert_eq!(waits_or_pages(&device), 0, "{:?}", device.steps);
    let mut device = one_block_of_two_streams();
    assert!(device.allocate(2, 40 * MIB).last_use.is_never(), "nothing is ready");
}

/// A request that is longer than the part that is ready does not get it.
#[test]
fn a_part_that_is_too_short_does_not_serve() {
    let mut device = one_block_of_two_streams();
    assert!(device.allocate(0, 42 * MIB).last_use.is_never());
}

/// Where another stream was recorded for a block, its own stream waits for that too, and so takes nothing that is not
/// ready.
#[test]
fn a_part_that_others_have_used_meanwhile_is_not_ready() {
    for stream in [1, 2] {
        let mut device = Device::new(Growth::Balanced, 1 << 30);
        device.use_until(1, 80 * MIB, 1);
        let front = device.allocate(0, 40 * MIB);
        let rest = device.hit(1, 40 * MIB).expect("the rest is free");
        device.free(rest, 150);
        device.record(front, stream);
        device.free(front, 160);
        assert!(device.allocate(0, 40 * MIB).last_use.is_never(), "stream {stream} is not done with it");
    }
}

/// Where no page can be created, `balanced` waits for the block that is ready soonest, and `tight` for the one that
/// fits best.
#[test]
fn where_nothing_may_be_created_a_block_is_waited_for() {
    for growth in [Growth::Balanced, Growth::Tight] {
        let mut device = Device::new(growth, 104 * MIB);
        let [long, _, short, _] =
            [(2, 60), (0, 2), (1, 40), (0, 2)].map(|(stream, mib)| device.allocate(stream, mib * MIB));
        device.free(short, 150);
        device.free(long, 110);
        device.steps.clear();
        let (taken, until) = if growth == Growth::Tight { (short, point(1, 150)) } else { (long, point(2, 110)) };
        assert_eq!(device.allocate(0, 40 * MIB).offset, taken.offset, "{growth:?}");
        let waits: Vec<_> = device.steps.iter().filter(|step| is_stream_wait(step)).cloned().collect();
        assert_eq!(waits, [Step::StreamWait { stream: StreamId(0), points: vec![until] }]);
    }
}

/// The block that fits best is in use. Of those that are ready, a stream gets the one that it used last itself, though
/// another one is shorter.
#[test]
fn own_memory_comes_first_among_what_is_ready() {
    let mut device = Device::new(Growth::Balanced, 1 << 30);
    let [busy, _, done, _, own, _] =
        [(2, 40), (0, 2), (1, 42), (0, 2), (0, 44), (0, 2)].map(|(stream, mib)| device.allocate(stream, mib * MIB));
    [(busy, 150), (done, 1), (own, 160)].into_iter().for_each(|(block, tick)| device.free(block, tick));
    device.steps.clear();
    assert_eq!(device.allocate(0, 40 * MIB).offset, own.offset);
    assert_eq!(waits_or_pages(&device), 0, "{:?}", device.steps);
}

/// A block that several streams have used is ready once the last of them is done, but for the stream itself.
#[test]
fn the_stream_that_is_farthest_behind_counts() {
    for (besides, is_soonest) in [(point(1, 180), false), (point(0, 190), true)] {
        let mut device = Device::new(Growth::Balanced, 104 * MIB);
        let [long, _, short, _] =
            [(2, 60), (0, 2), (1, 40), (0, 2)].map(|(stream, mib)| device.allocate(stream, mib * MIB));
        device.free(short, 150);
        device.free_behind(long, 110, &[besides]);
        let taken = if is_soonest { long } else { short };
        assert_eq!(device.allocate(0, 40 * MIB).offset, taken.offset, "{besides:?}");
    }
}

/// The device is behind with what one stream did, whatever else that stream has freed since.
#[test]
fn a_stream_is_as_far_behind_as_its_latest_use() {
    for ticks in [[1, 150], [150, 1]] {
        let mut device = Device::new(Growth::Balanced, 1 << 30);
        let [busy, _, done, _] =
            [(1, 40), (0, 2), (1, 42), (0, 2)].map(|(stream, mib)| device.allocate(stream, mib * MIB));
        for tick in ticks {
            device.free(if tick == 150 { busy } else { done }, tick);
        }
        device.steps.clear();
        assert_eq!(device.allocate(0, 40 * MIB).offset, done.offset, "{ticks:?}");
        assert_eq!(waits_or_pages(&device), 0, "{:?}", device.steps);
    }
}

/// What is taken behind a wait is for the stream that waits, whichever one the home was opened for.
#[test]
fn a_block_behind_a_wait_is_for_the_stream_that_waits() {
    let mut device = Device::new(Growth::Tight, 104 * MIB);
    device.use_until(2, 40 * MIB, 150);
    let taken = device.allocate(1, 40 * MIB);
    assert!(device.steps.iter().any(is_stream_wait), "{:?}", device.steps);
    assert_eq!(device.shards[0].user_of(taken.block), StreamId(1));
}

/// Returns whether a request waits for another stream, 40 MiB of which are free behind a point, rather than that pages
/// are created.
fn waits(device: &mut Device) -> bool {
    device.use_until(1, 40 * MIB, 150);
    device.steps.clear();
    device.allocate(0, 40 * MIB);
    device.steps.iter().any(is_stream_wait)
}

/// Where time is told, streams wait until it is found out that they run side by side. Where none passes, or the growth
/// is tight, it makes no difference.
#[test]
fn balanced_spends_memory_where_no_time_passes() {
    for (growth, times, expected) in [
        (Growth::Balanced, [None; 2], false),
        (Growth::Balanced, [Some(7); 2], false),
        (Growth::Balanced, [Some(7), Some(8)], true),
        (Growth::Tight, [None; 2], true),
        (Growth::Tight, [Some(7), Some(8)], true),
    ] {
        let mut device = Device::new(growth, 1 << 30);
        device.gpu.time = times[0];
        device.allocate(2, 40 * MIB);
        device.gpu.time = times[1];
        assert_eq!(waits(&mut device), expected, "{growth:?}, {times:?}");
    }
}

/// The place goes by what is free and not by what is ready, where it cannot be found out how streams share the device:
/// stream 1 has a block of 80 MiB that it is not done with, and what stream 2 has is ready. No page may be created.
#[test]
fn the_place_goes_by_what_is_free() {
    for growing in [0, 4096] {
        let mut device = Device::new(Growth::Balanced, 1 << 30);
        (device.gpu.time, device.gpu.asked) = (Some(7), u64::MAX);
        let [first, _between, second] =
            [(1, 80), (0, 2), (2, 100)].map(|(stream, mib)| device.allocate(stream, mib * MIB));
        [first, second].into_iter().for_each(|block| device.free(block, 1));
        for at in 0..200 {
            device.gpu.time = device.gpu.time.map(|time| time + 1);
            device.use_until(0, 60 * MIB + at * growing, 1);
        }
        let used = device.hit(1, 80 * MIB).expect("it is free");
        device.free(used, 150);
        device.steps.clear();
        assert_eq!(device.allocate(0, 80 * MIB).offset, first.offset);
        assert_eq!(waits_or_pages(&device), 1, "{:?}", device.steps);
    }
}
