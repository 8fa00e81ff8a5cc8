//! Memory of which a part is ready while the rest is not, and what is taken where a wait cannot be avoided.

use millpond_backend::{StreamId, Tick};
use millpond_core::Step;
use millpond_core::settings::Growth;

use crate::driver::{Device, Held, MIB, is_pages, is_stream_wait, point};

/// Returns a device of `balanced` where one free block of stream 1 has two parts: 40 MiB that stream 0 has borrowed and
/// given back at a tick that it has not reached, and behind them 40 MiB that stream 1 has used until a tick that it has
/// not reached.
fn one_block_of_two_streams() -> Device {
    let mut device = Device::new(Growth::Balanced, 1 << 30);
    device.use_until(1, 80 * MIB, 1);
    let front = device.allocate(0, 40 * MIB);
    assert_eq!((front.shard, front.offset), (1, 0));
    let rest = device.hit(1, 40 * MIB).expect("the rest is free");
    device.free(rest, 150);
    device.free(front, 160);
    device.steps.clear();
    device
}

fn place(held: Held) -> (usize, u64) {
    (held.shard, held.offset / MIB)
}

fn waits_or_pages(device: &Device) -> usize {
    device.steps.iter().filter(|step| is_pages(step) || is_stream_wait(step)).count()
}

/// Each of two streams gets back what it has freed itself, without a wait and without a page, although both parts are
/// one free block now. A third stream gets pages of its own.
#[test]
fn each_stream_takes_its_own_part_of_what_was_joined() {
    let mut device = one_block_of_two_streams();
    assert_eq!(place(device.allocate(0, 40 * MIB)), (1, 0), "the borrower's part");
    assert_eq!(waits_or_pages(&device), 0, "{:?}", device.steps);
    let mut device = one_block_of_two_streams();
    let lender = device.allocate(1, 40 * MIB);
    assert_eq!((place(lender), lender.last_use.tick()), ((1, 40), Tick(150)), "the lender's part");
    assert_eq!(waits_or_pages(&device), 0, "{:?}", device.steps);
    let mut device = one_block_of_two_streams();
    assert_eq!(place(device.allocate(2, 40 * MIB)), (2, 0), "nothing is ready");
}

/// A request that is longer than the part that is ready does not get it.
#[test]
fn a_part_that_is_too_short_does_not_serve() {
    let mut device = one_block_of_two_streams();
    assert_eq!(place(device.allocate(0, 42 * MIB)), (0, 0));
}

/// Where the lender has used the block while it was lent, or another stream was recorded, the borrower waits for that,
/// too, and so takes nothing that is not ready.
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
        assert_eq!(place(device.allocate(0, 40 * MIB)), (0, 0), "stream {stream} is not done with it");
    }
}

/// Where no page can be created, the block that fits best is taken behind a wait, whichever is ready sooner.
#[test]
fn where_nothing_may_be_created_the_best_fit_is_waited_for() {
    for growth in [Growth::Balanced, Growth::Tight] {
        let mut device = Device::new(growth, 100 * MIB);
        let (short, long) = (device.allocate(1, 40 * MIB), device.allocate(2, 60 * MIB));
        device.free(short, 150);
        device.free(long, 110);
        device.steps.clear();
        assert_eq!(device.allocate(0, 40 * MIB).shard, 1, "{growth:?}");
        let waits: Vec<_> = device.steps.iter().filter(|step| is_stream_wait(step)).cloned().collect();
        assert_eq!(waits, [Step::StreamWait { stream: StreamId(0), points: vec![point(1, 150)] }]);
    }
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
        let blocks = [device.allocate(1, 80 * MIB), device.allocate(2, 100 * MIB)];
        blocks.into_iter().for_each(|block| device.free(block, 1));
        for at in 0..200 {
            device.gpu.time = device.gpu.time.map(|time| time + 1);
            device.use_until(0, 60 * MIB + at * growing, 1);
        }
        let used = device.hit(1, 80 * MIB).expect("it is free");
        device.free(used, 150);
        device.steps.clear();
        assert_eq!(device.allocate(0, 80 * MIB).shard, 1);
        assert_eq!(waits_or_pages(&device), 1, "{:?}", device.steps);
    }
}
