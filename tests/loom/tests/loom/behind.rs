//! A device that is behind the host: waits, pauses and the end of the allocator last until another thread lets it go
//! on.

use std::sync::Arc;

use loom::thread;
use millpond::backend::Backend;
use millpond::settings::{Policy, Segments, Settings};
use millpond::{Allocator, Buffer};

use super::{Device, MIB, Witness, allocate, explore_device, paged, settles, stream};

/// Checks that no unfinished kernel uses the buffer's memory.
fn expect_idle(witness: &Witness, buffer: &Buffer<Device>) {
    let number = buffer.segment().map_or(u64::MAX, |segment| segment.number);
    let (start, end) = (buffer.offset(), buffer.offset() + buffer.capacity());
    assert!(!witness.is_busy(number, start, end), "{buffer:?} was handed out while a kernel used it");
}

#[test]
fn memory_used_elsewhere_is_handed_out_when_its_point_is_reached() {
    explore_device(2, Settings::default(), |allocator, witness| {
        let (one, two) = (stream(&allocator), stream(&allocator));
        let shared = allocate(&one, 1000);
        let point = witness.queue(&two, &shared);
        shared.used_until(point).unwrap();
        let (device, id) = (Arc::clone(&witness), two.id());
        let finishing = thread::spawn(move || device.finish(id));
        drop(shared);
        for _ in 0..2 {
            let buffer = allocate(&one, 1000);
            expect_idle(&witness, &buffer);
        }
        finishing.join().unwrap();
        drop((one, two));
        allocator.poll().unwrap();
        settles(&allocator, 3);
    });
}

/// Caches all memory on one stream, with blocks that another stream still uses: the miss of a third stream waits for
/// it.
fn a_miss_waits(settings: Settings) {
    explore_device(2, settings, |allocator, witness| {
        let (one, two, three) = (stream(&allocator), stream(&allocator), stream(&allocator));
        let blocks = [allocate(&one, MIB), allocate(&one, MIB), allocate(&one, MIB), allocate(&one, MIB)];
        for block in [&blocks[0], &blocks[2]] {
            witness.queue(&two, block);
            block.record_stream(&two).unwrap();
        }
        drop(blocks);
        let (device, id) = (Arc::clone(&witness), two.id());
        let finishing = thread::spawn(move || device.finish(id));
        let buffer = allocate(&three, MIB);
        expect_idle(&witness, &buffer);
        finishing.join().unwrap();
        drop((buffer, one, two, three));
        allocator.poll().unwrap();
        settles(&allocator, 5);
    });
}

#[test]
fn a_miss_waits_until_the_device_is_done() {
    a_miss_waits(Settings::default());
}

#[test]
fn a_miss_waits_until_the_device_is_done_with_pages() {
    a_miss_waits(paged());
}

/// Lets two threads miss at once. One waits for the device and gives memory back; the other one pauses meanwhile.
fn two_misses(settings: Settings) {
    explore_device(1, settings, |allocator, witness| {
        let (one, two) = (stream(&allocator), stream(&allocator));
        let blocks = [allocate(&one, MIB), allocate(&one, MIB), allocate(&one, MIB)];
        for block in [&blocks[0], &blocks[2]] {
            witness.queue(&one, block);
        }
        drop(blocks);
        let (device, id) = (Arc::clone(&witness), one.id());
        let finishing = thread::spawn(move || device.finish(id));
        let misses = two.clone();
        let other = thread::spawn(move || misses.allocate(MIB).is_ok());
        let own = two.allocate(MIB).is_ok();
        let others = other.join().unwrap();
        assert!(own && others, "memory that was waited for was reported missing");
        finishing.join().unwrap();
        drop((one, two));
        settles(&allocator, 5);
    });
}

#[test]
fn a_miss_pauses_while_another_waits_for_the_device() {
    two_misses(Settings::default());
}

#[test]
fn a_miss_pauses_while_another_waits_for_the_device_with_pages() {
    two_misses(paged());
}

#[test]
fn the_cache_is_emptied_while_the_device_is_behind() {
    explore_device(2, Settings::default(), |allocator, witness| {
        let (one, two) = (stream(&allocator), stream(&allocator));
        let block = allocate(&one, 100);
        witness.queue(&one, &block);
        drop(block);
        let (device, id) = (Arc::clone(&witness), one.id());
        let finishing = thread::spawn(move || device.finish(id));
        let emptying: Allocator<Device> = allocator.clone();
        let other = thread::spawn(move || emptying.empty_cache().is_ok());
        drop(allocate(&two, 100));
        assert!(other.join().unwrap());
        finishing.join().unwrap();
        drop((one, two));
        settles(&allocator, 2);
    });
}

/// The last buffers and the last handle are dropped while work is under way on both streams: the end waits for it.
#[test]
fn the_end_waits_for_the_device() {
    for policy in [Policy::Classic(Segments::Plain), Policy::Direct] {
        explore_device(2, Settings { policy, ..Settings::default() }, |allocator, witness| {
            let (one, two) = (stream(&allocator), stream(&allocator));
            let (a, b) = (allocate(&one, 100), allocate(&one, 100));
            witness.queue(&one, &a);
            b.used_until(witness.queue(&two, &b)).unwrap();
            let ids = [one.id(), two.id()];
            drop((one, two, allocator));
            let device = Arc::clone(&witness);
            let finishing = thread::spawn(move || ids.into_iter().for_each(|id| device.finish(id)));
            let other = thread::spawn(move || drop(a));
            drop(b);
            other.join().unwrap();
            finishing.join().unwrap();
        });
    }
}

#[test]
fn a_reused_block_is_ordered_on_its_own_stream_while_the_device_is_behind() {
    explore_device(2, Settings::default(), |allocator, witness| {
        let one = stream(&allocator);
        let block = allocate(&one, 1000);
        let (segment, offset) = (block.segment_id(), block.offset());
        witness.queue(&one, &block);
        let (device, id) = (Arc::clone(&witness), one.id());
        let finishing = thread::spawn(move || device.finish(id));
        drop(block);
        let again = allocate(&one, 1000);
        assert_eq!((again.segment_id(), again.offset()), (segment, offset), "the stream's order makes it safe");
        finishing.join().unwrap();
        assert_eq!(allocator.backend().reached(id).unwrap(), allocator.backend().mark(id));
        drop((again, one));
        settles(&allocator, 2);
    });
}
