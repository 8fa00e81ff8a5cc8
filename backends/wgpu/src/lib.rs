//! wgpu for Millpond.
//!
//! [`Wgpu`] implements the backend contract on any device of wgpu 30. It opens one by itself ([`Wgpu::open`],
//! [`Wgpu::builder`]) or stands on one that an application has ([`Wgpu::adopt`]).
//!
//! # Positions
//!
//! - **A segment is a buffer**, and a block is a range of it: [`Segment::binding`] makes it ready for a bind group.
//! - **Streams are logical.** wgpu has one queue per device. A stream is a row of command encoders, one open at a time;
//!   a tick is one submission.
//! - **Everything is recorded.** Transfers go into the stream's encoder like any command, and run in its order.
//! - **wgpu alone says what is done.** A semaphore may say when to ask.
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
