//! Gates: a testing aid that keeps a stream's work in flight for as long as a test needs.

use std::sync::atomic::Ordering;

use ash::vk;
use millpond_backend::StreamId;

use crate::device::Device;
use crate::lane::LaneState;
use crate::{Vulkan, VulkanError};

/// How long a wait on the host leaves gates closed, in nanoseconds.
const PATIENCE_NS: u64 = 10_000_000;

/// A timeline semaphore that only the host signals.
pub(crate) struct Gate {
    pub(crate) semaphore: vk::Semaphore,
    /// The value that the next submit waits for.
    pub(crate) closed: u64,
    /// The value that was signalled last.
    opened: u64,
}

/// Aids for testing code that is built on this backend.
impl Vulkan {
    /// Makes the stream's next submit, and so everything behind it on the same queue, wait until
    /// [`unhold`](Vulkan::unhold). Streams that share the queue are held with it. A wait on the host that would never
    /// end because of the hold also ends it, after 10 ms.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn hold(&self, stream: StreamId) -> Result<(), VulkanError> {
        self.device.alive()?;
        let mut state = self.device.lane(stream).state.lock();
        let gate = match &mut state.gate {
            Some(gate) => gate,
            none => none.insert(Gate { semaphore: self.device.create_timeline()?, closed: 0, opened: 0 }),
        };
        if gate.opened == gate.closed {
            gate.closed += 1;
            self.device.gates.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Ends the [`hold`](Vulkan::hold) of the stream. The work may complete now. Has no effect if the stream is not
    /// held. Dropping the last handle of a device does this too.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn unhold(&self, stream: StreamId) {
        self.device.open_gate(&mut self.device.lane(stream).state.lock());
    }
}

impl Device {
    /// Returns how long a wait may take, in nanoseconds, before it opens the gates.
    pub(crate) fn patience(&self) -> u64 {
        if self.gates.load(Ordering::Relaxed) == 0 { u64::MAX } else { PATIENCE_NS }
    }

    /// Opens every gate whose lane is not locked at this moment.
    pub(crate) fn open_gates(&self) {
        for (_, lane) in self.lanes.iter() {
            if let Some(mut state) = lane.state.try_lock() {
                self.open_gate(&mut state);
            }
        }
    }

    /// Opens the gate, if there is a closed one.
    pub(crate) fn open_gate(&self, state: &mut LaneState) {
        let Some(gate) = state.gate.as_mut().filter(|gate| gate.opened < gate.closed) else { return };
        let info = vk::SemaphoreSignalInfo::default().semaphore(gate.semaphore).value(gate.closed);
        // SAFETY: the semaphore is a timeline of this device that only this function signals, and its values rise.
        if unsafe { self.raw.signal_semaphore(&info) }.is_ok() {
            gate.opened = gate.closed;
            self.gates.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Gate {
    /// Returns what the next submit must wait for, while the gate is closed.
    pub(crate) fn wait(&self) -> Option<(vk::Semaphore, u64)> {
        (self.opened < self.closed).then_some((self.semaphore, self.closed))
    }
}
