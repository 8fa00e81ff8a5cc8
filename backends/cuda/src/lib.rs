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
//! - **A device with test gear is another type.** [`Cuda`] has no hook for tests in any call; [`CudaWith`] is what the
//!   two have in common.
//!
//! # Rooms
//!
//! Each names only those before it. From `link` on the rooms are storeys of the device's state: each owns the one below
//! and dereferences to it, so that it reaches what is below and nothing else.
//!
//! 1. `driver`: the driver's functions, found by name.
//! 2. `error`: the driver's codes, and the errors with what to do about each.
//! 3. `handle`: the driver's handles as values.
//! 4. `context`: making a context current on a thread.
//! 5. `probe`: the devices of the machine and their facts, without opening any.
//! 6. `gear`: what a device does for tests, as a type: nothing, or what `testing` has.
//! 7. `link`: the driver and the context of one device, and whether it is lost.
//! 8. `time`: the clock and the events of each stream.
//! 9. `streams`: creating, registering and unregistering streams.
//! 10. `memory`: segments, page-locked memory, views for cudarc.
//! 11. `pages`: addresses, pages, and mappings.
//! 12. `transfer`: fills and copies, and the staging ring.
//! 13. `budget`: how much memory is left.
//! 14. `open`: the device as a whole: opening it, the handle, the contract.
//! 15. `testing`: planned failures and held streams, with the feature of that name.

#![allow(unsafe_code)] // Every call into the driver.

mod budget;
mod context;
mod driver;
mod error;
mod gear;
mod handle;
mod link;
mod memory;
mod open;
mod pages;
mod probe;
mod streams;
#[cfg(feature = "testing")]
pub mod testing;
mod time;
mod transfer;

pub use cudarc;
pub use error::{Code, CudaError, End};
pub use gear::{Gear, Plain};
pub use memory::host::RegisteredHost;
pub use memory::{Segment, View};
pub use millpond_kit::{Misuse, Named, Remedy, Role};
pub use open::device::{Cuda, CudaWith};
pub use open::{Alloc, CudaBuilder};
pub use pages::Page;
pub use probe::DeviceInfo;

/// The README's example, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
