//! The search for the settings under which a recorded program reserves little and calls its driver seldom.
//!
//! [`Trial`] is a trace that is prepared once and replayed under many settings. [`Space`] has the settings to try,
//! [`Search`] tries them, on several threads, and keeps the [`Frontier`]: every setting that no other one beats in both
//! reserved bytes and driver time. [`recommend`] chooses one of them and checks it on variations of the program.
//!
//! The replays themselves are the caller's, who opens a device for each: the search knows settings and what they led
//! to, and no device. With the same seed and the same number of settings it tries the same settings in the same order,
//! whatever the number of threads.

mod frontier;
mod recommend;
mod search;
mod space;
mod trial;

#[cfg(test)]
mod tests;

use std::time::Duration;

use millpond::settings::Settings;

pub use frontier::{Frontier, Tried};
pub use recommend::{Aim, Checked, Recommended, VARIATIONS, VARY_PERCENT, cheapest, recommend};
pub use search::{Budget, Search, Searched};
pub use space::Space;
pub use trial::Trial;

/// The result of a program under some settings, over all passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// The most bytes that were reserved at one time.
    pub reserved_bytes: u64,
    /// How often the driver was called.
    pub driver_calls: u64,
    /// How long these calls took, on the device's own clock where it has one.
    pub driver_time: Duration,
    /// How often an allocation had the host wait for the device.
    pub stalls: u64,
    /// How often a stream was told to wait for another on the device.
    pub stream_waits: u64,
}

/// How a trial ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Every event was replayed.
    Whole(Measured),
    /// It was stopped, as what it had come to was beaten already.
    Beaten,
    /// An allocation was refused for lack of memory: the program does not fit.
    OutOfMemory,
}

impl Ended {
    /// Returns what a whole trial came to.
    pub fn measured(self) -> Option<Measured> {
        match self {
            Self::Whole(measured) => Some(measured),
            Self::Beaten | Self::OutOfMemory => None,
        }
    }
}

/// Returns the configuration that gives these settings on every device, in the grammar of `PYTORCH_CUDA_ALLOC_CONF`.
pub fn conf_of(settings: &Settings) -> String {
    millpond::conf::write(&settings.clone().into())
}
