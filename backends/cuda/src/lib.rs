//! CUDA for Millpond.
//!
//! [`Cuda`] implements the backend contract on any device with a driver for CUDA 12.0 or newer, through [cudarc]. It
//! opens a device by itself ([`Cuda::open`], [`Cuda::builder`]), or stands on a context that somebody else has
//! ([`Cuda::adopt`], [`Cuda::adopt_raw`]). The crate builds without any CUDA toolkit; the driver is looked for at run
//! time, and whatever is missing is an error that says what to do.
//!
//! # Positions
//!
//! - **A tick is closed by an event, as late as possible.** Marking costs no driver call. The event is recorded when
//!   somebody asks or waits, one for all marks since the last; events are recorded anew, not made anew.
//! - **Nothing outstanding, no driver call.** `reached` and `wait` on what is known to be complete read atomics.
//! - **A stream that is being captured is left alone.** Neither recorded nor asked: its open tick stays open until the
//!   capture ends. Captures of other threads are not disturbed either.
//! - **Numbers of streams are never reused**, though the driver's handles are: a handle that was unregistered and comes
//!   back is a new stream.
//! - **The thread's current context is left as it was.**
//! - **No code of the driver's is trusted to be in a list.** Result codes are numbers, not an enumeration.

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
