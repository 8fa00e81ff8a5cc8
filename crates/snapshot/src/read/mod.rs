//! Reading: from bytes to a tree of values, whatever their format, and from there to a snapshot.

mod convert;
mod json;
mod pickle;
mod shared;
mod source;
mod tree;
mod zip;

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use millpond_trace::Content;

use crate::error::{Problem, SnapshotError};
use crate::limits::Limits;
use crate::model::Snapshot;

use self::source::{Input, STEP_BYTES, Source};

impl Snapshot {
    /// Reads a snapshot from a file, whatever its name: JSON, a pickle of protocol 2 to 5, or a file of `torch.save`,
    /// each as it is or compressed with gzip or zstd; within the default [`Limits`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`from_reader`](Snapshot::from_reader), and the system's error when the file does not
    /// open.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, SnapshotError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| SnapshotError::Open { path: path.into(), error })?;
        Self::from_reader(file, &Limits::default())
    }

    /// Reads a snapshot from a reader, within limits.
    ///
    /// The content is read and decompressed in blocks, and is not held in memory; what it means is.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`parse`](Snapshot::parse), and the reader's or the decompressor's error.
    pub fn from_reader(reader: impl Read, limits: &Limits) -> Result<Self, SnapshotError> {
        Self::from_content(Content::new(reader).map_err(|error| SnapshotError::Read { read: 0, error })?, limits)
    }

    /// Reads a snapshot, as [`from_reader`](Snapshot::from_reader) does. [`Content::beginning`] may have been called
    /// before.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`from_reader`](Snapshot::from_reader).
    pub fn from_content(content: Content<'_>, limits: &Limits) -> Result<Self, SnapshotError> {
        Self::from_source(Source::new(Input::Content(content), limits), limits)
    }

    /// Reads a snapshot from its content, which is not compressed.
    ///
    /// The root is the dictionary that `_snapshot()` returns, or a list of segments alone, as `memory_snapshot()`
    /// returns it. Fields that are not known are kept. Fields of blocks that old versions of PyTorch did not write are
    /// computed: addresses from the sizes before, what was asked for and frames from `history`.
    ///
    /// # Errors
    ///
    /// Returns the first byte at which the content is no snapshot, with the reason, or exceeds a limit.
    pub fn parse(content: &[u8], limits: &Limits) -> Result<Self, SnapshotError> {
        if content.len() as u64 > limits.bytes {
            let (limit, most, enough) = (crate::Limit::Bytes, limits.bytes, Some(content.len() as u64));
            return Err(SnapshotError::Limit { limit, most, at: most, enough });
        }
        Self::from_source(Source::new(Input::Bytes(content), limits), limits)
    }

    fn from_source(mut source: Source<'_>, limits: &Limits) -> Result<Self, SnapshotError> {
        let first = source.first_byte()?;
        let is_at_start = source.at() == 0;
        let (tree, root) = match first {
            None => return Err(tree::at(0, Problem::Empty)),
            Some(b'{' | b'[') => json::read(&mut source, limits)?,
            Some(_) if is_at_start && source.ahead(zip::MAGIC.len())?.starts_with(zip::MAGIC) => {
                zip::skip_to_pickle(&mut source)?;
                pickle::read(&mut source, limits)?
            }
            Some(0x80) if is_at_start => {
                let read = pickle::read(&mut source, limits)?;
                let end = source.at();
                match source.rest()? {
                    0 => read,
                    left => return Err(tree::at(end, Problem::Trailing { bytes: left })),
                }
            }
            Some(_) => return Err(tree::at(0, Problem::NoSnapshot)),
        };
        drop(source);
        convert::snapshot(&tree, root, limits)
    }
}

/// Returns all that a reader has, decompressed where its first bytes are those of gzip or zstd.
///
/// # Errors
///
/// Returns the reader's or the decompressor's error, or the limit that is exceeded, of [`Limits::bytes`] and
/// [`Limits::expansion`].
pub fn content(reader: impl Read, limits: &Limits) -> Result<Vec<u8>, SnapshotError> {
    whole(Content::new(reader).map_err(|error| SnapshotError::Read { read: 0, error })?, limits)
}

/// Reads all of the content, as [`content`] does. [`Content::beginning`] may have been called before.
///
/// # Errors
///
/// Returns the errors of [`content`].
pub fn whole(reader: Content<'_>, limits: &Limits) -> Result<Vec<u8>, SnapshotError> {
    read_all(reader, limits).and_then(|(content, cut)| cut.map_or(Ok(content), Err))
}

/// How content ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// As it should.
    Whole,
    /// Inside what was compressed.
    CutOff,
}

/// Reads all of the content, as [`whole`] does, or what comes before the place where a compressed file breaks off. A
/// program that was killed leaves such files.
///
/// # Errors
///
/// Returns the errors of [`content`], except that the compressed content ends too early.
pub fn whole_or_cut(reader: Content<'_>, limits: &Limits) -> Result<(Vec<u8>, End), SnapshotError> {
    let (content, cut) = read_all(reader, limits)?;
    match cut {
        None => Ok((content, End::Whole)),
        Some(error) if content.is_empty() => Err(error),
        Some(_) => Ok((content, End::CutOff)),
    }
}

/// Reads all of the content, or what there is of one that breaks off, with the error that says so.
fn read_all(mut reader: Content<'_>, limits: &Limits) -> Result<(Vec<u8>, Option<SnapshotError>), SnapshotError> {
    let mut content = Vec::new();
    loop {
        let read = reader.by_ref().take(STEP_BYTES as u64).read_to_end(&mut content);
        source::within(limits, content.len() as u64, &mut reader)?;
        match read {
            Ok(0) => return Ok((content, None)),
            Ok(_) => {}
            Err(error) => {
                let is_cut = error.kind() == ErrorKind::UnexpectedEof;
                let error = SnapshotError::Read { read: content.len() as u64, error };
                return if is_cut { Ok((content, Some(error))) } else { Err(error) };
            }
        }
    }
}
