//! The number of driver calls, and the time that they took.

use std::time::Duration;

use millpond_backend::Backend;

use crate::activity::Activity;
use crate::allocator::Allocator;
use crate::sync::Ordering;

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
    /// Reads what was counted.
    fn of(counted: &Activity) -> DriverActivity {
        DriverActivity {
            calls: counted.calls.load(Ordering::Relaxed),
            time: Duration::from_nanos(counted.nanos.load(Ordering::Relaxed)),
            stalls: counted.stalls.load(Ordering::Relaxed),
            stall_time: Duration::from_nanos(counted.stall_nanos.load(Ordering::Relaxed)),
            stream_waits: counted.stream_waits.load(Ordering::Relaxed),
        }
    }

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

impl<B: Backend> Allocator<B> {
    /// Returns the number of driver calls, and the time that they took.
    pub fn driver_activity(&self) -> DriverActivity {
        DriverActivity::of(&self.state().activity)
    }
}
