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
//! A room names only the rooms above it in this table. From `open` on the rooms are storeys of the device's state: each
//! owns the one before it and dereferences to it, so that it reaches that and nothing else.
//!
//! | room | what it has |
//! |---|---|
//! | `driver` | the driver's functions, found by name |
//! | `error` | [`CudaError`], and the driver's codes |
//! | `gear` | what a device does for tests, as a type: nothing, or what `testing` has |
//! | `probe` | the devices of the machine and their facts, without opening any |
//! | `open` | the builder, contexts, and the link to a device: its driver, its context, and whether it is lost |
//! | `streams` | the lanes: per stream the handle and its users, the clock, the events and the staging ring |
//! | `time` | ticks that events close, what is done, waiting, and streams that come and go |
//! | `memory` | segments, page-locked memory, and views for cudarc |
//! | `pages` | addresses, pages and mappings; pages of other processes |
//! | `transfer` | fills and copies, and the pieces of the staging ring |
//! | `budget` | the driver's and NVML's report on how much memory is left |
//! | `device` | [`Cuda`], which composes the rooms and implements the contract |
//! | `spin` | kernels that take a given time, for measurements |
//! | `slice` | typed memory of an allocator for cudarc, and an application's streams, with the feature of that name |
//! | `testing` | planned failures and held streams, with the feature of that name |

#![allow(unsafe_code)] // Every call into the driver.

mod budget;
mod device;
mod driver;
mod error;
mod gear;
mod memory;
mod open;
mod pages;
mod probe;
#[cfg(feature = "slice")]
mod slice;
mod spin;
mod streams;
#[cfg(feature = "testing")]
pub mod testing;
mod time;
mod transfer;

pub use cudarc;
pub use device::{Cuda, CudaWith};
pub use error::{Code, CudaError, End};
pub use gear::{Gear, Plain};
pub use memory::host::RegisteredHost;
pub use memory::{Segment, View};
pub use millpond_kit::{Misuse, Named, Remedy, Role};
pub use open::{Alloc, CudaBuilder};
pub use pages::Page;
#[cfg(unix)]
pub use pages::share::{DmaBuf, Imported, SharedPage, SharedRun};
pub use probe::DeviceInfo;
#[cfg(feature = "slice")]
pub use slice::{OnStream, Slice, SliceAllocator, SliceStream, SliceView, SliceViewMut};
pub use spin::Spinner;

/// The README's example, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
