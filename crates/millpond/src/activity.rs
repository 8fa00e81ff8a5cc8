//! How often the driver was called, and how long that took.

use std::time::{Duration, Instant};

use millpond_backend::Backend;

use crate::sync::{AtomicU64, Ordering};

/// Driver calls that an allocator has made: reserving and releasing segments and ranges, creating, mapping, unmapping
/// and releasing pages, and waiting. Completion queries are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverActivity {
    /// How many.
    pub calls: u64,
    /// How long they took, on the device's own clock where it has one (the simulated device), or else the host's.
    pub time: Duration,
}

impl DriverActivity {
    /// What came on top of an earlier reading.
    pub fn since(self, earlier: DriverActivity) -> DriverActivity {
        DriverActivity { calls: self.calls - earlier.calls, time: self.time.saturating_sub(earlier.time) }
    }
}

#[derive(Debug)]
pub(crate) struct Activity {
    calls: AtomicU64,
    nanos: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self { calls: AtomicU64::new(0), nanos: AtomicU64::new(0) }
    }

    /// Runs one driver call and books it.
    pub(crate) fn book<B: Backend, R>(&self, backend: &B, call: impl FnOnce() -> R) -> R {
        let (own, host) = (backend.driver_clock(), Instant::now());
        let result = call();
        let nanos = match (own, backend.driver_clock()) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => u64::try_from(host.elapsed().as_nanos()).unwrap_or(u64::MAX),
        };
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        result
    }

    pub(crate) fn now(&self) -> DriverActivity {
        DriverActivity {
            calls: self.calls.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}
