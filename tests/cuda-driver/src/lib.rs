//! The CUDA simulator: a stand-in for the CUDA driver, so that code written for it is tested where there is no GPU.
//!
//! The package builds a shared library that exports the driver's functions as CUDA 12.8 names them, as far as a caching
//! allocator and its tests use them. [`install`] loads it under the driver's name, so that the real bindings find it,
//! and returns a [`Control`]: counters, planned failures, gates, byte caps, and the mistakes that were seen.
//!
//! It checks sequences of calls, error handling and lifetimes. It says nothing about kernels, which it cannot run, nor
//! about speed.
//!
//! | Folder | What it has |
//! |---|---|
//! | `control.rs`, `install.rs`, `table.rs` | the side of the tests: finds the library, calls into it |
//! | `driver/` | the driver itself: streams, events, memory, captures; no unsafe code |
//! | `ffi/` | all unsafe code: the exported functions, foreign pointers, address space, the loader |

mod control;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod ffi;
mod install;
mod table;

pub use crate::control::{Control, DmaBuf, Gate, Kind, Stop, Violation};
pub use crate::install::{Absent, install};

/// The name of both simulated devices, followed by their ordinal. No real device has this name.
pub const DEVICE_NAME: &str = "Millpond CUDA simulator";

/// The number of devices.
pub const DEVICES: usize = 2;

/// The granularity of virtual memory: sizes and addresses of mappings are multiples of it, in bytes.
pub const PAGE_BYTES: u64 = 2 << 20;
