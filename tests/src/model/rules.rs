//! Sizes: rounding, pools, segments and pages, and the other rules that a configuration sets.

const MIB: u64 = 1 << 20;

/// A configuration as the model reads it. Sizes are in bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    /// The bytes of the device.
    pub total: u64,
    /// The most bytes that may be reserved.
    pub limit: Option<u64>,
    /// Whether segments are expandable.
    pub expandable: bool,
    /// The size from which on blocks are oversize.
    pub max_split: Option<u64>,
    /// An oversize request takes a block only if that is larger by less than this number of bytes.
    pub non_split_rounding: Option<u64>,
    /// The size of the segments that large requests below 10 MiB share.
    pub large_segment: u64,
    /// The share of the limit above which garbage is collected; 0 for never.
    pub gc_threshold: f64,
    /// The divisions of each octave, by the sixteen slots.
    pub divisions: [u64; 16],
    /// Whether the pool is searched once more after the wait for all events.
    pub search_after_wait: bool,
    /// Whether garbage is collected against the device's bytes where there is no limit.
    pub gc_without_limit: bool,
    /// Whether an expandable segment ends in a shorter page where a whole one has no room.
    pub shorter_pages: bool,
    /// Whether oversize blocks of expandable segments serve every request.
    pub open_ranges: bool,
}

impl Rules {
    /// Returns PyTorch's defaults, with the departures that Millpond makes, on a device of this number of bytes.
    pub fn new(total: u64) -> Rules {
        Rules {
            total,
            limit: None,
            expandable: false,
            max_split: None,
            non_split_rounding: None,
            large_segment: 20 * MIB,
            gc_threshold: 0.0,
            divisions: [0; 16],
            search_after_wait: true,
            gc_without_limit: true,
            shorter_pages: true,
            open_ranges: true,
        }
    }

    pub(super) fn round(&self, bytes: u64) -> u64 {
        if bytes < 512 {
            return 512;
        }
        let log = 63 - u64::from(bytes.leading_zeros());
        let divisions = self.divisions[log.clamp(20, 35) as usize - 20];
        if divisions > 1 && bytes > 512 * divisions {
            let floor = 1 << log;
            return if bytes == floor { bytes } else { bytes.next_multiple_of(floor / divisions) };
        }
        bytes.next_multiple_of(512)
    }

    pub(super) fn is_small(&self, size: u64) -> bool {
        size <= MIB
    }

    pub(super) fn segment(&self, size: u64) -> u64 {
        if size <= MIB {
            2 * MIB
        } else if size < 10 * MIB {
            self.large_segment
        } else {
            size.next_multiple_of(2 * MIB)
        }
    }

    /// Returns the page size: that of the pool's segments, as the device maps multiples of 2 MiB.
    pub(super) fn page(&self, small: bool) -> u64 {
        if small { 2 * MIB } else { self.large_segment.next_multiple_of(2 * MIB) }
    }

    /// Returns whether new memory of expandable segments may be less than a page.
    pub(super) fn shortens(&self) -> bool {
        self.expandable && self.shorter_pages
    }

    pub(super) fn is_oversize(&self, size: u64) -> bool {
        let has_none = self.expandable && self.open_ranges;
        !has_none && self.max_split.is_some_and(|most| size >= most)
    }

    pub(super) fn non_split_rounding(&self) -> u64 {
        self.non_split_rounding.unwrap_or(self.large_segment)
    }

    /// Returns the number of bytes that garbage collection measures against, or `None` where it is off.
    pub(super) fn gc_goal(&self) -> Option<u64> {
        let whole = match self.limit {
            Some(limit) => limit,
            None if self.gc_without_limit => self.total,
            None => return None,
        };
        (self.gc_threshold > 0.0).then_some((self.gc_threshold * whole as f64) as u64)
    }
}
