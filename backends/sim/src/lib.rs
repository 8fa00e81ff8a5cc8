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
//!
//! # Rooms
//!
//! A room names only the rooms above it in this table. `open`, `streams`, `time` and `device` are storeys of the
//! device's state: each owns the one before it and dereferences to it.
//!
//! | room | what it has |
//! |---|---|
//! | `error` | [`SimError`], and the kinds of driver call, counted |
//! | `space` | bytes, addresses, page tables, and which work uses them: what stands for the hardware's memory |
//! | `open` | the builder, the costs, and the link to a device: its calls, and which of them fail |
//! | `streams` | the lanes: per stream the clock, and the work that is queued |
//! | `time` | the order in which work completes, what is reached, and work that nothing orders |
//! | `memory` | taking segments and giving them back |
//! | `pages` | ranges, pages and mappings |
//! | `transfer` | fills and copies as queued work |
//! | `budget` | how much memory is left |
//! | `device` | [`Sim`], which composes the rooms and implements the contract, and what a test controls |
//!
//! One room that other backends have is not here:
//!
//! - `probe`: a simulated device is made, not found.

#![allow(unsafe_code)] // The contract's unsafe trait and methods, and the bytes of host segments (`space/store.rs`).

mod budget;
mod device;
mod error;
mod memory;
mod open;
mod pages;
mod space;
mod streams;
mod time;
mod transfer;

pub use device::Sim;
pub use device::control::Work;
pub use error::SimError;
pub use error::calls::{CallKind, Calls};
pub use millpond_kit::testing::Planned;
pub use millpond_kit::{Misuse, Named};
pub use open::{Completion, CostModel, Curve, SimBuilder, StreamOrder};
pub use space::segment::{Page, Segment};
pub use space::store::POISON;
pub use space::violation::{Access, Violation};
pub use transfer::Overwriting;

/// The README's example, compiled and run with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
