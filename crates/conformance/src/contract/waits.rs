//! What may be read after a wait: by the host's word that work is complete, and by waits on the device.

use std::thread;
use std::time::Duration;

use millpond_backend::{Backend, ClassId, Point, StreamId};

use super::bench::Bench;
use super::{advised, breach, wrong_byte};
use crate::device::DeviceUnderTest;
use crate::session::Stop;

const VERB: &str = "StreamWait::wait_for";
const RULE: &str = "work recorded on the stream from now on begins only after the point is reached";
const BYTES: u64 = 1 << 20;

/// The size of what is written before it is read on another stream: it takes a device some time.
const LARGE_BYTES: u64 = 16 << 20;
/// The most times that a stream is asked how far it is.
const POLLS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// Checks that a stream can read what another one wrote once `reached` or `wait` has said that the work is complete,
/// with nothing else between. It needs no control of the author's: what is said too early shows old bytes, unless the
/// device is fast enough to hide it.
pub(super) fn can_be_read<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    const RULE: &str = "never runs ahead: all work that mark covered with the tick is complete and visible";
    let (mover, [writer, reader]) = (bench.mover()?, [bench.streams[0], bench.streams[1]]);
    let class = bench.caps().class(ClassId::DEVICE);
    let bytes = LARGE_BYTES.min(class.max_segment_bytes).min(class.total_bytes / 8) / 64 * 64;
    let segment = bench.reserve(ClassId::DEVICE, bytes)?;
    for (round, value) in (1_u8..=8).enumerate() {
        mover.fill(writer, &segment, 0, bytes, value).map_err(|error| breach("Transfer::fill", error, "sets bytes"))?;
        let point = bench.point(writer);
        bench.device.submit(bench.backend(), writer);
        let (verb, said) = if round % 2 == 0 {
            ("Backend::reached", is_reached(bench, point)?)
        } else {
            let waited = bench.backend().wait(point);
            let waited = waited.map_err(|error| breach("Backend::wait", error, "the driver's errors only"))?;
            ("Backend::wait", waited >= point.tick)
        };
        if said {
            let mut seen = [0; 64];
            let read = mover.download(reader, &segment, bytes - 64, &mut seen);
            read.map_err(|error| breach("Transfer::download", error, "copies device bytes to the host"))?;
            if let Some(wrong) = wrong_byte(&seen, &[value; 64]) {
                let found = format!(
                    "it answers that {point} is reached, which covers a fill of {bytes} bytes with {value}; {reader} \
                     then reads the last 64, and {wrong}"
                );
                let advice = "return a tick only when the driver says that the work before its mark is done";
                return Err(advised(breach(verb, found, RULE), advice));
            }
        }
        bench.finish()?;
    }
    bench.release(segment)
}

/// Asks until a point is reached, if it soon is.
fn is_reached<D: DeviceUnderTest>(bench: &Bench<'_, D>, point: Point) -> Result<bool, Stop> {
    for _ in 0..POLLS {
        if bench.reached(point.stream)? >= point.tick {
            return Ok(true);
        }
        thread::sleep(PAUSE);
    }
    Ok(false)
}

fn wait_for<D: DeviceUnderTest>(bench: &Bench<'_, D>, stream: StreamId, point: Point) -> Result<(), Stop> {
    let missing =
        || breach("Backend::stream_wait", "answers none", "returns itself where Caps::stream_wait announces it");
    let waited = bench.backend().stream_wait().ok_or_else(missing)?.wait_for(stream, point);
    waited.map_err(|error| breach(VERB, format!("{stream} cannot wait for {point}: {error}"), RULE))
}

/// Checks that one stream can copy what another wrote, when only the device makes it wait.
pub(super) fn stream_waits<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let (backend, [earlier, later]) = (bench.backend(), [bench.streams[0], bench.streams[1]]);
    let [from, to] = [bench.reserve(ClassId::DEVICE, BYTES)?, bench.reserve(ClassId::DEVICE, BYTES)?];
    let mover = backend.transfer();
    for (round, value) in (1_u8..=4).enumerate() {
        // Only the first round is held: on a device that does not submit held work, the stream then has nothing to wait
        // for.
        let mut held = round == 0 && bench.device.hold(backend, earlier);
        if let Some(mover) = mover {
            mover
                .fill(earlier, &from, 0, BYTES, value)
                .map_err(|error| breach("Transfer::fill", error, "sets bytes"))?;
        }
        let point = bench.point(earlier);
        bench.device.submit(backend, earlier);
        if let Err(refused) = wait_for(bench, later, point) {
            if !held {
                return Err(refused);
            }
            held = false;
            bench.device.unhold(backend, earlier);
            wait_for(bench, later, point)?;
        }
        if D::comes_after(backend, later, point) == Some(false) {
            let found = format!("{later} was told to wait for {point}, and does not come after it");
            return Err(breach(VERB, found, RULE));
        }
        if let Some(mover) = mover {
            let copied = mover.copy(later, (&from, 0), (&to, 0), BYTES);
            copied.map_err(|error| breach("Transfer::copy", error, "copies between two places"))?;
        }
        let behind = bench.point(later);
        bench.device.submit(backend, later);
        if held {
            let reached = bench.reached(later)?;
            bench.device.unhold(backend, earlier);
            if reached >= behind.tick {
                let found =
                    format!("{behind} comes behind a wait for {point}, which is held, and {reached} is reached");
                return Err(breach(VERB, found, RULE));
            }
        }
        if let Some(mover) = mover {
            let mut seen = [0; 64];
            let read = mover.download(later, &to, BYTES - 64, &mut seen);
            read.map_err(|error| breach("Transfer::download", error, "copies device bytes to the host"))?;
            if seen != [value; 64] {
                let found =
                    format!("{later} waited for {point}, behind which {value} was written, and copied {}", seen[0]);
                return Err(breach(VERB, found, RULE));
            }
        }
        bench.finish()?;
        // A point that is reached, and a point of the stream itself, are no reason to wait.
        wait_for(bench, later, point)?;
        wait_for(bench, earlier, point)?;
    }
    bench.release(from)?;
    bench.release(to)
}
