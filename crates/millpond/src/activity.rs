//! Counting driver calls, and the time that they take.

use std::time::Instant;

use millpond_backend::{Backend, Point};

use crate::sync::{AtomicU64, Ordering};

/// What is counted of the driver calls of an allocator.
#[derive(Debug)]
pub(crate) struct Activity {
    pub(crate) calls: AtomicU64,
    pub(crate) nanos: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) stall_nanos: AtomicU64,
    pub(crate) stream_waits: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            calls: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            stall_nanos: AtomicU64::new(0),
            stream_waits: AtomicU64::new(0),
        }
    }

    /// Makes one driver call and counts it.
    pub(crate) fn book<B: Backend, R>(&self, backend: &B, call: impl FnOnce() -> R) -> R {
        self.timed(backend, call).0
    }

    /// Waits on the host for these points, one call after the other, up to the first that fails.
    pub(crate) fn book_stall<B: Backend, R, E>(
        &self,
        backend: &B,
        points: Vec<Point>,
        mut wait: impl FnMut(Point) -> Result<R, E>,
    ) -> Result<Vec<R>, E> {
        if !points.is_empty() {
            self.stalls.fetch_add(1, Ordering::Relaxed);
        }
        let wait = |point| {
            let (reached, nanos) = self.timed(backend, || wait(point));
            self.stall_nanos.fetch_add(nanos, Ordering::Relaxed);
            reached
        };
        points.into_iter().map(wait).collect()
    }

    /// Queues and counts one wait of a stream.
    pub(crate) fn book_stream_wait<B: Backend, R>(&self, backend: &B, wait: impl FnOnce() -> R) -> R {
        self.stream_waits.fetch_add(1, Ordering::Relaxed);
        self.book(backend, wait)
    }

    /// Makes and counts a call, and returns the nanoseconds that it took.
    fn timed<B: Backend, R>(&self, backend: &B, call: impl FnOnce() -> R) -> (R, u64) {
        let (own, host) = (backend.driver_clock(), Instant::now());
        let result = call();
        let nanos = match (own, backend.driver_clock()) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => u64::try_from(host.elapsed().as_nanos()).unwrap_or(u64::MAX),
        };
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        (result, nanos)
    }
}
