//! The errors of imports.

use std::io;
use std::path::PathBuf;

use millpond_snapshot::SnapshotError;
use millpond_trace::{Limit, printable};

use crate::counts::{Counts, VALUES_OF_AN_EVENT};

/// The reason why a recording could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file could not be opened.
    #[error("cannot open {}: {error}", printable(&path.to_string_lossy()))]
    Open {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The content is of no known format.
    #[error("byte 0: the format is unknown: {found}; name it: pytorch, rmm, lifetimes or stalloc")]
    Unknown {
        /// What it begins with.
        found: String,
    },
    /// The content could not be read, or is no snapshot.
    #[error(transparent)]
    Snapshot(SnapshotError),
    /// The content has more than the limits allow.
    #[error(
        "byte {at}: the file has more than {most} {of}, the most that is accepted; to read it, raise `{}` of the \
         limits{}", raise.name(), to(*enough)
    )]
    Limit {
        /// What there is too much of.
        of: millpond_snapshot::Limit,
        /// The limit by which it is bounded. Each event allows two values.
        raise: Limit,
        /// The most of it.
        most: u64,
        /// The number of bytes of content before what exceeds it.
        at: u64,
        /// The value of the limit that is enough for this file, where it was found out.
        enough: Option<u64>,
    },
    /// A line does not follow the format.
    #[error("line {line}, column {column}: {problem}")]
    Text {
        /// The number of the line, from 1.
        line: u64,
        /// The number of the byte in the line, from 1.
        column: u64,
        /// The problem.
        problem: TextProblem,
    },
    /// The snapshot is of several devices.
    #[error("the snapshot has {}; choose one", devices_text(devices))]
    Devices {
        /// The devices that have any memory or events.
        devices: Vec<usize>,
    },
    /// The snapshot has nothing of the device.
    #[error("the snapshot has nothing of device {device}; it has {}", devices_text(devices))]
    NoDevice {
        /// The device that was asked for.
        device: usize,
        /// The devices that have any memory or events.
        devices: Vec<usize>,
    },
    /// The recording has nothing of the part.
    #[error(
        "there is no event from {from} to {}: the recording has {events} events, 0 to {}", end(*to), events - 1
    )]
    NoPart {
        /// The number of the first event that was asked for.
        from: u64,
        /// The number of the first event after those.
        to: u64,
        /// The number of events that there are, which is not 0.
        events: u64,
    },
    /// A part by time of a recording without times.
    #[error("there are no times in the recording, by which a part of it could be found; choose one by its events")]
    NoTimes,
    /// A part of a recording without an order of events.
    #[error("a table of lifetimes has no events in an order, so that a part of it cannot be chosen")]
    NoEvents,
    /// An event of a snapshot exceeds a limit.
    #[error("device_traces[{device}][{entry}]: {problem}")]
    Event {
        /// The device.
        device: usize,
        /// The number of the event, from 0.
        entry: usize,
        /// The problem.
        problem: TextProblem,
    },
}

impl From<SnapshotError> for ImportError {
    /// Names the limit by its name among those of an import.
    fn from(error: SnapshotError) -> Self {
        use millpond_snapshot::Limit as Of;
        let SnapshotError::Limit { limit: of, most, at, enough } = error else { return Self::Snapshot(error) };
        let (raise, enough) = match of {
            Of::Bytes => (Limit::TextBytes, enough),
            Of::Expansion => (Limit::Expansion, enough),
            Of::Values => (Limit::Events, enough.map(|values| values.div_ceil(VALUES_OF_AN_EVENT))),
            _ => return Self::Snapshot(error),
        };
        Self::Limit { of, raise, most, at, enough }
    }
}

impl ImportError {
    /// Returns the limit that has to be raised to read the recording, if that is the reason, and the value that is
    /// enough for it, where it was found out.
    pub fn limit(&self) -> Option<(Limit, Option<u64>)> {
        match self {
            Self::Limit { raise, enough, .. } => Some((*raise, *enough)),
            Self::Text { problem, .. } | Self::Event { problem, .. } => match problem {
                TextProblem::Events { enough, .. } => Some((Limit::Events, *enough)),
                TextProblem::Streams { enough, .. } => Some((Limit::Streams, *enough)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Notes what is enough of what there is too much of, where it is not known yet.
    pub(crate) fn with_enough(mut self, count: impl FnOnce() -> Option<Counts>) -> Self {
        if let Self::Text { problem, .. } | Self::Event { problem, .. } = &mut self {
            match problem {
                TextProblem::Events { enough, .. } => *enough = count().map(|counts| counts.events),
                TextProblem::Streams { enough, .. } => *enough = count().and_then(|counts| counts.streams),
                _ => {}
            }
        }
        self
    }
}

/// Returns the end of a range of events, for people.
fn end(to: u64) -> String {
    if to == u64::MAX { "the end".into() } else { format!("before {to}") }
}

/// Returns the value to which a limit is to be raised, as a part of a sentence.
fn to(enough: Option<u64>) -> String {
    enough.map_or(String::new(), |enough| format!(" to {enough}"))
}

fn devices_text(devices: &[usize]) -> String {
    match devices {
        [] => "no memory and no events of any device".into(),
        [one] => format!("device {one}"),
        [first, rest @ ..] => {
            let rest: Vec<String> = rest.iter().map(|device| format!(", {device}")).collect();
            format!("devices {first}{}", rest.concat())
        }
    }
}

/// The problem at one place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextProblem {
    /// A file without a line.
    #[error("the file is empty, expected {expected}")]
    Empty {
        /// What would have to be there.
        expected: &'static str,
    },
    /// A line that is no text.
    #[error("the line is not UTF-8")]
    NotText,
    /// A text that ends before its first line does.
    #[error("the text ends inside this line, expected a line break; it may be cut off")]
    CutOff,
    /// A line beyond the limit.
    #[error("the line is longer than {most} bytes")]
    LineTooLong {
        /// The most bytes.
        most: usize,
    },
    /// A head without a column that is needed.
    #[error("the head has no column `{column}`, expected {expected}")]
    NoColumn {
        /// The name of the column.
        column: &'static str,
        /// The whole head.
        expected: &'static str,
    },
    /// A column that the head names twice.
    #[error("the head has the column `{column}` twice")]
    Twice {
        /// The name of the column.
        column: String,
    },
    /// A line with fewer or more fields than it must have.
    #[error("the line has {found} fields, expected {expected}")]
    Fields {
        /// The number of fields.
        found: usize,
        /// The number that it must have.
        expected: usize,
    },
    /// A field that is something else.
    #[error("`{text}` is not a valid {expected}")]
    Field {
        /// The field, shortened to 60 characters.
        text: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A size out of range.
    #[error("the size is {bytes}, must be at most 2^60 - 1 bytes, the largest request")]
    Size {
        /// The size.
        bytes: u64,
    },
    /// A lifetime that does not end behind its beginning.
    #[error("the lifetime ends at {upper}, not after its start at {lower}")]
    Lifetime {
        /// The beginning.
        lower: i64,
        /// The end, which does not belong to it.
        upper: i64,
    },
    /// A free with another size than the allocation.
    #[error("{freed} bytes are freed at {address:#x}, where {allocated} were allocated")]
    OtherSize {
        /// The address.
        address: u64,
        /// The bytes of the free.
        freed: u64,
        /// The bytes of the allocation.
        allocated: u64,
    },
    /// More events than the limit.
    #[error(
        "the trace would have more than {most} events, the most that is accepted; raise `events` of the limits{}",
        to(*enough)
    )]
    Events {
        /// The limit.
        most: u64,
        /// The limit that is enough for this recording, where it was found out.
        enough: Option<u64>,
    },
    /// More streams than the limit.
    #[error(
        "the recording has more than {most} different streams, the most that is accepted; raise `streams` of the \
         limits{}", to(*enough)
    )]
    Streams {
        /// The limit.
        most: u64,
        /// The limit that is enough for this recording, where it was found out.
        enough: Option<u64>,
    },
}
