//! The device itself and the handle to it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_kit::Leavings;
use parking_lot::Mutex;

use crate::space::segment::{Page, Segment};
use crate::time::Time;
use crate::transfer::Overwriting;

mod contract;
pub(crate) mod control;
mod left;
mod open;

/// A simulated device, and the handle to it: clones are the same device.
///
/// All methods may be called from any thread. Those on the path of every allocation (`mark`, and `reached` while
/// nothing is outstanding) take no lock.
#[derive(Clone)]
pub struct Sim {
    pub(crate) device: Arc<Device>,
}

/// The state that all handles of a device share: all storeys, one upon the other.
pub(crate) struct Device {
    time: Time,
    leavings: Leavings<Segment, Page>,
    /// How well memory is overwritten.
    overwriting: Mutex<Overwriting>,
}

impl Deref for Device {
    type Target = Time;

    #[inline]
    fn deref(&self) -> &Time {
        &self.time
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Other devices' memory may still list this device's unfinished work as its users.
        let queues = std::mem::take(&mut self.state().queues);
        for task in queues.iter().flatten() {
            self.forget(task);
        }
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("name", &self.device.caps.name)
            .field("streams", &self.device.lanes.count())
            .field("queued", &self.device.queued.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
