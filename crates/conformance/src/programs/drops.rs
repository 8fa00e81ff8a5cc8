//! The order in which handles, streams, buffers and threads end. In every order, memory lives as long as its buffer,
//! and the device has all memory back when the last of them is dropped.

use std::thread;

use millpond::{Allocator, Buffer, Stream};
use millpond_backend::Backend;

use crate::device::DeviceUnderTest;
use crate::session::{Setup, Stop, device_is_content, nothing_is_left, open_allocator};
use millpond::settings::Policy;

const STREAMS: u32 = 2;
/// The sizes of the blocks in bytes: one of each side, and one with a segment of its own.
const SIZES: [u64; 3] = [1000, 2 << 20, 12 << 20];

struct Opened<B: Backend> {
    allocator: Allocator<B>,
    streams: Vec<Stream<B>>,
    twin: Option<B>,
}

fn open<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<Opened<D::Backend>, Stop> {
    let setup = Setup { policy, conf: "", limit: None, streams: STREAMS, bytes: true };
    let (allocator, twin) = open_allocator(device, &setup)?;
    let streams = (0..STREAMS).map(|_| allocator.create_stream()).collect::<Result<Vec<_>, _>>();
    let streams = streams.map_err(|error| Stop::Skip(format!("no further stream: {error}")))?;
    Ok(Opened { allocator, streams, twin })
}

/// Allocates one block of each size on each stream.
fn some_buffers<B: Backend>(streams: &[Stream<B>]) -> Result<Vec<Buffer<B>>, Stop> {
    let mut buffers = Vec::new();
    for stream in streams {
        for bytes in SIZES {
            buffers.push(stream.allocate(bytes).map_err(|error| error.to_string())?);
        }
    }
    Ok(buffers)
}

/// Submits everything and waits for it.
fn sync<D: DeviceUnderTest>(device: &D, streams: &[Stream<D::Backend>], backend: &D::Backend) -> Result<(), Stop> {
    for stream in streams {
        let point = stream.point();
        device.submit(backend, stream.id());
        let reached = backend.wait(point).map_err(|error| error.to_string())?;
        if reached < point.tick {
            return Err(Stop::Fail(format!("{point} was submitted, waited for, and is not reached")));
        }
    }
    Ok(())
}

/// Checks that buffers still work after the handles are dropped, and that dropping the last one releases everything.
pub(super) fn allocator_first<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    let Opened { allocator, streams, twin } = open(device, policy)?;
    let buffers = some_buffers(&streams)?;
    buffers[0].record_stream(&streams[1]).map_err(|error| error.to_string())?;
    let (first, second) = (streams[0].id(), streams[1].id());
    sync(device, &streams, allocator.backend())?;
    drop((allocator, streams));
    if let Some(twin) = &twin {
        for (at, buffer) in buffers.iter().enumerate() {
            let stream = if at < SIZES.len() { first } else { second };
            still_works(twin, buffer, stream, at as u8 + 1)?;
        }
        if device.held_bytes(twin).is_some_and(|bytes| bytes == 0) {
            return Err(Stop::Fail("buffers are live and the device has everything back".to_owned()));
        }
        for stream in [first, second] {
            let point = millpond_backend::Point { stream, tick: twin.mark(stream) };
            device.submit(twin, stream);
            twin.wait(point).map(drop).map_err(|error| error.to_string())?;
        }
    }
    drop(buffers);
    // Where submits close ticks, that free lies in a tick that is never submitted. The device knows that nothing was
    // recorded in it.
    Ok(nothing_is_left(device, twin.as_ref())?)
}

/// Checks that device work can write the buffer and read what it wrote.
fn still_works<B: Backend>(
    backend: &B,
    buffer: &Buffer<B>,
    stream: millpond_backend::StreamId,
    value: u8,
) -> Result<(), Stop> {
    let (Some(mover), Some(segment)) = (backend.transfer(), buffer.segment()) else { return Ok(()) };
    let mut end = [0; 16];
    let at = buffer.offset() + buffer.capacity() - end.len() as u64;
    mover.fill(stream, segment, buffer.offset(), buffer.capacity(), value).map_err(|error| error.to_string())?;
    mover.download(stream, segment, at, &mut end).map_err(|error| error.to_string())?;
    if end == [value; 16] { Ok(()) } else { Err(Stop::Fail(format!("{buffer:?} holds {end:?}, not {value}"))) }
}

/// Checks that buffers can be dropped on threads that never used the allocator, after its handles are dropped.
pub(super) fn elsewhere<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    let Opened { allocator, streams, twin } = open(device, policy)?;
    let mut shares = [Vec::new(), Vec::new()];
    for (at, buffer) in some_buffers(&streams)?.into_iter().enumerate() {
        shares[at % 2].push(buffer);
    }
    sync(device, &streams, allocator.backend())?;
    drop((streams, allocator));
    thread::scope(|scope| shares.into_iter().for_each(|share| drop(scope.spawn(move || drop(share)))));
    Ok(nothing_is_left(device, twin.as_ref())?)
}

/// Checks that a clone of a handle is the same allocator, and that one handle is enough to keep it.
pub(super) fn clones<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    let Opened { allocator, streams, twin } = open(device, policy)?;
    let clone = allocator.clone();
    let buffers = some_buffers(&streams)?;
    let (one, other) = (allocator.memory_allocated(), clone.memory_allocated());
    if one != other || one == 0 {
        return Err(Stop::Fail(format!("one handle counts {one} bytes allocated, its clone {other}")));
    }
    drop(allocator);
    let again = clone.stream(streams[0].id()).and_then(|stream| stream.allocate(512)).map_err(|e| e.to_string())?;
    let foreign = clone.allocate(512, &streams[1]).map_err(|error| error.to_string())?;
    sync(device, &streams, clone.backend())?;
    drop((again, foreign, buffers));
    sync(device, &streams, clone.backend())?;
    clone.check();
    let left = clone.memory_allocated();
    if left != 0 {
        return Err(Stop::Fail(format!("every buffer is gone and {left} bytes are allocated")));
    }
    drop((clone, streams));
    Ok(nothing_is_left(device, twin.as_ref())?)
}

/// Checks that an allocator that is dropped while submitted work is in flight waits for the work before it releases
/// memory.
pub(super) fn in_flight<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    let Opened { allocator, streams, twin } = open(device, policy)?;
    let buffers = some_buffers(&streams)?;
    let backend = allocator.backend();
    for (at, buffer) in buffers.iter().enumerate() {
        let (home, other) = if at < SIZES.len() { (0, 1) } else { (1, 0) };
        if let (Some(mover), Some(segment)) = (backend.transfer(), buffer.segment()) {
            let filled = mover.fill(streams[home].id(), segment, buffer.offset(), buffer.capacity(), 9);
            filled.map_err(|error| error.to_string())?;
        }
        buffer.record_stream(&streams[other]).map_err(|error| error.to_string())?;
    }
    drop(buffers);
    device_is_content(device, backend)?;
    for stream in &streams {
        device.submit(backend, stream.id());
    }
    drop((allocator, streams));
    Ok(nothing_is_left(device, twin.as_ref())?)
}

/// Checks that an allocator that is dropped while recorded work is not submitted leaves its memory until that work is
/// done, and that nothing is left then.
pub(super) fn not_submitted<D: DeviceUnderTest>(device: &D, policy: Policy) -> Result<(), Stop> {
    let Opened { allocator, streams, twin } = open(device, policy)?;
    let buffers = some_buffers(&streams)?;
    let backend = allocator.backend();
    for (at, buffer) in buffers.iter().enumerate() {
        let (home, other) = if at < SIZES.len() { (0, 1) } else { (1, 0) };
        if let (Some(mover), Some(segment)) = (backend.transfer(), buffer.segment()) {
            let filled = mover.fill(streams[home].id(), segment, buffer.offset(), buffer.capacity(), 9);
            filled.map_err(|error| error.to_string())?;
        }
        buffer.record_stream(&streams[other]).map_err(|error| error.to_string())?;
    }
    let ids = [streams[0].id(), streams[1].id()];
    drop((buffers, allocator, streams));
    let Some(twin) = twin else { return Ok(()) };
    device_is_content(device, &twin)?;
    for stream in ids {
        let point = millpond_backend::Point { stream, tick: twin.mark(stream) };
        device.submit(&twin, stream);
        twin.wait(point).map(drop).map_err(|error| error.to_string())?;
    }
    Ok(nothing_is_left(device, Some(&twin))?)
}
