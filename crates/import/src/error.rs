//! The errors of imports.

use std::io;
use std::path::PathBuf;

use millpond_snapshot::SnapshotError;

/// The reason why a recording could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file could not be opened.
    #[error("cannot open {}: {error}", path.display())]
    Open {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The content is of no known format.
    #[error(
        "byte 0: the format is not known by its beginning: {found}; name it, one of pytorch, rmm, lifetimes and stalloc"
    )]
    Unknown {
        /// What it begins with.
        found: String,
    },
    /// The content could not be read, or is no snapshot.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
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
    #[error("`{text}` is no {expected}")]
    Field {
        /// The field, shortened to 60 characters.
        text: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A size out of range.
    #[error("the size is {bytes}, must be at most 2^63 - 1 bytes")]
    Size {
        /// The size.
        bytes: u64,
    },
    /// A lifetime that does not end behind its beginning.
    #[error("the lifetime ends at {upper}, which is not behind its beginning at {lower}")]
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
    #[error("the trace would have more than {most} events, the most that is accepted; raise `events` of the limits")]
    Events {
        /// The limit.
        most: u64,
    },
    /// More streams than the limit.
    #[error(
        "the recording has more than {most} different streams, the most that is accepted; raise `streams` of the limits"
    )]
    Streams {
        /// The limit.
        most: u64,
    },
}
