//! What pages cost: grown into, moved between streams, and given back.

use millpond::settings::Policy;
use millpond_backend::Backend;

use super::measure::{Effort, median};
use super::row::Row;
use super::scene::{Scene, failed, if_room};
use crate::failure::Failure;

/// Bytes that pages are got for, and moved, in a round.
const BYTES: u64 = 64 << 20;
/// What lies between two halves of that.
const BETWEEN: u64 = 16 << 20;

pub(super) fn measure<B: Backend>(backend: B, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let scene = Scene::new(backend, Policy::Paged, 2)?;
    let (mut got, mut moved, mut given): (Vec<f64>, Vec<f64>, Vec<f64>) = Default::default();
    for _ in 0..effort.rounds {
        let Some([get, shift, give]) = round(&scene)? else { return Ok(Vec::new()) };
        got.extend(get);
        moved.extend(shift);
        given.extend(give);
    }
    let clock = scene.driver_clock();
    let cases =
        [("create and map a page", got), ("move a page to another stream", moved), ("unmap and release a page", given)];
    let seen = cases.into_iter().filter(|(_, times)| !times.is_empty());
    Ok(seen.map(|(case, times)| Row::new("pages", case, median(times)).by(clock)).collect())
}

/// The driver's time for each page, for three acts: nothing for an act that concerned no page. Nothing at all where
/// there is no room.
fn round<B: Backend>(scene: &Scene<B>) -> Result<Option<[Option<f64>; 3]>, Failure> {
    let allocator = &scene.allocator;
    let each = |time: f64, pages: u64| (pages > 0).then(|| time / pages as f64);
    let before = allocator.page_stats();
    let mut parts = None;
    let get = scene.driver_time(|| {
        let take = |bytes| if_room::<B, _>(scene.streams[0].allocate(bytes));
        parts = take(BYTES / 2)?.zip(take(BETWEEN)?).zip(take(BYTES / 2)?);
        Ok(())
    })?;
    let Some(((first, between), second)) = parts else { return Ok(None) };
    let grown = allocator.page_stats();
    // Free pages with one in use between them: they can serve a request as large as both only elsewhere.
    drop((first, second));
    scene.settle()?;
    let mut whole = None;
    let shift = scene.driver_time(|| {
        whole = if_room::<B, _>(scene.streams[1].allocate(BYTES))?;
        Ok(())
    })?;
    let shifted = allocator.page_stats();
    drop((whole, between));
    scene.settle()?;
    let give = scene.driver_time(|| allocator.empty_cache().map_err(failed))?;
    let emptied = allocator.page_stats();
    Ok(Some([
        each(get, grown.created - before.created),
        each(shift, shifted.moved - grown.moved),
        each(give, emptied.released - shifted.released),
    ]))
}
