//! Vulkan for Millpond.
//!
//! [`Vulkan`] implements the backend contract on any device with Vulkan 1.2, timeline semaphores and synchronization2.
//! It opens a device ([`Vulkan::open`], [`Vulkan::builder`]), or adopts one that an engine has made
//! ([`Vulkan::adopt`]).
//!
//! # Positions
//!
//! - **A tick is a value of a timeline semaphore**, closed by a submit. Each stream has a semaphore of its own, or the
//!   engine's; several streams may share a queue.
//! - **A segment is one buffer with memory of its own.** Blocks are offsets into it. It is shared by all queue families
//!   that the device was opened with, so that queue ownership is never transferred.
//! - **Order on a stream is made by barriers.** Submission order alone is no dependency in Vulkan. Everything that goes
//!   through the device begins with a full barrier, which makes reuse in order safe. Engines that submit without the
//!   device place barriers of their own ([`Vulkan::reuse_barrier`]).
//! - **Work that was never submitted is never waited for**, on the host or on a queue.

#![allow(unsafe_code)] // Every call into Vulkan.

mod adopt;
mod assemble;
mod binds;
mod budget;
mod builder;
mod classes;
mod descriptor;
mod device;
mod devices;
mod error;
mod external;
mod fault;
mod gate;
mod instance;
mod lane;
mod notes;
mod pages;
mod probe;
mod queue;
mod record;
mod segment;
mod staging;
mod streams;
mod submit;
mod sync2;
mod timeline;
mod transfer;
mod validation;

pub use adopt::{Adopted, AdoptedQueue};
pub use ash;
pub use assemble::EnabledFeatures;
pub use budget::HeapBudget;
pub use builder::VulkanBuilder;
pub use device::Vulkan;
pub use devices::{DeviceInfo, FamilyInfo, HeapInfo};
pub use error::VulkanError;
pub use external::PendingSubmit;
pub use pages::Page;
pub use queue::{QueueChoice, QueueLock};
pub use segment::Segment;
pub use streams::Timeline;
pub use submit::{SemaphoreAt, Submission};
pub use validation::ValidationLog;

/// The README's example, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
