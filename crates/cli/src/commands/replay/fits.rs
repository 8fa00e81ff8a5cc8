//! Which policies would have fitted, where one refused a request: those that were not asked for are replayed as well.

use millpond::settings::Settings;
use millpond_replay::{Fit, Fits, Replay, under_each_policy};

use super::{Program, ReplayArgs, Run, has_pages, variant};
use crate::devices::Target;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::progress::Progress;

/// Returns which policies fit a program on a device, if one of those that were replayed refused a request. The others
/// are replayed like it: with the same limit, passes and work in flight. `None` where one replay says nothing of the
/// next.
///
/// # Errors
///
/// Returns the errors of the replays.
pub(super) fn which(
    args: &ReplayArgs,
    target: &Target,
    program: &Program,
    replayed: Vec<Fit>,
    progress: &Progress,
) -> Result<Option<Fits>, Failure> {
    let Some(refusing) = replayed.iter().find(|fit| !fit.fits()).map(|fit| fit.settings.clone()) else {
        return Ok(None);
    };
    if !args.repeats() {
        return Ok(None);
    }
    let Program { name, trace, kept } = program;
    let replay = Replay::new(trace).stopped_by(interrupt::flag());
    let limit = args.limit.map(|limit| limit.bytes(replay.live_peak()));
    let args = args.plain();
    let mut policies = Vec::new();
    for settings in under_each_policy(&refusing, has_pages(target)?) {
        if interrupt::is_pressed() {
            return Ok(None);
        }
        let is_it = |fit: &&Fit| fit.policy() == settings.policy.variant_name() && fit.settings.scrub == settings.scrub;
        if let Some(fit) = replayed.iter().find(is_it) {
            policies.push(fit.clone());
            continue;
        }
        progress.doing(format!("{name} under {}, to see whether it fits", variant::label(&settings)));
        let hidden = Progress::hidden();
        let (settings, args) = (&settings, &args);
        let run = Run { name, replay: &replay, kept, settings, limit, args, progress: &hidden };
        policies.push(Fit::of(settings.clone(), &run.run(target)?.replayed));
    }
    Ok(Some(Fits { limit_bytes: limit, live_peak: replay.live_peak(), policies, recorded: None }))
}

impl ReplayArgs {
    /// Returns the arguments of a replay that only shows whether a program fits: with the same passes and work in
    /// flight.
    pub(super) fn plain(&self) -> Self {
        Self { touch: false, watch: false, summary: false, snapshot: None, ..self.clone() }
    }

    /// Returns whether a second replay decides as the first one does. Threads come together in another order each time,
    /// and in a given time there are as many passes as the host gets done.
    pub(super) fn repeats(&self) -> bool {
        self.time.is_none() && self.threads <= 1
    }
}

/// Returns what became of a program under each of the settings that it was replayed under.
pub(super) fn seen<'a>(replayed: impl IntoIterator<Item = (&'a Settings, &'a millpond_replay::Replayed)>) -> Vec<Fit> {
    replayed.into_iter().map(|(settings, replayed)| Fit::of(settings.clone(), replayed)).collect()
}
