//! What the examples share; the examples themselves are the numbered files beside this folder, see the README.
//!
//! [`engine`] is a small compute engine whose tensors live in Millpond, on several devices. [`loader`] brings batches
//! to the device ahead of the work on them. [`present`] looks for a device and says so where there is none.
//! [`cuda_kernel`] compiles a kernel for CUDA and launches it. [`vulkan_setup`] is a Vulkan device of an engine's own,
//! and [`vulkan_memory`] the memory of an engine that binds its own images, as [`vulkan_picture`] does.
//! `vulkan_to_cuda` has CUDA use memory of Vulkan.

pub mod cuda_kernel;
pub mod cuda_slices;
pub mod engine;
pub mod loader;
pub mod present;
pub mod training;
pub mod vulkan_memory;
pub mod vulkan_picture;
pub mod vulkan_setup;
#[cfg(unix)]
pub mod vulkan_to_cuda;

/// The top README's own example, tested with the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
