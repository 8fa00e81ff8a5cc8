//! Blocks at addresses that the program names: what of a shard's memory they may be.

use millpond_backend::StreamId;
use millpond_core::settings::{Growth, Policy, Segments};
use millpond_core::{Grant, Obstacle, Outcome, ShardId};

use crate::driver::{Device, Facts, Held, MIB, is_reserve};

/// Where the first range or segment of a test lies, and the second.
const BASES: [u64; 2] = [1 << 40, 1 << 42];

impl Device {
    /// Makes a request for which a range or a segment is reserved, and lets that lie at an address.
    fn allocate_based(&mut self, bytes: u64, base: u64) -> Held {
        let mut plan = self.plan(0, bytes);
        self.reach(&mut plan, is_reserve);
        self.learn(&mut plan, Outcome::Reserved { address: base });
        self.finish(&mut plan, 0).expect("there is room")
    }

    fn allocate_at(&mut self, bytes: u64, address: u64) -> Result<Grant, Obstacle> {
        let want = self.sizes.want(bytes).expect("a size that exists");
        let grant = self.coordinator.allocate_at(ShardId(0), StreamId(0), &want, address, &mut self.shards);
        self.check();
        grant
    }
}

/// A home serves small and large requests at its addresses. Those of a window are nobody's memory.
#[test]
fn addresses_of_homes_serve_requests_and_those_of_windows_do_not() {
    let mut device = Device::new(Growth::Tight, 14 * MIB);
    let first = device.allocate_based(6 * MIB, BASES[0]);
    let [between, last] = [2, 6].map(|mib| device.allocate(0, mib * MIB));
    [first, last].into_iter().for_each(|held| device.free(held, 1));
    let window = device.allocate_based(12 * MIB, BASES[1]);
    assert_ne!(window.slot, between.slot);
    device.free(window, 2);
    assert_eq!(device.allocate_at(12 * MIB, BASES[1]), Err(Obstacle::Gone { bytes: 12 * MIB }));
    let taken = device.allocate_at(4 * MIB, BASES[0] + 4 * MIB);
    assert_eq!(taken, Err(Obstacle::Taken { bytes: 4 * MIB }), "a live block is there");
    let begins = device.allocate_at(2 * MIB, BASES[0] + 2 * MIB + 100);
    assert_eq!(begins, Err(Obstacle::Gone { bytes: 2 * MIB }), "no block begins there");
    let large = device.allocate_at(2 * MIB, BASES[0] + 2 * MIB).expect("it is free");
    assert_eq!((large.slot, large.offset, large.size), (between.slot, 2 * MIB, 2 * MIB));
    let small = device.allocate_at(512, BASES[0] + 8 * MIB).expect("it is free");
    assert_eq!((small.slot, small.offset, small.size), (between.slot, 8 * MIB, 512));
}

/// A segment serves requests of its own side, as far as it goes.
#[test]
fn addresses_of_segments_serve_requests_of_their_side() {
    let policy = Policy::Classic(Segments::Plain);
    let mut device = Device::of(&Facts::under(policy, 3));
    let (large, small) = (device.allocate_based(12 * MIB, BASES[0]), device.allocate_based(512, BASES[1]));
    [large, small].into_iter().for_each(|held| device.free(held, 1));
    let gone = |bytes| Err(Obstacle::Gone { bytes });
    assert_eq!(device.allocate_at(4 * MIB, BASES[0] + 8 * MIB + 512), gone(4 * MIB), "it ends before that");
    assert_eq!(device.allocate_at(512, BASES[0]), gone(512), "a small request");
    assert_eq!(device.allocate_at(MIB + MIB / 2, BASES[1]), gone(MIB + MIB / 2), "a large one");
    let grant = device.allocate_at(4 * MIB, BASES[0] + 8 * MIB).expect("it is free");
    assert_eq!((grant.slot, grant.offset), (large.slot, 8 * MIB));
    assert_eq!(device.allocate_at(512, BASES[1] + 512).map(|grant| grant.offset), Ok(512));
}
