//! Scenarios as data: what a program does with an allocator, step by step, and what must be true of it.
//!
//! A scenario is text; `corpus/README.md` has the grammar. The same text runs on every device. After every step,
//! whatever it is, the runner verifies the allocator's invariants, the statistics against a naive account, and every
//! grant and free against the shadow oracle.

mod load;
mod play;
mod words;

#[cfg(test)]
mod tests;

use millpond::Reuse;
use millpond_backend::{Caps, Closing};

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

/// How an allocator is set up for a run, under a name for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Its name in scenarios and results.
    pub name: &'static str,
    /// Its configuration.
    pub conf: &'static str,
    /// It needs virtual memory.
    pub pages: bool,
}

/// The policies that scenarios run under.
pub const POLICIES: [Policy; 5] = [
    Policy { name: "classic", conf: "policy:classic", pages: false },
    Policy { name: "expandable", conf: "policy:classic,expandable_segments:True", pages: true },
    Policy { name: "direct", conf: "policy:direct", pages: false },
    Policy { name: "paged", conf: "policy:paged", pages: true },
    Policy { name: "tight", conf: "policy:paged,growth:tight", pages: true },
];

/// One scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Its name, unique in the corpus.
    pub name: String,
    /// The line of its file where it begins, from 1.
    pub line: usize,
    /// The policies that it is run under.
    pub policies: Vec<Policy>,
    /// What the device must be or have.
    pub needs: Vec<Requirement>,
    /// Further configuration, behind the policy's.
    pub conf: String,
    /// The limit on reserved bytes from the beginning, if there is one.
    pub limit: Option<u64>,
    /// How many streams there are.
    pub streams: u32,
    /// What is done, in order.
    pub steps: Vec<Step>,
}

/// What a scenario may ask of a device.
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
    /// Work that runs until it is told to end.
    Hold,
    /// Pages of 2 MiB, where there are any: for amounts that depend on it.
    UsualPages,
    /// Pages that may be mapped twice.
    Aliasing,
    /// Streams that wait for each other without the host.
    StreamWait,
}

impl Requirement {
    /// The words that scenarios use, and those for people.
    const WORDS: [(&'static str, Requirement, &'static str); 10] = [
        ("in-order", Requirement::InOrder, "reuse in order on the home stream"),
        ("after-submit", Requirement::AfterSubmit, "reuse after the submit only"),
        ("after-done", Requirement::AfterDone, "reuse after completion only"),
        ("backend-closes", Requirement::BackendCloses, "ticks that the backend closes by itself"),
        ("submit-closes", Requirement::SubmitCloses, "ticks that are closed by submits"),
        ("transfer", Requirement::Transfer, "fills and copies"),
        ("hold", Requirement::Hold, "work that runs until it is told to end"),
        ("usual-pages", Requirement::UsualPages, "pages of 2 MiB"),
        ("aliasing", Requirement::Aliasing, "pages that may be mapped twice"),
        ("stream-wait", Requirement::StreamWait, "streams that wait for each other"),
    ];

    /// Whether facts alone say that the device has it; holding is found out by trying.
    fn is_met(self, caps: &Caps) -> bool {
        match self {
            Requirement::InOrder => caps.reuse == millpond_backend::Reuse::InOrder,
            Requirement::AfterSubmit => caps.reuse == millpond_backend::Reuse::AfterSubmit,
            Requirement::AfterDone => caps.reuse == millpond_backend::Reuse::AfterDone,
            Requirement::BackendCloses => caps.closing == Closing::Backend,
            Requirement::SubmitCloses => caps.closing == Closing::Submit,
            Requirement::Transfer => caps.transfer,
            Requirement::Hold => true,
            Requirement::UsualPages => caps.pages.is_none_or(|pages| pages.granularity == 2 << 20),
            Requirement::Aliasing => caps.pages.is_some_and(|pages| pages.aliasing),
            Requirement::StreamWait => caps.stream_wait,
        }
    }

    /// What it is, for people.
    fn text(self) -> &'static str {
        Self::WORDS.iter().find(|(_, requirement, _)| *requirement == self).map_or("", |(_, _, text)| text)
    }
}

/// One step, and the line where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// Its line, from 1.
    pub line: usize,
    /// What is done or expected.
    pub action: Action,
}

/// How a request must fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// For lack of memory, with a report.
    OutOfMemory,
    /// Because no device has so much.
    TooLarge,
}

/// How two numbers must compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// The first is the second.
    Equal,
    /// The first is at most the second.
    AtMost,
    /// The first is at least the second.
    AtLeast,
}

/// What a step does. Buffers and points are named; streams are numbered.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the fields say what they are; the grammar in corpus/README.md says what they do")]
pub enum Action {
    /// Allocates and must succeed.
    Allocate { name: String, bytes: u64, stream: u32 },
    /// Allocates and must fail.
    Refuse { bytes: u64, stream: u32, refusal: Refusal },
    /// Frees.
    Free { name: String },
    /// Queues work on a stream that sets every byte of a buffer.
    Write { name: String, stream: u32 },
    /// Notes the use on another stream.
    Record { name: String, stream: u32 },
    /// Takes a point.
    Point { name: String, stream: u32 },
    /// Notes the use up to a point.
    Until { name: String, point: String },
    /// The host waits for a point, as far as it was submitted.
    Wait { point: String },
    /// Later work of the stream comes after the point.
    After { stream: u32, point: String },
    /// Submits.
    Submit { stream: u32 },
    /// Submits everything and waits for it.
    Sync,
    /// Queues work that runs until it is told to end.
    Hold { stream: u32 },
    /// Ends it.
    Unhold { stream: u32 },
    /// Gives everything cached back.
    EmptyCache,
    /// Gives cached memory back.
    Trim { bytes: u64 },
    /// Retires what is done.
    Poll,
    /// Sets the limit.
    Limit { bytes: Option<u64> },
    /// Resets peaks.
    ResetPeaks,
    /// Resets totals.
    ResetTotals,
    /// From here on, driver calls are counted.
    CountCalls,
    /// Something must be true.
    Expect(Expect),
}

/// What must be true.
#[derive(Clone, PartialEq, Debug)]
#[expect(missing_docs, reason = "the fields say what they are; the grammar in corpus/README.md says what they mean")]
pub enum Expect {
    /// A statistic under its PyTorch key.
    Stat { key: String, relation: Relation, value: u64 },
    /// A buffer has this many bytes after rounding.
    Capacity { name: String, bytes: u64 },
    /// A buffer lies where another one lies or lay, or does not.
    Place { name: String, other: String, same: bool },
    /// A buffer lies in the segment where another one lies or lay, or does not.
    Segment { name: String, other: String, same: bool },
    /// How the memory of a buffer is safe to use; a barrier counts as order.
    Reuse { name: String, reuse: Reuse },
    /// Every byte of a buffer is what was last written.
    Data { name: String },
    /// A point is reached, or not.
    Reached { point: String, reached: bool },
    /// Driver calls since they are counted.
    Calls { relation: Relation, value: u64 },
    /// The last refusal's report: a field of it.
    Report { field: ReportField, relation: Relation, value: u64 },
}

/// A number of an out-of-memory report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportField {
    /// What the program asked for, in bytes.
    Requested,
    /// What would have come free by `empty_cache`, in bytes.
    EmptyCacheFrees,
    /// What would have come free by waiting, in bytes.
    WaitingFrees,
    /// What the program holds, in bytes.
    Allocated,
    /// What is reserved, in bytes.
    Reserved,
}

/// Reads scenarios from text.
///
/// # Errors
///
/// The first line that departs from the grammar or makes no sense.
pub fn load(text: &str) -> Result<Vec<Scenario>, LoadError> {
    load::load(text)
}
