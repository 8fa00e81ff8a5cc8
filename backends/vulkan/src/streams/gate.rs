//! Gates: a testing aid that keeps a stream's work in flight for as long as a test needs.

use std::sync::atomic::{AtomicUsize, Ordering};

use ash::vk;

use crate::error::VulkanError;
use crate::open::Driver;

/// How long a wait on the host leaves gates closed, in nanoseconds.
const PATIENCE_NS: u64 = 10_000_000;

/// The number of closed gates of a device.
#[derive(Default)]
pub(crate) struct Gates(AtomicUsize);

impl Gates {
    /// Returns how long a wait may take, in nanoseconds, before it opens the gates.
    pub(crate) fn patience(&self) -> u64 {
        if self.0.load(Ordering::Relaxed) == 0 { u64::MAX } else { PATIENCE_NS }
    }
}

/// A timeline semaphore that only the host signals.
pub(crate) struct Gate {
    pub(crate) semaphore: vk::Semaphore,
    /// The value that the next submit waits for.
    closed: u64,
    /// The value that was signalled last.
    opened: u64,
}

impl Gate {
    /// Creates a gate that is open.
    pub(crate) fn new(driver: &Driver) -> Result<Gate, VulkanError> {
        Ok(Gate { semaphore: driver.create_timeline()?, closed: 0, opened: 0 })
    }

    /// Closes the gate, if it is open.
    pub(crate) fn close(&mut self, gates: &Gates) {
        if self.opened == self.closed {
            self.closed += 1;
            gates.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Opens the gate, if it is closed.
    pub(crate) fn open(&mut self, driver: &Driver, gates: &Gates) {
        if self.opened == self.closed {
            return;
        }
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.semaphore).value(self.closed);
        // SAFETY: the semaphore is a timeline of this device that only this function signals, and its values rise.
        if unsafe { driver.raw.signal_semaphore(&info) }.is_ok() {
            self.opened = self.closed;
            gates.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns what the next submit must wait for, while the gate is closed.
    pub(crate) fn wait(&self) -> Option<(vk::Semaphore, u64)> {
        (self.opened < self.closed).then_some((self.semaphore, self.closed))
    }
}
