//! Running a program so that the device's pace has no say.

use millpond::trace::{Event, Trace};
use millpond::{Allocator, Buffer, Error, Stream};
use millpond_backend::{Backend, Closing, Fault};

use super::trail::{Recording, Trail};
use crate::session::Stop;
use crate::swarm::Random;

pub(super) const STREAMS: u32 = 3;
pub(super) const LIMIT_BYTES: u64 = 160 << 20;
const OPERATIONS: usize = 400;

/// How many layouts are looked at on the way through a trace.
const LOOKS: usize = 8;

/// Submits everything on these streams and waits for it.
fn settle<B: Backend>(allocator: &Allocator<B>, streams: &[&Stream<B>]) -> Result<(), Stop> {
    let backend = allocator.backend();
    for stream in streams {
        let point = stream.point();
        let submitted = backend.submit(point.stream).and_then(|_| backend.wait(point));
        let reached = submitted.map_err(|error| Stop::Fail(format!("the wait for {point} failed: {error}")))?;
        if reached < point.tick {
            return Err(Stop::Fail(format!("{point} was submitted, waited for, and is not reached")));
        }
    }
    Ok(())
}

/// A live block of a trace: its buffer, unless it was refused, and the streams that use it beside its own.
struct Live<B: Backend> {
    buffer: Option<Buffer<B>>,
    home: u32,
    users: Vec<u32>,
}

/// By block, whether the device is done with it later than the free: it goes then.
fn late_frees(trace: &Trace) -> Vec<bool> {
    let mut late = vec![false; trace.allocations()];
    for event in &trace.events {
        if let Event::Complete { id } = event {
            late[*id as usize] = true;
        }
    }
    late
}

pub(super) fn run_trace<B: Backend>(
    allocator: &Allocator<B>,
    streams: &[Stream<B>],
    trace: &Trace,
) -> Result<Trail, Stop> {
    let late = late_frees(trace);
    let mut recording = Recording::start(allocator);
    let mut blocks: Vec<Live<B>> = Vec::new();
    let mut points = Vec::new();
    let part = (trace.events.len() / LOOKS).max(1);
    for (at, event) in trace.events.iter().enumerate() {
        match *event {
            Event::Allocate { bytes, stream, .. } => {
                let buffer = granted(streams[stream as usize].allocate(bytes))?;
                blocks.push(Live { buffer, home: stream, users: Vec::new() });
            }
            Event::Free { id } if late[id as usize] => {}
            Event::Free { id } | Event::Complete { id } => {
                let live = &mut blocks[id as usize];
                drop(live.buffer.take());
                // Lent memory waits for the stream that had it. Where the device closes ticks it asks for itself.
                if !live.users.is_empty() || allocator.backend().caps().closing == Closing::Submit {
                    let all: Vec<_> = live.users.iter().chain([&live.home]).map(|&s| &streams[s as usize]).collect();
                    settle(allocator, &all)?;
                }
            }
            Event::Use { id, stream } => {
                let live = &mut blocks[id as usize];
                if let Some(buffer) = &live.buffer {
                    buffer.record_stream(&streams[stream as usize]).map_err(|error| error.to_string())?;
                    live.users.push(stream);
                }
            }
            Event::Mark { stream, .. } => points.push((stream, streams[stream as usize].point())),
            Event::Until { id, point } => {
                let live = &mut blocks[id as usize];
                if let Some(buffer) = &live.buffer {
                    let (stream, point) = points[point as usize];
                    buffer.used_until(point).map_err(|error| error.to_string())?;
                    live.users.push(stream);
                }
            }
            Event::EmptyCache | Event::Trim { .. } => {
                settle(allocator, &streams.iter().collect::<Vec<_>>())?;
                let done = match *event {
                    Event::Trim { bytes } => allocator.trim(bytes).map(drop),
                    _ => allocator.empty_cache(),
                };
                done.map_err(|error| error.to_string())?;
            }
        }
        if (at + 1) % part == 0 {
            recording.look();
        }
    }
    let trail = recording.finish();
    drop(blocks);
    settle(allocator, &streams.iter().collect::<Vec<_>>())?;
    Ok(trail)
}

/// A grant, or nothing where memory is short.
fn granted<B: Backend>(result: Result<Buffer<B>, Error<B::Error>>) -> Result<Option<Buffer<B>>, Stop> {
    match result {
        Ok(buffer) => Ok(Some(buffer)),
        Err(error) if error.fault() == Fault::OutOfMemory => Ok(None),
        Err(error) => Err(Stop::Fail(error.to_string())),
    }
}

pub(super) fn run_seed<B: Backend>(allocator: &Allocator<B>, streams: &[Stream<B>], seed: u64) -> Result<Trail, Stop> {
    let every: Vec<&Stream<B>> = streams.iter().collect();
    let mut recording = Recording::start(allocator);
    let mut random = Random::new(seed);
    let mut blocks: Vec<Buffer<B>> = Vec::new();
    for at in 0..OPERATIONS {
        match random.below(20) {
            0..11 => {
                let bytes = random.bytes(256, 24 << 20);
                match granted(streams[random.below(streams.len())].allocate(bytes))? {
                    Some(buffer) => blocks.push(buffer),
                    None if blocks.is_empty() => return Err(Stop::Fail(format!("operation {at}: {bytes} refused"))),
                    None => drop(blocks.swap_remove(random.below(blocks.len()))),
                }
            }
            11 if random.once_in(4) => {
                allocator.trim(LIMIT_BYTES / 2).map_err(|error| error.to_string())?;
            }
            11 if random.once_in(4) => allocator.empty_cache().map_err(|error| error.to_string())?,
            12..15 if !blocks.is_empty() => {
                let used = &blocks[random.below(blocks.len())];
                let stream = &streams[random.below(streams.len())];
                let noted =
                    if random.once_in(3) { used.used_until(stream.point()) } else { used.record_stream(stream) };
                noted.map_err(|error| error.to_string())?;
            }
            _ if !blocks.is_empty() => drop(blocks.swap_remove(random.below(blocks.len()))),
            _ => {}
        }
        // A request finds the same work done on every device.
        settle(allocator, &every)?;
    }
    recording.look();
    blocks.truncate(blocks.len() / 2);
    settle(allocator, &every)?;
    let trail = recording.finish();
    drop(blocks);
    settle(allocator, &every)?;
    Ok(trail)
}
