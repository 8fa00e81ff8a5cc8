//! Writes events as text.

use std::io::{self, Write};

use crate::error::{Problem, TraceError};
use crate::parse::END;
use crate::rules::Rules;
use crate::{Event, Header};

/// Writes a trace event by event, as plain text.
///
/// It checks events with the same rules as the reader, so what it wrote can be read. It writes in small pieces, so the
/// writer should be buffered. A trace that is not [finished](TraceWriter::finish), as of a program that was killed, has
/// its events and is known as cut off.
pub struct TraceWriter<W: Write> {
    out: W,
    rules: Rules,
    events: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace.
    ///
    /// # Errors
    ///
    /// Returns the writer's error.
    pub fn new(mut out: W, header: &Header) -> Result<Self, TraceError> {
        writeln!(out, "{}", header.line()).map_err(TraceError::Write)?;
        Ok(Self { out, rules: Rules::default(), events: 0 })
    }

    /// Writes one event. Costs tens of nanoseconds where the writer is buffered.
    ///
    /// # Errors
    ///
    /// Returns an error for an event that may not come next, which is then left out so that the trace stays valid.
    /// Returns the writer's own error, after which the text may end inside a line.
    pub fn event(&mut self, event: &Event) -> Result<(), TraceError> {
        self.check(event).map_err(|problem| TraceError::Event { event: self.events, problem })?;
        self.put(event).map_err(TraceError::Write)?;
        self.events += 1;
        Ok(())
    }

    /// Ends the trace with the number of its events, and returns the writer, flushed.
    ///
    /// # Errors
    ///
    /// Returns the writer's error.
    pub fn finish(mut self) -> Result<W, TraceError> {
        writeln!(self.out, "{END}{}", self.events).and_then(|()| self.out.flush()).map_err(TraceError::Write)?;
        Ok(self.out)
    }

    fn check(&mut self, event: &Event) -> Result<(), Problem> {
        let rules = &mut self.rules;
        let dense = |found: u32, expected: usize| {
            if found as usize == expected { Ok(()) } else { Err(Problem::NotDense { found, expected }) }
        };
        match *event {
            Event::Allocate { id, bytes, stream } => {
                dense(id, rules.blocks())?;
                rules.allocate(bytes, stream.into()).map(drop)
            }
            Event::Free { id } => rules.free(id, id.into()),
            Event::Complete { id } => rules.complete(id, id.into()),
            Event::Use { id, stream } => {
                rules.expect_allocated(id, id.into())?;
                rules.stream(stream.into()).map(drop)
            }
            Event::Mark { point, stream } => {
                dense(point, rules.points())?;
                rules.mark(stream.into()).map(drop)
            }
            Event::Until { id, point } => {
                rules.expect_allocated(id, id.into())?;
                rules.expect_point(point, point.into())
            }
            Event::EmptyCache => Ok(()),
            Event::Trim { bytes } => Rules::trim(bytes),
        }
    }

    fn put(&mut self, event: &Event) -> io::Result<()> {
        let out = &mut self.out;
        match *event {
            Event::Allocate { id, bytes, stream } => writeln!(out, "a {id} {bytes} {stream}"),
            Event::Free { id } => writeln!(out, "f {id}"),
            Event::Complete { id } => writeln!(out, "c {id}"),
            Event::Use { id, stream } => writeln!(out, "u {id} {stream}"),
            Event::Mark { point, stream } => writeln!(out, "m {point} {stream}"),
            Event::Until { id, point } => writeln!(out, "w {id} {point}"),
            Event::EmptyCache => writeln!(out, "e"),
            Event::Trim { bytes } => writeln!(out, "t {bytes}"),
        }
    }
}
