//! Runs a program so that the device's speed has no influence on its results.

use millpond::{Allocator, Buffer, Error, Stream};
use millpond_backend::{Backend, Fault};
use millpond_replay::Replay;
use millpond_trace::{Random, Trace};

use super::trail::{Recording, Trail};
use crate::session::Stop;

pub(super) const STREAMS: u32 = 3;
pub(super) const LIMIT_BYTES: u64 = 160 << 20;
const OPERATIONS: usize = 400;

/// Submits everything on these streams and waits for it.
fn settle<B: Backend>(allocator: &Allocator<B>, streams: &[Stream<B>]) -> Result<(), Stop> {
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

/// Runs the first half of a trace and then the whole trace. The layout after each of the two is compared.
pub(super) fn run_trace<B: Backend>(
    allocator: &Allocator<B>,
    streams: &[Stream<B>],
    trace: &Trace,
) -> Result<Trail, Stop> {
    let mut recording = Recording::start(allocator);
    let mut half = trace.clone();
    half.events.truncate(trace.events.len() / 2);
    for part in [&half, trace] {
        Replay::new(part).pass(allocator, streams).map_err(|error| Stop::Fail(error.to_string()))?;
        recording.look();
    }
    Ok(recording.finish())
}

/// Returns the grant, or `None` where memory is short.
fn granted<B: Backend>(result: Result<Buffer<B>, Error<B::Error>>) -> Result<Option<Buffer<B>>, Stop> {
    match result {
        Ok(buffer) => Ok(Some(buffer)),
        Err(error) if error.fault() == Fault::OutOfMemory => Ok(None),
        Err(error) => Err(Stop::Fail(error.to_string())),
    }
}

pub(super) fn run_seed<B: Backend>(allocator: &Allocator<B>, streams: &[Stream<B>], seed: u64) -> Result<Trail, Stop> {
    let mut recording = Recording::start(allocator);
    let mut random = Random::new(seed);
    let mut blocks: Vec<Buffer<B>> = Vec::new();
    for at in 0..OPERATIONS {
        let draw = random.index(20);
        if draw < 12 {
            // All work is complete before a request, trim or emptying, so that it finds the same state on every device.
            settle(allocator, streams)?;
        }
        match draw {
            0..11 => {
                let bytes = random.bytes(256, 24 << 20);
                match granted(streams[random.index(streams.len())].allocate(bytes))? {
                    Some(buffer) => blocks.push(buffer),
                    None if blocks.is_empty() => return Err(Stop::Fail(format!("operation {at}: {bytes} refused"))),
                    None => drop(blocks.swap_remove(random.index(blocks.len()))),
                }
            }
            11 if random.one_in(4) => {
                allocator.trim(LIMIT_BYTES / 2).map_err(|error| error.to_string())?;
            }
            11 if random.one_in(4) => allocator.empty_cache().map_err(|error| error.to_string())?,
            12..15 if !blocks.is_empty() => {
                let used = &blocks[random.index(blocks.len())];
                let stream = &streams[random.index(streams.len())];
                let noted = if random.one_in(3) { used.used_until(stream.point()) } else { used.record_stream(stream) };
                noted.map_err(|error| error.to_string())?;
            }
            _ if !blocks.is_empty() => drop(blocks.swap_remove(random.index(blocks.len()))),
            _ => {}
        }
    }
    recording.look();
    blocks.truncate(blocks.len() / 2);
    settle(allocator, streams)?;
    let trail = recording.finish();
    drop(blocks);
    settle(allocator, streams)?;
    Ok(trail)
}
