//! Golden recordings: PyTorch's native allocator, operation by operation, with every statistic and the whole layout.
//!
//! Reading is strict: what a [`Recording`] says was checked for form and for sense (operations name blocks that exist,
//! layouts tile their segments), so whoever replays it compares and does not validate.

mod format;
mod replay;
mod rules;

#[cfg(test)]
mod tests;

pub use replay::{Outcome, replay};

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// One recording: how it was made, and what happened.
#[derive(Clone, PartialEq, Debug)]
pub struct Recording {
    /// The family of the recording, such as "split".
    pub name: String,
    /// The seed of its operations.
    pub seed: u64,
    /// The allocator's configuration, in the grammar of `millpond_core::conf`.
    pub conf: String,
    /// The most bytes that the allocator may reserve, `None` where only the device limits it.
    pub limit_bytes: Option<u64>,
    /// What sizes the operations have, such as "mixed".
    pub shape: String,
    /// PyTorch's version.
    pub torch: String,
    /// The device's bytes.
    pub total: u64,
    /// What happened, in order. The first is [`OpKind::Begin`], and the only one of that kind.
    pub ops: Vec<Op>,
}

/// One operation and its effects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// Its line in the file, from 1.
    pub line: usize,
    /// What was done.
    pub kind: OpKind,
    /// The statistics that changed, under PyTorch's names, alphabetically; those absent did not change.
    pub changed: Vec<(String, i64)>,
    /// The whole layout by address, where it changed.
    pub layout: Option<Vec<SegmentRow>>,
}

/// What an operation did. Blocks have numbers that are used once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// Nothing yet; all statistics are listed.
    Begin,
    /// An allocation, which succeeded with `addr` or failed with `oom`; exactly one of the two is there.
    Alloc {
        /// The block's number. A failed allocation uses it up.
        id: u32,
        /// The bytes asked for, not 0.
        size: u64,
        /// The stream.
        stream: u32,
        /// Where the block begins in the device's address space.
        addr: Option<u64>,
        /// PyTorch's message.
        oom: Option<String>,
    },
    /// The program frees a block.
    Free {
        /// The block.
        id: u32,
    },
    /// A block is used on a stream, perhaps its own.
    RecordStream {
        /// The block.
        id: u32,
        /// The stream.
        stream: u32,
    },
    /// A long kernel is put on a stream: later points there stay pending.
    Busy {
        /// The stream.
        stream: u32,
    },
    /// The program waits for the device.
    Sync,
    /// The program empties the cache.
    EmptyCache,
    /// The program resets the peaks.
    ResetPeak,
}

/// One segment of a layout; of an expandable one, each contiguous mapped range has a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentRow {
    /// Where it begins.
    pub address: u64,
    /// Its bytes, which are the sum of its blocks'.
    pub total: u64,
    /// It belongs to the large pool.
    pub large: bool,
    /// The stream of its pool.
    pub stream: u32,
    /// Its blocks by address, at least one.
    pub blocks: Vec<BlockRow>,
}

/// One block of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRow {
    /// Its bytes, not 0.
    pub size: u64,
    /// The bytes asked for; left over from earlier where the block is inactive.
    pub requested: u64,
    /// Whether it is in use.
    pub state: BlockState,
}

/// How far a block's use has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// The program has it.
    ActiveAllocated,
    /// The program freed it and a stream still uses it.
    ActivePendingFree,
    /// Nobody uses it.
    Inactive,
}

/// Why a recording was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GoldenError {
    /// A line departs from the format.
    #[error("line {line}: {problem}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it, and what was expected.
        problem: String,
    },
    /// The file could not be opened.
    #[error("cannot open {}: {error}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Reading or decompressing failed part way.
    #[error("reading failed after line {line}: {error}")]
    Read {
        /// The last complete line before it.
        line: usize,
        /// The system's or the decompressor's error.
        error: io::Error,
    },
}

impl Recording {
    /// Reads a recording from a file: plain text, gzip or zstd, told apart by the first bytes.
    ///
    /// # Errors
    ///
    /// As [`from_reader`](Recording::from_reader), and the system's when the file does not open.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, GoldenError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| GoldenError::Open { path: path.into(), error })?;
        Self::from_reader(file)
    }

    /// Reads a recording from plain text, gzip or zstd. Costs about four seconds for each GB of text.
    ///
    /// # Errors
    ///
    /// The first line that departs from the format; a line longer than 16 MiB or a text longer than 1 GiB; the
    /// reader's or the decompressor's error.
    pub fn from_reader(reader: impl Read) -> Result<Self, GoldenError> {
        format::read(reader)
    }
}
