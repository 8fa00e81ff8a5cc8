//! The cost of ticks, and how long memory takes from a free on one stream, with uses on another, to its reuse.

use std::hint::black_box;
use std::time::Instant;

use millpond::settings::{Policy, Segments};
use millpond_backend::{Backend, Point};

use super::measure::{Effort, Rounds, each, median, nanos, rounds};
use super::row::Row;
use super::scene::{Scene, driver, failed, if_room};
use crate::failure::Failure;

/// The size in bytes of the block that is used on a second stream.
const BYTES: u64 = 1 << 20;
/// The number of round trips between host and device that are timed together, since one trip costs microseconds.
const TRIPS: u64 = 20;
/// The number of fills that keep a stream busy.
const FILLS: usize = 8;

pub(super) fn measure<B: Backend>(backend: B, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let scene = Scene::new(backend, Policy::Classic(Segments::Plain), 2)?;
    let mut rows = ticks(&scene, effort)?;
    let reuse = (0..effort.rounds * TRIPS as usize).map(|_| reuse(&scene)).collect::<Result<Vec<_>, _>>()?;
    rows.push(Row::new("streams", "from a free to reuse, used on another stream", median(reuse)).of_bytes(BYTES));
    Ok(rows)
}

fn ticks<B: Backend>(scene: &Scene<B>, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let (backend, [home, other]) = (scene.backend(), [scene.streams[0].id(), scene.streams[1].id()]);
    let submit = || backend.submit(home).map(|tick| Point { stream: home, tick }).map_err(|error| driver(&error));
    let wait = |point| backend.wait(point).map(|_| ()).map_err(|error| driver(&error));
    let mark = rounds(effort, || {
        each(effort.operations, || {
            black_box(backend.mark(home));
            Ok::<_, Failure>(())
        })
    })?;
    wait(submit()?)?;
    let reached = rounds(effort, || {
        each(effort.operations, || backend.reached(home).map(black_box).map(|_| ()).map_err(|error| driver(&error)))
    })?;
    let submits = rounds(effort, || {
        let cost = each(TRIPS, || submit().map(|_| ()))?;
        wait(submit()?)?;
        Ok::<_, Failure>(cost)
    })?;
    let trips = rounds(effort, || each(TRIPS, || wait(submit()?)))?;
    let mut rows = vec![
        Row::new("streams", "mark", mark),
        Row::new("streams", "reached, nothing outstanding", reached),
        Row::new("streams", "submit nothing", submits),
        Row::new("streams", "submit nothing and wait for it", trips),
    ];
    rows.extend(outstanding(scene, effort)?.map(|ns| Row::new("streams", "reached, work outstanding", ns)));
    if let Some(waits) = backend.stream_wait() {
        let queued = rounds(effort, || {
            let cost = each(TRIPS, || waits.wait_for(other, submit()?).map_err(|error| driver(&error)))?;
            scene.settle()?;
            Ok::<_, Failure>(cost)
        })?;
        rows.push(Row::new("streams", "submit, and have another stream wait for it", queued));
    }
    Ok(rows)
}

/// Measures what it takes to ask which tick a busy stream has reached. Returns `None` where the device cannot be kept
/// busy for that long: it moves no bytes, or moves them in no time.
fn outstanding<B: Backend>(scene: &Scene<B>, effort: &Effort) -> Result<Option<Rounds>, Failure> {
    let (backend, home) = (scene.backend(), &scene.streams[0]);
    if !backend.caps().transfer || backend.driver_clock().is_some() {
        return Ok(None);
    }
    let Some(buffer) = if_room::<B, _>(home.allocate(effort.bytes_max))? else { return Ok(None) };
    let mut costs = Vec::new();
    for _ in 0..effort.rounds {
        for _ in 0..FILLS {
            home.fill(&buffer, 0, buffer.len(), 1).map_err(failed)?;
        }
        let point = home.submit().map_err(failed)?;
        let mut reached = backend.reached(home.id()).map_err(|error| driver(&error))?;
        let cost = each(TRIPS, || {
            reached = backend.reached(home.id()).map_err(|error| driver(&error))?;
            Ok::<_, Failure>(())
        })?;
        if reached < point.tick {
            costs.push(cost);
        }
        scene.settle()?;
    }
    Ok((!costs.is_empty()).then(|| median(costs)))
}

/// Uses a block on a second stream, frees it, and allocates the same size again. Returns the time from the free to the
/// grant, in nanoseconds.
///
/// # Panics
///
/// If the grant is at another place.
fn reuse<B: Backend>(scene: &Scene<B>) -> Result<f64, Failure> {
    let [home, other] = [&scene.streams[0], &scene.streams[1]];
    let buffer = home.allocate(BYTES).map_err(failed)?;
    buffer.record_stream(other).map_err(failed)?;
    let place = (buffer.segment_id(), buffer.offset());
    let start = Instant::now();
    drop(buffer);
    scene.settle()?;
    let again = home.allocate(BYTES).map_err(failed)?;
    let took = nanos(start.elapsed());
    let found = (again.segment_id(), again.offset());
    assert_eq!(found, place, "a block whose uses are over was not the first to be handed out again");
    Ok(took)
}
