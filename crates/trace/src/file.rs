//! Traces in files: compression, and limits on the decompressed size.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::Trace;
use crate::content::Content;
use crate::enough::enough;
use crate::error::TraceError;
use crate::limits::{Limit, Limits};
use crate::output::WholeFile;
use crate::parse::Parser;
use crate::write::TraceWriter;

/// The number of bytes that are read at a time.
const BLOCK_BYTES: usize = 256 << 10;

impl Trace {
    /// Reads a trace from a file: plain text, gzip or zstd, whatever the file's name; within the default [`Limits`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`from_reader`](Trace::from_reader), and the system's error when the file does not open.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        Self::read_within(path, &Limits::default())
    }

    /// Works like [`read`](Trace::read), within other limits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`read`](Trace::read).
    pub fn read_within(path: impl AsRef<Path>, limits: &Limits) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| TraceError::Open { path: path.into(), error })?;
        Self::from_reader_within(file, limits)
    }

    /// Reads a trace from plain text, gzip or zstd, distinguished by the first bytes, within the default [`Limits`].
    ///
    /// Holds the events and a block of text in memory, never the whole text.
    ///
    /// # Errors
    ///
    /// Returns the first line that does not follow the format or exceeds a limit, or the reader's or the decompressor's
    /// error.
    pub fn from_reader(reader: impl Read) -> Result<Self, TraceError> {
        Self::from_reader_within(reader, &Limits::default())
    }

    /// Works like [`from_reader`](Trace::from_reader), within other limits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`from_reader`](Trace::from_reader).
    pub fn from_reader_within(reader: impl Read, limits: &Limits) -> Result<Self, TraceError> {
        let content = Content::new(reader).map_err(|error| TraceError::Read { line: 0, error })?;
        Self::from_content(content, limits)
    }

    /// Reads a trace as [`from_reader_within`](Trace::from_reader_within) does. [`Content::beginning`] may have been
    /// called before.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`from_reader`](Trace::from_reader).
    pub fn from_content(mut content: Content<'_>, limits: &Limits) -> Result<Self, TraceError> {
        let mut parser = Parser::new(limits);
        let (mut text, mut total) = (Vec::new(), 0);
        loop {
            let read = content.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut text);
            let read = read.map_err(|error| TraceError::Read { line: parser.line(), error })?;
            total += read as u64;
            let (most, limit) = limits.text_after(content.taken());
            if total > most {
                let most = if limit == Limit::Expansion { limits.expansion } else { most };
                let enough = enough(limit, parser.reached(total), &parser, content);
                return Err(TraceError::Limit { limit, most, line: parser.line() + 1, enough });
            }
            let before = parser.reached(total - text.len() as u64);
            let rest = match parser.lines(&text) {
                Ok(rest) => rest.len(),
                Err(TraceError::Limit { limit, most, line, .. }) => {
                    let enough = enough(limit, before, &parser, text.chain(content));
                    return Err(TraceError::Limit { limit, most, line, enough });
                }
                Err(error) => return Err(error),
            };
            text.drain(..text.len() - rest);
            if read == 0 {
                return parser.finish(&text);
            }
        }
    }

    /// Writes the trace to a file: as gzip where its name ends in `.gz`, as zstd where it ends in `.zst`, and otherwise
    /// as plain text. An existing file is replaced once the trace is whole, and otherwise stays as it is
    /// ([`WholeFile`]). Comments of a text that it was read from are not kept.
    ///
    /// # Errors
    ///
    /// Returns the system's error, or an error for an event that may not come next, where the events were put together
    /// by hand.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), TraceError> {
        let path = path.as_ref();
        let file = WholeFile::create(path).map_err(|error| TraceError::Open { path: path.into(), error })?;
        let extension = path.extension().and_then(|extension| extension.to_str());
        let file = match extension {
            Some("gz") => {
                let encoder = self.write_to(BufWriter::new(GzEncoder::new(file, Compression::default())))?;
                finished(encoder)?.finish().map_err(TraceError::Write)?
            }
            Some("zst") => {
                let encoder = zstd::Encoder::new(file, 0).map_err(TraceError::Write)?;
                finished(self.write_to(BufWriter::new(encoder))?)?.finish().map_err(TraceError::Write)?
            }
            _ => finished(self.write_to(BufWriter::new(file))?)?,
        };
        file.finish().map_err(TraceError::Write)
    }

    /// Writes the trace as plain text and returns the writer, flushed. The writer should be buffered.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write`](Trace::write).
    pub fn write_to<W: Write>(&self, out: W) -> Result<W, TraceError> {
        let Self { header, events, details, .. } = self;
        let is_timed = self.is_timed();
        if details.is_empty() {
            let mut writer =
                if is_timed { TraceWriter::with_timing(out, header) } else { TraceWriter::new(out, header) }?;
            events.iter().try_for_each(|event| writer.event(event))?;
            return writer.finish();
        }
        let mut writer =
            if is_timed { TraceWriter::with_timing(out, header) } else { TraceWriter::with_details(out, header) }?;
        // All of them, also what no event has.
        writer.define(details).map_err(TraceError::Write)?;
        for (at, event) in events.iter().enumerate() {
            writer.event_at(event, details.place(at), details)?;
        }
        writer.finish()
    }
}

/// Returns the writer inside a buffer, which is flushed.
fn finished<W: Write>(buffer: BufWriter<W>) -> Result<W, TraceError> {
    buffer.into_inner().map_err(|error| TraceError::Write(error.into_error()))
}
