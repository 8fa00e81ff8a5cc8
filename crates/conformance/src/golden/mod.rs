//! Golden recordings: PyTorch's native allocator, operation by operation, with every statistic and the whole layout.
//!
//! Reading is strict: the form and the meaning of a [`Recording`] are checked (operations name blocks that exist,
//! blocks fill their segments without gaps), so a replay only compares and does not validate.

mod format;
mod replay;
mod rules;

#[cfg(test)]
mod tests;

pub use replay::{Outcome, replay};

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use millpond_trace::printable;

/// One recording: how it was made, and what happened.
#[derive(Clone, PartialEq, Debug)]
pub struct Recording {
    /// The family of the recording, such as "split".
    pub name: String,
    /// The seed of its operations.
    pub seed: u64,
    /// The allocator's configuration, in the grammar of `millpond::conf`.
    pub conf: String,
    /// The most bytes that the allocator may reserve; `None` where only the device limits it.
    pub limit_bytes: Option<u64>,
    /// The kind of sizes that the operations have, such as "mixed".
    pub shape: String,
    /// PyTorch's version.
    pub torch: String,
    /// The device's memory, in bytes.
    pub total: u64,
    /// The operations in order. The first is [`OpKind::Begin`], and the only one of that kind.
    pub ops: Vec<Op>,
}

/// An operation and its effects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The operation that was carried out.
    pub kind: OpKind,
    /// The statistics that changed, under PyTorch's names, alphabetically; those absent did not change.
    pub changed: Vec<(String, i64)>,
    /// The whole layout in the order of addresses, where it changed.
    pub layout: Option<Vec<SegmentRow>>,
}

/// The kind of an operation. Each block has a number that is used once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// The start of the recording, which lists all statistics.
    Begin,
    /// An allocation, which succeeded with `addr` or failed with `oom`; exactly one of the two is there.
    Alloc {
        /// The block's number. A failed allocation uses it up.
        id: u32,
        /// The size of the request in bytes, not 0.
        size: u64,
        /// The stream.
        stream: u32,
        /// The address at which the block begins in the device's address space.
        addr: Option<u64>,
        /// PyTorch's error message.
        oom: Option<String>,
    },
    /// A free of a block by the program.
    Free {
        /// The block.
        id: u32,
    },
    /// A use of a block on a stream, which may be its own.
    RecordStream {
        /// The block.
        id: u32,
        /// The stream.
        stream: u32,
    },
    /// A long kernel on a stream: later points there stay pending.
    Busy {
        /// The stream.
        stream: u32,
    },
    /// A wait of the program for the device.
    Sync,
    /// A request of the program to empty the cache.
    EmptyCache,
    /// A request of the program to reset the peaks.
    ResetPeak,
}

/// A segment of a layout. An expandable segment has a row for each contiguous mapped range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentRow {
    /// The address at which it begins.
    pub address: u64,
    /// The size in bytes, which is the sum of its blocks' sizes.
    pub total: u64,
    /// Whether it belongs to the large pool.
    pub large: bool,
    /// The stream of its pool.
    pub stream: u32,
    /// Its blocks in the order of addresses, at least one.
    pub blocks: Vec<BlockRow>,
}

/// A block of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRow {
    /// The size in bytes, not 0.
    pub size: u64,
    /// The size of the request in bytes. For an inactive block this is left over from its last use.
    pub requested: u64,
    /// Whether it is in use.
    pub state: BlockState,
}

/// Whether a block is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// The program uses it.
    ActiveAllocated,
    /// The program freed it and a stream still uses it.
    ActivePendingFree,
    /// It is not in use.
    Inactive,
}

/// The reason why a recording could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GoldenError {
    /// A line does not follow the format.
    #[error("line {line}: {problem}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// The problem, and what was expected.
        problem: String,
    },
    /// The file could not be opened.
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
        /// The number of the last complete line before it.
        line: usize,
        /// The system's or the decompressor's error.
        error: io::Error,
    },
}

impl Recording {
    /// Reads a recording from a file: plain text, gzip or zstd, distinguished by the first bytes.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`from_reader`](Recording::from_reader), and the system's error when the file does not
    /// open.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, GoldenError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| GoldenError::Open { path: path.into(), error })?;
        Self::from_reader(file)
    }

    /// Reads a recording from plain text, gzip or zstd. Costs about four seconds for each GB of text.
    ///
    /// # Errors
    ///
    /// Returns the first line that does not follow the format, or the reader's or the decompressor's error. A line has
    /// at most 16 MiB, the text 256 MiB, and 64 bytes for each byte of a compressed file beyond the first MiB. There
    /// are at most 1,048,576 operations, 16,777,216 blocks and 1024 streams, so that a small file takes little memory.
    pub fn from_reader(reader: impl Read) -> Result<Self, GoldenError> {
        format::read(reader)
    }
}
