//! Traces in files: compression, and limits on the decompressed size.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Cursor, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::error::TraceError;
use crate::limits::{Limit, Limits};
use crate::parse::Parser;
use crate::write::TraceWriter;
use crate::{Event, Trace};

/// The number of bytes that are read at a time.
const BLOCK_BYTES: usize = 256 << 10;

/// A reader that counts the bytes taken from it.
struct Counted<'a, R> {
    reader: R,
    taken: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.taken.set(self.taken.get() + read as u64);
        Ok(read)
    }
}

/// Returns the content behind a reader, decompressed where its first bytes are those of gzip or zstd.
///
/// Limit what you read from it: a few kilobytes can hold gigabytes.
///
/// # Errors
///
/// Returns the reader's or the decompressor's error.
pub fn decompressed<'a>(mut reader: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut magic = Vec::with_capacity(4);
    reader.by_ref().take(4).read_to_end(&mut magic)?;
    let kind: &[u8] = &magic.clone();
    let whole = Cursor::new(magic).chain(reader);
    Ok(match kind {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(BufReader::new(whole))),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(whole)?),
        _ => Box::new(whole),
    })
}

impl Trace {
    /// Reads a trace from a file: plain text, gzip or zstd, whatever the file's name; within the default [`Limits`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`from_reader`](Trace::from_reader), and the system's error when the file does not open.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        Self::read_within(path, &Limits::default())
    }

    /// Does the same as [`read`](Trace::read), within other limits.
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

    /// Does the same as [`from_reader`](Trace::from_reader), within other limits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`from_reader`](Trace::from_reader).
    pub fn from_reader_within(reader: impl Read, limits: &Limits) -> Result<Self, TraceError> {
        let mut parser = Parser::new(limits);
        let failed = |line, error| TraceError::Read { line, error };
        let taken = Cell::new(0);
        let counted = Counted { reader, taken: &taken };
        let mut reader = decompressed(counted).map_err(|error| failed(0, error))?;
        let (mut text, mut total) = (Vec::new(), 0);
        loop {
            let read = reader.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut text);
            let read = read.map_err(|error| failed(parser.line(), error))?;
            total += read as u64;
            let (most, limit) = limits.text_after(taken.get());
            if total > most {
                let most = if limit == Limit::Expansion { limits.expansion } else { most };
                return Err(TraceError::Limit { limit, most, line: parser.line() + 1 });
            }
            let rest = parser.lines(&text)?.len();
            text.drain(..text.len() - rest);
            if read == 0 {
                return parser.finish(&text);
            }
        }
    }

    /// Writes the trace to a file: as gzip where its name ends in `.gz`, as zstd where it ends in `.zst`, and otherwise
    /// as plain text. An existing file is replaced. Comments of a text that it was read from are not kept.
    ///
    /// # Errors
    ///
    /// Returns the system's error, or an error for an event that may not come next, where the events were put together
    /// by hand.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), TraceError> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|error| TraceError::Open { path: path.into(), error })?;
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension {
            Some("gz") => {
                let encoder = self.write_to(BufWriter::new(GzEncoder::new(file, Compression::default())))?;
                finished(encoder)?.finish().map_err(TraceError::Write)?;
            }
            Some("zst") => {
                let encoder = zstd::Encoder::new(file, 0).map_err(TraceError::Write)?;
                finished(self.write_to(BufWriter::new(encoder))?)?.finish().map_err(TraceError::Write)?;
            }
            _ => drop(self.write_to(BufWriter::new(file))?),
        }
        Ok(())
    }

    /// Writes the trace as plain text and returns the writer, flushed. The writer should be buffered.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write`](Trace::write).
    pub fn write_to<W: Write>(&self, out: W) -> Result<W, TraceError> {
        let mut writer = TraceWriter::new(out, &self.header)?;
        self.events.iter().try_for_each(|event: &Event| writer.event(event))?;
        writer.finish()
    }
}

/// Returns the writer inside a buffer, which is flushed.
fn finished<W: Write>(buffer: BufWriter<W>) -> Result<W, TraceError> {
    buffer.into_inner().map_err(|error| TraceError::Write(error.into_error()))
}
