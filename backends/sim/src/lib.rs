//! A simulated GPU for Millpond: streams, virtual memory, transfers, faults and costs, with no hardware.
//!
//! [`Sim`] implements the whole backend contract and is a cheap handle: keep a clone and pass another to the allocator.
//! The allocator sees a device, and the test controls it. The test decides when work completes ([`Completion`]), which
//! call fails ([`Sim::fail`]) and where the next segment lies ([`Sim::place_next`]), and it reads what happened:
//! [`Sim::calls`], the virtual clock, and [`Sim::violations`], the list of every access that would have produced a
//! wrong byte on a real device.
//!
//! ```
//! use millpond_backend::{Backend, ClassId};
//! use millpond_sim::Sim;
//!
//! let sim = Sim::new();
//! let stream = sim.create_stream()?;
//! let segment = sim.reserve(ClassId::DEVICE, 2 << 20)?;
//! sim.busy(stream);
//! let tick = sim.mark(stream);
//! assert!(sim.reached(stream)? < tick, "the kernel still runs");
//! sim.synchronize();
//! assert_eq!(sim.reached(stream)?, tick);
//! // SAFETY: the device is idle and nothing more is queued.
//! unsafe { sim.release(segment) };
//! # Ok::<(), millpond_sim::SimError>(())
//! ```
//!
//! # Positions
//!
//! - **Time is queued work, not seconds.** A tick is reached when the work before it has completed, which happens at
//!   once, by hand, or in an order drawn from a seed. No thread runs in the background, and no call sleeps unless
//!   [`SimBuilder::takes_time`] is set.
//! - **The device tracks its unfinished work.** Each queued access is compared with the unfinished work of the other
//!   streams, on physical pages, so that accesses through two addresses of one page conflict as well.
//! - **Costs are counted, not spent.** Driver calls add nanoseconds to a virtual clock; the host does not wait unless
//!   [`SimBuilder::takes_time`] is set.

#![allow(unsafe_code)] // The contract's unsafe trait and methods, and the bytes of host segments (`memory.rs`).

mod builder;
mod calls;
mod control;
mod cost;
mod device;
mod error;
mod hazard;
mod lane;
mod memory;
mod order;
mod pages;
mod schedule;
mod segment;
mod space;
mod sparse;
mod timeline;
mod transfer;
mod violation;

pub use builder::SimBuilder;
pub use calls::{CallKind, Calls};
pub use control::{Overwriting, Work};
pub use cost::{CostModel, Curve};
pub use device::Sim;
pub use error::SimError;
pub use memory::POISON;
pub use order::StreamOrder;
pub use schedule::Completion;
pub use segment::{Page, Segment};
pub use violation::{Access, Violation};

/// The README's example, compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
