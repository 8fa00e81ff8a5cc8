//! The keys of the configuration, each with its names.

use core::fmt;

/// A key of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Backend,
    ExpandableSegments,
    ExpandableSegmentsReserve,
    ExpandableSegmentsReserveByClass,
    GarbageCollectionThreshold,
    GraphCaptureRecordStreamReuse,
    Growth,
    LargeSegmentSize,
    MaxNonSplitRounding,
    MaxSplitSize,
    MemoryFraction,
    PinnedFreeCatchAll,
    PinnedMaxCachedSize,
    PinnedMaxRoundThreshold,
    PinnedNumRegisterThreads,
    PinnedReserveSegmentSize,
    PinnedUseBackgroundThreads,
    PinnedUseHostRegister,
    Policy,
    ReleaseLock,
    RoundupDivisions,
    Scrub,
    Slack,
    ThrowOnOom,
}

/// Every name, in alphabetical order except for the HIP spellings, which follow the CUDA ones: messages use the first
/// name of a key.
const NAMES: [(&str, Key); 26] = [
    ("backend", Key::Backend),
    ("expandable_segments", Key::ExpandableSegments),
    ("expandable_segments_reserve", Key::ExpandableSegmentsReserve),
    ("expandable_segments_reserve_by_class", Key::ExpandableSegmentsReserveByClass),
    ("garbage_collection_threshold", Key::GarbageCollectionThreshold),
    ("graph_capture_record_stream_reuse", Key::GraphCaptureRecordStreamReuse),
    ("growth", Key::Growth),
    ("large_segment_size_mb", Key::LargeSegmentSize),
    ("max_non_split_rounding_mb", Key::MaxNonSplitRounding),
    ("max_split_size_mb", Key::MaxSplitSize),
    ("per_process_memory_fraction", Key::MemoryFraction),
    ("pinned_free_catch_all", Key::PinnedFreeCatchAll),
    ("pinned_max_cached_size_mb", Key::PinnedMaxCachedSize),
    ("pinned_max_round_threshold_mb", Key::PinnedMaxRoundThreshold),
    ("pinned_num_register_threads", Key::PinnedNumRegisterThreads),
    ("pinned_reserve_segment_size_mb", Key::PinnedReserveSegmentSize),
    ("pinned_use_background_threads", Key::PinnedUseBackgroundThreads),
    ("pinned_use_cuda_host_register", Key::PinnedUseHostRegister),
    ("pinned_use_hip_host_register", Key::PinnedUseHostRegister),
    ("policy", Key::Policy),
    ("release_lock_on_cudamalloc", Key::ReleaseLock),
    ("release_lock_on_hipmalloc", Key::ReleaseLock),
    ("roundup_power2_divisions", Key::RoundupDivisions),
    ("scrub", Key::Scrub),
    ("slack", Key::Slack),
    ("throw_on_cudamalloc_oom", Key::ThrowOnOom),
];

impl Key {
    /// Returns the key of that name.
    pub(super) fn find(name: &str) -> Option<Key> {
        NAMES.iter().find(|(known, _)| *known == name).map(|&(_, key)| key)
    }

    /// Returns the name that messages use.
    pub(super) fn name(self) -> &'static str {
        match NAMES.iter().find(|(_, key)| *key == self) {
            Some(&(name, _)) => name,
            None => panic!("the key {self:?} has no name"),
        }
    }

    /// Returns whether the key is accepted for compatibility with PyTorch and has no effect here.
    pub(super) fn is_ignored(self) -> bool {
        use Key::*;
        matches!(
            self,
            Backend
                | ExpandableSegmentsReserve
                | ExpandableSegmentsReserveByClass
                | GraphCaptureRecordStreamReuse
                | PinnedFreeCatchAll
                | PinnedMaxCachedSize
                | PinnedMaxRoundThreshold
                | PinnedNumRegisterThreads
                | PinnedReserveSegmentSize
                | PinnedUseBackgroundThreads
                | PinnedUseHostRegister
                | ReleaseLock
        )
    }
}

/// Returns every name, in the order of the table.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

/// A list of every name, which messages display.
pub(super) struct Listing;

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in names().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{name}")?;
        }
        Ok(())
    }
}
