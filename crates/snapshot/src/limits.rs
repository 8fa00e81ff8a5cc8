//! Limits for the readers, so that a small file cannot use up the memory of a large machine.

use std::fmt;

/// The most that a reader accepts of a file. A file that exceeds a limit is a
/// [`SnapshotError::Limit`](super::SnapshotError::Limit) with the byte at which it does.
///
/// By default a reader holds at most about 4 GiB for what a file means, and not the content, which it reads in blocks.
/// Snapshots are far below: one with 400,000 recorded events and stacks of 72 frames is 160 MB long, has some seven
/// million values and takes 0.5 GB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The bytes of decompressed content. The default is 1 GiB.
    pub bytes: u64,
    /// The bytes of content for each byte that was read, beyond 1 MiB. The default is 64.
    pub expansion: u64,
    /// The number of values: numbers, texts, lists and dictionaries. A value takes up to about 128 bytes. What the file
    /// refers to again counts an eighth, or as much as it takes where it is copied; call stacks and their frames are
    /// not. The default is 33,554,432.
    pub values: u64,
}

/// How deep values may lie in each other. Those of a snapshot lie at most 8 deep.
pub const DEPTH_MAX: usize = 64;

/// How deep the fields of a snapshot lie at most. Values that this crate does not know are kept if they are no deeper
/// than the rest of [`DEPTH_MAX`].
pub(crate) const FIELDS_DEPTH_MAX: usize = 8;

/// The bytes of content that are accepted whatever they were decompressed from: 1 MiB.
const FREE_BYTES: u64 = 1 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 30, expansion: 64, values: 1 << 25 }
    }
}

impl Limits {
    /// No limits except that of the depth, for input that is trusted.
    pub const NONE: Limits = Limits { bytes: u64::MAX, expansion: u64::MAX, values: u64::MAX };

    /// Returns the bytes of content that are accepted once `read` bytes were read, and the limit that sets this number.
    pub(crate) fn content_after(&self, read: u64) -> (u64, Limit) {
        let expanded = FREE_BYTES.saturating_add(read.saturating_mul(self.expansion));
        if expanded < self.bytes { (expanded, Limit::Expansion) } else { (self.bytes, Limit::Bytes) }
    }

    /// Returns the smallest limit of expansion that accepts `content` bytes after `read` bytes were read.
    pub(crate) fn expansion_of(content: u64, read: u64) -> u64 {
        content.saturating_sub(FREE_BYTES).div_ceil(read.max(1))
    }

    /// Returns the value of a limit.
    pub(crate) fn most(&self, limit: Limit) -> u64 {
        match limit {
            Limit::Bytes => self.bytes,
            Limit::Expansion => self.expansion,
            Limit::Values => self.values,
        }
    }
}

/// One of the [`Limits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::bytes`].
    Bytes,
    /// [`Limits::expansion`].
    Expansion,
    /// [`Limits::values`].
    Values,
}

impl Limit {
    /// Returns the name of its field in [`Limits`].
    pub const fn name(self) -> &'static str {
        match self {
            Limit::Bytes => "bytes",
            Limit::Expansion => "expansion",
            Limit::Values => "values",
        }
    }
}

/// Prints what is limited, as a part of a sentence.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Bytes => "bytes of content",
            Limit::Expansion => "bytes of content for each byte that it was decompressed from",
            Limit::Values => "values",
        })
    }
}
