//! Addresses are reserved in bounded amounts, however a program behaves.

use std::collections::BTreeMap;

use millpond::backend::{PageCaps, StreamId};
use millpond::settings::Growth;
use millpond::{Allocator, Buffer, Error};
use millpond_sim::{Completion, Sim};
use millpond_trace::Random;

use super::device::{GIB, GROWTHS, MIB, allocator, device, streams};

const STREAMS: usize = 3;

/// A hostile program: it returns the size of the next block in bytes, and the number of operations that the block
/// lives.
type Hostile = fn(&mut Random, usize) -> (u64, usize);

/// Makes each block a little larger than the one before, so that none fits where others were.
fn growing(random: &mut Random, at: usize) -> (u64, usize) {
    (MIB + (at as u64 % 4096) * 9 * 512, random.between(4, 24) as usize)
}

fn random(random: &mut Random, _: usize) -> (u64, usize) {
    (random.between(1, 40 * MIB), random.between(1, 40) as usize)
}

/// Mixes blocks that are freed soon with some that stay for long and pin what is around them.
fn survivors(random: &mut Random, at: usize) -> (u64, usize) {
    if at.is_multiple_of(16) {
        (random.between(1, 3 * MIB), random.between(500, 3000) as usize)
    } else {
        (random.between(MIB, 24 * MIB), random.between(1, 12) as usize)
    }
}

/// Returns by stream how many bytes of addresses are reserved.
fn addresses(allocator: &Allocator<Sim>) -> BTreeMap<StreamId, u64> {
    let mut sums = BTreeMap::new();
    for view in allocator.layout() {
        assert!(view.page_bytes > 0, "{:?} is no range", view.id);
        *sums.entry(view.stream).or_default() += view.bytes;
    }
    sums
}

/// Runs this number of operations on a device of `total` bytes, and checks that every stream has at most 36 ranges
/// of 9/8 of the device: 32 for windows, and a few as homes. Nothing may be refused that whole
/// idle pages and the rest of the device could serve.
fn stays_bounded(name: &str, hostile: Hostile, growth: Growth, total: u64, operations: usize) {
    let range = total + total / 8;
    let sim = device(total, Completion::Immediate).build();
    let allocator = allocator(&sim, growth);
    let streams = streams(&allocator, STREAMS);
    let mut random = Random::new(5);
    let mut live: BTreeMap<usize, Vec<Buffer<Sim>>> = BTreeMap::new();
    for at in 0..operations {
        drop(live.remove(&at));
        let (bytes, life) = hostile(&mut random, at);
        match streams[random.index(STREAMS)].allocate(bytes) {
            Ok(buffer) => live.entry(at + life).or_default().push(buffer),
            Err(Error::OutOfMemory(error)) => {
                let report = error.report();
                let had = report.ledger.ready_bytes + total - report.reserved_bytes;
                assert!(
                    had < bytes + 2 * MIB,
                    "{name}, {growth:?}, operation {at}: refused {bytes} with {had}: {error}"
                );
            }
            Err(error) => panic!("{name}, {growth:?}, operation {at}: {error}"),
        }
        if at % (operations / 64) == 0 {
            for (stream, bytes) in addresses(&allocator) {
                assert!(bytes <= 36 * range, "{name}, {growth:?}, operation {at}: {bytes} bytes of {stream}");
            }
        }
    }
    allocator.check();
    assert_eq!(sim.calls().reserve, 0, "{name}, {growth:?}: plain segments");
}

#[test]
fn growing_blocks_take_no_more_addresses() {
    stays_bounded("growing", growing, Growth::Balanced, GIB, 820_000);
}

#[test]
fn random_blocks_take_no_more_addresses() {
    stays_bounded("random", random, Growth::Balanced, GIB, 40_000);
    stays_bounded("random", random, Growth::Tight, GIB, 10_000);
}

#[test]
fn survivors_take_no_more_addresses() {
    stays_bounded("survivors", survivors, Growth::Balanced, GIB, 110_000);
    stays_bounded("survivors", survivors, Growth::Tight, GIB, 10_000);
}

/// More memory is requested than there is, so that every page is needed elsewhere all the time.
#[test]
fn a_full_device_takes_no_more_addresses() {
    for growth in GROWTHS {
        stays_bounded("full", random, growth, 256 * MIB, 5_000);
    }
}

/// Many streams on a device with as few addresses as lavapipe has: each gets a range for each side, and a request that
/// is larger than what is left is refused as out of memory. Expandable segments have pages of 20 MiB, and need more.
#[test]
fn scarce_addresses_are_shared_by_many_streams() {
    let pages = PageCaps::new(2 * MIB).with_address_bytes(2 * GIB);
    for (policy, count) in [("policy:paged", 90), ("policy:classic,expandable_segments:True", 40)] {
        let sim = Sim::builder().total_bytes(16 * GIB).pages(Some(pages)).build();
        let allocator = Allocator::builder(sim).conf(policy).build().expect("a configuration that exists");
        let streams = streams(&allocator, count);
        let mut held = Vec::new();
        for stream in &streams {
            for bytes in [MIB / 2, 3 * MIB] {
                held.push(stream.allocate(bytes).unwrap_or_else(|error| panic!("{policy}: {error}")));
            }
        }
        let taken: u64 = addresses(&allocator).values().sum();
        assert!(taken <= 2 * GIB, "{policy}: {taken} bytes of addresses");
        // More than all addresses lies in a segment; more than the device has is refused.
        drop(streams[0].allocate(2 * GIB).unwrap_or_else(|error| panic!("{policy}: {error}")));
        let refused = streams[0].allocate(16 * GIB).expect_err("more than is free");
        assert!(matches!(refused, Error::OutOfMemory(_)), "{policy}: {refused}");
        drop(held);
        allocator.empty_cache().expect("the device is alive");
        drop(streams[7].allocate(GIB).unwrap_or_else(|error| panic!("{policy}: {error}")));
        allocator.check();
    }
}
