//! The content of a file, read in blocks.

use std::io::Read as _;

use millpond_trace::Content;

use super::tree::at;
use crate::error::SnapshotError;
use crate::limits::{Limit, Limits};

/// The number of bytes that are read at a time.
pub(super) const STEP_BYTES: usize = 256 << 10;

/// The most bytes that are counted beyond a limit: 16 GiB. A small file can hold more than anyone waits for.
const COUNTED_BYTES_MAX: u64 = 16 << 30;

/// What the bytes come from.
pub(super) enum Input<'a> {
    /// A reader, whose content may be compressed.
    Content(Content<'a>),
    /// Memory.
    Bytes(&'a [u8]),
}

/// The bytes of a file, of which a block is in memory.
pub(super) struct Source<'a> {
    input: Input<'a>,
    limits: Limits,
    block: Vec<u8>,
    /// The place of the next byte in the block.
    next: usize,
    /// The number of bytes before the block.
    before: u64,
    is_at_end: bool,
}

impl<'a> Source<'a> {
    pub(super) fn new(input: Input<'a>, limits: &Limits) -> Self {
        Self { input, limits: *limits, block: Vec::new(), next: 0, before: 0, is_at_end: false }
    }

    /// Returns the number of bytes that were taken.
    pub(super) fn at(&self) -> u64 {
        self.before + self.next as u64
    }

    /// Returns the next bytes, `wanted` of them at least unless the file ends before.
    ///
    /// # Errors
    ///
    /// Returns the reader's error, or the limit of bytes that is exceeded.
    pub(super) fn ahead(&mut self, wanted: usize) -> Result<&[u8], SnapshotError> {
        while self.block.len() - self.next < wanted && !self.is_at_end {
            self.read()?;
        }
        Ok(&self.block[self.next..])
    }

    /// Takes bytes, which must be among those ahead.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.next += bytes;
    }

    /// Returns the next byte, if there is one.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ahead`](Self::ahead).
    pub(super) fn peek(&mut self) -> Result<Option<u8>, SnapshotError> {
        match self.block.get(self.next) {
            Some(byte) => Ok(Some(*byte)),
            None => Ok(self.ahead(1)?.first().copied()),
        }
    }

    /// Takes the next byte, if there is one.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ahead`](Self::ahead).
    pub(super) fn byte(&mut self) -> Result<Option<u8>, SnapshotError> {
        let byte = self.peek()?;
        self.next += usize::from(byte.is_some());
        Ok(byte)
    }

    /// Takes spaces and line breaks, and returns the next byte, if there is one.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ahead`](Self::ahead).
    pub(super) fn first_byte(&mut self) -> Result<Option<u8>, SnapshotError> {
        while self.peek()?.is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.next += 1;
        }
        self.peek()
    }

    /// Takes as many bytes as there are, up to `length`. It takes no more memory than there are bytes, whatever a file
    /// claims.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ahead`](Self::ahead).
    pub(super) fn bytes(&mut self, length: u64, into: &mut Vec<u8>) -> Result<(), SnapshotError> {
        into.clear();
        while (into.len() as u64) < length {
            let left = usize::try_from(length - into.len() as u64).unwrap_or(usize::MAX);
            let ahead = self.ahead(1)?;
            let part = &ahead[..ahead.len().min(left)];
            if part.is_empty() {
                break;
            }
            into.extend_from_slice(part);
            self.next += part.len();
        }
        Ok(())
    }

    /// Takes some bytes, or as many as there are, and keeps none of them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ahead`](Self::ahead).
    pub(super) fn pass(&mut self, mut bytes: u64) -> Result<(), SnapshotError> {
        while bytes > 0 {
            let ahead = self.ahead(1)?.len() as u64;
            let part = ahead.min(bytes);
            if part == 0 {
                break;
            }
            self.next += part as usize;
            bytes -= part;
        }
        Ok(())
    }

    /// Takes all bytes to the end, and returns how many there were.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ahead`](Self::ahead).
    pub(super) fn rest(&mut self) -> Result<u64, SnapshotError> {
        let start = self.at();
        while self.peek()?.is_some() {
            self.next = self.block.len();
        }
        Ok(self.at() - start)
    }

    /// Returns the error of a file that ends here, where something would have to follow.
    pub(super) fn ends(&self, expected: &'static str) -> SnapshotError {
        at(self.before + self.block.len() as u64, crate::Problem::End { expected })
    }

    /// Reads one more block.
    fn read(&mut self) -> Result<(), SnapshotError> {
        self.block.drain(..self.next);
        self.before += self.next as u64;
        self.next = 0;
        let known = self.block.len();
        let read = match &mut self.input {
            Input::Content(content) => content.by_ref().take(STEP_BYTES as u64).read_to_end(&mut self.block),
            Input::Bytes(bytes) => bytes.by_ref().take(STEP_BYTES as u64).read_to_end(&mut self.block),
        };
        let read = read.map_err(|error| SnapshotError::Read { read: self.before + self.block.len() as u64, error })?;
        debug_assert_eq!(self.block.len(), known + read, "what is read is added");
        self.is_at_end = read == 0;
        let known = self.before + self.block.len() as u64;
        match &mut self.input {
            Input::Content(content) => within(&self.limits, known, content),
            Input::Bytes(_) => Ok(()),
        }
    }
}

/// Checks that the bytes of content read so far are within the limits.
///
/// # Errors
///
/// Returns the limit that they exceed. What follows in the content is then counted and not kept.
pub(super) fn within(limits: &Limits, mut known: u64, content: &mut Content<'_>) -> Result<(), SnapshotError> {
    let (most, limit) = limits.content_after(content.taken());
    if known <= most {
        return Ok(());
    }
    let mut expansion = Limits::expansion_of(known, content.taken());
    let mut step = Vec::new();
    let is_counted = loop {
        step.clear();
        match content.by_ref().take(STEP_BYTES as u64).read_to_end(&mut step) {
            Ok(0) => break true,
            Ok(read) if known < COUNTED_BYTES_MAX => known += read as u64,
            _ => break false,
        }
        expansion = expansion.max(Limits::expansion_of(known, content.taken()));
    };
    let enough = is_counted.then_some(if limit == Limit::Expansion { expansion } else { known });
    Err(SnapshotError::Limit { limit, most: limits.most(limit), at: most, enough })
}
