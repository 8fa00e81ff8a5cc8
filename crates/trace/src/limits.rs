//! Limits for the reader of traces, so that a small file cannot use up the memory of a large machine.

use std::fmt;

/// The most that a reader accepts of a trace. A trace that exceeds a limit is a
/// [`TraceError::Limit`](super::TraceError::Limit) with the line that exceeds it.
///
/// By default a reader holds at most about 400 MiB for the events and 700 MiB for their details, and for compressed
/// input no more than some 1500 bytes for each byte that it has read, beyond the first few MiB. Recorded programs are
/// far below these limits: the largest of the corpus has 670,856 events, 5 streams, and 8 MB of text that is 4.4 times
/// as long as its compressed form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The bytes of decompressed text. The default is 1 GiB.
    pub text_bytes: u64,
    /// The bytes of text for each byte that was read, beyond [`FREE_TEXT_BYTES`]. The default is 64.
    pub expansion: u64,
    /// The number of events. Each takes 24 bytes. The default is 16,777,216.
    pub events: u64,
    /// The number of different streams. Each takes more than 100 KB of host memory when the trace is replayed. The
    /// default is 1024.
    pub streams: u64,
    /// The number of frames, call stacks and labels together. Each takes about 100 bytes and, except a stack, its text.
    /// The default is 4,194,304.
    pub details: u64,
}

/// The bytes of text that are accepted whatever they were decompressed from, as long as the other limits allow: 1 MiB.
pub const FREE_TEXT_BYTES: u64 = 1 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self { text_bytes: 1 << 30, expansion: 64, events: 1 << 24, streams: 1024, details: 1 << 22 }
    }
}

impl Limits {
    /// No limits except those of the format, for input that is trusted.
    pub const NONE: Limits =
        Limits { text_bytes: u64::MAX, expansion: u64::MAX, events: u64::MAX, streams: u64::MAX, details: u64::MAX };

    /// Returns the bytes of text that are accepted once `read` bytes were read, and the limit that sets this number.
    pub(crate) fn text_after(&self, read: u64) -> (u64, Limit) {
        let expanded = FREE_TEXT_BYTES.saturating_add(read.saturating_mul(self.expansion));
        if expanded < self.text_bytes { (expanded, Limit::Expansion) } else { (self.text_bytes, Limit::TextBytes) }
    }
}

/// One of the [`Limits`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::text_bytes`].
    TextBytes,
    /// [`Limits::expansion`].
    Expansion,
    /// [`Limits::events`].
    Events,
    /// [`Limits::streams`].
    Streams,
    /// [`Limits::details`].
    Details,
}

impl Limit {
    /// Returns the name of its field in [`Limits`].
    pub const fn name(self) -> &'static str {
        match self {
            Limit::TextBytes => "text_bytes",
            Limit::Expansion => "expansion",
            Limit::Events => "events",
            Limit::Streams => "streams",
            Limit::Details => "details",
        }
    }

    /// Returns the words for what is limited, to follow the number.
    const fn what(self) -> &'static str {
        match self {
            Limit::TextBytes => "bytes of text",
            Limit::Expansion => "bytes of text for each byte that it was decompressed from",
            Limit::Events => "events",
            Limit::Streams => "different streams",
            Limit::Details => "frames, call stacks and labels",
        }
    }
}

/// Prints what is limited, as a part of a sentence.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what())
    }
}
