//! The settings of an allocator: plain data, filled from code or from a configuration text.
//!
//! The policies: the rules for where blocks are placed and what is kept.
//!
//! Most of the core asks where the memory of a policy comes from, its `Backing`, and not which policy it is.
//! All climb one ladder, in `plan/phase.rs`. Memory of `classic` and `direct` comes in segments (`plan/segments.rs`);
//! `paged` has its own ways.

use alloc::format;
use alloc::string::{String, ToString};
use core::time::Duration;

use crate::plant::Planted;
use crate::units::{MIB, QUANTUM, REQUEST_BYTES_MAX};

/// The largest slack, the same as in the parser.
const SLACK_MAX: f64 = 1000.0;
/// The largest number of divisions of an octave: 512 times this number still fits in 64 bits.
const DIVISIONS_MAX: u64 = 1 << 30;
/// The size that a large segment must exceed, in bytes.
const LARGE_SEGMENT_ABOVE: u64 = 10 * MIB;

/// A setting outside its range.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the setting `{field}` is {value}, must be {allowed}")]
pub struct SettingError {
    /// The field of [`Settings`].
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// The values that it may have.
    pub allowed: String,
}

/// The memory that is overwritten with zeros before it is granted, so that its new owner cannot read what was in it.
///
/// All of the block is overwritten, including what rounding added, by work on the requesting stream, before all work
/// that the new owner queues there and after all former use. The page `docs/how-to/scrub.md` says what this protects
/// against, what it does not, and what it costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scrub {
    /// None: memory is granted as its last owner left it.
    #[default]
    Off,
    /// Memory that another stream had, or that a previous user had from the driver. What a stream freed comes back to
    /// that stream as it was. Host memory, which belongs to no stream, is always overwritten.
    OtherStreams,
    /// All memory: every allocation begins as zeros.
    Always,
}

impl Scrub {
    /// Returns the name that configurations and the command line use.
    pub const fn name(self) -> &'static str {
        match self {
            Scrub::Off => "off",
            Scrub::OtherStreams => "other_streams",
            Scrub::Always => "always",
        }
    }
}

/// What becomes of freed memory that other streams have used
/// ([`record_stream`](crate::Shard::record_stream), [`used_until`](crate::Shard::used_until)), where streams can wait
/// for each other on the device: under `paged`. Elsewhere it is always held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecordStream {
    /// It is free at once. Whoever gets it next waits on the device for those streams.
    #[default]
    Wait,
    /// It is pending until the work that those streams had at the free is done, as in PyTorch. No stream gets it
    /// before, not even its own.
    Hold,
}

impl RecordStream {
    /// Both, each with its [name](Self::name).
    pub const ALL: [RecordStream; 2] = [RecordStream::Wait, RecordStream::Hold];

    /// Returns the name that configurations use.
    pub const fn name(self) -> &'static str {
        match self {
            RecordStream::Wait => "wait",
            RecordStream::Hold => "hold",
        }
    }
}

/// The options of a private pool, as of PyTorch's `MemPool`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolFlags {
    /// Whether a request in the default pool that would be refused otherwise, or would have cached memory released,
    /// gets free memory of this pool: of the same stream, or under `paged` of any stream that is done with it.
    pub use_on_oom: bool,
    /// Whether each allocation has a segment of its own, which no other shares. It has no effect under `paged`, whose
    /// blocks lie in no segments unless the pool has a source of its own, nor on blocks that were cut before.
    pub no_split: bool,
}

/// The choice among several free blocks of equal size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ties {
    /// The block of the oldest segment, then the one at the lowest offset. This is independent of the addresses that a
    /// driver chose, and is what PyTorch does since 2.13.
    #[default]
    Birth,
    /// The block at the lowest device address, as in PyTorch until 2.12. It is meant for the replay of PyTorch's
    /// recordings.
    Address,
}

/// The numbers of steps into which each octave of sizes is divided (`roundup_power2_divisions`), in PyTorch's sixteen
/// slots.
///
/// Slot `i` serves sizes from 2^(20+i) to 2^(21+i); slot 0 serves everything below, slot 15 everything above. 0 and 1
/// mean "no rounding beyond 512 bytes".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Divisions(pub [u64; 16]);

impl Divisions {
    /// Returns the divisions for a size in bytes (not 0).
    pub const fn of(&self, bytes: u64) -> u64 {
        self.0[Self::slot_of(bytes)]
    }

    /// Returns the slot that serves a size in bytes (not 0).
    pub const fn slot_of(bytes: u64) -> usize {
        let log = bytes.ilog2() as usize;
        let slot = log.saturating_sub(20);
        if slot > 15 { 15 } else { slot }
    }
}

/// When memory that nothing needs any more goes back to the driver without being asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IdleRelease {
    /// `release_idle_after`: how long nothing must have needed it. `None` means that it stays.
    ///
    /// What was needed is what the policy may reserve for the most that was live in that time. If most of what went
    /// back is taken again within the same time, the next has to be idle twice as long, up to sixteen times.
    pub after: Option<Duration>,
    /// `keep_idle_mb`, in bytes: what stays beyond that.
    pub keep_bytes: u64,
    /// `release_idle_in_background`: whether a thread of the allocator sees to it. Otherwise the program polls.
    pub in_background: bool,
}

/// All settings that influence decisions. Some may [change](Settings::changed_to) while an allocator lives.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The policy.
    pub policy: Policy,
    /// `max_split_size_mb`, in bytes: larger blocks are never split. `None` means no limit.
    pub max_split_bytes: Option<u64>,
    /// `max_non_split_rounding_mb`, in bytes: the amount by which an unsplit block may be larger than the request.
    /// `None` means the large segment size.
    pub max_non_split_rounding_bytes: Option<u64>,
    /// `large_segment_size_mb`, in bytes: the size of the segment that large requests below 10 MiB share, and of the
    /// pages of large expandable segments.
    pub large_segment_bytes: u64,
    /// `garbage_collection_threshold`: the share of the limit above which unused segments are collected by age. 0 means
    /// off.
    pub gc_threshold: f64,
    /// `roundup_power2_divisions`.
    pub divisions: Divisions,
    /// `per_process_memory_fraction`: the share of the device's memory that may be reserved. 1 means no limit.
    pub memory_fraction: f64,
    /// `throw_on_cudamalloc_oom`: whether to refuse at once, without the retries, what would exceed the memory
    /// fraction.
    pub throw_on_oom: bool,
    /// `scrub`: the memory that is overwritten before it is granted. This needs a device that can fill.
    pub scrub: Scrub,
    /// `record_stream`: what becomes of freed memory that other streams have used. It has an effect under `paged` only.
    pub record_stream: RecordStream,
    /// Whether to search the pool again after the last wait, before growing. PyTorch does not, and so reports out of
    /// memory with a fitting block in the pool (its issue 189504). `false` only to replay its recordings.
    pub search_after_wait: bool,
    /// Whether to collect garbage against the device's total where no limit is set. PyTorch silently does nothing then
    /// (its issue 106660). `false` only to replay its recordings.
    pub gc_without_limit: bool,
    /// Whether an expandable segment keeps to the limit, and ends in a shorter page where a whole one has no room. In
    /// PyTorch the limit is that for the size of a plain segment, and whole pages are mapped then: more than the limit
    /// by up to a page, and more than a device has that has what is missing. `false` only to replay its recordings.
    pub shorter_pages: bool,
    /// Whether a request gets a free block of an expandable segment however large that is, as each of them is cut.
    /// `max_split_size_mb` has no effect there then. In PyTorch it keeps what is free in large pieces from smaller
    /// requests, though these pieces are cut and joined all the same, and no bound is set to what is taken instead
    /// (its issue 123548). `false` only to replay its recordings.
    pub open_ranges: bool,
    /// The choice among several equal blocks.
    pub ties: Ties,
    /// When idle memory goes back to the driver. It has no effect under `direct`, which keeps none.
    pub idle: IdleRelease,
    /// A bug to plant, to verify that the tests catch it.
    #[cfg(feature = "plant")]
    pub plant: Option<crate::plant::Plant>,
}

/// Settings from a configuration, before the device is known: [`Options::resolve`] turns them into [`Settings`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    /// What is said about the policy.
    pub policy: Choice,
    /// All other settings. Their policy stays the default one, and has no effect.
    pub rest: Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            max_split_bytes: None,
            max_non_split_rounding_bytes: None,
            large_segment_bytes: 20 * MIB,
            gc_threshold: 0.0,
            divisions: Divisions::default(),
            memory_fraction: 1.0,
            throw_on_oom: false,
            scrub: Scrub::Off,
            record_stream: RecordStream::Wait,
            search_after_wait: true,
            gc_without_limit: true,
            shorter_pages: true,
            open_ranges: true,
            ties: Ties::Birth,
            idle: IdleRelease::default(),
            #[cfg(feature = "plant")]
            plant: None,
        }
    }
}

impl Options {
    /// Returns the settings on a device with or without virtual memory.
    pub fn resolve(self, has_virtual_memory: bool) -> Settings {
        Settings { policy: self.policy.resolve(has_virtual_memory), ..self.rest }
    }
}

impl From<Settings> for Options {
    /// Returns the options that lead to the settings on every device.
    fn from(settings: Settings) -> Self {
        Self { policy: settings.policy.into(), rest: Settings { policy: Policy::default(), ..settings } }
    }
}

impl Settings {
    /// Returns the settings with PyTorch 2.11's behaviour where Millpond differs on purpose, to replay its recordings.
    pub fn as_recorded(mut self) -> Self {
        self.search_after_wait = false;
        self.gc_without_limit = false;
        self.shorter_pages = false;
        self.open_ranges = false;
        self.ties = Ties::Address;
        self
    }

    /// Returns these settings with those of `to` that an allocator can take over while it lives: sizes, limits, times,
    /// what is collected and what is held. The policy, `scrub` and what is only for recordings stay: which memory there
    /// is, and what is known of it, follows from them.
    pub fn changed_to(&self, to: &Settings) -> Settings {
        Settings {
            max_split_bytes: to.max_split_bytes,
            max_non_split_rounding_bytes: to.max_non_split_rounding_bytes,
            large_segment_bytes: to.large_segment_bytes,
            gc_threshold: to.gc_threshold,
            divisions: to.divisions,
            memory_fraction: to.memory_fraction,
            throw_on_oom: to.throw_on_oom,
            record_stream: to.record_stream,
            idle: to.idle,
            ..self.clone()
        }
    }

    /// Returns the settings for memory of the host: `classic` with a slack of an eighth.
    pub fn for_host() -> Self {
        Self { policy: Policy::Classic(Segments::Snug(0.125)), ..Self::default() }
    }

    /// Returns the split limit in bytes, or `u64::MAX` where there is none. Pages can reverse any split, so `paged` has
    /// none, nor have expandable segments with [`open_ranges`](Self::open_ranges).
    pub fn max_split(&self) -> u64 {
        let has_none = self.policy.moves_pages() || (self.policy.needs_pages() && self.open_ranges);
        if has_none { u64::MAX } else { self.max_split_bytes.unwrap_or(u64::MAX) }
    }

    /// Returns the number of bytes by which an unsplit block may be larger than an oversize request.
    pub fn max_non_split_rounding(&self) -> u64 {
        self.max_non_split_rounding_bytes.unwrap_or(self.large_segment_bytes)
    }

    /// Returns the bug that is planted, if any.
    pub(crate) fn planted(&self) -> Planted {
        #[cfg(feature = "plant")]
        return Planted::new(self.plant);
        #[cfg(not(feature = "plant"))]
        Planted::default()
    }

    /// Verifies that every field is within its range. Does not check whether a device supports the settings.
    ///
    /// # Errors
    ///
    /// Returns the first field that is out of its range, with its value and the values that it may have.
    pub fn validate(&self) -> Result<(), SettingError> {
        let large = self.large_segment_bytes;
        let is_large = large > LARGE_SEGMENT_ABOVE && large <= REQUEST_BYTES_MAX && large.is_multiple_of(QUANTUM);
        let range = "more than 10 MiB (10485760) and at most 2^60, a multiple of 512";
        expect(is_large, "large_segment_bytes", large, range)?;
        for (field, bytes) in [
            ("max_split_bytes", self.max_split_bytes),
            ("max_non_split_rounding_bytes", self.max_non_split_rounding_bytes),
        ] {
            let bytes = bytes.unwrap_or(large);
            let range = format!("from large_segment_bytes ({large}) to 2^60, or none");
            expect((large..=REQUEST_BYTES_MAX).contains(&bytes), field, bytes, range)?;
        }
        let slack = self.policy.slack().unwrap_or_default();
        expect((0.0..=SLACK_MAX).contains(&slack), "slack", slack, "from 0 to 1000, or none")?;
        let threshold = self.gc_threshold;
        expect((0.0..1.0).contains(&threshold), "gc_threshold", threshold, "0 (off) or above 0 and below 1")?;
        let fraction = self.memory_fraction;
        expect((0.0..=1.0).contains(&fraction), "memory_fraction", fraction, "from 0 to 1")?;
        let is_long = self.idle.after.is_none_or(|after| !after.is_zero());
        expect(is_long, "idle.after", "0s", "more than 0, or none")?;
        for number in self.divisions.0 {
            let good = number == 0 || (number.is_power_of_two() && number <= DIVISIONS_MAX);
            expect(good, "divisions", number, "0 or a power of two up to 2^30, in every slot")?;
        }
        Ok(())
    }
}

fn expect(holds: bool, field: &'static str, value: impl ToString, allowed: impl ToString) -> Result<(), SettingError> {
    if holds { Ok(()) } else { Err(SettingError { field, value: value.to_string(), allowed: allowed.to_string() }) }
}

/// The rules for placing and keeping blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Policy {
    /// PyTorch's native caching allocator, to the counter.
    Classic(Segments),
    /// Blocks over pages, of which those that are free are mapped together where a request needs them, so that little
    /// more is reserved than is live. It needs a device with virtual memory, and is the default there.
    Paged {
        /// What it does first when memory is short and free memory may still be in use by the device.
        growth: Growth,
        /// `slack`: how much more than the most that was ever live `paged` aims to reserve at most, as a share of it,
        /// beside what work in flight keeps from being used again. Nothing is refused because of it.
        ///
        /// Pages are created up to two fifths of it before free memory is gathered: the larger it is, the fewer driver
        /// calls are made.
        slack: f64,
    },
    /// No caching: each allocation is one driver allocation. It is meant for memory checkers, and as a lower bound for
    /// comparisons.
    Direct,
}

/// The segments of `classic`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Segments {
    /// PyTorch's: 2 MiB for small requests, 20 MiB or the size of the request for large ones.
    #[default]
    Plain,
    /// `expandable_segments`: large address ranges that grow by pages instead of many fixed segments. They need a
    /// device with virtual memory.
    Expandable,
    /// `slack`: segments of which no more stays reserved than this share beyond what was ever live, for example 0.125
    /// for an eighth. They are meant for memory that is expensive to take and whose segments cannot be taken apart,
    /// such as page-locked memory of the host ([`Settings::for_host`](crate::settings::Settings::for_host)).
    ///
    /// A segment then has the size of the request or, for requests that are small compared with that peak, a part of
    /// the peak. Before one is taken, idle ones are given back as far as the share demands; garbage is not collected.
    /// The smaller the slack, the more often the driver is called.
    Snug(f64),
}

/// What `paged` does first when memory is short and free memory may still be in use by the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Growth {
    /// The use of free memory behind a device-side wait, which needs the least memory.
    Tight,
    /// The creation of pages, up to a cap. Beyond it, streams wait for each other.
    #[default]
    Balanced,
}

impl Growth {
    /// All ways to grow, each with its [name](Self::name).
    pub const ALL: [Growth; 2] = [Growth::Tight, Growth::Balanced];

    /// Returns the name that configurations use.
    pub const fn name(self) -> &'static str {
        match self {
            Growth::Tight => "tight",
            Growth::Balanced => "balanced",
        }
    }
}

/// Where memory for blocks comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backing {
    /// Segments.
    Segments,
    /// Ranges of addresses that grow by pages.
    Ranges,
    /// Ranges in which pages have their homes, and windows over them.
    Pages,
}

impl Backing {
    /// Returns whether a stream is synchronised before pages of it are unmapped, as PyTorch does.
    pub(crate) fn synchronizes(self) -> bool {
        self == Backing::Ranges
    }
}

impl Default for Policy {
    /// Returns PyTorch's allocator as it is without any configuration.
    fn default() -> Self {
        Policy::Classic(Segments::Plain)
    }
}

impl Policy {
    /// Every policy with its own name, as tables, scenarios and benchmarks compare them.
    pub const VARIANTS: [Policy; 5] = [
        Policy::Classic(Segments::Plain),
        Policy::Classic(Segments::Expandable),
        Policy::Direct,
        Policy::paged(Growth::Balanced),
        Policy::paged(Growth::Tight),
    ];

    /// The slack of `paged` where none is set: 5 %.
    pub const DEFAULT_SLACK: f64 = 0.05;

    /// Returns `paged` with its default slack.
    pub const fn paged(growth: Growth) -> Policy {
        Policy::Paged { growth, slack: Self::DEFAULT_SLACK }
    }

    /// Returns the policy of an allocator for which none was chosen: `paged` where the device has virtual memory, or
    /// else `classic`.
    pub const fn default_for(has_virtual_memory: bool) -> Policy {
        if has_virtual_memory { Policy::paged(Growth::Balanced) } else { Policy::Classic(Segments::Plain) }
    }

    /// Returns the variant of that name, if there is one.
    pub fn variant(name: &str) -> Option<Policy> {
        Self::VARIANTS.into_iter().find(|variant| variant.variant_name() == name)
    }

    /// Returns the name in configurations.
    pub const fn key(self) -> PolicyName {
        match self {
            Policy::Classic(_) => PolicyName::Classic,
            Policy::Direct => PolicyName::Direct,
            Policy::Paged { .. } => PolicyName::Paged,
        }
    }

    /// Returns the name that configurations use.
    pub const fn name(self) -> &'static str {
        self.key().as_str()
    }

    /// Returns the name of its [variant](Self::VARIANTS), whatever its slack is.
    pub fn variant_name(self) -> &'static str {
        match self {
            Policy::Classic(Segments::Expandable) => "expandable",
            Policy::Paged { growth: Growth::Tight, .. } => "tight",
            Policy::Classic(Segments::Plain | Segments::Snug(_))
            | Policy::Paged { growth: Growth::Balanced, .. }
            | Policy::Direct => self.name(),
        }
    }

    /// Returns whether the device must have virtual memory.
    pub fn needs_pages(self) -> bool {
        self.backing() != Backing::Segments
    }

    /// Returns whether free memory is gathered page by page, as `paged` does.
    pub fn moves_pages(self) -> bool {
        self.backing() == Backing::Pages
    }

    /// Returns by which share of the live peak reserved memory may exceed it, for a policy that bounds it.
    pub fn slack(self) -> Option<f64> {
        match self {
            Policy::Paged { slack, .. } => Some(slack),
            Policy::Classic(_) | Policy::Direct => self.slack_of_segments(),
        }
    }

    /// Returns the slack within which segments are kept whole, where there are such.
    pub(crate) fn slack_of_segments(self) -> Option<f64> {
        if let Policy::Classic(Segments::Snug(slack)) = self { Some(slack) } else { None }
    }

    /// Returns whether freed memory is kept for later requests, rather than released as soon as possible.
    pub fn caches(self) -> bool {
        self != Policy::Direct
    }

    /// Returns where its memory comes from.
    pub(crate) fn backing(self) -> Backing {
        match self {
            Policy::Classic(Segments::Expandable) => Backing::Ranges,
            Policy::Paged { .. } => Backing::Pages,
            Policy::Classic(_) | Policy::Direct => Backing::Segments,
        }
    }
}

/// What a configuration says about the policy, key by key, in any order. A key that does not apply to the chosen policy
/// has no effect.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Choice {
    /// `policy`: `None` leaves it to the device ([`Policy::default_for`]).
    pub policy: Option<PolicyName>,
    /// `expandable_segments`: large address ranges that grow by pages instead of many fixed segments.
    pub expandable_segments: bool,
    /// `growth`: what `paged` does first when memory is short.
    pub growth: Growth,
    /// `slack`: how much more than was ever live may stay reserved; see [`Policy::Paged`] and
    /// [`Segments::Snug`].
    pub slack: Option<f64>,
}

/// The name of a policy in configurations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyName {
    /// [`Policy::Classic`].
    Classic,
    /// [`Policy::Direct`].
    Direct,
    /// [`Policy::Paged`].
    Paged,
}

impl PolicyName {
    /// All names.
    pub const ALL: [PolicyName; 3] = [PolicyName::Classic, PolicyName::Direct, PolicyName::Paged];

    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        match self {
            PolicyName::Classic => "classic",
            PolicyName::Direct => "direct",
            PolicyName::Paged => "paged",
        }
    }
}

impl Choice {
    /// Returns the policy on a device with or without virtual memory.
    pub fn resolve(&self, has_virtual_memory: bool) -> Policy {
        match self.policy.unwrap_or(Policy::default_for(has_virtual_memory).key()) {
            PolicyName::Direct => Policy::Direct,
            PolicyName::Paged => {
                Policy::Paged { growth: self.growth, slack: self.slack.unwrap_or(Policy::DEFAULT_SLACK) }
            }
            PolicyName::Classic if self.expandable_segments => Policy::Classic(Segments::Expandable),
            PolicyName::Classic => Policy::Classic(self.slack.map_or(Segments::Plain, Segments::Snug)),
        }
    }
}

impl From<Policy> for Choice {
    /// Returns the choice that leads to the policy on every device.
    fn from(policy: Policy) -> Self {
        let growth = if let Policy::Paged { growth, .. } = policy { growth } else { Growth::default() };
        Self {
            policy: Some(policy.key()),
            expandable_segments: policy == Policy::Classic(Segments::Expandable),
            growth,
            slack: policy.slack().filter(|slack| !policy.moves_pages() || *slack != Policy::DEFAULT_SLACK),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_variant_is_chosen_by_its_own_choice() {
        for policy in Policy::VARIANTS {
            let (name, choice) = (policy.variant_name(), Choice::from(policy));
            assert_eq!(choice.resolve(true), policy, "{name}");
            assert_eq!(choice.resolve(false), policy, "a choice that names a policy is the same everywhere");
            assert_eq!(Policy::variant(name), Some(policy));
        }
    }

    #[test]
    fn names_are_told_apart() {
        assert_eq!(BTreeSet::from(Policy::VARIANTS.map(Policy::variant_name)).len(), Policy::VARIANTS.len());
    }

    #[test]
    fn without_a_choice_the_device_decides() {
        for has_virtual_memory in [true, false] {
            assert_eq!(Choice::default().resolve(has_virtual_memory), Policy::default_for(has_virtual_memory));
        }
        assert!(Policy::default_for(true).moves_pages() && !Policy::default_for(false).needs_pages());
    }
}
