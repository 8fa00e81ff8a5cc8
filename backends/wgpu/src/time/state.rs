//! What submits and questions about completion need besides a lane.

use std::sync::Arc;

use super::hint::Hint;
use crate::open::{Driver, Under};

/// The time of a device: it submits, and finds out what is done.
pub(crate) struct Time {
    /// A semaphore that shows when to poll, where there is one.
    pub(crate) hint: Option<Hint>,
    /// The Vulkan backend that every submit is announced to, if segments come from it.
    pub(super) under: Option<Arc<Under>>,
    pub(crate) driver: Arc<Driver>,
}

impl Time {
    /// Creates the time of a device. `semaphore` says whether a semaphore may show when to poll.
    pub(crate) fn new(driver: Arc<Driver>, under: Option<Arc<Under>>, semaphore: bool) -> Time {
        let hint = if semaphore { Hint::new(&driver.device) } else { None };
        Time { hint, under, driver }
    }

    /// Waits for all work, where that is needed before what belongs to this device is destroyed, and destroys it.
    /// Called when no handle of the device is left.
    pub(crate) fn end(&self) {
        if self.hint.is_none() && self.under.is_none() {
            return;
        }
        // A lost device has no work in progress, and the poll returns at once or with an error.
        let _ = self.driver.poll(wgpu::PollType::wait_indefinitely());
        if let Some(hint) = &self.hint {
            hint.destroy();
        }
        if let Some(under) = &self.under {
            under.free_returned();
        }
    }
}
