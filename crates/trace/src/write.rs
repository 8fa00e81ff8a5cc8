//! Writes events as text.

use std::io::{self, Write};

use crate::error::{Problem, TraceError};
use crate::header::{PLAIN, WITH_DETAILS, WITH_TIMING};
use crate::parse::END;
use crate::rules::Rules;
use crate::{Details, Event, Header, Place};

/// Writes a trace event by event, as plain text.
///
/// It checks events with the same rules as the reader, so what it wrote can be read. It writes in small pieces, so the
/// writer should be buffered. A trace that is not [finished](TraceWriter::finish), as of a program that was killed, has
/// its events and is known as cut off.
pub struct TraceWriter<W: Write> {
    out: W,
    rules: Rules,
    events: u64,
    defined: Defined,
    /// What the text says of the events that follow.
    now: Place,
}

/// How many frames, call stacks and labels a text defines so far.
#[derive(Default)]
struct Defined {
    frames: usize,
    calls: usize,
    labels: usize,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace of events alone.
    ///
    /// # Errors
    ///
    /// Returns the writer's error.
    pub fn new(out: W, header: &Header) -> Result<Self, TraceError> {
        Self::begin(out, &header.line(PLAIN))
    }

    /// Begins a trace that may have [details](TraceWriter::event_at). Readers of traces without them refuse it.
    ///
    /// # Errors
    ///
    /// Returns the writer's error.
    pub fn with_details(out: W, header: &Header) -> Result<Self, TraceError> {
        Self::begin(out, &header.line(WITH_DETAILS))
    }

    /// Begins a trace that may have details, and [events of timing](Event::is_timing). Readers of traces without those
    /// events refuse it.
    ///
    /// # Errors
    ///
    /// Returns the writer's error.
    pub fn with_timing(out: W, header: &Header) -> Result<Self, TraceError> {
        Self::begin(out, &header.line(WITH_TIMING))
    }

    fn begin(mut out: W, header: &str) -> Result<Self, TraceError> {
        writeln!(out, "{header}").map_err(TraceError::Write)?;
        let (defined, now) = (Defined::default(), Place::default());
        Ok(Self { out, rules: Rules::default(), events: 0, defined, now })
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

    /// Writes one event with what is known of it, in a trace that was begun with
    /// [`with_details`](TraceWriter::with_details). The details of all events are the same ones, to which more may be
    /// added from event to event. Costs what [`event`](TraceWriter::event) does, and for each new frame, call stack and
    /// label a line.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`event`](TraceWriter::event).
    pub fn event_at(&mut self, event: &Event, place: Place, details: &Details) -> Result<(), TraceError> {
        self.check(event).map_err(|problem| TraceError::Event { event: self.events, problem })?;
        self.place(place, details).and_then(|()| self.put(event)).map_err(TraceError::Write)?;
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
            Event::Submit { stream } => rules.stream(stream.into()).map(drop),
            Event::StreamWait { stream, point } => {
                rules.expect_point(point, point.into())?;
                rules.stream(stream.into()).map(drop)
            }
            Event::HostWait { point } | Event::Reached { point } => rules.expect_point(point, point.into()),
            Event::Look { .. } | Event::EmptyCache => Ok(()),
            Event::Trim { bytes } => Rules::trim(bytes),
        }
    }

    /// Writes what is new in the details, and what has changed since the event before.
    fn place(&mut self, place: Place, details: &Details) -> io::Result<()> {
        if place.stack.is_some() || place.label.is_some() {
            self.define(details)?;
        }
        let (out, now) = (&mut self.out, &mut self.now);
        if place.stack != now.stack {
            writeln!(out, "s {}", place.stack.map_or(0, |stack| stack.index() + 1))?;
        }
        if place.label != now.label {
            writeln!(out, "l {}", place.label.map_or(0, |label| label.index() + 1))?;
        }
        match place.micros {
            same if same == now.micros => {}
            Some(micros) => writeln!(out, "i {micros}")?,
            None => writeln!(out, "i")?,
        }
        *now = place;
        Ok(())
    }

    /// Writes the frames, call stacks and labels that were added since the last time.
    pub(crate) fn define(&mut self, details: &Details) -> io::Result<()> {
        let Self { out, defined, .. } = self;
        for text in details.frames().skip(defined.frames) {
            writeln!(out, "p {text}")?;
        }
        for call in details.calls().skip(defined.calls) {
            writeln!(out, "k {} {}", call.frame.index(), call.caller.map_or(0, |caller| caller.index() + 1))?;
        }
        for text in details.labels().skip(defined.labels) {
            writeln!(out, "n {text}")?;
        }
        let (frames, calls, labels) = (details.frames().len(), details.calls().len(), details.labels().len());
        *defined = Defined { frames, calls, labels };
        Ok(())
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
            Event::Submit { stream } => writeln!(out, "q {stream}"),
            Event::StreamWait { stream, point } => writeln!(out, "d {stream} {point}"),
            Event::HostWait { point } => writeln!(out, "h {point}"),
            Event::Reached { point } => writeln!(out, "r {point}"),
            Event::Look { nanos } => writeln!(out, "o {nanos}"),
            Event::EmptyCache => writeln!(out, "e"),
            Event::Trim { bytes } => writeln!(out, "t {bytes}"),
        }
    }
}
