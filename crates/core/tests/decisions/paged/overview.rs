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

/// What the stream itself has freed is ready for it, however far the device is. What another stream has freed and the
/// device still uses holds the request back.
#[test]
fn what_a_stream_has_freed_itself_does_not_hold_its_request_back() {
    for is_own in [true, false] {
        let mut device = Device::new(Growth::Balanced, 1 << 30);
        let held = blocks(&mut device, &[20, 20]);
        held.into_iter().for_each(|block| device.free(block, 1));
        let stream = if is_own { 0 } else { 1 };
        let again = [20, 20].map(|mib| device.allocate(stream, mib * MIB));
        again.into_iter().for_each(|block| device.free(block, 150));
        assert_eq!(gathers(&mut device), is_own);
    }
}

/// Another thread uses memory of its stream after the query of a plan, on that stream alone or on a third one as well.
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
        assert_eq!(device.reserved(), reserved, "shared {is_shared}, at {tick}");
    }
}
