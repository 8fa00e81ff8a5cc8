//! The contract between Millpond and a device.
//!
//! A backend supplies seven things and the library does the rest: a table of facts ([`Caps`]), two verbs of space
//! ([`Backend::reserve`], [`Backend::release`]) and four of time ([`Backend::mark`], [`Backend::reached`],
//! [`Backend::submit`], [`Backend::wait`]). Everything else that a device may be able to do is an extension trait that
//! the backend hands out when it has it: [`VirtualMemory`], [`StreamWait`], [`HostMemory`], [`Transfer`], [`Budget`].
//!
//! # Positions
//!
//! - **Time is one rising number per stream.** A [`Tick`] says "everything recorded on this stream so far"; a
//!   [`Point`] is a stream and a tick. Events, timeline semaphores and submission indices all reduce to it.
//! - **Facts are data, powers are verbs.** What a device *is* stands in [`Caps`] and never changes; what it *does* is
//!   a method.
//! - **A handle is owned.** A segment or a page is never cloned: to hold it is to own it, to pass it to `release` is
//!   to give it up. The allocator keeps them; callers see references.
//! - **Errors keep the driver's value.** The allocator reads only the coarse [`Fault`]; the rest is for people.
//! - **Nothing here blocks unless it says so**, and nothing here decides: placement, caching, limits and statistics
//!   are the allocator's.
//!
//! # Writing a backend
//!
//! Implement [`Backend`], announce what you have in [`Caps`], and run the suite of `millpond-conformance`: a test file
//! of a dozen lines makes a device and lists the differences it admits to. It asks every verb by itself before it runs
//! an allocator on the device, and what it refuses it says with the verb, the values and the rule on these pages.

#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]
#![allow(unsafe_code)] // Declares unsafe traits and methods; contains no unsafe block.

extern crate alloc;
#[cfg(feature = "plan")]
extern crate std;

mod backend;
mod caps;
mod ext;
mod fault;
mod id;
#[cfg(feature = "plan")]
mod plan;

pub use backend::Backend;
pub use caps::{Caps, Class, ClassKind, Closing, PageCaps, Reuse};
pub use ext::{Budget, BudgetInfo, HostMemory, StreamWait, Transfer, VirtualMemory};
pub use fault::{BackendError, Fault};
pub use id::{ClassId, Point, StreamId, Tick};
#[cfg(feature = "plan")]
pub use plan::FaultPlan;
