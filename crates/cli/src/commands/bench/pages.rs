//! What pages cost: grown into, mapped once more for another stream, and given back.

use std::time::Instant;

use millpond::settings::{Growth, Policy};
use millpond_backend::{Backend, Closing};

use super::measure::{Effort, median};
use super::row::{Clock, Row};
use super::scene::{Scene, failed, if_room};
use crate::failure::Failure;

/// The bytes whose pages are created, and mapped once more, in a round.
const BYTES: u64 = 64 << 20;
/// The bytes that lie between the two halves of those.
const BETWEEN: u64 = 16 << 20;

pub(super) fn measure<B: Backend>(backend: B, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let scene = Scene::new(backend, Policy::paged(Growth::Balanced), 2)?;
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..effort.rounds {
        let Some(round) = round(&scene)? else { return Ok(Vec::new()) };
        times.iter_mut().zip(round).for_each(|(times, time)| times.extend(time));
    }
    let clock = scene.driver_clock();
    let rows = CASES.into_iter().zip(times).filter(|(_, times)| !times.is_empty());
    let clock_of = |case| if case == CASES[2] { Clock::Host } else { clock };
    Ok(rows.map(|(case, times)| Row::new("pages", case, median(times)).by(clock_of(case))).collect())
}

/// The cases, each measured for one page. Where mapping is queued work, its time shows only in the third: how much
/// longer a submit and the wait for it take with a page to bind than without.
const CASES: [&str; 4] = [
    "create and map a page",
    "map a page once more, for another stream",
    "bind such a page, in a submit",
    "unmap and release a page",
];

/// Submits every stream and waits until all work is done. Returns the time that this took, in nanoseconds.
fn settling<B: Backend>(scene: &Scene<B>) -> Result<f64, Failure> {
    let start = Instant::now();
    scene.settle()?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// Returns the time for each page in nanoseconds, by case: `None` for a case that concerned no page. Returns `None`
/// instead of all times where there is no room.
fn round<B: Backend>(scene: &Scene<B>) -> Result<Option<[Option<f64>; 4]>, Failure> {
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
    // The pages between the two free halves are in use, so a request as large as both halves can only be served
    // elsewhere.
    drop((first, second));
    scene.settle()?;
    let mut whole = None;
    let shift = scene.driver_time(|| {
        whole = if_room::<B, _>(scene.streams[1].allocate(BYTES))?;
        Ok(())
    })?;
    let shifted = allocator.page_stats();
    let bind = settling(scene)?;
    let bind = (bind - settling(scene)?).max(0.0);
    let queued = scene.backend().caps().closing == Closing::Submit;
    drop((whole, between));
    scene.settle()?;
    let give = scene.driver_time(|| allocator.empty_cache().map_err(failed))?;
    let emptied = allocator.page_stats();
    Ok(Some([
        each(get, grown.created - before.created),
        each(shift, shifted.moved - grown.moved),
        each(bind, shifted.moved - grown.moved).filter(|_| queued),
        each(give, emptied.released - shifted.released),
    ]))
}
