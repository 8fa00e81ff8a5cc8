//! A recorded program, cold and warm.

use millpond::settings::Policy;
use millpond_backend::{Backend, ClassId};
use millpond_replay::Replay;

use super::measure::{Effort, Rounds, median, nanos};
use super::row::Row;
use super::scene::{Scene, failed};
use crate::commands::replay::built_in;
use crate::conditions::digest;
use crate::failure::Failure;

/// The program's live peak may be at most the device's memory divided by this.
const PART: u64 = 8;

pub(super) fn measure<B: Backend>(backend: B, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let (has_pages, total) = (backend.caps().pages.is_some(), backend.caps().class(ClassId::DEVICE).total_bytes);
    let policy = Policy::default_for(has_pages);
    let (name, trace) = built_in();
    let live = Replay::new(&trace).live_peak();
    let scale = live.div_ceil((total / PART).max(1)).next_power_of_two();
    let trace = trace.scaled_down(scale);
    let replay = Replay::new(&trace);
    let scene = Scene::new(backend, policy, replay.streams() as usize)?;
    let replayed = replay.run_on(&scene.allocator, &scene.streams, effort.rounds, |_| ()).map_err(failed)?;
    let scale = if scale == 1 { String::new() } else { format!(", sizes divided by {scale}") };
    let case = |pass: &str| format!("{pass} event of {name}, {}{scale}", policy.name());
    let digest = Some(digest(&trace));
    let row = |pass, rounds: Rounds| Row { trace_digest: digest.clone(), ..Row::new("trace", case(pass), rounds) };
    let mut rows = vec![row("cold", replayed.cold_ns_per_event().into())];
    let passes = replayed.whole_warm_passes().map(|pass| nanos(pass.time) / pass.events.max(1) as f64);
    let spread = median(passes.collect()).spread;
    rows.extend(replayed.warm_ns_per_event().map(|median| row("warm", Rounds { median, spread })));
    Ok(rows)
}
