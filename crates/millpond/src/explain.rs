//! What an out-of-memory error says beyond its amounts: who is in the way, and what would have helped by how much.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use millpond_backend::{Backend, StreamId};
use millpond_core::stats::PinnedBy;
use millpond_core::{Coordinator, FreeRange, Pin, Report, SegmentId};

use crate::live::{Live, LiveGroup};
use crate::state::State;
use crate::tag::Names;
use crate::text::format_bytes;

/// The most groups of live buffers that are named.
const HOLDERS_MAX: usize = 5;

/// What is said where there is a history. The replay itself is not made here: it may take seconds, and its crate stands
/// above this one.
pub(crate) const RECORDED: &str = "The history is recorded: millpond_replay::which_policies_fit(&allocator.snapshot(), \
                                   Sim::new) tells which policy would have fitted";

/// An explanation of an out-of-memory error: from the allocator's state at the moment of the refusal, after its
/// retries. Prints one line for each part.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The largest free range of any stream; `None` if nothing is free.
    pub hole: Option<Hole>,
    /// What would have helped, and by how much, in the order in which to try it. What frees nothing is left out.
    pub remedies: Vec<Remedy>,
    /// The five groups of live buffers with the most bytes, where buffers are noted: see [`crate::live`].
    pub holders: Vec<LiveGroup>,
    /// Whether there is a history. A replay of it tells which policies would have served the request:
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

/// A block that is in the way, with what is known of it.
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

/// Something that would have made memory for the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Remedy {
    /// What to do.
    pub action: RemedyAction,
    /// The bytes that it frees, or adds.
    pub bytes: u64,
    /// Whether that alone is enough, as far as the numbers tell.
    pub suffices: bool,
}

/// What to do to make memory for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RemedyAction {
    /// Call `empty_cache`, where the allocator could not do it itself in time.
    EmptyCache,
    /// Wait for, or submit, the work in flight of this stream, which may still use freed memory.
    Wait(StreamId),
    /// Set `policy:paged`, which gathers free pages of all places.
    Gather,
    /// Drop references to private pools.
    DropPools,
    /// Raise the limit by these bytes.
    RaiseLimit,
    /// Free buffers of these bytes.
    FreeBuffers,
}

impl fmt::Display for RemedyAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemedyAction::EmptyCache => f.write_str("empty_cache"),
            RemedyAction::Wait(stream) => write!(f, "waiting for {stream}"),
            RemedyAction::Gather => f.write_str("gathering pages (policy:paged)"),
            RemedyAction::DropPools => f.write_str("dropping private pools"),
            RemedyAction::RaiseLimit => f.write_str("raising the limit"),
            RemedyAction::FreeBuffers => f.write_str("freeing buffers"),
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let enough = if self.suffices { "enough" } else { "not enough alone" };
        write!(f, "{} by {} ({enough})", format_bytes(self.bytes), self.action)
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
            None => f.write_str("Nothing is cached.")?,
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
    pub(crate) fn of(report: &Report) -> Self {
        let pinned = |&pin: &Pin| PinnedBlock { pin, label: None, site: None };
        let hole =
            |range: &FreeRange| Hole { range: range.clone(), pinned_by: range.pinned_by.iter().map(pinned).collect() };
        Self {
            hole: report.largest_free.as_ref().map(hole),
            remedies: remedies(report),
            holders: Vec::new(),
            is_recorded: false,
        }
    }
}

/// The sums of a report that remedies are made of.
pub(crate) struct Sums<'a>(pub(crate) &'a Report);

impl Sums<'_> {
    /// Returns the bytes that could be released or gathered at once.
    pub(crate) fn idle(&self) -> u64 {
        self.0.empty_cache_frees.saturating_sub(self.0.unreached_bytes)
    }

    /// Returns the freed bytes that the device may still use. The allocator has already waited for the device, so they
    /// wait for work that was never submitted.
    pub(crate) fn later(&self) -> u64 {
        self.0.waiting_frees + self.0.unreached_bytes
    }

    /// Returns the bytes that the limit leaves. It returns 0 without a limit, because the driver had no more.
    pub(crate) fn room(&self) -> u64 {
        self.0.limit_bytes.map_or(0, |limit| limit.saturating_sub(self.0.reserved_bytes))
    }

    /// Returns the bytes that have to be freed for the request. With pages, the idle pages of every stream serve it;
    /// other policies would have to release them first, which the last retry has done.
    pub(crate) fn missing(&self) -> u64 {
        self.0.tried_bytes.saturating_sub(if self.0.moves_pages { self.idle() } else { 0 })
    }
}

fn remedies(report: &Report) -> Vec<Remedy> {
    let sums = Sums(report);
    let lacks = sums.missing().saturating_sub(sums.room());
    let mut all = Vec::new();
    let mut add = |action, bytes: u64, needed: u64| {
        if bytes > 0 {
            all.push(Remedy { action, bytes, suffices: bytes >= needed });
        }
    };
    if !report.moves_pages {
        add(RemedyAction::EmptyCache, sums.idle(), lacks);
    }
    // What the asking stream itself was the last to use keeps nothing from it.
    let own = |by: &PinnedBy| if by.stream == report.stream { 0 } else { by.own_bytes };
    for by in &report.slack.pinned_by {
        add(RemedyAction::Wait(by.stream), by.bytes + own(by), lacks);
    }
    if !report.moves_pages && report.has_pages {
        add(RemedyAction::Gather, report.in_whole_pages, report.requested_bytes);
    }
    add(RemedyAction::DropPools, report.ledger.held_bytes, lacks);
    if let Some(limit) = report.limit_bytes.filter(|&limit| limit < report.total_bytes) {
        let more = lacks.min(report.total_bytes - limit);
        add(RemedyAction::RaiseLimit, more, lacks);
    }
    add(RemedyAction::FreeBuffers, lacks.min(report.allocated_bytes), lacks);
    all
}

impl<B: Backend> State<B> {
    /// Explains a refusal with what is known of the blocks. The caller holds the coordinator's lock, and no lane's.
    pub(crate) fn explain(&self, coordinator: &Coordinator, report: &Report) -> Explanation {
        let mut explanation = Explanation::of(report);
        if !self.sinks.watching.is_on() {
            return explanation;
        }
        let lanes = self.hold_lanes(coordinator);
        let watches = || lanes.iter().filter_map(|lane| lane.watch.as_ref());
        let names = Names::now();
        if let Some(hole) = &mut explanation.hole {
            let segment: SegmentId = hole.range.segment;
            for block in &mut hole.pinned_by {
                let is_it = |note: &&crate::watch::Note| (note.segment, note.offset) == (segment, block.pin.offset);
                if let Some(note) = watches().flat_map(|watch| watch.notes()).find(is_it) {
                    (block.label, block.site) = (names.of(note.label), note.site);
                }
            }
        }
        let live = Live::of_notes(watches().flat_map(|watch| watch.live()));
        explanation.holders = live.groups().iter().take(HOLDERS_MAX).cloned().collect();
        explanation.is_recorded = watches().any(|watch| watch.ring().is_some());
        explanation
    }
}
