//! Time: streams, marks, reached ticks, and waits.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use millpond_backend::{Backend, ClassId, Closing, Point, StreamId, Tick};

use super::bench::{Bench, Segment};
use super::{advised, breach};
use crate::device::DeviceUnderTest;
use crate::session::Stop;

/// The longest time that a wait may take. A wait that takes longer is reported as hanging.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time for which a wait blocks on held work before the work is released.
const HELD: Duration = Duration::from_millis(20);
const BYTES: u64 = 4096;
/// What to do where ticks are closed by another side than announced.
const CLOSING: &str = "announce Closing::Backend if the device begins work without a submit";
const ROUNDS: u64 = 4;

/// Queues work on a stream, where the device has fills.
pub(super) fn work<D: DeviceUnderTest>(bench: &Bench<'_, D>, stream: StreamId, on: &Segment<D>) -> Result<(), Stop> {
    let Some(mover) = bench.backend().transfer() else { return Ok(()) };
    let filled = mover.fill(stream, on, 0, BYTES, 7);
    filled.map_err(|error| {
        breach("Transfer::fill", format!("{BYTES} bytes on {stream}: {error}"), "sets bytes to the value")
    })
}

pub(super) fn dense_numbers<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let expected: Vec<StreamId> = (0..bench.streams.len() as u32).map(StreamId).collect();
    if bench.streams == expected {
        return Ok(());
    }
    let found = format!("a freshly opened device has made the streams {:?}", bench.streams);
    Err(breach("Backend::create_stream", found, "the next dense number, from 0, and never one that was given before"))
}

/// Checks that the backend knows the streams that it opened, and no others.
pub(super) fn streams_are_known<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    const RULE: &str = "whether the stream is this backend's";
    let backend = bench.backend();
    if let Some(own) = bench.streams.iter().find(|&&stream| !backend.has_stream(stream)) {
        return Err(breach("Backend::has_stream", format!("false for {own}, which was opened"), RULE));
    }
    for number in [bench.streams.len() as u32 + 7, u32::MAX] {
        let stranger = StreamId(number);
        if backend.has_stream(stranger) {
            return Err(breach("Backend::has_stream", format!("true for {stranger}, which was never opened"), RULE));
        }
    }
    Ok(())
}

/// Checks that a mark covers work that is not known to be complete, and that marks never fall.
pub(super) fn marks_rise<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    const VERB: &str = "Backend::mark";
    let segment = bench.reserve(ClassId::DEVICE, BYTES)?;
    for &stream in &bench.streams {
        let mut last = Tick::ZERO;
        for _ in 0..ROUNDS {
            let reached = bench.reached(stream)?;
            work(bench, stream, &segment)?;
            let mark = bench.backend().mark(stream);
            if mark <= reached {
                let found =
                    format!("{mark} on {stream} covers what was recorded just now, and {reached} was reached before");
                let rule = "the tick that covers everything recorded on the stream so far";
                let advice = "close the open tick in reached: return it, and let mark return the next one from then on";
                return Err(advised(breach(VERB, found, rule), advice));
            }
            if mark < last {
                return Err(breach(VERB, format!("{mark} on {stream} after {last}"), "ticks of a stream never fall"));
            }
            let submitted = bench.backend().submit(stream);
            let submitted = submitted.map_err(|error| breach("Backend::submit", error, "closes the open tick"))?;
            let rule = "answers the tick, which covers all work that anybody recorded on the stream so far";
            if submitted < mark {
                let found = format!("{stream} was marked with {mark}, and the submit after it answers {submitted}");
                return Err(breach("Backend::submit", found, rule));
            }
            let later = bench.backend().mark(stream);
            if bench.caps().closing == Closing::Submit && later <= submitted {
                let found = format!("{later} on {stream} after a submit that closed tick {submitted}");
                let rule = "a submit closes the open tick: what comes later has a later one";
                return Err(advised(breach(VERB, found, rule), CLOSING));
            }
            last = bench.finish_stream(stream)?;
            let reached = bench.reached(stream)?;
            if reached < mark {
                let found = format!("{reached} on {stream} after a wait for tick {mark} that was answered with {last}");
                return Err(breach("Backend::reached", found, "the newest tick of the stream known to be complete"));
            }
        }
    }
    bench.release(segment)
}

/// Checks that work that is not submitted, or is held, is not reached.
pub(super) fn reached_behind<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let (backend, stream) = (bench.backend(), bench.streams[1]);
    let segment = bench.reserve(ClassId::DEVICE, BYTES)?;
    let ahead = |point: Point, why: &str| {
        let reached = bench.reached(point.stream)?;
        if reached < point.tick {
            return Ok(());
        }
        let found = format!("{point} covers work that {why}, and {reached} is reached");
        Err(breach("Backend::reached", found, "never runs ahead of work that the tick covers"))
    };
    let mut seen = false;
    if bench.caps().closing == Closing::Submit {
        work(bench, stream, &segment)?;
        ahead(bench.point(stream), "was not submitted").map_err(|stop| advised(stop, CLOSING))?;
        seen = true;
    }
    bench.finish()?;
    if bench.device.hold(backend, stream) {
        work(bench, stream, &segment)?;
        let point = bench.point(stream);
        bench.device.submit(backend, stream);
        let judged = ahead(point, "is held");
        bench.device.unhold(backend, stream);
        judged?;
        seen = true;
    }
    bench.release(segment)?;
    if seen { Ok(()) } else { Err(Stop::Skip("the device has no work that runs until it is told to end".to_owned())) }
}

/// Checks that a wait for held work ends once the work is released, and returns no more than what was reached.
pub(super) fn wait_is_true<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let (backend, stream) = (bench.backend(), bench.streams[0]);
    let segment = bench.reserve(ClassId::DEVICE, BYTES)?;
    let held = bench.device.hold(backend, stream);
    work(bench, stream, &segment)?;
    let point = bench.point(stream);
    bench.device.submit(backend, stream);
    let waiting = wait_apart(bench, point);
    if held {
        thread::sleep(HELD);
        bench.device.unhold(backend, stream);
    }
    let (waited, reached) = waiting()?;
    if reached < waited {
        let found = format!("a wait for {point} answers {waited}, and {reached} is reached");
        return Err(breach("Backend::wait", found, "returns what was reached"));
    }
    // On a device where holding keeps work from being submitted, the wait may have found nothing to wait for.
    bench.finish_stream(stream)?;
    bench.release(segment)
}

/// Checks that a wait for work that was never submitted ends nevertheless.
pub(super) fn wait_ends<D: DeviceUnderTest>(bench: &Bench<'_, D>) -> Result<(), Stop> {
    let stream = bench.streams[0];
    let segment = bench.reserve(ClassId::DEVICE, BYTES)?;
    work(bench, stream, &segment)?;
    let point = bench.point(stream);
    let (waited, reached) = wait_apart(bench, point)()?;
    if reached < waited || (bench.caps().closing == Closing::Submit && waited >= point.tick) {
        let found = format!("{point} was never submitted, a wait for it answers {waited}, and {reached} is reached");
        return Err(breach("Backend::wait", found, "returns what was reached: the point, or all submitted work"));
    }
    bench.release(segment)
}

/// The tick that a wait returned, and the tick that was reached after it.
type Waited = Result<(Tick, Tick), Stop>;

/// Starts a wait on a separate thread. The function returned by this one receives the result, or reports that the wait
/// hangs. In that case the thread is left running.
fn wait_apart<D: DeviceUnderTest>(bench: &Bench<'_, D>, point: Point) -> impl FnOnce() -> Waited + use<D> {
    let (tell, told) = channel();
    let backend = bench.shared();
    thread::spawn(move || {
        let answer = backend.wait(point).and_then(|waited| Ok((waited, backend.reached(point.stream)?)));
        // The device is dropped before the result is sent, because the receiver may close the device next.
        drop(backend);
        let _ = tell.send(answer.map_err(|error| error.to_string()));
    });
    move || match told.recv_timeout(PATIENCE) {
        Ok(answer) => {
            answer.map_err(|error| breach("Backend::wait", format!("{point}: {error}"), "the driver's errors only"))
        }
        Err(_) => {
            let found = format!("{point} is waited for since {PATIENCE:?}");
            Err(breach("Backend::wait", found, "it cannot hang on work that was never submitted"))
        }
    }
}
