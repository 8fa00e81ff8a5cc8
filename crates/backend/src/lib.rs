//! The contract between Millpond and a device.
//!
//! A backend supplies nine methods and the library does the rest: a table of facts ([`Backend::caps`]), two for streams
//! ([`Backend::create_stream`], [`Backend::has_stream`]), three for space ([`Backend::reserve`], [`Backend::release`],
//! [`Backend::address`]) and three for time ([`Backend::mark`], [`Backend::reached`], [`Backend::wait`]). Where the
//! application ends ticks, [`Backend::submit`] and [`Backend::leave`] come on top. Everything else that a device may be
//! able to do is an extension trait, which the backend returns if it has it: [`VirtualMemory`], [`StreamWait`],
//! [`HostMemory`], [`Transfer`], [`Budget`].
//!
//! # Principles
//!
//! - **Time is one rising number per stream.** A [`Tick`] covers everything recorded on this stream so far; a
//!   [`Point`] is a stream and a tick. Events, timeline semaphores and submission indices can all be reduced to it.
//! - **Facts are data, abilities are methods.** What a device *is* can be read in [`Caps`] and never changes; what it
//!   *does* is a method.
//! - **A handle is owned.** A segment or a page is never cloned: its holder owns it, and gives it up by passing it to
//!   `release`. The allocator keeps them; callers see references.
//! - **Errors keep the driver's value.** The allocator reads only the coarse [`Fault`]; the rest is for users.
//! - **Nothing here blocks unless its documentation says so**, and nothing here decides: placement, caching, limits and
//!   statistics belong to the allocator.
//!
//! # Writing a backend
//!
//! Implement [`Backend`], announce what the device has in [`Caps`], and run the suite of `millpond-conformance`: a test
//! file of a dozen lines makes a device and lists the differences that are known. The suite tests every operation alone
//! before it runs an allocator on the device, and reports each fault with the operation, the values and the rule on
//! these pages.

#![no_std]
#![forbid(unsafe_op_in_unsafe_fn)]
#![allow(unsafe_code)] // Declares unsafe traits and methods; contains no unsafe block.

extern crate alloc;

mod backend;
mod caps;
mod ext;
mod fault;
mod id;
mod left;

pub use backend::Backend;
pub use caps::{Caps, Class, ClassKind, Closing, PageCaps, Reuse};
pub use ext::{Budget, BudgetInfo, HostMemory, Readback, StreamWait, Transfer, VirtualMemory};
pub use fault::{BackendError, Fault, Shortage};
pub use id::{ClassId, Point, StreamId, Tick};
pub use left::{Left, LeftMapping, LeftPage};

/// The README's example, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
