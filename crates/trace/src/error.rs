//! The errors of traces.

use std::io;
use std::path::PathBuf;

use crate::limits::Limit;
use crate::text::printable;

/// The reason why a trace could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line does not follow the format.
    #[error("line {line}: {problem}; the line is `{text}`")]
    Line {
        /// The line's number, from 1.
        line: u64,
        /// The line, shortened to 60 bytes.
        text: String,
        /// The problem.
        problem: Problem,
    },
    /// An event that may not come next was given to a [`TraceWriter`](super::TraceWriter).
    #[error("event {event} cannot be written: {problem}")]
    Event {
        /// The number of events that were written before.
        event: u64,
        /// The problem.
        problem: Problem,
    },
    /// The file could not be opened or created.
    #[error("cannot open {}: {error}", printable(&path.to_string_lossy()))]
    Open {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Reading or decompressing failed part of the way.
    #[error("reading failed after line {line}: {error}")]
    Read {
        /// The number of the last complete line before it, from 1.
        line: u64,
        /// The system's or the decompressor's error.
        error: io::Error,
    },
    /// The trace says that it ends with a line that counts its events, and has no such line.
    #[error(
        "line {line}: the trace was cut off here, after {events} events: its header promises a last line `# end \
         EVENTS`; to take the events that there are, remove `counted` from the header"
    )]
    CutOff {
        /// The number of the line that would follow, from 1.
        line: u64,
        /// The number of events that there are.
        events: u64,
    },
    /// Writing or compressing failed.
    #[error("writing failed: {0}")]
    Write(io::Error),
    /// The trace has more than the reader accepts.
    #[error(
        "line {line}: the trace has more than {most} {limit}, the most that this reader accepts; to read it, raise \
         `{}` of its limits{}", limit.name(), enough.map_or(String::new(), |enough| format!(" to {enough}"))
    )]
    Limit {
        /// The limit.
        limit: Limit,
        /// Its value.
        most: u64,
        /// The number of the line that exceeds it, from 1. For the length of the text, the line after the last one that
        /// was read.
        line: u64,
        /// The value of the limit that is enough for this trace; `None` if it is not known.
        enough: Option<u64>,
    },
}

/// The problem of one line or one event. Blocks and points have the numbers that the line gives them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A line without a character.
    #[error("the line is empty, expected an event or a comment")]
    Blank,
    /// The text ends without a line break.
    #[error("the text ends inside this line, expected a line break; the trace may be cut off")]
    CutOff,
    /// A line beyond the limit.
    #[error("the line is longer than {limit} bytes")]
    LineTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// A line that begins with no event's letter and a space.
    #[error(
        "unknown event, expected a, f, c, u, m, w, q, d, h, r, e, t, p, k, n, s, l, i or a comment that begins with `#`"
    )]
    UnknownEvent,
    /// A field that is missing or is not a number.
    #[error("expected {expected} at byte {byte}: decimal digits without a sign or leading zeros, after one space")]
    Field {
        /// The meaning of the field.
        expected: &'static str,
        /// The number of bytes of the line before the field.
        byte: usize,
    },
    /// A number beyond 64 bits.
    #[error("{field} must fit in 64 bits")]
    Overflow {
        /// The meaning of the number.
        field: &'static str,
    },
    /// Something after the last field.
    #[error("expected the line's end at byte {byte}; an event has {fields}")]
    Surplus {
        /// The number of bytes of the line before the surplus.
        byte: usize,
        /// The fields of the event.
        fields: &'static str,
    },
    /// A size outside the range.
    #[error("the size is {bytes}, must be from 1 to 2^60 - 1 bytes, the largest request")]
    Size {
        /// The size in bytes.
        bytes: u64,
    },
    /// A number of bytes to keep that is outside the range.
    #[error("the bytes to keep are {bytes}, must be at most 2^63 - 1")]
    Keep {
        /// The number of bytes.
        bytes: u64,
    },
    /// A stream beyond the limit.
    #[error("the stream is {stream}, must be from 0 to 65535")]
    Stream {
        /// The stream's number.
        stream: u64,
    },
    /// A block's number that was used before.
    #[error("block {id} was allocated before, expected a new number")]
    Reused {
        /// The block.
        id: u64,
    },
    /// A block that was never allocated.
    #[error("block {id} was not allocated before")]
    Unknown {
        /// The block.
        id: u64,
    },
    /// A free or a use after the free.
    #[error("block {id} was freed before, expected a block that is still allocated")]
    AlreadyFreed {
        /// The block.
        id: u64,
    },
    /// A completion without a free.
    #[error("block {id} completes before it is freed")]
    NotFreed {
        /// The block.
        id: u64,
    },
    /// A second completion.
    #[error("block {id} completed before; a block completes once")]
    AlreadyComplete {
        /// The block.
        id: u64,
    },
    /// A point's number that was used before.
    #[error("point {point} was defined before, expected a new number")]
    PointReused {
        /// The point.
        point: u64,
    },
    /// A point that was never defined.
    #[error("point {point} was not defined before")]
    PointUnknown {
        /// The point.
        point: u64,
    },
    /// More blocks or points than 32 bits count.
    #[error("there are more than 2^32 {what}")]
    TooMany {
        /// The things that are too many.
        what: &'static str,
    },
    /// A written block or point whose number is not the next.
    #[error("the number is {found}, must be {expected}: numbers are dense, in the order of events")]
    NotDense {
        /// The number given.
        found: u32,
        /// The number that is next.
        expected: usize,
    },
    /// A line that says at the end how many events there are, and says another number.
    #[error(
        "the end counts {told} events, and there are {found}: the trace was cut or changed; after a change that is \
         meant, correct the number"
    )]
    Count {
        /// The number at the end.
        told: u64,
        /// The number of events before it.
        found: u64,
    },
    /// An event after the line that counts the events.
    #[error("an event follows the line `# end EVENTS`, expected nothing but comments")]
    AfterEnd,
    /// The text of a frame or a label that is not one.
    #[error("the text must be UTF-8, without control characters, and have from 1 to {most} bytes")]
    Text {
        /// The most bytes.
        most: usize,
    },
    /// A frame, a call stack or a label that was defined before.
    #[error("this {what} was defined before; each is defined once")]
    Repeated {
        /// What was defined.
        what: &'static str,
    },
    /// A frame, a call stack or a label that was never defined.
    #[error("{what} {number} was not defined before")]
    NotDefined {
        /// What is not defined.
        what: &'static str,
        /// Its number.
        number: u64,
    },
    /// A time before that of an earlier event.
    #[error("the time is {micros}, must be from {latest} to 2^64 - 2: time does not run backwards")]
    Time {
        /// The time, in microseconds.
        micros: u64,
        /// The time before it.
        latest: u64,
    },
    /// A trace of a newer format.
    #[error("the trace has format {found}, and this reader knows formats up to {known}: use a newer Millpond")]
    NewerFormat {
        /// The format of the trace.
        found: u64,
        /// The newest format that is known.
        known: u64,
    },
    /// A header that is not JSON.
    #[error("the header is not a JSON object: {message}")]
    HeaderJson {
        /// The message of the JSON parser, with the column.
        message: String,
    },
    /// A header that as a line would be longer than a line may be.
    #[error("the header takes {bytes} bytes as a line and may take {limit}: leave out its longest values")]
    HeaderTooLong {
        /// The length of the line in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A header value of the wrong kind.
    #[error("the header's `{key}` must be {expected}")]
    HeaderValue {
        /// The name of the value.
        key: &'static str,
        /// The kind of value that it must hold.
        expected: &'static str,
    },
}

/// Returns at most 60 bytes of a line, for messages. Control characters and foreign bytes are escaped.
pub(crate) fn shorten(line: &[u8]) -> String {
    let (kept, more) = if line.len() > 60 { (&line[..60], "...") } else { (line, "") };
    printable(&String::from_utf8_lossy(kept)).into_owned() + more
}
