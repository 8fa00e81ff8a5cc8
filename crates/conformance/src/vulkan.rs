//! A Vulkan device as a device under test.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millpond_backend::{Backend as _, Fault, StreamId};
use millpond_vulkan::ash::vk::PhysicalDeviceType;
use millpond_vulkan::{QueueChoice, Vulkan, VulkanError};

use crate::device::{DeviceUnderTest, Live, Need, Unavailable};

/// A Vulkan device of this machine, watched by the validation layer where it is installed and asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VulkanDevice {
    index: usize,
    validation: bool,
    sparse: bool,
    /// The most queues of each family that are opened: each takes time to open, and each scenario opens the device
    /// anew.
    queues: u32,
}

impl VulkanDevice {
    /// Creates the device at this index of [`Vulkan::devices`], without validation, with virtual memory where the
    /// device has it.
    pub const fn new(index: usize) -> Self {
        Self { index, validation: false, sparse: true, queues: 4 }
    }

    /// Returns the same device with or without the validation layer, which is used where it is installed. An error that
    /// the layer reports is a breach of the contract.
    pub const fn validation(self, validation: bool) -> Self {
        Self { validation, ..self }
    }

    /// Returns the same device with at most this number of queues of each family. The default is 4.
    pub const fn queues(self, queues: u32) -> Self {
        Self { queues, ..self }
    }

    /// Returns the same device with virtual memory where it has it, or without.
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
        let builder = Vulkan::builder().device(self.index).sparse(self.sparse).queues(QueueChoice::AtMost(self.queues));
        let opened = match builder.clone().validation(self.validation).build() {
            Err(VulkanError::NoValidation) => builder.build(),
            opened => opened,
        };
        let device = opened.map_err(|error| Unavailable(error.to_string()))?;
        if need.pages && device.caps().pages.is_none() {
            return Err(Unavailable("the device has no sparse buffers, or was opened without them".to_owned()));
        }
        Ok(device)
    }

    fn requirement(&self) -> Option<&'static str> {
        Some("vulkan")
    }

    /// Returns a guard where the validation layer watches. The layer finds the state of a device in a table of the
    /// process that it does not lock, so that a call on one thread can miss its device while another thread opens one,
    /// and then reads through a null pointer (issue 4391 of Vulkan-ValidationLayers, seen with 1.3.239).
    fn turn(&self) -> Option<MutexGuard<'static, ()>> {
        static TURN: Mutex<()> = Mutex::new(());
        self.validation.then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
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

    fn live(&self, backend: &Vulkan) -> Option<Live> {
        let (segments, pages, ranges) = backend.live();
        Some(Live::new(segments, pages, ranges))
    }

    /// Returns false for a device in software, where the driver counts the machine's memory that is in use, and so only
    /// what was written.
    fn budget_follows(&self, _backend: &Vulkan) -> bool {
        let listed = Vulkan::devices().ok().and_then(|devices| devices.into_iter().nth(self.index));
        listed.is_some_and(|device| device.kind != PhysicalDeviceType::CPU)
    }

    fn violations(&self, backend: &Vulkan) -> Vec<String> {
        backend.validation().map(|log| log.errors()).unwrap_or_default()
    }
}
