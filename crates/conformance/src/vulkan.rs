//! A Vulkan device as a device under test.

use millpond_backend::{Backend as _, Fault, StreamId};
use millpond_vulkan::Vulkan;

use crate::device::{DeviceUnderTest, Need, Unavailable};

/// A Vulkan device of this machine, watched by the validation layer where it is installed and asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VulkanDevice {
    index: usize,
    validation: bool,
    sparse: bool,
}

impl VulkanDevice {
    /// The device at that place of [`Vulkan::devices`], without validation, with virtual memory where it has it.
    pub const fn new(index: usize) -> Self {
        Self { index, validation: false, sparse: true }
    }

    /// The same device, watched by the validation layer or not. What the layer objects to is a breach of the contract.
    pub const fn validation(self, validation: bool) -> Self {
        Self { validation, ..self }
    }

    /// The same device, with virtual memory where it has it or without.
    pub const fn sparse(self, sparse: bool) -> Self {
        Self { sparse, ..self }
    }
}

impl DeviceUnderTest for VulkanDevice {
    type Backend = Vulkan;

    fn name(&self) -> String {
        let listed = Vulkan::devices().ok().and_then(|devices| devices.into_iter().nth(self.index));
        let name = listed.map_or_else(|| "none".to_owned(), |device| format!("{}, {}", device.name, device.driver));
        format!("Vulkan device {} ({name})", self.index)
    }

    fn open(&self, need: &Need) -> Result<Vulkan, Unavailable> {
        let builder = Vulkan::builder().device(self.index).validation(self.validation).sparse(self.sparse);
        let device = builder.build().map_err(|error| Unavailable(error.to_string()))?;
        if need.pages && device.caps().pages.is_none() {
            return Err(Unavailable("the device has no sparse buffers, or was opened without them".to_owned()));
        }
        Ok(device)
    }

    fn requirement(&self) -> Option<&'static str> {
        Some("vulkan")
    }

    fn twin(&self, backend: &Vulkan) -> Option<Vulkan> {
        Some(backend.clone())
    }

    fn hold(&self, backend: &Vulkan, stream: StreamId) -> bool {
        backend.hold(stream).is_ok()
    }

    fn unhold(&self, backend: &Vulkan, stream: StreamId) {
        self.submit(backend, stream);
        backend.unhold(stream);
    }

    fn fail_nth(&self, backend: &Vulkan, nth: u64, fault: Fault) -> bool {
        backend.fail_nth(nth, fault);
        true
    }

    fn forget_faults(&self, backend: &Vulkan) {
        backend.forget_faults();
    }

    fn fallible_calls(&self, backend: &Vulkan) -> Option<u64> {
        Some(backend.fallible_calls())
    }

    fn held_bytes(&self, backend: &Vulkan) -> Option<u64> {
        Some(backend.held_bytes())
    }

    fn violations(&self, backend: &Vulkan) -> Vec<String> {
        backend.validation().map(|log| log.errors()).unwrap_or_default()
    }
}
