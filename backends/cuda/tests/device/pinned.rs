//! The cache of page-locked memory on the driver's own: memory that is handed out too early would give wrong bytes.

use std::collections::VecDeque;

use millpond::{Allocator, Buffer, Error, Pinned, Stream};
use millpond_backend::ClassId;
use millpond_cuda::testing::Cuda;

use crate::lab::device;

const UPLOADS: u64 = 1000;
/// The number of copies that are queued before the oldest is checked.
const AHEAD: usize = 8;

fn scene(cuda: &Cuda) -> (Allocator<Cuda>, Pinned<Cuda>) {
    let allocator = Allocator::new(cuda.clone());
    let pinned = allocator.pinned().unwrap();
    (allocator, pinned)
}

/// Returns a size from 4 KiB to 4 MiB: every octave is equally likely, and the sizes are in no order.
fn size(number: u64) -> usize {
    let drawn = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let octave = 12 + (drawn >> 32) % 10;
    (1 << octave) + ((drawn >> 40) % (1 << octave)) as usize
}

/// Fills the bytes with a pattern that no other upload has.
fn write(bytes: &mut [u8], number: u64) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = (at as u64 * 31 + (at as u64 >> 8) + number * 7) as u8;
    }
}

fn expect(stream: &Stream<Cuda>, target: &Buffer<Cuda>, number: u64) {
    let (mut arrived, mut sent) = (vec![0; size(number)], vec![0; size(number)]);
    stream.download(target, 0, &mut arrived).unwrap();
    write(&mut sent, number);
    assert!(arrived == sent, "upload {number} of {} bytes did not arrive as it was sent", sent.len());
}

#[test]
fn a_thousand_uploads_arrive_as_they_were_sent() {
    let Some(cuda) = device() else { return };
    let (allocator, pinned) = scene(&cuda);
    let streams = [allocator.create_stream().unwrap(), allocator.create_stream().unwrap()];
    let mut queued: VecDeque<(u64, Buffer<Cuda>)> = VecDeque::new();
    for number in 0..UPLOADS {
        let stream = &streams[number as usize % 2];
        let target = stream.allocate(size(number) as u64).unwrap();
        let mut batch = pinned.allocate(size(number) as u64).unwrap();
        write(batch.bytes_mut().unwrap(), number);
        stream.upload_pinned((&batch, 0), (&target, 0), batch.len()).unwrap();
        drop(batch);
        queued.push_back((number, target));
        if queued.len() > AHEAD
            && let Some((number, target)) = queued.pop_front()
        {
            expect(&streams[number as usize % 2], &target, number);
        }
    }
    for (number, target) in queued {
        expect(&streams[number as usize % 2], &target, number);
    }
    let (cache, stats) = (pinned.cache(), pinned.cache().stats());
    let (most, live) = (cache.max_memory_reserved() as f64, stats.requested_bytes.all.peak as f64);
    assert!(most < 1.15 * live, "{most} bytes were reserved, {live} live");
    let calls = cache.driver_activity().calls;
    assert!(calls < UPLOADS / 2, "{calls} driver calls for {UPLOADS} copies");
    cache.empty_cache().unwrap();
    assert_eq!(cache.memory_reserved(), 0);
    cache.check();
}

#[test]
fn memory_that_a_copy_still_reads_goes_to_nobody() {
    const BYTES: u64 = 1 << 16;
    let Some(cuda) = device() else { return };
    let (allocator, pinned) = scene(&cuda);
    let (stream, other) = (allocator.create_stream().unwrap(), allocator.create_stream().unwrap());
    let target = stream.allocate(BYTES).unwrap();
    // Two blocks, so that the allocations below take nothing from the driver while the stream is held.
    drop([pinned.allocate(BYTES).unwrap(), pinned.allocate(BYTES).unwrap()]);
    let calls = pinned.cache().driver_activity().calls;
    stream.synchronize().unwrap();

    cuda.hold(stream.id()).unwrap();
    let mut batch = pinned.allocate(BYTES).unwrap();
    let place = batch.host_address();
    batch.bytes_mut().unwrap().fill(1);
    stream.upload_pinned((&batch, 0), (&target, 0), BYTES).unwrap();
    assert!(matches!(batch.bytes_mut(), Err(Error::InUse { .. })), "the copy has not begun");
    drop(batch);
    let mut next = pinned.allocate(BYTES).unwrap();
    assert_ne!(next.host_address(), place, "the copy still has to read there");
    next.bytes_mut().unwrap().fill(2);
    assert_eq!(pinned.cache().driver_activity().calls, calls);
    cuda.unhold(stream.id());

    let mut arrived = vec![0; BYTES as usize];
    stream.download(&target, 0, &mut arrived).unwrap();
    assert!(arrived.iter().all(|&byte| byte == 1));
    // The memory is free now, also for another stream.
    let mut again = pinned.allocate(BYTES).unwrap();
    assert_eq!(again.host_address(), place);
    other.wait_for(stream.submit().unwrap()).unwrap();
    other.download_pinned((&target, 0), (&mut again, 0), BYTES).unwrap();
    again.wait().unwrap();
    assert!(again.bytes().unwrap().iter().all(|&byte| byte == 1));
}

#[test]
fn the_class_is_the_drivers_page_locked_memory() {
    let Some(cuda) = device() else { return };
    let (_allocator, pinned) = scene(&cuda);
    let buffer = pinned.allocate(4096).unwrap();
    assert_eq!(cuda.held_bytes(), 0, "host memory is not the device's");
    assert!(buffer.address().is_some(), "kernels can read it");
    // SAFETY: no work is queued on it.
    let (segment, _) = unsafe { buffer.segment() }.unwrap();
    assert_eq!(segment.class(), ClassId(1));
}
