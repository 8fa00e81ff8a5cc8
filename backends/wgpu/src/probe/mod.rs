//! The adapters of this machine, and what is known of a device before it is used.

mod adapters;
mod facts;
#[cfg_attr(
    not(all(feature = "vulkan", not(target_vendor = "apple"), not(target_family = "wasm"))),
    path = "no_heap.rs"
)]
mod heap;

pub(crate) use adapters::adapters;
pub(crate) use facts::{TOTAL_BYTES, WORD, caps};
pub(crate) use heap::device_bytes;
