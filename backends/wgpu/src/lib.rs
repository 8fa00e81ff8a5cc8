//! wgpu for Millpond.
//!
//! [`Wgpu`] implements the backend contract on any device of wgpu 30. It opens a device ([`Wgpu::open`],
//! [`Wgpu::builder`]), or adopts one of an application ([`Wgpu::adopt`]).
//!
//! # Positions
//!
//! - **A segment is a buffer**, and a block is a range of it: [`Segment::binding`] returns it for a bind group.
//! - **Streams are logical.** wgpu has one queue per device. A stream is a sequence of command encoders, one open at a
//!   time; a tick is one submission.
//! - **Everything is recorded.** Transfers go into the stream's encoder like any command, and run in its order.
//! - **Only wgpu decides what is done.** A semaphore may show when to poll it.
//! - **Errors are values.** Each call of wgpu that may fail runs in error scopes of its own.
//!
//! # Rooms
//!
//! A room names only the rooms above it in this table, and each has the state that it needs.
//!
//! | room | what it has |
//! |---|---|
//! | `error` | [`WgpuError`] |
//! | `probe` | the adapters, and what is known of a device before it is used |
//! | `open` | the builder, the opened device with its error scopes, and the Vulkan backend under it |
//! | `streams` | the lanes: per stream the clock and the open encoder |
//! | `time` | submits, and what is done: by polls, by callbacks, and by a semaphore that shows when to poll |
//! | `memory` | segments, each a buffer |
//! | `transfer` | fills, copies, uploads and downloads |
//! | `device` | [`Wgpu`], which composes the rooms and implements the contract |
//!
//! Two rooms that other backends have are not here:
//!
//! - `pages`: wgpu has no virtual memory. Where segments come from the Vulkan backend, the pages are those of that
//!   backend, and `device` passes the calls on to it.
//! - `budget`: wgpu does not report how much memory is left. Where segments come from the Vulkan backend, `device` asks
//!   that backend.

#![allow(unsafe_code)] // The contract's unsafe trait and methods, and the Vulkan device under wgpu.

mod device;
mod error;
mod memory;
mod open;
mod probe;
mod streams;
mod time;
mod transfer;

#[cfg(test)]
extern crate self as millpond_wgpu;

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

pub use device::Wgpu;
pub use error::WgpuError;
pub use memory::{EXCLUSIVE, Segment};
pub use millpond_backend as backend;
#[cfg(feature = "testing")]
pub use millpond_kit::testing::Planned;
pub use millpond_kit::{Misuse, Named, Remedy, Role};
pub use open::{Page, WgpuBuilder};
pub use wgpu;

/// The README's examples, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
