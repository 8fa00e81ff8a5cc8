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

#![allow(unsafe_code)] // The contract's unsafe trait and methods, and the Vulkan device under wgpu (`vulkan.rs`).

mod builder;
mod completion;
mod device;
mod error;
mod fault;
mod lane;
#[cfg_attr(
    not(all(feature = "vulkan-segments", not(target_vendor = "apple"), not(target_family = "wasm"))),
    path = "no_memory.rs"
)]
mod memory;
#[cfg(all(feature = "vulkan-segments", not(target_vendor = "apple"), not(target_family = "wasm")))]
mod opening;
mod pattern;
mod record;
mod scope;
mod segment;
mod transfer;
#[cfg_attr(
    not(all(feature = "vulkan", not(target_vendor = "apple"), not(target_family = "wasm"))),
    path = "no_vulkan.rs"
)]
mod vulkan;

#[cfg(test)]
extern crate self as millpond_wgpu;

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

pub use builder::WgpuBuilder;
pub use device::{EXCLUSIVE, Wgpu};
pub use error::WgpuError;
pub use memory::Page;
pub use millpond_backend as backend;
pub use segment::Segment;
pub use wgpu;

/// The README's examples, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
