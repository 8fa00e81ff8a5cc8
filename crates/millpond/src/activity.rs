//! The number of driver calls, and the time that they took.

use std::time::{Duration, Instant};

use millpond_backend::{Backend, Point};

use crate::sync::{AtomicU64, Ordering};

/// The driver calls that an allocator has made: reserving and releasing segments and ranges, creating, mapping,
/// unmapping and releasing pages, and waiting. Completion queries are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverActivity {
    /// The number of calls.
    pub calls: u64,
    /// The time that they took, on the device's own clock where it has one (the simulated device), and otherwise on the
    /// host's.
    pub time: Duration,
    /// The number of times that a plan (an allocation that no cached block served, a trim, emptying the cache) made the
    /// host wait for the device, for one point or several. The waits are included in the calls. A release that makes
    /// the driver wait for the device, as CUDA's do, is no stall: its time is only part of the time of the calls.
    pub stalls: u64,
    /// The time that those waits took, on the same clock. It is part of the time of the calls.
    pub stall_time: Duration,
    /// The number of waits of one stream for a point of another that were queued on the device. They are included in
    /// the calls, too.
    pub stream_waits: u64,
}

impl DriverActivity {
    /// Returns the difference between this reading and an earlier one.
    pub fn since(self, earlier: DriverActivity) -> DriverActivity {
        DriverActivity {
            calls: self.calls - earlier.calls,
            time: self.time.saturating_sub(earlier.time),
            stalls: self.stalls - earlier.stalls,
            stall_time: self.stall_time.saturating_sub(earlier.stall_time),
            stream_waits: self.stream_waits - earlier.stream_waits,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Activity {
    calls: AtomicU64,
    nanos: AtomicU64,
    stalls: AtomicU64,
    stall_nanos: AtomicU64,
    stream_waits: AtomicU64,
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

    pub(crate) fn now(&self) -> DriverActivity {
        DriverActivity {
            calls: self.calls.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
            stalls: self.stalls.load(Ordering::Relaxed),
            stall_time: Duration::from_nanos(self.stall_nanos.load(Ordering::Relaxed)),
            stream_waits: self.stream_waits.load(Ordering::Relaxed),
        }
    }
}
