//! The device: the rooms that it is composed of, and the handle to it.

mod contract;
mod open;
#[cfg_attr(
    not(all(feature = "vulkan-segments", not(target_vendor = "apple"), not(target_family = "wasm"))),
    path = "no_pages.rs"
)]
mod pages;
mod record;
#[cfg(feature = "testing")]
mod testing;
#[cfg(all(test, feature = "vulkan", not(target_vendor = "apple"), not(target_family = "wasm")))]
mod tests;

use std::fmt;
use std::sync::Arc;

use crate::memory::Memory;
use crate::open::Driver;
use crate::streams::Streams;
use crate::time::Time;
use crate::transfer::Transfers;

/// A wgpu device, and the handle to it: clones are the same device.
///
/// All methods may be called from any thread. Dropping the last handle waits for the work that was submitted.
#[derive(Clone)]
pub struct Wgpu {
    shared: Arc<Shared>,
}

/// The state that all handles of a device share: its rooms, from the last to the first.
struct Shared {
    transfers: Transfers,
    memory: Memory,
    time: Arc<Time>,
    streams: Arc<Streams>,
    driver: Arc<Driver>,
}

impl Wgpu {
    /// Returns the wgpu device.
    pub fn device(&self) -> &wgpu::Device {
        &self.shared.driver.device
    }

    /// Returns the wgpu queue. Code that submits work to it that uses blocks of a stream submits that stream afterwards
    /// ([`Backend::submit`](millpond_backend::Backend::submit)): the tick then covers the work.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.shared.driver.queue
    }

    /// Returns the usages that all segments have: those of [`WgpuBuilder::usage`](crate::WgpuBuilder::usage), and
    /// copies.
    pub fn usage(&self) -> wgpu::BufferUsages {
        self.shared.memory.usage
    }

    /// Returns the number of the device within this process, as error messages give it.
    pub fn serial(&self) -> u64 {
        self.shared.memory.account.serial
    }

    /// Returns the bytes of the segments that were reserved and not released. Memory that a dropped allocator left to
    /// wgpu, because unsubmitted work uses it, does not count: wgpu frees it after that work.
    pub fn held_bytes(&self) -> u64 {
        self.shared.memory.account.held_bytes()
    }

    /// Returns whether a semaphore of Vulkan shows when to poll wgpu, which is a thousand times cheaper than a poll.
    pub fn has_semaphore(&self) -> bool {
        self.shared.time.hint.is_some()
    }

    /// Returns the errors that wgpu reported outside of this backend's calls, the first 64 of them. A device that was
    /// opened here keeps such errors, where wgpu would otherwise panic. Always empty on a device that was adopted.
    pub fn errors(&self) -> Vec<String> {
        self.shared.driver.uncaptured.texts()
    }

    /// Reports that the device is lost. This is for adopted devices: wgpu has one callback for a loss, which belongs to
    /// the application; call this from it. Without it a loss shows in waits and downloads, and on Vulkan in submits.
    pub fn report_lost(&self, reason: &str) {
        self.shared.driver.loss.note(reason);
    }
}

impl fmt::Debug for Wgpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wgpu")
            .field("name", &self.shared.memory.caps.name)
            .field("serial", &self.serial())
            .field("streams", &self.shared.streams.count())
            .field("held_bytes", &self.held_bytes())
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.time.end();
    }
}
