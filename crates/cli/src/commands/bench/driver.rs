//! The time that the driver takes to create and to release a segment of each size: `direct` makes each allocation one
//! call.

use millpond::settings::Policy;
use millpond_backend::Backend;

use super::measure::{Effort, median};
use super::row::Row;
use super::scene::{Scene, failed, if_room};
use crate::failure::Failure;

const FIRST: u64 = 4096;

pub(super) fn measure<B: Backend>(backend: B, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let scene = Scene::new(backend, Policy::Direct, 1)?;
    let mut rows = Vec::new();
    for bytes in effort.sizes(FIRST) {
        let (mut reserves, mut releases) = (Vec::new(), Vec::new());
        for _ in 0..effort.rounds {
            let Some((reserve, release)) = round(&scene, bytes, effort.calls)? else { break };
            reserves.push(reserve);
            releases.push(release);
        }
        if reserves.len() < effort.rounds {
            break;
        }
        let clock = scene.driver_clock();
        rows.push(Row::new("driver", "take a segment", median(reserves)).of_bytes(bytes).by(clock));
        rows.push(Row::new("driver", "give it back", median(releases)).of_bytes(bytes).by(clock));
    }
    Ok(rows)
}

/// Allocates and frees one segment after the other. Returns the nanoseconds for each call, or `None` where there is no
/// room.
fn round<B: Backend>(scene: &Scene<B>, bytes: u64, calls: u64) -> Result<Option<(f64, f64)>, Failure> {
    let (mut taken, mut given) = (0.0, 0.0);
    for _ in 0..calls {
        let mut buffer = None;
        taken += scene.driver_time(|| {
            buffer = if_room::<B, _>(scene.streams[0].allocate(bytes))?;
            Ok(())
        })?;
        let Some(buffer) = buffer else { return Ok(None) };
        given += scene.driver_time(|| {
            drop(buffer);
            scene.settle()?;
            scene.allocator.poll().map(drop).map_err(failed)
        })?;
        let left = scene.allocator.memory_reserved();
        assert_eq!(left, 0, "{left} bytes are left of a segment of {bytes} bytes that nothing uses");
    }
    Ok(Some((taken / calls as f64, given / calls as f64)))
}
