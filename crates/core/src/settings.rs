//! The settings of an allocator: plain data, filled from code or by the [configuration parser](crate::conf).

mod range;

use crate::plant::Planted;
use crate::units::MIB;

pub use range::SettingError;

/// The rules for where blocks are placed and what is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Policy {
    /// PyTorch's native caching allocator, to the counter.
    #[default]
    Classic,
    /// Blocks as in `classic`, over pages that move between streams and places, so that little more is reserved than is
    /// live. It needs a device with virtual memory, and is the default there.
    Paged,
    /// No caching: each allocation is one driver allocation. It is meant for memory checkers, and as a lower bound for
    /// comparisons.
    Direct,
    /// `paged` where the device has virtual memory, or else `classic`. The code that builds an allocator resolves it
    /// ([`Policy::resolved`]), so an allocator's own settings never have this value.
    Auto,
}

impl Policy {
    /// Returns the policy of an allocator for which none was chosen: `paged` where the device has virtual memory, or
    /// else `classic`.
    pub const fn default_for(has_virtual_memory: bool) -> Policy {
        if has_virtual_memory { Policy::Paged } else { Policy::Classic }
    }

    /// Returns the policy, with [`Policy::Auto`] replaced by what it means on a device with or without virtual memory.
    pub const fn resolved(self, has_virtual_memory: bool) -> Policy {
        match self {
            Policy::Auto => Policy::default_for(has_virtual_memory),
            certain => certain,
        }
    }

    /// Returns the name that the command line and reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Auto => "auto",
            Policy::Classic => "classic",
            Policy::Paged => "paged",
            Policy::Direct => "direct",
        }
    }
}

/// What `paged` does first when memory is short and all free memory may still be in use by the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Growth {
    /// The move of pages behind a device-side wait, which needs the least memory.
    Tight,
    /// The creation of pages. Streams never wait for each other.
    #[default]
    Balanced,
}

impl Growth {
    /// Returns the name that configurations use.
    pub const fn name(self) -> &'static str {
        match self {
            Growth::Tight => "tight",
            Growth::Balanced => "balanced",
        }
    }
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
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The policy.
    pub policy: Policy,
    /// `expandable_segments`: large address ranges that grow by pages instead of many fixed segments. Needs a device
    /// with virtual memory.
    pub expandable_segments: bool,
    /// What `paged` does first when memory is short.
    pub growth: Growth,
    /// `max_split_size_mb`, in bytes: larger blocks are never split. `None` means no limit.
    pub max_split_bytes: Option<u64>,
    /// `max_non_split_rounding_mb`, in bytes: the amount by which an unsplit block may be larger than the request.
    /// `None` means the large segment size.
    pub max_non_split_rounding_bytes: Option<u64>,
    /// `large_segment_size_mb`, in bytes: the size of the segment that large requests below 10 MiB share, and of the
    /// pages of large expandable segments.
    pub large_segment_bytes: u64,
    /// `slack`: how much more than was ever live may stay reserved, as a share of it, for example 0.125 for an eighth.
    /// It is meant for memory that is expensive to take and whose segments cannot be taken apart, such as page-locked
    /// memory of the host ([`Settings::for_host`]).
    ///
    /// Segments then have the size of the request or, for requests that are small compared with that peak, a part of
    /// the peak, instead of PyTorch's 2 and 20 MiB. Before one is taken, idle ones are given back as far as the share
    /// demands. The smaller the slack, the more often the driver is called. It has an effect only on `classic` with
    /// plain segments, where it replaces garbage collection. `None` means PyTorch's segments.
    pub slack: Option<f64>,
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
    /// The choice among several equal blocks.
    pub ties: Ties,
    /// A bug to plant, to verify that the tests catch it.
    #[cfg(feature = "plant")]
    pub plant: Option<crate::plant::Plant>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::Classic,
            expandable_segments: false,
            growth: Growth::default(),
            max_split_bytes: None,
            max_non_split_rounding_bytes: None,
            large_segment_bytes: 20 * MIB,
            slack: None,
            gc_threshold: 0.0,
            divisions: Divisions::default(),
            memory_fraction: 1.0,
            throw_on_oom: false,
            scrub: Scrub::Off,
            search_after_wait: true,
            gc_without_limit: true,
            ties: Ties::Birth,
            #[cfg(feature = "plant")]
            plant: None,
        }
    }
}

impl Settings {
    /// Returns the settings with PyTorch 2.11's behaviour where Millpond differs on purpose, to replay its recordings.
    pub fn as_recorded(mut self) -> Self {
        self.search_after_wait = false;
        self.gc_without_limit = false;
        self.ties = Ties::Address;
        self
    }

    /// Returns the settings for memory of the host: `classic` with a slack of an eighth.
    pub fn for_host() -> Self {
        Self { policy: Policy::Classic, slack: Some(0.125), ..Self::default() }
    }

    /// Returns the slack, where it has an effect.
    pub(crate) fn snug(&self) -> Option<f64> {
        self.slack.filter(|_| self.policy == Policy::Classic && !self.expandable_segments)
    }

    /// Returns whether segments are expandable, which must be asked for and needs a policy that keeps segments.
    pub fn expands(&self) -> bool {
        self.expandable_segments && self.policy == Policy::Classic
    }

    /// Returns whether pages move, because the policy is `paged`.
    pub fn is_paged(&self) -> bool {
        self.policy == Policy::Paged
    }

    /// Returns whether the device must have virtual memory.
    pub fn needs_pages(&self) -> bool {
        self.expands() || self.is_paged()
    }

    /// Returns the split limit in bytes, or `u64::MAX` where there is none. Pages can reverse any split, so `paged` has
    /// none.
    pub fn max_split(&self) -> u64 {
        if self.is_paged() { u64::MAX } else { self.max_split_bytes.unwrap_or(u64::MAX) }
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

    /// Panics on settings that do not [`validate`](Self::validate), and on a policy that is not resolved.
    pub(crate) fn check(&self) {
        assert!(self.policy != Policy::Auto, "the policy is `auto`, must be resolved for the device first");
        if let Err(error) = self.validate() {
            panic!("{error}");
        }
    }
}
