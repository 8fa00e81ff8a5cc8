//! What is counted of the buffers that an engine creates.

use std::sync::atomic::{AtomicU64, Ordering};

/// What an engine has created of storage buffers, those that [`LENT`](crate::LENT) describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `create_buffer`.
    pub created: u64,
    /// Buffers that exist, and those that recorded work still names.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// The most bytes at one time.
    pub peak_bytes: u64,
    /// Buffers that wgpu had to serve although there is an allocator, because Millpond had no memory.
    pub refused: u64,
    /// Submits.
    pub submits: u64,
    /// The most bytes that wgpu's own allocator had from the driver at a submit, if wgpu reports it: everything that is
    /// not a segment from Vulkan, with staging and uniforms.
    pub peak_report: u64,
}

/// The counters, which threads share.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    created: AtomicU64,
    live: AtomicU64,
    live_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    refused: AtomicU64,
    submits: AtomicU64,
    peak_report: AtomicU64,
}

impl Counters {
    pub(crate) fn created(&self, bytes: u64) {
        self.created.fetch_add(1, Ordering::Relaxed);
        self.live.fetch_add(1, Ordering::Relaxed);
        let live = self.live_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak_bytes.fetch_max(live, Ordering::Relaxed);
    }

    pub(crate) fn gone(&self, bytes: u64) {
        self.live.fetch_sub(1, Ordering::Relaxed);
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn submitted(&self, report: Option<u64>) {
        self.submits.fetch_add(1, Ordering::Relaxed);
        self.peak_report.fetch_max(report.unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            created: read(&self.created),
            live: read(&self.live),
            live_bytes: read(&self.live_bytes),
            peak_bytes: read(&self.peak_bytes),
            refused: read(&self.refused),
            submits: read(&self.submits),
            peak_report: read(&self.peak_report),
        }
    }
}
