#![doc = include_str!("../README.md")]

mod clock;
mod counts;
mod error;
mod format;
mod lifetimes;
mod lines;
mod part;
mod places;
mod program;
mod pytorch;
mod rmm;
mod stalloc;

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use millpond_snapshot::{End, Snapshot, SnapshotError, whole_or_cut};
use millpond_trace::{Content, Limits, Trace};

pub use error::{ImportError, TextProblem};
pub use format::Format;
pub use program::Left;
use program::{Program, Recorded};

/// How to read a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// The format; `None` finds it out by the content.
    pub format: Option<Format>,
    /// The device to take from a snapshot; `None` takes the only one that has any memory or events. The other formats
    /// are of one device.
    pub device: Option<usize>,
    /// The name of the program, for the trace's header.
    pub name: Option<String>,
    /// Whether requests that were refused become allocations that are freed at once, so that a replay shows which
    /// policies would have served them; otherwise they are left out. Snapshots and logs of RMM have such requests.
    pub refused: bool,
    /// The numbers of the recording's events that become the trace, from 0: entries of a device's history, and rows of
    /// a log. What is live where they begin is allocated first. `None` takes all. Lifetimes have no events.
    pub events: Option<Range<u64>>,
    /// How far before the last event of the recording the trace begins; `None` takes all. Snapshots and logs of RMM
    /// have times.
    pub since: Option<Duration>,
    /// Whether the trace is to have no details: the call stacks, labels and times of events. Snapshots have all of
    /// them. Logs of RMM have times, and threads as labels.
    pub without_details: bool,
    /// The most that is accepted, of the file and of the trace. A snapshot may have two values for each of
    /// [`Limits::events`].
    pub limits: Limits,
}

/// A recording as a trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Imported {
    /// The trace, which is valid. Its header has the name of the program (`workload`), the format (`imported_from`) and
    /// what else the recording has: the `device`, `conf` and `seconds`.
    pub trace: Trace,
    /// The format it was read from.
    pub format: Format,
    /// The device it is of, where the format says it.
    pub device: Option<usize>,
    /// What the recording has and the trace has not, and what is doubtful about it. Empty where nothing was lost.
    pub left: Vec<Left>,
    /// Sentences for people on a recording that breaks off or is made of several. Empty for one that is whole.
    pub notes: Vec<String>,
    /// The number of refused requests that became allocations, as [`Options::refused`] asks for.
    pub refused: u64,
}

/// Reads a recording from a file, as it is or compressed with gzip or zstd, and makes a trace of it.
///
/// # Errors
///
/// Returns the errors of [`import`], and the system's error when the file does not open.
pub fn import_file(path: impl AsRef<Path>, options: &Options) -> Result<Imported, ImportError> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|error| ImportError::Open { path: path.into(), error })?;
    import(file, options)
}

/// Reads a recording, as it is or compressed with gzip or zstd, and makes a trace of it. Holds the trace in memory, and
/// what a snapshot means or the text of a log.
///
/// # Errors
///
/// Returns the first place at which the recording does not follow its format or exceeds a limit, with the reason, or
/// the reader's error.
pub fn import(reader: impl Read, options: &Options) -> Result<Imported, ImportError> {
    let content = Content::new(reader).map_err(|error| SnapshotError::Read { read: 0, error })?;
    import_begun(content, options)
}

/// Imports content, as [`import`] does. [`Content::beginning`] may have been called before.
///
/// # Errors
///
/// Returns the errors of [`import`].
pub fn import_begun(mut content: Content<'_>, options: &Options) -> Result<Imported, ImportError> {
    let limits = pytorch::limits(&options.limits);
    let beginning = content.beginning(BEGINNING_BYTES).map_err(|error| SnapshotError::Read { read: 0, error })?;
    let is_snapshot = match options.format {
        Some(format) => format == Format::PyTorch,
        None => matches!(Format::of(beginning), Ok(Format::PyTorch)),
    };
    if is_snapshot {
        let snapshot = Snapshot::from_content(content, &limits)?;
        return make(Format::PyTorch, options, |program| pytorch::record(&snapshot, options, program));
    }
    let (content, end) = whole_or_cut(content, &limits)?;
    let mut imported = import_content(&content, options)?;
    if end == End::CutOff {
        imported.notes.push("the compressed file breaks off; what comes before was read".into());
    }
    Ok(imported)
}

/// How much of the content is looked at to find out its format.
const BEGINNING_BYTES: usize = 4096;

/// Imports bytes that are not compressed, as [`import`] does.
///
/// # Errors
///
/// Returns the errors of [`import`].
pub fn import_content(content: &[u8], options: &Options) -> Result<Imported, ImportError> {
    let format = match options.format {
        Some(format) => format,
        None => Format::of(content)?,
    };
    match format {
        Format::PyTorch => {
            let snapshot = Snapshot::parse(content, &pytorch::limits(&options.limits))?;
            make(format, options, |program| pytorch::record(&snapshot, options, program))
        }
        Format::Rmm => make(format, options, |program| rmm::record(content, options, program)),
        Format::Lifetimes if options.events.is_some() || options.since.is_some() => Err(ImportError::NoEvents),
        Format::Lifetimes => make(format, options, |program| lifetimes::record(content, program)),
        Format::Stalloc if options.since.is_some() => Err(ImportError::NoTimes),
        Format::Stalloc => make(format, options, |program| stalloc::record(content, options, program)),
    }
}

/// Returns the numbers of the events that become the trace. `first` finds the first event since a time before the last
/// one.
///
/// # Errors
///
/// Returns the error of a recording without times, if `first` finds none.
fn part(options: &Options, first: impl FnOnce(Duration) -> Option<u64>) -> Result<Range<u64>, ImportError> {
    let mut range = options.events.clone().unwrap_or(0..u64::MAX);
    if let Some(since) = options.since {
        range.start = range.start.max(first(since).ok_or(ImportError::NoTimes)?);
    }
    Ok(range)
}

/// Makes a trace of what `record` adds to a program. If that is more than the limits allow, it is counted, so that the
/// error says what is enough.
fn make(
    format: Format,
    options: &Options,
    record: impl Fn(&mut Program) -> Result<Recorded, ImportError>,
) -> Result<Imported, ImportError> {
    let record = |program: &mut Program| {
        let recorded = record(program)?;
        let events = recorded.events;
        if let Some(Range { start: from, end: to }) =
            program.range().filter(|range| range.start >= range.end.min(events))
            && events > 0
        {
            return Err(ImportError::NoPart { from, to, events });
        }
        program.end_part(events).map_err(|problem| match recorded.device {
            Some(device) => ImportError::Event { device, entry: events as usize, problem },
            None => ImportError::Text { line: events, column: 1, problem },
        })?;
        Ok(recorded)
    };
    let mut program = Program::new(options);
    match record(&mut program) {
        Ok(recorded) => Ok(program.finish(format, recorded, options)),
        Err(error) => {
            drop(program);
            Err(error.with_enough(|| {
                let mut counting = Program::counting();
                record(&mut counting).ok().map(|_| counting.counts())
            }))
        }
    }
}
