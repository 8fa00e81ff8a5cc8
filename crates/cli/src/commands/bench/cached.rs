//! The cost of an allocation that the cache serves.

use std::hint::black_box;

use millpond::Stream;
use millpond::settings::Policy;
use millpond_backend::Backend;

use super::measure::{Effort, Meter, each, rounds};
use super::row::Row;
use super::scene::{Scene, failed};
use crate::failure::Failure;

/// One size of each kind of segment: small ones, large ones, and one of its own.
const SIZES: [u64; 3] = [4096, 2 << 20, 24 << 20];

pub(super) fn measure<B: Backend>(backend: B, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let policy = Policy::default_for(backend.caps().pages.is_some());
    let scene = Scene::new(backend, policy, 1)?;
    let stream = &scene.streams[0];
    let mut rows = Vec::new();
    for bytes in SIZES {
        pair(stream, bytes)?;
        let ns = rounds(effort, || each(effort.operations, || pair(stream, bytes)))?;
        let mut meter = Meter::new();
        for _ in 0..effort.operations {
            meter.time(|| pair(stream, bytes))?;
        }
        let case = format!("free and allocate, {}", policy.name());
        rows.push(Row::new("cached", case, ns).of_bytes(bytes).with_quantiles(meter.quantiles()));
    }
    Ok(rows)
}

fn pair<B: Backend>(stream: &Stream<B>, bytes: u64) -> Result<(), Failure> {
    drop(black_box(stream.allocate(black_box(bytes)).map_err(failed)?));
    Ok(())
}
