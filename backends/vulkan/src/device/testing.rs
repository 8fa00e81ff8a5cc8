//! Test gear: driver calls that fail where they would otherwise succeed, and work that stays in flight.

use millpond_backend::{Fault, StreamId};

use super::Vulkan;
use crate::error::VulkanError;
use crate::streams::Gate;

/// Aids for testing code that is built on this backend.
impl Vulkan {
    /// Plans that the `nth` fallible driver call, counted from 1 and from now, fails with that fault and does nothing.
    /// [`Fault::Lost`] loses the device for good. Calls that cannot fail (releasing, marking) are not counted, nor are
    /// queries of a tick that is known to be reached.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn fail_nth(&self, nth: u64, fault: Fault) {
        self.device.driver.faults.add(None, nth, fault);
    }

    /// Cancels the planned failures that have not happened yet.
    pub fn forget_faults(&self) {
        self.device.driver.faults.forget();
    }

    /// Returns the number of fallible driver calls so far, as [`fail_nth`](Vulkan::fail_nth) counts them.
    pub fn fallible_calls(&self) -> u64 {
        self.device.driver.faults.calls()
    }

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
        let device = &*self.device;
        device.driver.alive()?;
        let mut state = device.streams.lane(stream).state.lock();
        let gate = match &mut state.gate {
            Some(gate) => gate,
            none => none.insert(Gate::new(&device.driver)?),
        };
        gate.close(&device.streams.gates);
        Ok(())
    }

    /// Ends the [`hold`](Vulkan::hold) of the stream. The work may complete now. Has no effect if the stream is not
    /// held. Dropping the last handle of a device does this too.
    ///
    /// # Panics
    ///
    /// If the stream is not this device's.
    pub fn unhold(&self, stream: StreamId) {
        let streams = &self.device.streams;
        if let Some(gate) = &mut streams.lane(stream).state.lock().gate {
            gate.open(&streams.driver, &streams.gates);
        }
    }
}
