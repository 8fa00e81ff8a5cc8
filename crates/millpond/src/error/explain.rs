//! What an out-of-memory error says beyond its amounts: who is in the way, and what would have helped by how much.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use millpond_backend::{Caps, Closing, StreamId};
use millpond_core::stats::PinnedBy;
use millpond_core::{FreeRange, Pin, Report};

use crate::notes::groups::LiveGroup;
use crate::text::{format_bytes, format_bytes_up};

/// What is said where there is a history. The replay itself is not made here: it may take seconds, and its crate stands
/// above this one.
pub(crate) const RECORDED: &str = "The history is recorded: millpond_replay::which_policies_fit(&allocator.snapshot(), \
                                   Sim::new) shows which policy would have fitted";

/// An explanation of an out-of-memory error: from the allocator's state at the moment of the refusal, after its
/// retries. Prints one line for each part.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The largest free range of any stream; `None` if nothing is free.
    pub hole: Option<Hole>,
    /// What would have helped, and by how much, in the order in which to try it. What frees nothing is left out, and so
    /// is what only a replay can tell, such as another policy.
    pub remedies: Vec<Remedy>,
    /// The five groups of live buffers with the most bytes, where buffers are noted: see [`crate::live`].
    pub holders: Vec<LiveGroup>,
    /// Whether there is a history. A replay of it shows which policies would have served the request:
    /// `millpond_replay::which_policies_fit` makes one under each.
    pub is_recorded: bool,
}

/// A free range, and what keeps it from being larger.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Hole {
    /// The range.
    pub range: FreeRange,
    /// The blocks before and behind it that are in use or wait for a point, with what is known of them.
    pub pinned_by: Vec<PinnedBlock>,
}

/// A block that is in the way, and what is known about it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PinnedBlock {
    /// The block.
    pub pin: Pin,
    /// Its label or tag, where buffers are noted.
    pub label: Option<Arc<str>>,
    /// The place at which it was allocated, or was given its label, where places are noted.
    pub site: Option<&'static Location<'static>>,
}

/// Something that would have freed memory for the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Remedy {
    /// What to do.
    pub action: RemedyAction,
    /// The bytes that it frees, or adds.
    pub bytes: u64,
    /// Whether that alone is enough for certain, if the device has what comes free or is allowed. `false` where that
    /// cannot be known.
    pub suffices: bool,
}

/// What to do to make memory for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RemedyAction {
    /// Call `empty_cache`, where the request was refused before anything was tried.
    EmptyCache,
    /// Wait for, or submit, the work in flight of this stream, which may still use freed memory.
    Wait(StreamId),
    /// Drop references to private pools.
    DropPools,
    /// Raise the limit by these bytes.
    RaiseLimit,
    /// Free buffers. The bytes are those that are asked for at one time beyond what any policy could serve: no fewer
    /// help.
    FreeBuffers,
}

impl fmt::Display for RemedyAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemedyAction::EmptyCache => f.write_str("empty_cache"),
            RemedyAction::Wait(stream) => write!(f, "waiting for {stream}"),
            RemedyAction::DropPools => f.write_str("dropping private pools"),
            RemedyAction::RaiseLimit => f.write_str("raising the limit"),
            RemedyAction::FreeBuffers => f.write_str("freeing buffers"),
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = self.action;
        let bytes = match action {
            // As many bytes are enough, and fewer are not.
            RemedyAction::RaiseLimit | RemedyAction::FreeBuffers => format_bytes_up(self.bytes),
            _ => format_bytes(self.bytes),
        };
        match self.action {
            RemedyAction::FreeBuffers => write!(f, "{bytes} or more by {action}"),
            _ if self.suffices => write!(f, "{bytes} by {action} (enough)"),
            _ => write!(f, "{bytes} by {action} (not known to be enough)"),
        }
    }
}

impl fmt::Display for PinnedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.pin.waiting { "waiting for a point" } else { "live" };
        write!(f, "{} {state} at offset {}", format_bytes(self.pin.size), self.pin.offset)?;
        match (&self.label, self.site) {
            (Some(label), Some(site)) => write!(f, " ({label}, from {site})"),
            (Some(label), None) => write!(f, " ({label})"),
            (None, Some(site)) => write!(f, " (from {site})"),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FreeRange { bytes, stream, segment, .. } = &self.range;
        write!(f, "{} of {stream}, in {segment}", format_bytes(*bytes))?;
        for (at, block) in self.pinned_by.iter().enumerate() {
            write!(f, ", {} {block}", if at == 0 { "pinned by" } else { "and" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hole {
            Some(hole) => write!(f, "Largest free range: {hole}.")?,
            None => f.write_str("Nothing is free.")?,
        }
        if !self.remedies.is_empty() {
            write!(f, "\nWould have helped: {}.", join(&self.remedies))?;
        }
        if !self.holders.is_empty() {
            write!(f, "\nHeld most by: {}.", join(&self.holders))?;
        }
        if self.is_recorded {
            write!(f, "\n{RECORDED}.")?;
        }
        Ok(())
    }
}

/// Returns the texts of some things with commas between them.
fn join(list: &[impl fmt::Display]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl Explanation {
    /// Explains a report without knowing more than it has.
    pub(crate) fn of(report: &Report, facts: Facts) -> Self {
        let pinned = |&pin: &Pin| PinnedBlock { pin, label: None, site: None };
        let hole =
            |range: &FreeRange| Hole { range: range.clone(), pinned_by: range.pinned_by.iter().map(pinned).collect() };
        Self {
            hole: report.largest_free.as_ref().map(hole),
            remedies: remedies(report, facts),
            holders: Vec::new(),
            is_recorded: false,
        }
    }
}

/// What advice has to know of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Whether the driver may grant more than the device has.
    pub(crate) oversubscribes: bool,
    /// Whether work may be queued that is never over, as the application has not submitted it.
    pub(crate) keeps_work: bool,
}

impl Facts {
    pub(crate) fn of(caps: &Caps) -> Self {
        Self { oversubscribes: caps.oversubscribes, keeps_work: caps.closing == Closing::Submit }
    }
}

/// Returns the freed memory that the work of each stream may still use, and that the request could have had otherwise.
/// The work of the asking stream itself keeps nothing from it where that is in order.
pub(crate) fn waits(report: &Report) -> impl Iterator<Item = (StreamId, u64)> {
    let others = |by: &&PinnedBy| by.stream != report.stream || !report.reuses_in_order;
    let all = report.slack.pinned_by.iter().filter(others);
    all.map(|by| (by.stream, by.bytes + by.own_bytes)).filter(|&(_, bytes)| bytes > 0)
}

/// Returns by how many bytes what is asked for at one time, with the request, is more than `bound`: no policy has room
/// for that.
pub(crate) fn beyond_any_policy(report: &Report, bound: u64) -> u64 {
    (report.ledger.live_bytes + report.requested_bytes).saturating_sub(bound)
}

/// Returns whether the request takes more than is left of the device, whoever else has memory of it.
pub(crate) fn is_beyond_device(report: &Report, facts: Facts) -> bool {
    let needed = report.reserved_bytes.saturating_add(report.missing_bytes());
    // Some drivers grant more than they list, without saying so.
    let is_bounded = !facts.oversubscribes && report.reserved_bytes <= report.total_bytes;
    is_bounded && !report.has_source && needed > report.total_bytes
}

/// What a request is larger than, so that freeing everything is not enough for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ceiling {
    /// The limit, in bytes.
    Limit(u64),
    /// All memory of the device or of the class, in bytes.
    Device(u64),
}

/// Returns the bound that the request alone is larger than, the lower one of two. With nothing reserved that is so also
/// for what the request takes from the driver: there is nothing to free.
pub(crate) fn ceiling(report: &Report, facts: Facts) -> Option<Ceiling> {
    let asked = if report.reserved_bytes == 0 { report.tried_bytes } else { report.requested_bytes };
    let limit = report.limit_bytes.filter(|&limit| asked > limit).map(Ceiling::Limit);
    let is_beyond = asked > report.total_bytes && is_beyond_device(report, facts);
    let device = is_beyond.then_some(Ceiling::Device(report.total_bytes));
    match (limit, device) {
        (Some(Ceiling::Limit(limit)), Some(_)) if limit >= report.total_bytes => device,
        _ => limit.or(device),
    }
}

/// Returns by how many bytes the limit has to be raised for the request; `None` where it is not the reason, or the
/// device has not got as much.
pub(crate) fn limit_to_raise(report: &Report, facts: Facts) -> Option<u64> {
    let beyond = report.beyond_limit_bytes();
    (beyond > 0 && !is_beyond_device(report, facts)).then_some(beyond)
}

/// Which streams have to come to an end for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// Those that freed memory is known to wait for.
    Named,
    /// Those, and the ones that the memory belongs to: it goes to another stream, or back, which waits for them too.
    All,
}

/// Returns what has to be waited for, if that is certain to serve the request.
pub(crate) fn waits_serve(report: &Report) -> Option<Waits> {
    let is_waited_for = report.waiting_frees > 0 || report.unreached_bytes > 0;
    match report.by_waiting.serves {
        _ if !is_waited_for => None,
        _ if report.fits_after_waits => Some(Waits::Named),
        serves => serves.then_some(Waits::All),
    }
}

/// Returns whether `empty_cache` is certain to serve a request that was refused at once.
pub(crate) fn is_emptying_enough(report: &Report, facts: Facts) -> bool {
    report.by_emptying.serves && !(facts.keeps_work && report.unreached_bytes > 0)
}

/// Returns whether memory of private pools may not go back when they are dropped, for work that was not submitted.
pub(crate) fn is_used_in_pools(report: &Report, facts: Facts) -> bool {
    facts.keeps_work && report.unreached_in_pools > 0
}

fn remedies(report: &Report, facts: Facts) -> Vec<Remedy> {
    let mut all = Vec::new();
    let mut add = |action, bytes: u64, suffices: bool| {
        if bytes > 0 {
            all.push(Remedy { action, bytes, suffices });
        }
    };
    add(RemedyAction::EmptyCache, report.by_emptying.bytes, is_emptying_enough(report, facts));
    // Where several streams are waited for, it is not known which of them has the memory.
    let is_enough = waits(report).count() == 1 && waits_serve(report) == Some(Waits::Named);
    for (stream, bytes) in waits(report) {
        add(RemedyAction::Wait(stream), bytes, is_enough);
    }
    let pools = report.by_dropping_pools;
    add(RemedyAction::DropPools, pools.bytes, pools.serves && !is_used_in_pools(report, facts));
    if report.rejected {
        return all;
    }
    add(RemedyAction::RaiseLimit, limit_to_raise(report, facts).unwrap_or(0), true);
    let is_bounded = report.beyond_limit_bytes() > 0 || is_beyond_device(report, facts);
    if is_bounded && ceiling(report, facts).is_none() {
        let device = if facts.oversubscribes { u64::MAX } else { report.total_bytes };
        let bound = report.limit_bytes.map_or(device, |limit| limit.min(device));
        add(RemedyAction::FreeBuffers, beyond_any_policy(report, bound), false);
    }
    all
}
