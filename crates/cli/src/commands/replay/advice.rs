//! What to do where a request was refused: only what a replay has shown to work.
//!
//! The message of a refusal is of one request. What it advises may not get the program any further, so it is left out
//! here: the next request may be refused as well.

use millpond::settings::Settings;
use millpond::text::format_bytes;
use millpond_replay::{Fit, Replay};
use millpond_report::Enough;

use super::{Program, ReplayArgs, Run, variant};
use crate::devices::Target;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::progress::Progress;

/// The line of a refusal that says what to do about that request.
const ADVICE: &str = "What to do:";

/// The sentence of a refusal that points at a replay, which is what was made.
const REPLAY: &str = " A replay of what Allocator::record_history recorded shows";

/// Limits are given in this unit.
const MIB: u64 = 1 << 20;

/// How often the distance to the least limit that is known to fit is halved.
const HALVINGS: usize = 3;

/// Returns the message of a refusal without what it advises.
pub(super) fn without_advice(message: &str) -> String {
    let lines = message.lines().filter(|line| !line.trim_start().starts_with(ADVICE));
    let lines = lines.map(|line| line.split(REPLAY).next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns a limit that a program fits in under settings under which it was refused a request within the limit that
/// was given. It was replayed within that limit. `None` where there was no limit, the device has not
/// got enough, or one replay says nothing of the next.
///
/// # Errors
///
/// Returns the errors of the replays.
pub(super) fn larger_limit(
    args: &ReplayArgs,
    target: &Target,
    program: &Program,
    settings: &Settings,
    progress: &Progress,
) -> Result<Option<Enough>, Failure> {
    if !args.repeats() {
        return Ok(None);
    }
    let replay = Replay::new(&program.trace).stopped_by(interrupt::flag());
    let Some(given) = args.limit.map(|limit| limit.bytes(replay.live_peak())) else { return Ok(None) };
    let name = &program.name;
    let policy = variant::label(settings);
    progress.doing(format!("{name} under {policy}, to see in what it fits"));
    let args = args.plain();
    let hidden = Progress::hidden();
    let fit = |limit: Option<u64>| -> Result<Fit, Failure> {
        let (kept, args) = (&program.kept, &args);
        let run = Run { name, replay: &replay, kept, settings, limit, args, progress: &hidden };
        Ok(Fit::of(settings.clone(), &run.run(target)?.replayed))
    };
    // What is reserved without a limit is enough, unless what is done near one asks for a little more.
    let free = fit(None)?;
    if !free.fits() {
        return Ok(None);
    }
    let whole = free.reserved_peak.div_ceil(MIB).max(given / MIB + 1);
    let mut enough = None;
    for limit in [whole, whole + whole / 32 + 1, whole + whole / 8 + 1] {
        if fit(Some(limit * MIB))?.fits() {
            enough = Some(limit);
            break;
        }
    }
    let Some(mut enough) = enough else { return Ok(None) };
    let mut few = given / MIB;
    for _ in 0..HALVINGS {
        let middle = few.midpoint(enough);
        if middle <= few || interrupt::is_pressed() {
            break;
        }
        if fit(Some(middle * MIB))?.fits() { enough = middle } else { few = middle }
    }
    if interrupt::is_pressed() {
        return Ok(None);
    }
    Ok(Some(Enough { policy, limit_mib: enough, more: (enough * MIB).saturating_sub(given) }))
}

/// Returns the sentence about such a limit.
pub(super) fn told(name: &str, enough: &Enough) -> String {
    let Enough { policy, limit_mib, more } = enough;
    let more = format_bytes(*more);
    format!("{name} under {policy}: fits with --limit {limit_mib}MiB, {more} more, as a replay shows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_its_facts_and_loses_its_advice() {
        let message = "out of memory on device 0.\n  Reserved: 1 byte live.\n  With this request 2 bytes must be live \
                       at once, no more than the limit allows. A replay of what Allocator::record_history \
                       recorded shows whether another policy has room.\n  What to do: free buffers, or raise the \
                       limit by 64.00 MiB.";
        assert_eq!(
            without_advice(message),
            "out of memory on device 0.\n  Reserved: 1 byte live.\n  With this request 2 bytes must be live at once, \
             no more than the limit allows."
        );
    }
}
