//! How an allocator is set up: plain data, filled from code or by the [configuration parser](crate::conf).

mod range;

use crate::plant::Planted;
use crate::units::MIB;

pub use range::SettingError;

/// Who decides where blocks go and what is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Policy {
    /// PyTorch's native caching allocator, to the counter.
    #[default]
    Classic,
    /// Blocks as in `classic`, over pages that move between streams and places, so that little more is reserved than is
    /// live. Needs a device with virtual memory, and is the default there.
    Paged,
    /// No caching: each allocation is one driver allocation. For memory checkers, and as a floor to compare with.
    Direct,
    /// `paged` where the device has virtual memory, or else `classic`: whoever builds an allocator resolves it
    /// ([`Policy::resolved`]), so an allocator's own settings never say it.
    Auto,
}

impl Policy {
    /// The policy of an allocator that is told nothing else: `paged` where the device has virtual memory, or else
    /// `classic`.
    pub const fn default_for(has_virtual_memory: bool) -> Policy {
        if has_virtual_memory { Policy::Paged } else { Policy::Classic }
    }

    /// The policy itself, with [`Policy::Auto`] replaced by what it means on a device with or without virtual memory.
    pub const fn resolved(self, has_virtual_memory: bool) -> Policy {
        match self {
            Policy::Auto => Policy::default_for(has_virtual_memory),
            certain => certain,
        }
    }

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Auto => "auto",
            Policy::Classic => "classic",
            Policy::Paged => "paged",
            Policy::Direct => "direct",
        }
    }
}

/// What `paged` does first when memory is short and all that is free may still be in use by the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Growth {
    /// Moves pages behind a device-side wait. The least memory.
    Tight,
    /// Creates pages. Streams never wait for each other.
    #[default]
    Balanced,
}

impl Growth {
    /// The name used in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Growth::Tight => "tight",
            Growth::Balanced => "balanced",
        }
    }
}

/// Which of several free blocks of equal size is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ties {
    /// The oldest segment's, then the lowest offset: independent of the addresses that a driver chose, as PyTorch does
    /// since 2.13.
    #[default]
    Birth,
    /// The lowest device address, as PyTorch did until 2.12. For replaying its recordings.
    Address,
}

/// `roundup_power2_divisions`: into how many steps each octave of sizes is divided, by PyTorch's sixteen slots.
///
/// Slot `i` serves sizes from 2^(20+i) to 2^(21+i); slot 0 serves everything below, slot 15 everything above. 0 and 1
/// mean "no rounding beyond 512 bytes".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Divisions(pub [u64; 16]);

impl Divisions {
    /// The divisions for a size in bytes (not 0).
    pub const fn of(&self, bytes: u64) -> u64 {
        let log = bytes.ilog2() as usize;
        let slot = log.saturating_sub(20);
        self.0[if slot > 15 { 15 } else { slot }]
    }
}

/// Everything that shapes decisions. Fixed for the life of an allocator.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Who decides.
    pub policy: Policy,
    /// `expandable_segments`: large address ranges that grow by pages instead of many fixed segments. Needs a device
    /// with virtual memory.
    pub expandable_segments: bool,
    /// What `paged` does when memory is short.
    pub growth: Growth,
    /// `max_split_size_mb`, in bytes: larger blocks are never split. `None`: no limit.
    pub max_split_bytes: Option<u64>,
    /// `max_non_split_rounding_mb`, in bytes: how much larger than the request an unsplit block may be.
    /// `None`: the large segment size.
    pub max_non_split_rounding_bytes: Option<u64>,
    /// `large_segment_size_mb`, in bytes: the segment shared by large requests below 10 MiB, and the page of large
    /// expandable segments.
    pub large_segment_bytes: u64,
    /// `slack`: how much more than was ever live may stay reserved, as a share of it: 0.125 for an eighth. For memory
    /// that is dear to take and whose segments cannot be taken apart, as page-locked memory of the host
    /// ([`Settings::for_host`]).
    ///
    /// Segments then have the size of the request, or for requests that are small beside that peak a part of it,
    /// instead of PyTorch's 2 and 20 MiB, and before one is taken idle ones are given back as far as the share demands.
    /// The less it is, the more often the driver is called. Shapes `classic` with plain
    /// segments alone, and replaces its garbage collection. `None`: PyTorch's segments.
    pub slack: Option<f64>,
    /// `garbage_collection_threshold`: the share of the limit above which unused segments are collected by age. 0: off.
    pub gc_threshold: f64,
    /// `roundup_power2_divisions`.
    pub divisions: Divisions,
    /// `per_process_memory_fraction`: the share of the device's memory that may be reserved. 1: no limit of ours.
    pub memory_fraction: f64,
    /// `throw_on_cudamalloc_oom`: refuse at once, without the retries, what would exceed the memory fraction.
    pub throw_on_oom: bool,
    /// Search the pool again after the last wait, before growing. PyTorch does not, and so reports out of memory with
    /// a fitting block in the pool (its issue 189504). Off only to replay its recordings.
    pub search_after_wait: bool,
    /// Collect garbage against the device's total where no limit is set. PyTorch silently does nothing then (its issue
    /// 106660). Off only to replay its recordings.
    pub gc_without_limit: bool,
    /// Which of several equal blocks is taken.
    pub ties: Ties,
    /// A bug to plant, for tests of the tests.
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
            search_after_wait: true,
            gc_without_limit: true,
            ties: Ties::Birth,
            #[cfg(feature = "plant")]
            plant: None,
        }
    }
}

impl Settings {
    /// PyTorch 2.11's behaviour where ours differs on purpose, for replaying its recordings.
    pub fn as_recorded(mut self) -> Self {
        self.search_after_wait = false;
        self.gc_without_limit = false;
        self.ties = Ties::Address;
        self
    }

    /// For memory of the host: `classic` with a slack of an eighth.
    pub fn for_host() -> Self {
        Self { policy: Policy::Classic, slack: Some(0.125), ..Self::default() }
    }

    /// The slack, where it has an effect.
    pub(crate) fn snug(&self) -> Option<f64> {
        self.slack.filter(|_| self.policy == Policy::Classic && !self.expandable_segments)
    }

    /// Whether segments are expandable: asked for, and by a policy that keeps segments.
    pub fn expands(&self) -> bool {
        self.expandable_segments && self.policy == Policy::Classic
    }

    /// Whether pages move: the policy is `paged`.
    pub fn is_paged(&self) -> bool {
        self.policy == Policy::Paged
    }

    /// Whether the device must have virtual memory.
    pub fn needs_pages(&self) -> bool {
        self.expands() || self.is_paged()
    }

    /// The split limit in bytes, `u64::MAX` where there is none. Pages make any split undone, so `paged` has none.
    pub fn max_split(&self) -> u64 {
        if self.is_paged() { u64::MAX } else { self.max_split_bytes.unwrap_or(u64::MAX) }
    }

    /// How much larger than an oversize request an unsplit block may be, in bytes.
    pub fn max_non_split_rounding(&self) -> u64 {
        self.max_non_split_rounding_bytes.unwrap_or(self.large_segment_bytes)
    }

    /// The bug that is planted, if one can be.
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
