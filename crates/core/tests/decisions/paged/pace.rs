//! How fast streams come on, where they use the same memory.

use millpond_backend::Tick;
use millpond_core::settings::Growth;
use millpond_core::stats::Sharing;
use millpond_core::{Outcome, Polled};

use crate::driver::{ASKED, Device, MIB, is_poll, point, polled};

/// The time that the device takes for one block, in nanoseconds, where it does nothing else.
const EACH: u64 = 10_000;

/// How far the device is behind what streams at work have queued, in blocks.
const BEHIND: u64 = 3;

/// Stream 1 uses a block over and over that stream 2 has used meanwhile, whose work is done whenever it is asked. Now
/// and then stream 0 does nothing for some time.
struct World {
    device: Device,
    now: u64,
    /// The tick up to which stream 2 has used the block of stream 1.
    between: u64,
    /// What the streams have queued, in blocks: each has a tick.
    queued: [u64; 2],
}

impl World {
    fn new() -> Self {
        let mut device = Device::new(Growth::Tight, 64 * MIB);
        device.gpu.reached.fill(Tick(1));
        let blocks = [(1, 20), (0, 2), (0, 2), (0, 2)].map(|(stream, mib)| device.allocate(stream, mib * MIB));
        blocks.into_iter().step_by(2).for_each(|held| device.free(held, 1));
        Self { device, now: 0, between: 1, queued: [BEHIND; 2] }
    }

    /// Lets stream 1 use a block that another stream has used last, and stream 0 one of its own if it is at work. The
    /// device does as much of each in that time.
    fn work(&mut self, is_beside: bool, time: u64) {
        self.between += 1;
        let used = self.device.hit(2, 20 * MIB).expect("what stream 1 did there is over");
        self.device.free(used, self.between);
        let own = is_beside.then(|| self.device.hit(0, 2 * MIB).expect("stream 0 has free memory"));
        self.queued[0] += u64::from(is_beside);
        let mut plan = self.device.plan(1, 20 * MIB);
        let asks = self.device.until(&mut plan, is_poll);
        assert!(is_poll(&asks), "{asks:?}");
        self.now += time;
        let [first, second] = self.queued;
        let first_done = if is_beside { first - BEHIND } else { first };
        let outcome = Outcome::Polled {
            streams: vec![
                Polled { closed: Some(Tick(first)), ..polled(point(0, first_done), ASKED) },
                Polled { closed: Some(Tick(second)), ..polled(point(1, second - BEHIND), ASKED) },
                polled(point(2, self.between), ASKED),
            ],
            time: Some(self.now),
        };
        self.device.learn(&mut plan, outcome);
        let held = self.device.finish(&mut plan, 1).expect("there is room");
        assert_eq!(held.place(), used.place(), "the same block");
        self.queued[1] += 1;
        for held in own.into_iter().chain([held]) {
            self.device.free(held, 1);
        }
    }

    fn sharing(&mut self) -> Sharing {
        self.device.slack().sharing
    }
}

/// A block is work of the stream that uses it, whoever has used its memory before.
#[test]
fn a_block_that_another_stream_has_used_is_work_of_the_next_one() {
    let (same, twice) = ((EACH, Sharing::SideBySide), (2 * EACH, Sharing::InTurn));
    for ((beside, expected), (_, wrong)) in [(same, twice), (twice, same)] {
        let mut world = World::new();
        for turn in 0..1000 {
            let is_beside = turn / 20 % 2 == 1;
            world.work(is_beside, if is_beside { beside } else { EACH });
            assert_ne!(world.sharing(), wrong, "turn {turn}");
        }
        assert_eq!(world.sharing(), expected);
    }
}

/// What is found out follows the streams after totals were reset too: grants are counted on.
#[test]
fn it_is_found_out_after_totals_were_reset() {
    let mut world = World::new();
    for (beside, expected) in [(EACH, Sharing::SideBySide), (2 * EACH, Sharing::InTurn)] {
        for turn in 0..1000 {
            let is_beside = turn / 20 % 2 == 1;
            world.work(is_beside, if is_beside { beside } else { EACH });
        }
        assert_eq!(world.sharing(), expected);
        let Device { coordinator, shards, .. } = &mut world.device;
        coordinator.reset_totals(shards);
    }
}
