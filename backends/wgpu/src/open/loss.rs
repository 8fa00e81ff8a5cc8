//! The loss of the device, and errors that no scope caught. wgpu's handlers share both.

use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::error::WgpuError;

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

    /// Returns an error if the device is known to be lost.
    pub(crate) fn alive(&self) -> Result<(), WgpuError> {
        match self.0.get() {
            Some(reason) => Err(WgpuError::Lost { reason: reason.clone() }),
            None => Ok(()),
        }
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
