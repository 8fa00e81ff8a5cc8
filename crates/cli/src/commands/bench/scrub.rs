//! The cost of overwriting memory before it is granted.

use std::hint::black_box;
use std::time::Instant;

use millpond::settings::{Policy, Scrub, Settings};
use millpond_backend::Backend;

use super::measure::{Effort, nanos, rounds};
use super::row::Row;
use super::scene::{Scene, if_room};
use crate::failure::Failure;

/// One size of each kind of segment, and one that takes longer to overwrite than to allocate.
const SIZES: [u64; 4] = [4096, 2 << 20, 24 << 20, 256 << 20];

/// Measures a free and an allocation from the cache, until the device is done with what the allocation queued: with
/// nothing overwritten, and with everything.
pub(super) fn measure<B: Backend + Clone>(backend: B, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let policy = Policy::default_for(backend.caps().pages.is_some());
    let mut rows = Vec::new();
    for scrub in [Scrub::Off, Scrub::Always] {
        let settings = Settings { policy, scrub, ..Settings::default() };
        let scene = Scene::with(backend.clone(), settings, 1)?;
        let stream = &scene.streams[0];
        for bytes in SIZES.into_iter().filter(|bytes| *bytes <= effort.bytes_max) {
            let Some(first) = if_room::<B, _>(stream.allocate(bytes))? else { break };
            drop(first);
            scene.settle()?;
            let ns = rounds(effort, || {
                let start = Instant::now();
                for _ in 0..effort.calls {
                    drop(black_box(if_room::<B, _>(stream.allocate(black_box(bytes)))?));
                }
                scene.settle()?;
                Ok::<_, Failure>(nanos(start.elapsed()) / effort.calls as f64)
            })?;
            let case = format!("free and allocate, {}, scrub:{}", policy.name(), scrub.name());
            rows.push(Row::new("scrub", case, ns).of_bytes(bytes));
        }
    }
    Ok(rows)
}
