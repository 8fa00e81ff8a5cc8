//! The errors of a toy.

use std::fmt;

use millpond_backend::{BackendError, Fault};
use millpond_sim::SimError;

/// An error of the simulated device, with the fault that the toy gives it.
#[derive(Debug)]
pub struct ToyError(pub Fault, pub String);

/// Converts the error and keeps its fault.
pub fn toy(error: SimError) -> ToyError {
    ToyError(error.fault(), error.to_string())
}

impl fmt::Display for ToyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.1)
    }
}

impl std::error::Error for ToyError {}

impl BackendError for ToyError {
    fn fault(&self) -> Fault {
        self.0
    }
}
