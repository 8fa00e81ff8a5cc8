//! The settings of an allocator: plain data, filled from code or by the [configuration parser](crate::conf).

use alloc::format;
use alloc::string::{String, ToString};

use crate::plant::Planted;
use crate::units::{MIB, QUANTUM, REQUEST_BYTES_MAX};

pub use crate::policy::{Choice, Growth, Policy, PolicyName, Segments, Variant};

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
/// that the new owner queues there and after all former use. The page `docs/scrubbing.md` says what this protects
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

/// What is special about a private pool: the options of PyTorch's `MemPool`.
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
        let log = bytes.ilog2() as usize;
        let slot = log.saturating_sub(20);
        self.0[if slot > 15 { 15 } else { slot }]
    }
}

/// All settings that influence decisions. They are fixed for the life of an allocator.
///
/// The policy of an allocator is a [`Policy`]. While an allocator is being set up it is a [`Choice`]: see [`Options`].
#[derive(Clone, PartialEq, Debug)]
pub struct Settings<P = Policy> {
    /// The policy.
    pub policy: P,
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
    /// A bug to plant, to verify that the tests catch it.
    #[cfg(feature = "plant")]
    pub plant: Option<crate::plant::Plant>,
}

/// Settings as a configuration gives them, before it is known on which device: [`Options::resolve`] makes [`Settings`]
/// of them.
pub type Options = Settings<Choice>;

impl<P: Default> Default for Settings<P> {
    fn default() -> Self {
        Self {
            policy: P::default(),
            max_split_bytes: None,
            max_non_split_rounding_bytes: None,
            large_segment_bytes: 20 * MIB,
            gc_threshold: 0.0,
            divisions: Divisions::default(),
            memory_fraction: 1.0,
            throw_on_oom: false,
            scrub: Scrub::Off,
            search_after_wait: true,
            gc_without_limit: true,
            shorter_pages: true,
            open_ranges: true,
            ties: Ties::Birth,
            #[cfg(feature = "plant")]
            plant: None,
        }
    }
}

impl<P> Settings<P> {
    /// Returns the settings with PyTorch 2.11's behaviour where Millpond differs on purpose, to replay its recordings.
    pub fn as_recorded(mut self) -> Self {
        self.search_after_wait = false;
        self.gc_without_limit = false;
        self.shorter_pages = false;
        self.open_ranges = false;
        self.ties = Ties::Address;
        self
    }

    /// Returns the same settings with another policy.
    pub fn with_policy<Q>(self, policy: Q) -> Settings<Q> {
        Settings {
            policy,
            max_split_bytes: self.max_split_bytes,
            max_non_split_rounding_bytes: self.max_non_split_rounding_bytes,
            large_segment_bytes: self.large_segment_bytes,
            gc_threshold: self.gc_threshold,
            divisions: self.divisions,
            memory_fraction: self.memory_fraction,
            throw_on_oom: self.throw_on_oom,
            scrub: self.scrub,
            search_after_wait: self.search_after_wait,
            gc_without_limit: self.gc_without_limit,
            shorter_pages: self.shorter_pages,
            open_ranges: self.open_ranges,
            ties: self.ties,
            #[cfg(feature = "plant")]
            plant: self.plant,
        }
    }
}

impl Options {
    /// Returns the settings on a device with or without virtual memory.
    pub fn resolve(self, has_virtual_memory: bool) -> Settings {
        let policy = self.policy.resolve(has_virtual_memory);
        self.with_policy(policy)
    }
}

impl From<Settings> for Options {
    /// Returns the options that lead to the settings on every device.
    fn from(settings: Settings) -> Self {
        let choice = Choice::from(settings.policy);
        settings.with_policy(choice)
    }
}

impl Settings {
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

    /// Verifies that every field is within its range, so that an allocator can be made with the settings. Whether a
    /// device supports them is not checked.
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
