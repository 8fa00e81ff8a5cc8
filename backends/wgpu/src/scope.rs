//! Calls whose errors are returned as values, and the loss of the device.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::WgpuError;
use crate::device::Shared;

/// The number of uncaptured errors that are kept, from the first on.
const ERRORS_MAX: usize = 64;

/// Whether the device is lost, and why. Shared with wgpu's callback.
#[derive(Default)]
pub(crate) struct Loss(OnceLock<String>);

impl Loss {
    /// Notes that the device is lost. The first reason is kept.
    pub(crate) fn note(&self, reason: &str) {
        let _ = self.0.set(reason.to_owned());
    }
}

/// Errors that no scope caught, as texts. Shared with wgpu's handler.
#[derive(Default)]
pub(crate) struct Uncaptured(Mutex<Vec<String>>);

impl Uncaptured {
    pub(crate) fn note(&self, text: String) {
        let mut texts = self.0.lock();
        if texts.len() < ERRORS_MAX {
            texts.push(text);
        }
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl Shared {
    /// Returns an error if the device is known to be lost.
    pub(crate) fn alive(&self) -> Result<(), WgpuError> {
        match self.loss.0.get() {
            Some(reason) => Err(WgpuError::Lost { reason: reason.clone() }),
            None => Ok(()),
        }
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
}
