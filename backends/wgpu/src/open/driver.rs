//! The opened device: calls on it, whose errors are returned as values.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

#[cfg(feature = "testing")]
use millpond_backend::Fault;
#[cfg(feature = "testing")]
use millpond_kit::testing::{FaultPlan, Planned};

use super::loss::{Loss, Uncaptured};
use crate::error::WgpuError;
use crate::probe::WORD;

/// A device that was opened or adopted, with its queue.
pub(crate) struct Driver {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) loss: Arc<Loss>,
    pub(crate) uncaptured: Arc<Uncaptured>,
    #[cfg(feature = "testing")]
    pub(crate) faults: FaultPlan,
}

impl Driver {
    /// Installs the handlers of a device that was opened here.
    pub(crate) fn opened(device: wgpu::Device, queue: wgpu::Queue) -> Arc<Driver> {
        let driver = Driver::adopted(device, queue);
        let (told, kept) = (Arc::clone(&driver.loss), Arc::clone(&driver.uncaptured));
        let lost = move |reason, text: String| told.note(format!("{reason:?}. {text}").trim_end());
        driver.device.set_device_lost_callback(lost);
        driver.device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| kept.note(error.to_string())));
        driver
    }

    /// Takes a device that other code has opened, and leaves its handlers as they are.
    pub(crate) fn adopted(device: wgpu::Device, queue: wgpu::Queue) -> Arc<Driver> {
        let (loss, uncaptured) = (Arc::default(), Arc::default());
        Arc::new(Driver {
            device,
            queue,
            loss,
            uncaptured,
            #[cfg(feature = "testing")]
            faults: FaultPlan::default(),
        })
    }

    /// Returns an error if the device is known to be lost.
    pub(crate) fn alive(&self) -> Result<(), WgpuError> {
        self.loss.alive()
    }

    /// Returns an error if the device is lost, or if a test planned one. Runs before each fallible call.
    #[cfg_attr(not(feature = "testing"), allow(unused_variables))]
    pub(crate) fn enter(&self, call: &'static str) -> Result<(), WgpuError> {
        self.alive()?;
        #[cfg(feature = "testing")]
        if let Some(fault) = self.faults.strike(&()) {
            if fault == Fault::Lost {
                self.loss.note("a planned fault took it");
            }
            return Err(Planned { call, fault }.into());
        }
        Ok(())
    }

    /// Calls wgpu and catches the errors. wgpu raises them to scopes of this thread, or else to a handler that panics
    /// unless the application replaced it. `asked` is the number of bytes that the call requests, for the message.
    pub(crate) fn caught<T>(&self, call: &'static str, asked: u64, make: impl FnOnce() -> T) -> Result<T, WgpuError> {
        let device = &self.device;
        let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
        let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let made = make();
        // On native platforms these futures are ready at once. All scopes are popped, innermost first, whatever they
        // hold.
        let raised = [pollster::block_on(memory.pop()), pollster::block_on(validation.pop())];
        let raised = raised.into_iter().chain([pollster::block_on(internal.pop())]).flatten().next();
        match raised {
            Some(source @ wgpu::Error::OutOfMemory { .. }) => {
                Err(WgpuError::OutOfMemory { call, asked, source: Box::new(source) })
            }
            Some(source) => {
                // On a lost device all objects are invalid as well, which is no error of its own.
                self.alive()?;
                Err(WgpuError::Refused { call, source: Box::new(source) })
            }
            None => Ok(made),
        }
    }

    /// Polls the device. No lock of this backend may be held: callbacks of any code run in here.
    ///
    /// wgpu panics if the driver fails in a poll, after it has declared the device lost; that panic becomes an error.
    pub(crate) fn poll(&self, how: wgpu::PollType) -> Result<Result<wgpu::PollStatus, wgpu::PollError>, WgpuError> {
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(how))) {
            Ok(answer) => {
                self.alive()?;
                Ok(answer)
            }
            Err(panic) => match self.alive() {
                Err(lost) => Err(lost),
                Ok(()) => resume_unwind(panic),
            },
        }
    }

    /// Creates a buffer of at least that many bytes.
    pub(crate) fn create_buffer(
        &self,
        call: &'static str,
        bytes: u64,
        usage: wgpu::BufferUsages,
        mapped: bool,
    ) -> Result<wgpu::Buffer, WgpuError> {
        let size = bytes.next_multiple_of(WORD);
        let descriptor = wgpu::BufferDescriptor { label: Some("millpond"), size, usage, mapped_at_creation: mapped };
        let buffer = self.caught(call, bytes, || self.device.create_buffer(&descriptor))?;
        self.alive()?;
        Ok(buffer)
    }

    /// Checks whether the device still works. A device that is lost, or that was destroyed while work was in progress,
    /// returns invalid buffers without an error; this shows only when such a buffer is mapped.
    pub(crate) fn probe(&self, call: &'static str) -> Result<(), WgpuError> {
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        let buffer = self.create_buffer(call, WORD, usage, true)?;
        if let Err(error) = buffer.slice(..).get_mapped_range_mut() {
            self.loss.note(&format!("it makes no buffers any more: {error}"));
        }
        self.alive()
    }
}
