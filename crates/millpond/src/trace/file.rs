//! Traces in files: compression, and limits on what it hides.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Cursor, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::error::TraceError;
use super::limits::{Limit, Limits};
use super::parse::Parser;
use super::write::TraceWriter;
use super::{Event, Trace};

/// How much is read at a time, in bytes.
const BLOCK_BYTES: usize = 256 << 10;

/// A reader that tells how many bytes were taken from it.
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

/// The content behind a reader, decompressed where its first bytes are those of gzip or zstd.
///
/// Bound what you read from it: a few kilobytes can hold gigabytes.
///
/// # Errors
///
/// The reader's, or the decompressor's.
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
    /// As [`from_reader`](Trace::from_reader), and the system's when the file does not open.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        Self::read_within(path, &Limits::default())
    }

    /// As [`read`](Trace::read), within other limits.
    ///
    /// # Errors
    ///
    /// As [`read`](Trace::read).
    pub fn read_within(path: impl AsRef<Path>, limits: &Limits) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| TraceError::Open { path: path.into(), error })?;
        Self::from_reader_within(file, limits)
    }

    /// Reads a trace from plain text, gzip or zstd, told apart by the first bytes, within the default [`Limits`].
    ///
    /// Holds the events and a block of text in memory, never the whole text.
    ///
    /// # Errors
    ///
    /// The first line that departs from the format or goes beyond a limit; the reader's or the decompressor's error.
    pub fn from_reader(reader: impl Read) -> Result<Self, TraceError> {
        Self::from_reader_within(reader, &Limits::default())
    }

    /// As [`from_reader`](Trace::from_reader), within other limits.
    ///
    /// # Errors
    ///
    /// As [`from_reader`](Trace::from_reader).
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

    /// Writes the trace to a file: gzip where its name ends in `.gz`, zstd where it ends in `.zst`, else plain text.
    /// An existing file is replaced. Comments of a text it was read from are not kept.
    ///
    /// # Errors
    ///
    /// The system's; an event that may not come next, where the events were put together by hand.
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

    /// Writes the trace as plain text and gives the writer back, flushed. Give it a buffered one.
    ///
    /// # Errors
    ///
    /// As [`write`](Trace::write).
    pub fn write_to<W: Write>(&self, out: W) -> Result<W, TraceError> {
        let mut writer = TraceWriter::new(out, &self.header)?;
        self.events.iter().try_for_each(|event: &Event| writer.event(event))?;
        writer.finish()
    }
}

/// The writer inside a buffer that was flushed.
fn finished<W: Write>(buffer: BufWriter<W>) -> Result<W, TraceError> {
    buffer.into_inner().map_err(|error| TraceError::Write(error.into_error()))
}
