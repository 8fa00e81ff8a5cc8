//! Reads events from text.

use std::collections::HashMap;

use crate::error::{Problem, TraceError, shorten};
use crate::limits::{Limit, Limits};
use crate::rules::Rules;
use crate::text::printable;
use crate::{Event, Header, Place, Trace};

/// The length of the longest line, in bytes. Events are far shorter; a header may be long.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;

/// What the last line of a trace begins with, before the number of events.
pub(crate) const END: &str = "# end ";

/// How much of a trace was read, as its text says it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The text promises no line that ends it.
    NotPromised,
    Promised,
    Read,
}

impl Trace {
    /// Reads a trace from its text, which is not compressed, within the default [`Limits`];
    /// [`from_reader`](Trace::from_reader) decompresses.
    ///
    /// Costs about 20 ns and 25 bytes for each event.
    ///
    /// # Errors
    ///
    /// Returns the first line that does not follow the format or exceeds a limit.
    pub fn parse(text: &[u8]) -> Result<Self, TraceError> {
        let mut parser = Parser::new(&Limits::default());
        parser.trace.events.reserve(text.len() / 12);
        let rest = parser.lines(text)?;
        parser.finish(rest)
    }
}

/// How much of a trace was read.
#[derive(Clone, Copy)]
pub(crate) struct Reached {
    pub(crate) events: u64,
    /// The frames, call stacks and labels.
    pub(crate) details: u64,
    pub(crate) bytes: u64,
}

/// A reader of lines that arrive in pieces.
pub(crate) struct Parser {
    limits: Limits,
    trace: Trace,
    rules: Rules,
    blocks: Names,
    points: Names,
    lines: u64,
    end: End,
    /// What is known of the events that follow.
    now: Place,
    /// The latest time so far.
    latest: u64,
}

impl Parser {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            limits: *limits,
            trace: Trace::default(),
            rules: Rules::default(),
            blocks: Names::default(),
            points: Names::default(),
            lines: 0,
            end: End::NotPromised,
            now: Place::default(),
            latest: 0,
        }
    }

    /// Returns the number of lines that were read.
    pub(crate) fn line(&self) -> u64 {
        self.lines
    }

    /// Returns how much was read, with the number of bytes, which the caller knows.
    pub(crate) fn reached(&self, bytes: u64) -> Reached {
        Reached { events: self.trace.events.len() as u64, details: self.trace.details.stored(), bytes }
    }

    /// Returns whether an event that was read names a stream.
    pub(crate) fn names(&self, stream: u64) -> bool {
        self.rules.is_named(stream)
    }

    /// Returns the number of different streams that were read.
    pub(crate) fn different_streams(&self) -> u64 {
        self.rules.different_streams()
    }

    /// Reads all complete lines of `text` and returns what follows the last of them.
    pub(crate) fn lines<'a>(&mut self, mut text: &'a [u8]) -> Result<&'a [u8], TraceError> {
        while !text.is_empty() {
            let mut cursor = Cursor { text, at: 1 };
            match self.event(&mut cursor) {
                Ok(Some(event)) => {
                    self.expect_room()?;
                    if self.end == End::Read {
                        return Err(self.error(&text[..cursor.at - 1], Problem::AfterEnd));
                    }
                    self.trace.details.push(self.trace.events.len(), self.now);
                    self.trace.events.push(event);
                    self.lines += 1;
                    text = &text[cursor.at..];
                }
                outcome => {
                    // The line is a comment or a detail, a mistake, or not complete yet.
                    let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
                        return if text.len() > LINE_BYTES_MAX {
                            Err(self.error(text, Problem::LineTooLong { limit: LINE_BYTES_MAX }))
                        } else {
                            Ok(text)
                        };
                    };
                    let line = &text[..end];
                    if let Err(problem) = outcome.and_then(|_| self.other(line)) {
                        return Err(self.error(line, problem));
                    }
                    self.expect_room_for_details()?;
                    self.lines += 1;
                    text = &text[end + 1..];
                }
            }
        }
        Ok(text)
    }

    /// Returns the trace, given what remains of the text after its last complete line.
    pub(crate) fn finish(mut self, rest: &[u8]) -> Result<Trace, TraceError> {
        if !rest.is_empty() {
            return Err(self.error(rest, Problem::CutOff));
        }
        if self.end == End::Promised {
            return Err(TraceError::CutOff { line: self.lines + 1, events: self.trace.events.len() as u64 });
        }
        self.trace.streams = self.rules.streams();
        Ok(self.trace)
    }

    /// Checks that the event that was just read stays within the limits.
    #[inline]
    fn expect_room(&self) -> Result<(), TraceError> {
        let Limits { events, streams, .. } = self.limits;
        let (limit, most) = if self.trace.events.len() as u64 >= events {
            (Limit::Events, events)
        } else if self.rules.different_streams() > streams {
            (Limit::Streams, streams)
        } else {
            return Ok(());
        };
        Err(TraceError::Limit { limit, most, line: self.lines + 1, enough: None })
    }

    /// Checks that the line that was just read, if it adds a detail, stays within the limit of them.
    fn expect_room_for_details(&self) -> Result<(), TraceError> {
        let most = self.limits.details;
        if self.trace.details.stored() <= most {
            return Ok(());
        }
        Err(TraceError::Limit { limit: Limit::Details, most, line: self.lines + 1, enough: None })
    }

    fn error(&self, line: &[u8], problem: Problem) -> TraceError {
        TraceError::Line { line: self.lines + 1, text: shorten(line), problem }
    }

    /// Reads a line that is no event: a comment, the header, or a detail.
    fn other(&mut self, line: &[u8]) -> Result<(), Problem> {
        match line {
            [] => return Err(Problem::Blank),
            [b'#', comment @ ..] if self.lines == 0 && comment.trim_ascii_start().starts_with(b"{") => {
                let values = serde_json::from_slice(comment)
                    .map_err(|error| Problem::HeaderJson { message: printable(&error.to_string()).into_owned() })?;
                let (header, is_counted) = Header::of_text(values)?;
                self.trace.header = header;
                self.end = if is_counted { End::Promised } else { End::NotPromised };
            }
            [b'#', ..] if self.end == End::Promised && line.starts_with(END.as_bytes()) => {
                let mut cursor = Cursor { text: line, at: END.len() - 1 };
                let told = cursor.number("a number of events")?;
                let found = self.trace.events.len() as u64;
                if told != found || cursor.at != line.len() {
                    return Err(Problem::Count { told, found });
                }
                self.end = End::Read;
            }
            [b'#', ..] => {}
            [b'p' | b'k' | b'n' | b's' | b'l' | b'i', ..] if self.end == End::Read => {
                return Err(Problem::AfterEnd);
            }
            [b'p', b' ', text @ ..] => self.trace.details.read_frame(text)?,
            [b'n', b' ', text @ ..] => self.trace.details.read_label(text)?,
            _ => self.detail(Cursor { text: line, at: 1 })?,
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(Problem::LineTooLong { limit: LINE_BYTES_MAX });
        }
        Ok(())
    }

    /// Reads a detail that has numbers: a call stack, or what is known of the events that follow.
    fn detail(&mut self, mut cursor: Cursor<'_>) -> Result<(), Problem> {
        match cursor.text[0] {
            b'k' => {
                let frame = cursor.number("a frame's number")?;
                let caller = cursor.number("a call stack's number")?;
                cursor.last("`k FRAME CALLER`")?;
                self.trace.details.read_call(frame, caller)?;
            }
            b's' => {
                let stack = cursor.number("a call stack's number")?;
                cursor.last("`s STACK`")?;
                self.now.stack = self.trace.details.read_stack(stack)?;
            }
            b'l' => {
                let label = cursor.number("a label's number")?;
                cursor.last("`l LABEL`")?;
                self.now.label = self.trace.details.read_label_number(label)?;
            }
            b'i' if cursor.text.len() == 1 => self.now.micros = None,
            b'i' => {
                let micros = cursor.number("a time in microseconds")?;
                cursor.last("`i MICROS`")?;
                let latest = self.latest;
                if micros < latest || micros == u64::MAX {
                    return Err(Problem::Time { micros, latest });
                }
                self.latest = micros;
                self.now.micros = Some(micros);
            }
            _ => return Err(Problem::UnknownEvent),
        }
        Ok(())
    }

    /// Reads the event at the cursor, which is placed behind the line break. Returns `None` if the line is no event.
    ///
    /// For a line without its line break yet, it returns an error that has no meaning, and changes nothing.
    fn event(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<Event>, Problem> {
        let event = match cursor.text[0] {
            b'a' => {
                let name = cursor.number("a block's number")?;
                let bytes = cursor.number("a size in bytes")?;
                let stream = cursor.number("a stream's number")?;
                cursor.end("`a ID SIZE STREAM`")?;
                if self.blocks.find(name).is_some() {
                    return Err(Problem::Reused { id: name });
                }
                let (id, stream) = self.rules.allocate(bytes, stream)?;
                self.blocks.add(name, id);
                Event::Allocate { id, bytes, stream }
            }
            b'f' => {
                let name = cursor.number("a block's number")?;
                cursor.end("`f ID`")?;
                let id = self.block(name)?;
                self.rules.free(id, name)?;
                Event::Free { id }
            }
            b'c' => {
                let name = cursor.number("a block's number")?;
                cursor.end("`c ID`")?;
                let id = self.block(name)?;
                self.rules.complete(id, name)?;
                Event::Complete { id }
            }
            _ => return self.rare_event(cursor),
        };
        Ok(Some(event))
    }

    /// Reads the events other than `a`, `f` and `c`.
    fn rare_event(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<Event>, Problem> {
        let event = match cursor.text[0] {
            b'u' => {
                let name = cursor.number("a block's number")?;
                let stream = cursor.number("a stream's number")?;
                cursor.end("`u ID STREAM`")?;
                let id = self.block(name)?;
                self.rules.expect_allocated(id, name)?;
                Event::Use { id, stream: self.rules.stream(stream)? }
            }
            b'm' => {
                let name = cursor.number("a point's number")?;
                let stream = cursor.number("a stream's number")?;
                cursor.end("`m POINT STREAM`")?;
                if self.points.find(name).is_some() {
                    return Err(Problem::PointReused { point: name });
                }
                let (point, stream) = self.rules.mark(stream)?;
                self.points.add(name, point);
                Event::Mark { point, stream }
            }
            b'w' => {
                let name = cursor.number("a block's number")?;
                let point = cursor.number("a point's number")?;
                cursor.end("`w ID POINT`")?;
                let id = self.block(name)?;
                self.rules.expect_allocated(id, name)?;
                Event::Until { id, point: self.point(point)? }
            }
            b'q' => {
                let stream = cursor.number("a stream's number")?;
                cursor.end("`q STREAM`")?;
                Event::Submit { stream: self.rules.stream(stream)? }
            }
            b'd' => {
                let stream = cursor.number("a stream's number")?;
                let point = cursor.number("a point's number")?;
                cursor.end("`d STREAM POINT`")?;
                let point = self.point(point)?;
                Event::StreamWait { stream: self.rules.stream(stream)?, point }
            }
            letter @ (b'h' | b'r') => {
                let point = cursor.number("a point's number")?;
                cursor.end(if letter == b'h' { "`h POINT`" } else { "`r POINT`" })?;
                let point = self.point(point)?;
                if letter == b'h' { Event::HostWait { point } } else { Event::Reached { point } }
            }
            b'o' => {
                let nanos = cursor.number("a time in nanoseconds")?;
                cursor.end("`o NANOS`")?;
                Event::Look { nanos }
            }
            b'e' => {
                cursor.end("`e` alone")?;
                Event::EmptyCache
            }
            b't' => {
                let bytes = cursor.number("a number of bytes")?;
                cursor.end("`t BYTES`")?;
                Rules::trim(bytes)?;
                Event::Trim { bytes }
            }
            _ => return Ok(None),
        };
        Ok(Some(event))
    }

    fn point(&self, name: u64) -> Result<u32, Problem> {
        self.points.find(name).ok_or(Problem::PointUnknown { point: name })
    }

    fn block(&self, name: u64) -> Result<u32, Problem> {
        self.blocks.find(name).ok_or(Problem::Unknown { id: name })
    }
}

/// The dense numbers of the numbers in a file. Files that count from 0 themselves, as recorded ones do, need no table.
#[derive(Default)]
struct Names {
    /// Numbers below this one are their own dense numbers.
    own: u64,
    others: HashMap<u64, u32>,
}

impl Names {
    fn find(&self, name: u64) -> Option<u32> {
        if name < self.own {
            return Some(name as u32);
        }
        if self.others.is_empty() { None } else { self.others.get(&name).copied() }
    }

    fn add(&mut self, name: u64, dense: u32) {
        if name == self.own && name == u64::from(dense) {
            self.own += 1;
        } else {
            self.others.insert(name, dense);
        }
    }
}

/// A place in a line.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    /// Reads one space and a number.
    fn number(&mut self, expected: &'static str) -> Result<u64, Problem> {
        let start = self.at + 1;
        let refuse = Problem::Field { expected, byte: start };
        if self.text.get(self.at) != Some(&b' ') {
            return Err(Problem::Field { expected, byte: self.at });
        }
        let mut at = start;
        let mut number = 0_u64;
        while let Some(digit) = self.text.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
            number = number
                .checked_mul(10)
                .and_then(|number| number.checked_add(u64::from(digit)))
                .ok_or(Problem::Overflow { field: expected })?;
            at += 1;
        }
        if at == start || (self.text[start] == b'0' && at > start + 1) {
            return Err(refuse);
        }
        self.at = at;
        Ok(number)
    }

    /// Checks that the text ends after the last field.
    fn last(&self, fields: &'static str) -> Result<(), Problem> {
        if self.at == self.text.len() { Ok(()) } else { Err(Problem::Surplus { byte: self.at, fields }) }
    }

    /// Reads the line break after the last field.
    fn end(&mut self, fields: &'static str) -> Result<(), Problem> {
        if self.text.get(self.at) == Some(&b'\n') {
            self.at += 1;
            return Ok(());
        }
        Err(Problem::Surplus { byte: self.at, fields })
    }
}
