//! Scenarios as data: the steps of a program that uses an allocator, and what must be true after them.
//!
//! A scenario is text; `corpus/README.md` has the grammar. The same text runs on every device. After every step, the
//! runner checks the allocator's invariants, the statistics against a simple model, and every grant and free against
//! the shadow oracle.

mod load;
mod play;
mod words;

#[cfg(test)]
mod tests;

use millpond::Readiness;
use millpond::settings::Policy;
use millpond_backend::{Caps, Closing, PageCaps, Reuse};

pub use load::LoadError;
pub(crate) use play::{play, play_with};

/// The groups of scenarios in text, with their corpus files.
pub(crate) const CORPUS: [(&str, &str); 12] = [
    ("alignment", include_str!("../../corpus/alignment.txt")),
    ("sizes", include_str!("../../corpus/sizes.txt")),
    ("reuse", include_str!("../../corpus/reuse.txt")),
    ("cross_stream", include_str!("../../corpus/cross_stream.txt")),
    ("points", include_str!("../../corpus/points.txt")),
    ("unsubmitted", include_str!("../../corpus/unsubmitted.txt")),
    ("pressure", include_str!("../../corpus/pressure.txt")),
    ("limits", include_str!("../../corpus/limits.txt")),
    ("trim", include_str!("../../corpus/trim.txt")),
    ("paged", include_str!("../../corpus/paged.txt")),
    ("statistics", include_str!("../../corpus/statistics.txt")),
    ("data", include_str!("../../corpus/data.txt")),
];

/// The policies that scenarios run under.
pub static POLICIES: [Policy; 5] = Policy::VARIANTS;

/// A scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Its name, unique in the corpus.
    pub name: String,
    /// The number of the line of its file where it begins, from 1.
    pub line: usize,
    /// The policies that it is run under.
    pub policies: Vec<Policy>,
    /// The properties that the device must have.
    pub needs: Vec<Requirement>,
    /// Further configuration, applied after the policy's.
    pub conf: String,
    /// The limit on reserved bytes at the beginning, if there is one.
    pub limit: Option<u64>,
    /// The number of streams.
    pub streams: u32,
    /// The steps in order.
    pub steps: Vec<Step>,
}

/// A property that a scenario may require of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requirement {
    /// Reuse in order on the home stream.
    InOrder,
    /// Reuse only after the submit.
    AfterSubmit,
    /// Reuse only after completion.
    AfterDone,
    /// The backend closes ticks.
    BackendCloses,
    /// The application's submit closes ticks.
    SubmitCloses,
    /// Fills and copies.
    Transfer,
    /// Work that runs until a test ends it.
    Hold,
    /// Pages of 2 MiB, if the device has pages, for amounts that depend on the page size.
    UsualPages,
    /// Pages that may be mapped twice.
    Aliasing,
    /// Streams that keep their order at all addresses of a page.
    InOrderAliases,
    /// Streams that wait for each other without the host.
    StreamWait,
}

impl Requirement {
    /// The words that scenarios use, and those for messages.
    const WORDS: [(&'static str, Requirement, &'static str); 11] = [
        ("in-order", Requirement::InOrder, "reuse in order on the home stream"),
        ("after-submit", Requirement::AfterSubmit, "reuse after the submit only"),
        ("after-done", Requirement::AfterDone, "reuse after completion only"),
        ("backend-closes", Requirement::BackendCloses, "ticks that the backend closes by itself"),
        ("submit-closes", Requirement::SubmitCloses, "ticks that are closed by submits"),
        ("transfer", Requirement::Transfer, "fills and copies"),
        ("hold", Requirement::Hold, "work that runs until it is told to end"),
        ("usual-pages", Requirement::UsualPages, "pages of 2 MiB"),
        ("aliasing", Requirement::Aliasing, "pages that may be mapped twice"),
        ("in-order-aliases", Requirement::InOrderAliases, "order on a stream at all addresses of a page"),
        ("stream-wait", Requirement::StreamWait, "streams that wait for each other"),
    ];

    /// Returns whether the device's facts meet the requirement. Whether work can be held is found out by trying.
    fn is_met(self, caps: &Caps) -> bool {
        match self {
            Requirement::InOrder => caps.reuse == Reuse::InOrder,
            Requirement::AfterSubmit => caps.reuse == Reuse::AfterSubmit,
            Requirement::AfterDone => caps.reuse == Reuse::AfterDone,
            Requirement::BackendCloses => caps.closing == Closing::Backend,
            Requirement::SubmitCloses => caps.closing == Closing::Submit,
            Requirement::Transfer => caps.transfer,
            Requirement::Hold => true,
            Requirement::UsualPages => caps.pages.is_none_or(|pages| pages.granularity == 2 << 20),
            Requirement::Aliasing => caps.pages.is_some_and(|pages| pages.aliasing),
            Requirement::InOrderAliases => {
                let is_met = |pages: PageCaps| pages.aliasing && pages.alias_reuse == Reuse::InOrder;
                caps.reuse == Reuse::InOrder && caps.pages.is_some_and(is_met)
            }
            Requirement::StreamWait => caps.stream_wait,
        }
    }

    /// Returns its name in messages.
    fn text(self) -> &'static str {
        Self::WORDS.iter().find(|(_, requirement, _)| *requirement == self).map_or("", |(_, _, text)| text)
    }
}

/// A step, and the line where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// The number of the line, from 1.
    pub line: usize,
    /// The action or the expectation.
    pub action: Action,
}

/// The way in which a request must fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It fails for lack of memory, with a report.
    OutOfMemory,
    /// It fails because no device can have that much memory.
    TooLarge,
}

/// The way in which two numbers must compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The first equals the second.
    Equal,
    /// The first is at most the second.
    AtMost,
    /// The first is at least the second.
    AtLeast,
}

/// The action of a step. Buffers and points are named; streams are numbered.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the fields say what they are; the grammar in corpus/README.md says what they do")]
pub enum Action {
    /// Allocates and must succeed.
    Allocate { name: String, bytes: u64, stream: u32 },
    /// Allocates and must fail.
    Refuse { bytes: u64, stream: u32, refusal: Refusal },
    /// Frees a buffer.
    Free { name: String },
    /// Queues work on a stream that sets every byte of a buffer.
    Write { name: String, stream: u32 },
    /// Records a use on another stream.
    Record { name: String, stream: u32 },
    /// Takes a point.
    Point { name: String, stream: u32 },
    /// Records a use up to a point.
    Until { name: String, point: String },
    /// Waits on the host for a point, as far as it was submitted.
    Wait { point: String },
    /// Makes later work of the stream come after the point.
    After { stream: u32, point: String },
    /// Submits the work of a stream.
    Submit { stream: u32 },
    /// Submits everything and waits for it.
    Sync,
    /// Queues work that runs until [`Unhold`](Self::Unhold).
    Hold { stream: u32 },
    /// Ends the held work of a stream.
    Unhold { stream: u32 },
    /// Releases all cached memory to the driver.
    EmptyCache,
    /// Releases cached memory to the driver.
    Trim { bytes: u64 },
    /// Retires what is complete.
    Poll,
    /// Sets the limit on reserved bytes.
    Limit { bytes: Option<u64> },
    /// Resets the peaks.
    ResetPeaks,
    /// Resets the totals.
    ResetTotals,
    /// Begins to count driver calls.
    CountCalls,
    /// Checks an expectation.
    Expect(Expect),
}

/// An expectation.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the fields say what they are; the grammar in corpus/README.md says what they mean")]
pub enum Expect {
    /// The value of a statistic under its PyTorch key.
    Stat { key: String, relation: Relation, value: u64 },
    /// The size of a buffer in bytes, after rounding.
    Capacity { name: String, bytes: u64 },
    /// Whether a buffer lies where another one lies or lay.
    Place { name: String, other: String, same: bool },
    /// Whether a buffer lies in the segment where another one lies or lay.
    Segment { name: String, other: String, same: bool },
    /// The reuse that a buffer's grant states; a barrier counts as order.
    Reuse { name: String, reuse: Readiness },
    /// The bytes of a buffer, which must all be what was last written.
    Data { name: String },
    /// Whether a point is reached.
    Reached { point: String, reached: bool },
    /// The number of driver calls since the counting began.
    Calls { relation: Relation, value: u64 },
    /// A field of the last refusal's report.
    Report { field: ReportField, relation: Relation, value: u64 },
}

/// A field of an out-of-memory report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportField {
    /// The bytes that the program requested.
    Requested,
    /// The bytes that `empty_cache` would have freed.
    EmptyCacheFrees,
    /// The bytes that waiting would have freed.
    WaitingFrees,
    /// The bytes that the program holds.
    Allocated,
    /// The bytes that are reserved.
    Reserved,
}

/// Reads scenarios from text.
///
/// # Errors
///
/// Returns the first line that does not follow the grammar or makes no sense.
pub fn load(text: &str) -> Result<Vec<Scenario>, LoadError> {
    load::load(text)
}
