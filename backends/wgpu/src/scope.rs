//! Calls whose errors come back as values, and the end of the device.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::WgpuError;
use crate::device::Shared;

/// How many uncaptured errors are kept, the first ones.
const ERRORS_MAX: usize = 64;

/// Whether the device is gone, and why. Shared with wgpu's callback.
#[derive(Default)]
pub(crate) struct Loss(OnceLock<String>);

impl Loss {
    /// The device is gone; the first reason stays.
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
    /// Fails if the device is known to be lost.
    pub(crate) fn alive(&self) -> Result<(), WgpuError> {
        match self.loss.0.get() {
            Some(reason) => Err(WgpuError::Lost { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Makes calls of wgpu with their errors caught: they are raised to scopes of this thread, or else to a handler
    /// that panics unless somebody replaced it. `asked` is how many bytes the call wants, for the message.
    pub(crate) fn caught<T>(&self, call: &'static str, asked: u64, make: impl FnOnce() -> T) -> Result<T, WgpuError> {
        let device = &self.device;
        let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
        let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let made = make();
        // Natively these futures are ready at once. All scopes are popped, innermost first, whatever they hold.
        let raised = [pollster::block_on(memory.pop()), pollster::block_on(validation.pop())];
        let raised = raised.into_iter().chain([pollster::block_on(internal.pop())]).flatten().next();
        match raised {
            Some(source @ wgpu::Error::OutOfMemory { .. }) => {
                Err(WgpuError::OutOfMemory { call, asked, source: Box::new(source) })
            }
            Some(source) => {
                // On a lost device everything is invalid as well, and that is no news.
                self.alive()?;
                Err(WgpuError::Refused { call, source: Box::new(source) })
            }
            None => Ok(made),
        }
    }

    /// Polls the device. No lock of ours may be held: callbacks of anybody run in here.
    ///
    /// wgpu panics where the driver fails in a poll, after it has declared the device lost; that is made an error.
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
