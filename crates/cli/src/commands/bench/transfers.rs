//! Fills, copies, uploads and downloads by size, each submitted and waited for.

use std::time::Instant;

use millpond::Buffer;
use millpond::settings::{Policy, Segments};
use millpond_backend::{Backend, Transfer};

use super::measure::{Effort, Rounds, nanos, rounds};
use super::row::Row;
use super::scene::{Scene, driver, if_room};
use crate::failure::Failure;

const FIRST: u64 = 4096;
/// The largest size, in bytes: larger ones would show nothing new.
const LARGEST: u64 = 64 << 20;

type Mover<'a, B> = dyn Transfer<Segment = <B as Backend>::Segment, Error = <B as Backend>::Error> + 'a;

pub(super) fn measure<B: Backend>(backend: B, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let scene = Scene::new(backend, Policy::Classic(Segments::Plain), 1)?;
    let Some(mover) = scene.backend().transfer() else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    for bytes in effort.sizes(FIRST).take_while(|bytes| *bytes <= LARGEST) {
        let buffers = [scene.streams[0].allocate(bytes), scene.streams[0].allocate(bytes)];
        let [Some(one), Some(other)] = buffers.map(if_room::<B, _>).map(|buffer| buffer.unwrap_or(None)) else { break };
        for (case, ns) in transfers(&scene, mover, [&one, &other], bytes, effort)? {
            rows.push(Row::new("transfer", case, ns).of_bytes(bytes).with_bandwidth());
        }
    }
    Ok(rows)
}

/// Returns the time of each kind of transfer in nanoseconds, until the device is done with it.
fn transfers<B: Backend>(
    scene: &Scene<B>,
    mover: &Mover<'_, B>,
    [one, other]: [&Buffer<B>; 2],
    bytes: u64,
    effort: &Effort,
) -> Result<[(&'static str, Rounds); 4], Failure> {
    let (Some(from), Some(to)) = (one.segment(), other.segment()) else {
        panic!("a buffer of {bytes} bytes has no segment")
    };
    let stream = scene.streams[0].id();
    let (from, to) = ((from, one.offset()), (to, other.offset()));
    let mut host = vec![7; bytes as usize];
    let timed = |act: &mut dyn FnMut() -> Result<(), B::Error>| {
        // The first call is not timed, as it makes the memory resident.
        act().map_err(|error| driver(&error))?;
        scene.settle()?;
        rounds(effort, || {
            let start = Instant::now();
            act().map_err(|error| driver(&error))?;
            scene.settle()?;
            Ok::<_, Failure>(nanos(start.elapsed()))
        })
    };
    let upload = timed(&mut || mover.upload(stream, &host, from.0, from.1))?;
    let fill = timed(&mut || mover.fill(stream, from.0, from.1, bytes, 7))?;
    let copy = timed(&mut || mover.copy(stream, from, to, bytes))?;
    let download = timed(&mut || mover.download(stream, to.0, to.1, &mut host))?;
    assert!(host.iter().all(|byte| *byte == 7), "{bytes} bytes did not come back as they were filled");
    Ok([("fill", fill), ("copy", copy), ("upload", upload), ("download", download)])
}
