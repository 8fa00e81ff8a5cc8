//! The Vulkan device, on the first one that this machine has, checked by the validation layer: every test also asserts
//! that the layer reported no error and no warning until the device was destroyed.
//!
//! Without a device the tests print a line and pass, unless `MILLPOND_REQUIRE` names `vulkan`. It may also name what a
//! device can do, so that no test is skipped for lack of it: `sparse`, `budget`, `dma_buf`, and `exports`, which is for
//! opaque file descriptors. `validation` is the layer.

#![allow(unsafe_code)] // Calls into Vulkan, and the contract's unsafe methods.

mod adopted;
mod dropped;
#[cfg(unix)]
mod exports;
mod images;
mod input;
mod lab;
mod later;
mod leaving;
mod locks;
mod memory;
mod order;
mod pages;
mod recorded;
mod recorder;
mod short;
mod time;
mod to_host;
mod transfers;
