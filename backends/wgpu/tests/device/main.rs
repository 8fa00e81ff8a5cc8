//! The wgpu device, on the one that this machine has.
//!
//! Without a device the tests print a line and pass, unless `MILLPOND_REQUIRE` names `wgpu`.

#![allow(unsafe_code)] // Calls the contract's unsafe methods, and into Vulkan.

#[path = "../common/mod.rs"]
mod common;

mod binding;
mod dropped;
mod gate;
mod later;
mod memory;
mod opening;
mod streams;
mod textures;
mod transfer;
mod vulkan_segments;
