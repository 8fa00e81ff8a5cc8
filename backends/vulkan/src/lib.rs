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
//!
//! # Rooms
//!
//! A room names only the rooms above it in this table, and each has the state that it needs.
//!
//! | room | what it has |
//! |---|---|
//! | `error` | [`VulkanError`] |
//! | `probe` | the physical devices: their properties and features |
//! | `open` | the builder, instances and queues, and the opened device, through which all rooms call the driver |
//! | `streams` | the lanes: per stream the clock, the command buffers and the staging ring |
//! | `time` | submits, those of engines too, and what is done |
//! | `memory` | classes, and segments, each a buffer with memory of its own |
//! | `pages` | ranges, pages and their binds |
//! | `transfer` | fills, copies, uploads, downloads, and other recording |
//! | `budget` | the driver's report on how much memory is left |
//! | `device` | [`Vulkan`], which composes the rooms and implements the contract |

#![allow(unsafe_code)] // Every call into Vulkan.

mod budget;
mod device;
mod error;
mod memory;
mod open;
mod pages;
mod probe;
mod streams;
mod time;
mod transfer;

pub use ash;
pub use budget::HeapBudget;
pub use device::Vulkan;
pub use error::VulkanError;
#[cfg(unix)]
pub use memory::ExportedMemory;
pub use memory::{Segment, SegmentMemory};
#[cfg(feature = "testing")]
pub use millpond_kit::testing::Planned;
pub use millpond_kit::{Misuse, Named, Remedy, Role};
pub use open::{Adopted, AdoptedQueue, EnabledFeatures, QueueChoice, QueueLock, ValidationLog, VulkanBuilder};
pub use pages::Page;
pub use probe::{DeviceInfo, ExportKind, FamilyInfo, HeapInfo};
pub use streams::Timeline;
pub use time::{PendingSubmit, SemaphoreAt, Submission};

/// The README's example, compiled with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
