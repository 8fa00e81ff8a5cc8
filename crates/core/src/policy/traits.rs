//! What sets a policy apart, for the rest of the core.

/// What sets a policy apart.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Traits {
    pub(crate) source: Source,
    pub(crate) collects: Collects,
    pub(crate) keeps: Keeps,
    /// How much more than was ever live may be reserved, as a share of it, where that is bounded.
    pub(crate) slack: Option<f64>,
}

/// Where memory for blocks comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// Segments.
    Segments,
    /// Ranges of addresses that grow by pages.
    Ranges,
    /// Ranges in which pages have their homes, and windows over them.
    Pages,
}

/// What is given back before more is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Collects {
    /// Old segments, once the reserved bytes are above the threshold.
    Garbage,
    /// Idle segments beyond the slack.
    Surplus,
    /// Everything that is idle.
    Idle,
}

/// What becomes of freed memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeps {
    /// It is kept for later requests, which share segments.
    Freed,
    /// It goes back as soon as that is possible: each allocation is one of the driver's.
    Nothing,
}

impl Traits {
    /// Returns the slack within which segments are kept whole, where there are such.
    pub(crate) fn slack_of_segments(&self) -> Option<f64> {
        self.slack.filter(|_| self.collects == Collects::Surplus)
    }

    /// Returns whether a stream is synchronised before pages of it are unmapped, as PyTorch does.
    pub(crate) fn synchronizes(&self) -> bool {
        self.source == Source::Ranges
    }
}
