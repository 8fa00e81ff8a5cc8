//! How much a recording has, compared with what a trace may have.

/// How many values a snapshot may have for each event of a trace.
pub(crate) const VALUES_OF_AN_EVENT: u64 = 2;

/// How much a recording has.
pub(crate) struct Counts {
    pub(crate) events: u64,
    /// The number of different streams; `None` if no trace can have that many.
    pub(crate) streams: Option<u64>,
}
