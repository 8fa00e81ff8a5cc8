//! What a request that missed sees of all streams: whether the device still uses what is free there. Under `balanced`
//! it creates pages then, and gathers nothing.

use millpond_backend::Tick;
use millpond_core::settings::Growth;

use crate::driver::{ASKED, Device, Held, MIB, is_poll};

/// Has the second stream hold blocks of these lengths in MiB, with 4 MiB between them that stay.
fn blocks(device: &mut Device, mib: &[u64]) -> Vec<Held> {
    let held = mib.iter().map(|mib| {
        let block = device.allocate(1, mib * MIB);
        device.allocate(1, 4 * MIB);
        block
    });
    held.collect()
}

/// Returns whether a request of the first stream for 30 MiB is served without new pages.
fn gathers(device: &mut Device) -> bool {
    let reserved = device.reserved();
    device.allocate(0, 30 * MIB);
    device.reserved() == reserved
}

#[test]
fn guards_whose_points_are_reached_do_not_hold_a_request_back() {
    for is_over in [true, false] {
        let mut device = Device::new(Growth::Balanced, 1 << 30);
        device.gpu.reached[2] = Tick(0);
        let held = blocks(&mut device, &[20, 20]);
        for block in held {
            device.record(block, 2);
            device.free(block, 5);
        }
        device.gpu.reached[2] = Tick(if is_over { 5 } else { 4 });
        assert_eq!(gathers(&mut device), is_over);
    }
}

/// The stream is behind with the last block that it freed, and takes it again: what is left free is ready.
#[test]
fn what_was_freed_last_and_is_in_use_again_does_not_hold_a_request_back() {
    for is_taken in [true, false] {
        let mut device = Device::new(Growth::Balanced, 1 << 30);
        device.gpu.reached[1] = Tick(1);
        let held = blocks(&mut device, &[20, 20, 12]);
        for (block, tick) in held.iter().zip([1, 1, 50]) {
            device.free(*block, tick);
        }
        if is_taken {
            let again = device.hit(1, 12 * MIB).expect("it is free");
            assert_eq!(again.offset, held[2].offset);
        }
        assert_eq!(gathers(&mut device), is_taken);
    }
}

/// Another thread uses memory of its stream behind the query of a plan, on that stream alone or on a third one as well.
/// Whether the device is behind with that is not known, and no reason to create memory.
#[test]
fn what_was_freed_since_the_streams_were_asked_does_not_hold_a_request_back() {
    for (is_shared, tick) in [(false, 50), (false, ASKED + 1), (true, 150), (true, ASKED + 1)] {
        let mut device = Device::new(Growth::Balanced, 1 << 30);
        device.gpu.reached[1] = Tick(1);
        for block in blocks(&mut device, &[20, 20, 12]) {
            device.free(block, 1);
        }
        let (mut plan, reserved) = (device.plan(0, 30 * MIB), device.reserved());
        device.past(&mut plan, is_poll);
        let used = device.hit(1, 12 * MIB).expect("it is free");
        if is_shared {
            device.record(used, 2);
        }
        device.free_unchecked(used, tick);
        assert!(device.finish(&mut plan, 0).is_some());
        assert_eq!(device.reserved() == reserved, tick > ASKED, "shared {is_shared}, at {tick}");
    }
}
