//! Which policies fit a program within a limit, found by replaying it under each.

use std::fmt;

use millpond::history::Action;
use millpond::settings::{Policy, Settings};
use millpond::snapshot::Snapshot;
use millpond::text::format_bytes;
use millpond::{Allocator, BuildError, Error};
use millpond_backend::Backend;
use millpond_trace::Trace;

use crate::history::trace_of_snapshot;
use crate::outcome::Replayed;
use crate::replay::Replay;

/// What became of a program under one policy.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// The settings.
    pub settings: Settings,
    /// The number of requests that were refused; 0 if the program fits.
    pub refused: u64,
    /// The most bytes that were reserved at one time. Where requests were refused it is less than the program takes.
    pub reserved_peak: u64,
}

impl Fit {
    /// Returns the result of a program that was replayed under these settings, over all passes.
    pub fn of(settings: Settings, replayed: &Replayed) -> Self {
        let refused = replayed.passes().map(|pass| pass.ooms).sum();
        Self { settings, refused, reserved_peak: replayed.life_reserved_peak }
    }

    /// Returns the name of the policy, as in [`Policy::VARIANTS`].
    pub fn policy(&self) -> &'static str {
        self.settings.policy.variant_name()
    }

    /// Returns whether every request was served.
    pub fn fits(&self) -> bool {
        self.refused == 0
    }
}

/// Which policies would have fitted. Prints a sentence that says so, and a line for each policy.
#[derive(Clone, PartialEq, Debug)]
pub struct Fits {
    /// The most bytes that may be reserved; `None` for all that the device has.
    pub limit_bytes: Option<u64>,
    /// The largest sum of requested bytes that are live at one time, with the requests that were refused: what every
    /// policy needs at least.
    pub live_peak: u64,
    /// Each policy.
    pub policies: Vec<Fit>,
    /// What of the program is not known, if it was recorded by an allocator.
    pub recorded: Option<Recorded>,
}

/// What the history of an allocator says about its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// The policy that the program ran under: the name of its variant.
    pub policy: &'static str,
    /// The entries that are lost at the beginning.
    pub lost: u64,
    /// The requests that were refused when it was recorded.
    pub refused: u64,
}

impl Fits {
    /// Returns the policy that fits and reserves the least.
    pub fn best(&self) -> Option<&Fit> {
        self.policies.iter().filter(|fit| fit.fits()).min_by_key(|fit| fit.reserved_peak)
    }

    /// Returns whether the recorded policy itself fits in the replay, where the program was refused a request.
    fn fits_as_it_was(&self) -> bool {
        let Some(recorded) = self.recorded.filter(|recorded| recorded.refused > 0) else { return false };
        self.policies.iter().any(|fit| fit.fits() && fit.policy() == recorded.policy)
    }

    /// Returns in a sentence, without its full stop, which policies fit.
    pub fn sentence(&self) -> String {
        let within = self.limit_bytes.map_or("the device's memory".to_owned(), format_bytes);
        let fitting: Vec<_> = self.policies.iter().filter(|fit| fit.fits()).map(Fit::policy).collect();
        match (fitting.split_last(), self.limit_bytes) {
            (Some((only, [])), _) => format!("Of the policies, {only} alone fits in {within}"),
            (Some((last, others)), _) => format!("Of the policies, {} and {last} fit in {within}", others.join(", ")),
            (None, Some(limit)) if self.live_peak > limit => format!(
                "No policy fits in {within}: {} must be live at once, {} more",
                format_bytes(self.live_peak),
                format_bytes(self.live_peak - limit)
            ),
            (None, _) => {
                format!("No policy fits in {within}, although at most {} are live", format_bytes(self.live_peak))
            }
        }
    }
}

impl fmt::Display for Fits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.sentence())?;
        for fit in &self.policies {
            let reserved = format_bytes(fit.reserved_peak);
            write!(f, "\n  {:<10}  ", fit.policy())?;
            match fit.refused {
                0 if self.limit_bytes.is_some_and(|limit| limit < fit.reserved_peak) => {
                    write!(f, "fits, and reserves {reserved} at most, less than a page beyond the limit")?;
                }
                0 => write!(f, "fits, and reserves {reserved} at most")?,
                1 => write!(f, "refuses a request; {reserved} reserved at most")?,
                refused => write!(f, "refuses {refused} requests; {reserved} reserved at most")?,
            }
        }
        if self.fits_as_it_was() {
            f.write_str(
                "\nThe policy that refused a request fits in the replay, which has the device alone, no work in \
                 flight and one thread: what that leaves out was in the way, or what was cached before the history \
                 begins.",
            )?;
        }
        match self.recorded {
            Some(Recorded { lost: 0, .. }) | None => Ok(()),
            Some(Recorded { lost, .. }) => write!(
                f,
                "\nThe history has lost its {lost} oldest entries. What was live where it begins is known from the \
                 snapshot; what was cached there is not."
            ),
        }
    }
}

/// A program could not be replayed: the settings are not those of the device that was given, or its driver failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FittingError<E: std::error::Error + 'static> {
    /// The allocator could not be created.
    #[error("the program cannot be replayed")]
    Build(#[from] BuildError),
    /// The driver failed.
    #[error("the replay failed")]
    Replay(#[source] E),
}

/// Replays what an allocator has recorded under every policy, within the same limit, and returns which of them fit.
/// This is for a request that was refused: recording goes on while the program is refused memory, so a snapshot that is
/// taken after the refusal has it.
///
/// `open` opens the device of each replay. A simulated one is enough, whatever device the snapshot is from. Without a
/// limit, the memory of the snapshot's device is the limit. The replay is of one pass by one thread, without work in
/// flight.
///
/// The history has to be recorded ([`Allocator::record_history`]). Where it lost its beginning, the blocks that were
/// live there are taken from the snapshot, and nothing is known of what was cached.
///
/// ```
/// use millpond::Allocator;
/// use millpond::history::Recording;
/// use millpond_sim::Sim;
///
/// const MIB: u64 = 1 << 20;
/// let allocator = Allocator::builder(Sim::new()).conf("policy:classic").limit(64 * MIB).build()?;
/// allocator.record_history(Recording::all(100_000));
/// let stream = allocator.create_stream()?;
/// let mut blocks = (0..9).map(|_| stream.allocate(6 * MIB)).collect::<Result<Vec<_>, _>>()?;
/// let mut at = 0;
/// blocks.retain(|_| { at += 1; at % 2 == 0 }); // Every other block is freed, in pieces of 6 MiB.
/// assert!(stream.allocate(24 * MIB).is_err());
///
/// let fits = millpond_replay::which_policies_fit(&allocator.snapshot(), Sim::new)?;
/// let names: Vec<_> = fits.policies.iter().filter(|fit| fit.fits()).map(|fit| fit.policy()).collect();
/// assert!(names.contains(&"paged") && !names.contains(&"classic"), "{fits}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns an error if a device refuses the settings or its driver fails. Requests that are refused are none.
pub fn which_policies_fit<B: Backend>(
    snapshot: &Snapshot,
    open: impl FnMut() -> B,
) -> Result<Fits, FittingError<Error<B::Error>>> {
    let trace = trace_of_snapshot(snapshot);
    let limit = snapshot.limit_bytes.unwrap_or(snapshot.total_bytes);
    let refused = snapshot.history.entries.iter().filter(|entry| matches!(entry.action, Action::OutOfMemory { .. }));
    let recorded = Recorded {
        policy: snapshot.settings.policy.variant_name(),
        lost: snapshot.history.lost,
        refused: refused.count() as u64,
    };
    let policies = fits_of(&trace, &snapshot.settings, limit, open)?;
    Ok(Fits { limit_bytes: Some(limit), live_peak: trace.live_peak(), policies, recorded: Some(recorded) })
}

/// Replays a trace once under every policy within a limit, each time with the other settings as they are and on a
/// device that `open` opens. Policies that need virtual memory are left out where the device has none.
///
/// # Errors
///
/// Returns the errors of [`which_policies_fit`].
pub fn fits_of<B: Backend>(
    trace: &Trace,
    settings: &Settings,
    limit: u64,
    mut open: impl FnMut() -> B,
) -> Result<Vec<Fit>, FittingError<Error<B::Error>>> {
    let replay = Replay::new(trace);
    let has_pages = open().caps().pages.is_some();
    let mut fits = Vec::new();
    for settings in under_each_policy(settings, has_pages) {
        let allocator = Allocator::builder(open()).settings(settings.clone()).limit(limit).build()?;
        let replayed = replay.run(&allocator, 0).map_err(FittingError::Replay)?;
        fits.push(Fit::of(settings, &replayed));
    }
    Ok(fits)
}

/// Returns these settings under every policy, without those that need virtual memory where there is none. Under their
/// own policy, the settings stay unchanged.
pub fn under_each_policy(settings: &Settings, has_pages: bool) -> Vec<Settings> {
    let possible = Policy::VARIANTS.into_iter().filter(|policy| has_pages || !policy.needs_pages());
    let with = |policy: Policy| match settings.policy.variant_name() == policy.variant_name() {
        true => settings.clone(),
        false => Settings { policy, ..settings.clone() },
    };
    possible.map(with).collect()
}
