//! CUDA for Millpond.
//!
//! [`Cuda`] implements the backend contract on any device with a driver for CUDA 12.0 or newer, through [cudarc]. It
//! opens a device ([`Cuda::open`], [`Cuda::builder`]), or adopts a context that other code owns ([`Cuda::adopt`],
//! [`Cuda::adopt_raw`]). The crate builds without any CUDA toolkit. The driver is looked up at run time, and whatever
//! is missing is an error that says what to do.
//!
//! # Positions
//!
//! - **A tick is closed by an event, as late as possible.** Marking costs no driver call. The event is recorded when a
//!   caller queries or waits, one for all marks since the last; events are recorded again, not created again.
//! - **Nothing outstanding, no driver call.** `reached` and `wait` for a tick that is known to be complete read
//!   atomics.
//! - **A stream that is being captured is left alone.** No event is recorded there and none is queried: its open tick
//!   stays open until the capture ends. Captures of other threads are not disturbed either.
//! - **Numbers of streams are never reused**, though the driver's handles are: a handle that was unregistered and is
//!   registered again is a new stream.
//! - **The thread's current context is left as it was.**
//! - **Result codes are numbers, not an enumeration**, because a driver may return a code that no list has.

#![allow(unsafe_code)] // Every call into the driver.

mod budget;
mod builder;
mod code;
mod context;
mod device;
mod driver;
mod error;
mod fault;
mod gate;
mod host;
mod lane;
mod memory;
#[cfg(feature = "nvml")]
mod nvml;
mod pages;
mod probe;
mod segment;
mod staging;
mod stay;
mod streams;
mod timeline;
mod transfer;
mod view;

pub use builder::{Alloc, CudaBuilder};
pub use code::Code;
pub use cudarc;
pub use device::Cuda;
pub use error::{CudaError, End};
pub use host::RegisteredHost;
pub use probe::DeviceInfo;
pub use segment::{Page, Segment};
pub use view::View;

/// The README's example, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
